"""Finds networks that were not trained enough for their errors to decide a claim.

A network decides only if

- its training saw as many samples as its learning curve takes to come near its plateau: the better of the
  curve's last two points, in validation error (1 - tau where the metric is a correlation). Near is what the
  papers call no difference between errors of the task (`claims.claim.margins`), so that more training would
  change the error by less than a difference that counts; where they name none, `SETTLED` of the error. Where
  the curve's last point still lowers the error by more than that, no plateau was seen. A network without a
  curve of its own is held against that of `learned`, on its own split where there is one. Without any curve
  of the task nobody knows what more training would bring;
- its errors are finite, and it chooses better than at random, or, where it predicts runtimes, is off by less
  than 100%, which predicting no time at all is.

Others say "not trained enough" in tables, and why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from costbench.datasets.splits import reported_split
from costbench.experiments.grid.cells import Cell as GridCell
from costbench.experiments.grid.cells import listed_as
from costbench.metrics.rows import MAIN
from costbench.reports.claims.claim import ANY, Claim, Side, margins
from costbench.reports.results import ALL, GAINS, Results
from costbench.reports.tables.learning_curves import Curves, is_curve, is_rate
from costbench.reports.training_runs import Budget, rises
from costbench.tasks import LEARNED

MAIN_NETWORK = "learned"
"""Network that those without a learning curve of their own are held against."""
CURVE_OF = {"none-lstm": "lstm", "gst-listmle": MAIN_NETWORK}
"""Variants whose learning curve has another name."""
_RANDOM = "random"
_GUIDES = {"model and hardware": "learned", "hybrid and hardware": "hybrid"}
"""Searches that a network guides, by their names in rows."""
_NO_TIME_AT_ALL = 100.0
"""Error in percent of a model that predicts no time for every kernel."""
SETTLED = 0.02
"""Share by which the validation value of a model at its plateau changes when its budget doubles, at most."""
NetworkKey = tuple[str, Side]
"""A network as result rows list it: its task, and model, variant, split and chip."""


@dataclass(frozen=True)
class ModelBudget:
    """What a model was given, the mean of its runs (folds and seeds).

    Attributes:
        steps: number of training steps of a network; 0 for trees.
        kernels: number of kernels that trees were fitted to; 0 for networks.
        trees: number of trees; 0 for networks.
        core_seconds: processor time of a run; None where nobody measured it.
    """

    steps: int = 0
    kernels: int = 0
    trees: int = 0
    core_seconds: float | None = None


@dataclass(frozen=True)
class TrainingGuard:
    """Networks that decide nothing, and what models were given.

    Attributes:
        reasons: why a network was not trained enough; those that were are left out.
        steps: number of steps that would be enough, where that is known.
        trained: number of steps that each network was trained for, the fewest of its seeds and folds.
        given: what models were given, boosted trees among them, where more is known than the steps.
        settled: whether a model's validation value changed by less than `SETTLED` when its budget was last
            doubled, of models whose budget was.
    """

    reasons: Mapping[NetworkKey, str] = field(default_factory=dict)
    steps: Mapping[NetworkKey, int] = field(default_factory=dict)
    trained: Mapping[NetworkKey, int] = field(default_factory=dict)
    given: Mapping[NetworkKey, ModelBudget] = field(default_factory=dict)
    settled: Mapping[NetworkKey, bool] = field(default_factory=dict)

    def budget_of(self, task: str, side: Side) -> ModelBudget | None:
        """Returns what the model of a side was given; None where that is not known."""
        key = task, Side(side.model, side.variant, side.split, side.chip)
        known = ModelBudget(steps=self.trained[key]) if key in self.trained else None
        return self.given.get(key, known)

    def at_plateau(self, task: str, side: Side) -> bool | None:
        """Returns whether more training would not change the model of a side; None where nobody tried."""
        return self.settled.get((task, Side(side.model, side.variant, side.split, side.chip)))

    def networks_of(self, task: str, side: Side) -> tuple[NetworkKey, ...]:
        """Returns the networks behind a side: itself, those of all splits, or what guides a search.

        Programs that gain most are of several splits, and a search on one has the network of its split.

        Args:
            task: task of the side.
            side: side of a claim; the variant of a search is what it might spend.
        """
        model = _GUIDES.get(side.model, side.model)
        exact = Side(model, side.variant, side.split, side.chip)
        for network in (exact, replace(exact, variant=MAIN)):
            keys = tuple(
                key
                for key in {**self.trained, **self.reasons}
                if key[0] == task and replace(key[1], split=exact.split) == network
                if side.split in (ANY, GAINS, key[1].split)
            )
            if keys:
                return keys
        return ()


def guard_training(
    results: Results, budgets: Sequence[Budget], curves: Sequence[Curves], claims: Sequence[Claim]
) -> TrainingGuard:
    """Returns the networks that were not trained enough, and the steps that would be.

    Args:
        results: results of all variants.
        budgets: budgets of the training runs; a network of unknown budget is not judged.
        curves: learning curves, of which the first of a task counts.
        claims: claims of the papers, the source of what is near.
    """
    shares = {
        task: margin.size
        for (task, unit), margin in margins(tuple(claims)).items()
        if unit == "points" and margin.relative
    }
    enough: dict[tuple[str, str, str], float] = {}
    for of_task in reversed(curves):
        for network in of_task.networks:
            samples = enough_samples(of_task, network, shares.get(of_task.task, SETTLED))
            if samples is not None:
                enough[of_task.task, network, of_task.split] = enough[of_task.task, network, ANY] = samples
    reasons, steps, trained = {}, {}, {}
    for key, (samples, of_step) in _fewest_samples(budgets).items():
        task, side = key
        trained[key] = samples // of_step
        names = (CURVE_OF.get(side.variant, side.variant), side.model, MAIN_NETWORK)
        curves_of = ((task, name, split) for split in (side.split, ANY) for name in names)
        needed = next((enough[key] for key in curves_of if key in enough), None)
        if needed is None:
            reasons[key] = "there is no learning curve"
        elif math.isinf(needed):
            reasons[key] = "its learning curve has not come near a plateau"
        elif samples < needed:
            reasons[key] = (
                f"saw {samples / needed:.0%} of the samples with which its curve comes near its plateau"
            )
            steps[key] = math.ceil(needed / of_step)
        failure = _failure(results, task, side)
        if failure:
            reasons[key] = failure
    return TrainingGuard(reasons, steps, trained)


def enough_samples(curves: Curves, network: str, share: float) -> float | None:
    """Returns the samples of the first point of a learning curve that is near its plateau.

    Args:
        curves: learning curves of a task, split and chip.
        network: name of one of its networks.
        share: share of the plateau's validation error that counts as near.

    Returns:
        the samples; infinity where the last point's error is lower than that of the point before it by more
        than the share, None where the curve has fewer than two points.
    """
    points = curves.networks[network]
    errors = 1.0 - points["validation"] if rises(curves.column) else points["validation"]
    if len(points) < 2:
        return None
    limit = (1.0 + share) * errors.iloc[-2:].min()
    if share and errors.iloc[-2] > limit:
        return math.inf
    return int(points["steps"][errors <= limit].iloc[0]) * curves.samples


def is_settled(values: Sequence[float]) -> bool:
    """Returns whether the last doubling of a budget changed the validation value by less than `SETTLED`.

    Args:
        values: validation value after each budget, the least budget first.
    """
    return len(values) > 1 and abs(values[-1] - values[-2]) < SETTLED * abs(values[-2])


def _failure(results: Results, task: str, side: Side) -> str:
    """Returns how a network fails on its test programs: errors that are not finite, or those of no model."""
    cell = results.cell(task, side.split, side.chip, side.variant)
    if cell is None or side.model not in cell.seeds:
        return ""
    measure = cell.described.measures[0]
    errors = cell.over_programs(side.model, measure.metric)
    if not all(map(math.isfinite, errors)):
        return "errors that are not finite"
    error = measure.mean(errors)
    if LEARNED[task].ranks_decisions:
        main = results.cell(task, side.split, side.chip)
        known = main is not None and _RANDOM in main.seeds
        blind = measure.mean(main.over_programs(_RANDOM, measure.metric)) if main and known else None
        no_better = "chooses no better than at random"
    else:
        blind, no_better = _NO_TIME_AT_ALL, "off by 100% or more"
    if error is None or blind is None:
        return ""
    return no_better if (error >= blind if measure.better == "lower" else error <= blind) else ""


def network_of(budget: Budget) -> NetworkKey:
    """Returns the network of a training run, as result rows list it."""
    cell = GridCell(budget.task, budget.split, budget.chip, budget.variant, budget.seed)
    side = Side(*listed_as(cell, budget.chip), reported_split(budget.split), budget.chip, ALL)
    return budget.task, side


def _fewest_samples(budgets: Sequence[Budget]) -> Mapping[NetworkKey, tuple[int, int]]:
    """Returns the samples that each network saw, the fewest of its seeds and folds, and those of a step.

    Points of learning curves and of learning rates are not judged: they are what others are judged by.
    """
    samples: dict[NetworkKey, tuple[int, int]] = {}
    for budget in budgets:
        if is_curve(budget.variant) or is_rate(budget.variant) or not budget.steps:
            continue
        key = network_of(budget)
        seen = (budget.samples, budget.samples // budget.steps)
        samples[key] = min(samples.get(key, seen), seen)
    return samples
