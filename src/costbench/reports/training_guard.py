"""Finds networks that were not trained enough for their errors to say anything about the network.

A variant that saw fewer samples than the main network of the same task, split and chip, and whose error is
more than 1.25 times the main network's, is not trained enough. It may be worse because of what makes it a
variant; with less training that is not separable from what longer training would have gained, so such a
variant says "not trained enough" in tables and decides no claim. One that saw as many samples as the main
network is judged by its results, however bad, and so is one that is nearly as good with fewer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from costbench.datasets.splits import reported_split
from costbench.experiments.grid.cells import Cell as GridCell
from costbench.experiments.grid.cells import listed_as
from costbench.metrics.rows import MAIN
from costbench.reports.claims.claim import Side
from costbench.reports.results import Results, common_scores
from costbench.reports.training_runs import Budget

MAX_RATIO = 1.25
"""Most that the error of a network with less training may be, over that of the main one."""
_MAIN_NETWORK = "learned"
NetworkKey = tuple[str, Side]
"""A network as result rows list it: its task, and model, variant, split and chip."""


def undertrained(results: Results, budgets: Sequence[Budget]) -> dict[NetworkKey, float]:
    """Returns the networks that were not trained enough, with their error over that of the main network.

    Errors are geometric means over the test programs that both networks were tested on, seeds averaged.

    Args:
        results: results of all variants.
        budgets: budgets of the training runs; a network of unknown budget is taken to be trained enough.
    """
    samples = _fewest_samples(budgets)
    ratios = {}
    for (task, side), seen in samples.items():
        main = _main_network(side)
        ratio = _error_ratio(results, task, side, main)
        if seen < samples.get((task, main), 0) and ratio is not None and ratio > MAX_RATIO:
            ratios[task, side] = ratio
    return ratios


def equal_steps(budgets: Sequence[Budget]) -> dict[NetworkKey, int]:
    """Returns in how many steps each network would see as many samples as the main one of its split and chip.

    Networks that saw as many, and splits and chips without a main network, are left out.

    Args:
        budgets: budgets of the training runs.
    """
    samples, steps = _fewest_samples(budgets), {}
    for budget in budgets:
        task, side = key = _network_of(budget)
        target = samples.get((task, _main_network(side)), 0)
        if 0 < samples[key] < target:
            steps[key] = math.ceil(target / (budget.samples / budget.steps))
    return steps


def _network_of(budget: Budget) -> NetworkKey:
    cell = GridCell(budget.task, budget.split, budget.chip, budget.variant, budget.seed)
    return budget.task, Side(*listed_as(cell, budget.chip), reported_split(budget.split), budget.chip)


def _main_network(side: Side) -> Side:
    """Returns the main network of the same split and chip."""
    return Side(_MAIN_NETWORK, MAIN, side.split, side.chip)


def _fewest_samples(budgets: Sequence[Budget]) -> Mapping[NetworkKey, int]:
    """Returns the samples that each network saw in training, the fewest of its seeds and folds."""
    samples: dict[NetworkKey, int] = {}
    for budget in budgets:
        key = _network_of(budget)
        samples[key] = min(samples.get(key, budget.samples), budget.samples)
    return samples


def _error_ratio(results: Results, task: str, side: Side, main: Side) -> float | None:
    cell, main_cell = (results.cell(task, s.split, s.chip, s.variant) for s in (side, main))
    if cell is None or main_cell is None:
        return None
    measure = cell.described.measures[0]
    error, main_error = map(
        measure.mean, common_scores(cell, side.model, main_cell, main.model, measure.metric)
    )
    return error / main_error if error is not None and main_error else None
