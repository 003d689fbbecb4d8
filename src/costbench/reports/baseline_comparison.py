"""How every model of a cell stands to the strongest baseline, with intervals over programs and seeds.

All numbers are of the error of the task's main table (Tile-Size APE; MAPE of kernels from 5 us). A 95%
interval is that of `metrics.intervals`, of 10,000 resamples of test programs and training seeds, the same
draws for all models (`metrics.intervals.CrossedDraws`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from costbench.arrays import F64
from costbench.metrics.intervals import CONFIDENCE, CrossedDraws, small_sample_interval
from costbench.metrics.measures import Measure
from costbench.metrics.rows import MAIN
from costbench.reports.claims.claim import Side
from costbench.reports.results import BASELINES, Cell, Results, described
from costbench.reports.scores import (
    MIN_PROGRAMS,
    STATISTICS,
    Resample,
    ScoreIndex,
    Scores,
    matched,
    num_runs,
    redrawn,
    scores_of,
    share_won,
)
from costbench.rng import stream


@dataclass(frozen=True)
class Estimate:
    """A number and its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """-1 if the whole interval lies below zero, +1 if above, 0 where that cannot be told."""
        return -1 if self.high < 0.0 else 1 if self.low > 0.0 else 0


@dataclass(frozen=True)
class Standing:
    """One model of a cell.

    Attributes:
        model: as in rows.
        error: geometric mean of the error over its programs, in percent.
        tau: mean of Kendall's tau; None without one.
        programs: that it was tested on.
        seeds: of its training runs.
        won: share of the programs on which its error is below that of the strongest baseline, ties counting
            half; None for that baseline itself.
        difference: its error less that of the strongest baseline, in points, over the programs of both.
        compared: how many programs these are.
    """

    model: str
    error: Estimate
    tau: float | None
    programs: int
    seeds: int
    won: float | None = None
    difference: Estimate | None = None
    compared: int = 0

    @property
    def sign(self) -> int:
        """-1 if better than the strongest baseline, +1 if worse, 0 where that cannot be told.

        With fewer than `MIN_PROGRAMS` programs it never can.
        """
        if self.difference is None or self.compared < MIN_PROGRAMS:
            return 0
        return self.difference.sign


@dataclass(frozen=True)
class Standings:
    """All models of a cell, the least error first, and the name of the strongest baseline."""

    strongest: str | None
    models: tuple[Standing, ...]

    def of(self, model: str) -> Standing | None:
        """Returns the standing of a model, or None without results."""
        return next((one for one in self.models if one.model == model), None)


def standings(results: Results, cell: Cell, seed: int) -> Standings:
    """Returns how the models of a cell stand to its strongest baseline.

    Args:
        results: that the cell is of, with the numbers of each seed.
        cell: main results of a task, split and chip.
        seed: of the bootstrap; a cell has a random stream of its own.
    """
    metric = cell.described.measures[0].metric
    sides = {model: Side(model, MAIN, cell.split, cell.chip) for model in cell.models}
    found = {model: scores_of(results.scores, cell.task, metric, side) for model, side in sides.items()}
    found = {model: scores for model, scores in found.items() if scores.programs}
    anywhere = Side(split=cell.split, chip=cell.chip)
    strongest = strongest_baseline(results.scores, cell.task, metric, anywhere)
    draws = CrossedDraws(stream(seed, "standings", cell.name))
    ranked = []
    for model, scores in found.items():
        against = found.get(strongest) if strongest is not None and model != strongest else None
        ranked.append(_standing(cell, model, scores, against, draws))
    return Standings(strongest, tuple(sorted(ranked, key=lambda one: one.error.value)))


def _standing(
    cell: Cell, model: str, scores: Scores, against: Scores | None, draws: CrossedDraws
) -> Standing:
    tau = cell.described.measures[1]
    own = Standing(
        model=model,
        error=mean_error(scores, draws),
        tau=tau.mean(cell.over_programs(model, tau.metric)),
        programs=len(scores.programs),
        seeds=len(scores.seeds),
    )
    if against is None:
        return own
    mine, other = matched({Side("model"): scores, Side("baseline"): against}).values()
    if not mine.programs:
        return own
    return Standing(
        model,
        own.error,
        own.tau,
        own.programs,
        own.seeds,
        won=float(share_won(mine.means, other.means, -1.0)[0]),
        difference=difference(mine, other, draws, "geometric_mean"),
        compared=len(mine.programs),
    )


def mean_error(scores: Scores, draws: CrossedDraws) -> Estimate:
    """Returns the geometric mean of an error over programs; its interval ends at 0, as errors do."""
    mean = STATISTICS["geometric_mean"]
    found = _estimate(lambda resample: mean(resample(scores)), (scores,), draws)
    return Estimate(found.value, max(0.0, found.low), found.high)


def difference(left: Scores, right: Scores, draws: CrossedDraws, statistic: str) -> Estimate:
    """Returns a statistic of the left side over programs less that of the right one, over the same programs.

    Args:
        left: of one side.
        right: of the other, over the same programs.
        draws: shared by all comparisons of a table.
        statistic: key of `STATISTICS`.
    """
    of = STATISTICS[statistic]
    return _estimate(lambda resample: of(resample(left)) - of(resample(right)), (left, right), draws)


def _estimate(effect: Callable[[Resample], F64], sides: tuple[Scores, ...], draws: CrossedDraws) -> Estimate:
    n = min(len(own.programs) for own in sides)
    drawn = redrawn(lambda resample: effect(resample)[np.newaxis], draws, n, num_runs(sides))
    found, tail = small_sample_interval(drawn(0)), (1.0 - CONFIDENCE) / 2.0
    return Estimate(found.estimate, found.low(tail), found.high(tail))


STRONGEST = "strongest"
"""In place of a model: the strongest baseline."""


def strongest_baseline(index: ScoreIndex, task: str, metric: str, side: Side) -> str | None:
    """Returns the baseline of a split and chip with the best mean, or None where no baseline was evaluated.

    Means are over the test programs that all baselines have values for (seeds averaged): geometric for an
    error, of which the least is best, and arithmetic for a correlation, of which the greatest is. Of equals
    the first of `BASELINES` is taken.

    Args:
        index: the results.
        task: the compiler's decision.
        metric: of the comparison.
        side: where; its model and variant do not matter.
    """
    found = {
        model: scores
        for model in BASELINES
        if (scores := scores_of(index, task, metric, Side(model, split=side.split, chip=side.chip))).programs
    }
    if not found:
        return None
    shared = reduce(set.intersection, (set(scores.programs) for scores in found.values()))
    if not shared:
        return None
    programs = tuple(sorted(shared))
    rises = measure_of(task, metric, side.split).better == "higher"
    statistic = STATISTICS["mean" if rises else "geometric_mean"]
    means = {model: float(statistic(scores.over(programs).means)[0]) for model, scores in found.items()}
    best = np.argmax(list(means.values())) if rises else np.argmin(list(means.values()))
    return list(means)[int(best)]


def measure_of(task: str, metric: str, split: str = "") -> Measure:
    """Returns the description of a metric of a learned task, on a split."""
    return next(measure for measure in described(task, split).known_measures if measure.metric == metric)
