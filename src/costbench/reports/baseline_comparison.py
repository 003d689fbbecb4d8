"""How every model of a cell stands to the strongest baseline, with intervals over programs and seeds.

The strongest baseline is, of the models without a network, the one that is best on the test programs. All
numbers are of the error of the task's main table (Tile-Size APE; MAPE of kernels from 5 us). A 95% interval
is the wider of two of `metrics.intervals`: over test programs, and over applications, whose programs are
alike. Both draw training seeds as well, the same draws for all models (`CrossedDraws`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from costbench.arrays import F64
from costbench.metrics.intervals import (
    CONFIDENCE,
    CrossedDraws,
    Interval,
    WiderInterval,
    small_sample_interval,
)
from costbench.reports.claims.claim import Side
from costbench.reports.results import BASELINES, Cell, Results, described, title_of
from costbench.reports.scores import (
    MIN_PROGRAMS,
    STATISTICS,
    Draws,
    Resample,
    ScoreIndex,
    Scores,
    count_runs,
    make_draws,
    resample_effects,
    scores_of,
    share_programs,
    share_won,
)


@dataclass(frozen=True)
class Estimate:
    """A number and its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """-1 if the whole interval lies below zero, +1 if above, 0 where it is undecided."""
        return -1 if self.high < 0.0 else 1 if self.low > 0.0 else 0


@dataclass(frozen=True)
class Standing:
    """One model of a cell.

    Attributes:
        model: name of the model, as in rows.
        error: geometric mean of the error over its programs, in percent.
        tau: mean of Kendall's tau; None without one.
        programs: number of programs that it was tested on.
        seeds: number of its training runs.
        won: share of the programs on which its error is below that of the strongest baseline, ties counting
            half; None for that baseline itself.
        difference: error less that of the strongest baseline, in points, over the programs of both.
        compared: number of programs of both.
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
        """-1 if better than the strongest baseline, +1 if worse, 0 where it is undecided.

        With fewer than `MIN_PROGRAMS` programs it never can.
        """
        if self.difference is None or self.compared < MIN_PROGRAMS:
            return 0
        return self.difference.sign

    @property
    def row(self) -> dict[str, object]:
        """Returns its numbers by the keys of tables; the share of programs won in percent."""
        ends = {"difference": "value", "difference_low": "low", "difference_high": "high"}
        row = asdict(self) | asdict(self.error) | {"model": title_of(self.model), "error": self.error.value}
        row["won"] = None if self.won is None else 100.0 * self.won
        return row | {key: getattr(self.difference, name, None) for key, name in ends.items()}


@dataclass(frozen=True)
class Standings:
    """All models of a cell, the least error first, and the name of the strongest baseline."""

    strongest: str | None
    models: tuple[Standing, ...]

    def of(self, model: str) -> Standing | None:
        """Returns the standing of a model, or None without results."""
        return next((standing for standing in self.models if standing.model == model), None)


def rank_models(results: Results, cell: Cell, seed: int) -> Standings:
    """Returns how the models of a cell stand to its strongest baseline.

    Args:
        results: results that the cell is of, with the numbers of each seed.
        cell: results of a task, split and chip, of any variant; the baseline is one of the main results.
        seed: seed of the bootstrap; a cell has a random stream of its own.
    """
    error = cell.described.measures[0]
    where = Side(split=cell.split, chip=cell.chip)
    strongest = strongest_baseline(results.scores, cell.task, error.metric, where)
    baseline = replace(where, model=strongest or "")
    of_baseline = scores_of(results.scores, cell.task, error.metric, baseline)
    draws = make_draws(results.scores.applications, seed, "standings", cell.name)
    standings = []
    for model in cell.models:
        side = replace(where, model=model, variant=cell.variant)
        of_model = scores_of(results.scores, cell.task, error.metric, side)
        if not of_model.programs:
            continue
        standing = Standing(
            model=model,
            error=estimate_error(of_model, draws, "geometric_mean"),
            tau=cell.means(model)[1],
            programs=len(of_model.programs),
            seeds=len(of_model.seeds),
        )
        if of_baseline.programs and side != baseline:
            shared = share_programs({side: of_model, baseline: of_baseline})
            left, right = shared[side], shared[baseline]
            if left.programs:
                standing = replace(
                    standing,
                    won=float(share_won(left.means, right.means, -1.0)[0]),
                    difference=estimate_difference(left, right, draws, "geometric_mean"),
                    compared=len(left.programs),
                )
        standings.append(standing)
    return Standings(strongest, tuple(sorted(standings, key=lambda standing: standing.error.value)))


def estimate_error(scores: Scores, draws: Draws, statistic: str) -> Estimate:
    """Returns a statistic of an error over programs; its interval ends at 0, as errors do."""
    of_error = estimate(lambda resample: STATISTICS[statistic](resample(scores)), (scores,), draws)
    return replace(of_error, low=max(0.0, of_error.low))


def estimate_difference(left: Scores, right: Scores, draws: Draws, statistic: str) -> Estimate:
    """Returns a statistic of the left side over programs less that of the right one, over the same programs.

    Args:
        left: scores of the left side.
        right: scores of the right side, over the same programs.
        draws: draws shared by all comparisons of a table.
        statistic: key of `STATISTICS`.
    """
    of = STATISTICS[statistic]
    return estimate(lambda resample: of(resample(left)) - of(resample(right)), (left, right), draws)


def estimate(effect: Callable[[Resample], F64], sides: Sequence[Scores], draws: Draws) -> Estimate:
    """Returns an effect with the wider of its 95% intervals over programs and over applications.

    Args:
        effect: function from a way to resample scores to the effect in each resample, [resamples].
        sides: scores that it is of.
        draws: draws shared by all numbers of a table.
    """
    num_programs, runs = min(len(scores.programs) for scores in sides), count_runs(sides)

    def interval_of(crossed: CrossedDraws, num_drawn: int) -> Interval:
        (redrawn,) = resample_effects(lambda resample: effect(resample)[np.newaxis], crossed, num_drawn, runs)
        return small_sample_interval(redrawn)

    interval, tail = interval_of(draws.programs, num_programs), (1.0 - CONFIDENCE) / 2.0
    num_applications = draws.num_applications(sides)
    if num_applications:
        interval = WiderInterval(interval, interval_of(draws.applications, num_applications))
    return Estimate(interval.estimate, interval.low(tail), interval.high(tail))


def strongest_baseline(index: ScoreIndex, task: str, metric: str, side: Side) -> str | None:
    """Returns the baseline of a split and chip with the best mean, or None where no baseline was evaluated.

    It is chosen on the very programs that the comparison is made on, which favours the baseline: of several
    that are equally good, the luckiest is taken, so that a lead over it is no smaller than it seems. The
    choice is made once, on all programs, and not again in each resample.

    Means are over the test programs that all baselines have values for (seeds averaged): geometric for an
    error, of which the least is best, and arithmetic for a correlation, of which the greatest is. Of equals
    the first of `BASELINES` is taken.

    Args:
        index: results of all models.
        task: compiler's decision.
        metric: metric of the comparison.
        side: split and chip; its model and variant do not matter.
    """
    sides = [Side(model, split=side.split, chip=side.chip) for model in BASELINES]
    scores = {baseline: scores_of(index, task, metric, baseline) for baseline in sides}
    shared = share_programs({side: of_side for side, of_side in scores.items() if of_side.programs})
    if not any(of_side.programs for of_side in shared.values()):
        return None
    measures = described(task, side.split).known_measures
    rises = next(measure for measure in measures if measure.metric == metric).better == "higher"
    statistic = STATISTICS["mean" if rises else "geometric_mean"]
    means = {baseline.model: float(statistic(of_side.means)[0]) for baseline, of_side in shared.items()}
    return (max if rises else min)(means, key=lambda model: means[model])
