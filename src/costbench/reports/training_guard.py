"""Finds networks that were not trained enough for their errors to say anything about the network.

A variant that saw fewer samples than the main network of the same task, split and chip, and whose error is
more than 1.25 times the main network's, is not trained enough. It may be worse because of what makes it a
variant; with less training that cannot be told from what longer training would have gained, so such a
variant says "not trained enough" in tables and decides no claim. One that saw as many samples as the main
network is judged by its results, however bad, and so is one that is nearly as good with fewer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from costbench.datasets.splits import listed_split
from costbench.experiments.grid.cells import Cell as GridCell
from costbench.experiments.grid.cells import listed_as
from costbench.metrics.rows import MAIN
from costbench.reports.claims.claim import Side
from costbench.reports.results import Results
from costbench.reports.training_runs import Budget

MAX_RATIO = 1.25
"""Of the error of a network to that of the main one, where it had less training."""
_MAIN_NETWORK = "learned"


def undertrained(results: Results, budgets: Sequence[Budget]) -> dict[tuple[str, Side], float]:
    """Returns the networks that were not trained enough, with their error over that of the main network.

    Errors are geometric means over the test programs that both networks were tested on, seeds averaged.

    Args:
        results: of all variants.
        budgets: of the training runs; a network of unknown budget is taken to be trained enough.
    """
    samples = _samples(budgets)
    found = {}
    for (task, side), seen in samples.items():
        main = Side(_MAIN_NETWORK, MAIN, side.split, side.chip)
        ratio = _ratio(results, task, side, main)
        if seen < samples.get((task, main), 0) and ratio is not None and ratio > MAX_RATIO:
            found[task, side] = ratio
    return found


def equal_steps(budgets: Sequence[Budget]) -> dict[tuple[str, Side], int]:
    """Returns in how many steps each network would see as many samples as the main one of its place.

    Networks that saw as many, and places without a main network, are left out.

    Args:
        budgets: of the training runs.
    """
    samples, found = _samples(budgets), {}
    for one in budgets:
        key = _listed(one)
        main = samples.get((one.task, Side(_MAIN_NETWORK, MAIN, key[1].split, key[1].chip)), 0)
        if 0 < samples[key] < main:
            found[key] = math.ceil(main / (one.samples / one.steps))
    return found


def _listed(one: Budget) -> tuple[str, Side]:
    cell = GridCell(one.task, one.split, one.chip, one.variant, one.seed)
    model, variant = listed_as(cell, one.chip)
    return one.task, Side(model, variant, listed_split(one.split), one.chip)


def _samples(budgets: Sequence[Budget]) -> Mapping[tuple[str, Side], int]:
    """Returns the samples that each network saw in training, the fewest of its seeds and folds."""
    samples: dict[tuple[str, Side], int] = {}
    for one in budgets:
        key = _listed(one)
        samples[key] = min(samples.get(key, one.samples), one.samples)
    return samples


def _ratio(results: Results, task: str, side: Side, main: Side) -> float | None:
    cells = [results.cell(task, one.split, one.chip, one.variant) for one in (side, main)]
    if cells[0] is None or cells[1] is None:
        return None
    measure = cells[0].described.measures[0]
    pairs = [
        (own, reference)
        for _, program in cells[0].programs
        if (own := cells[0].score(side.model, measure.metric, program)) is not None
        and (reference := cells[1].score(main.model, measure.metric, program)) is not None
    ]
    if not pairs:
        return None
    own_error, main_error = (measure.mean(values) for values in zip(*pairs, strict=True))
    return own_error / main_error if own_error is not None and main_error else None
