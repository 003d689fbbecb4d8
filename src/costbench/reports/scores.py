"""Scores of models seed by seed, as matrices over programs and seeds, for statistics and their intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from costbench.arrays import F64
from costbench.metrics.intervals import CrossedDraws, ResampledEffect, ResampledFactor
from costbench.metrics.measures import APE_FLOOR_PERCENT
from costbench.metrics.rows import PROGRAMS
from costbench.reports.claims.claim import ANY, Side
from costbench.reports.frame import stack
from costbench.rng import stream

MIN_APPLICATIONS = 3
"""With fewer, nothing is known of how applications differ."""
_APPLICATION_RESAMPLES = 2_000
"""An interval takes no more than a variance from them, which as many give to 2%."""
MIN_PROGRAMS = 6
"""With fewer, chance alone is too likely to favour one side on every program: 2 / 2^5 = 6%."""
MIN_INTERVAL = 3
"""Programs below which no interval is shown: how far two lie apart says nothing of a third."""


@dataclass(frozen=True)
class ScoreIndex:
    """Results by task, metric and side.

    Attributes:
        frame: rows over all kernels or a collection, and again those of all splits together.
        row_numbers: task, metric and side -> numbers of its rows in the frame.
        applications: program -> application that it belongs to.
    """

    frame: pd.DataFrame
    row_numbers: Mapping[tuple[str, str, Side], npt.NDArray[np.intp]]
    applications: Mapping[str, str]

    def __contains__(self, key: tuple[str, str, Side]) -> bool:
        return key in self.row_numbers

    @property
    def chips(self) -> tuple[str, ...]:
        """Returns the chips that there are results on, by name."""
        return tuple(sorted({side.chip for _, _, side in self.row_numbers}))


@dataclass(frozen=True)
class Scores:
    """Values of one side, [num_programs, num_seeds]."""

    programs: tuple[str, ...]
    seeds: tuple[int, ...]
    values: F64

    @property
    def runs(self) -> int:
        """Number of training runs."""
        return len(self.seeds)

    def first(self, runs: int) -> Scores:
        """Returns the scores of the first so many training runs."""
        return Scores(self.programs, self.seeds[:runs], np.ascontiguousarray(self.values[:, :runs]))

    def over(self, programs: tuple[str, ...]) -> Scores:
        """Returns the scores of these programs, in their order."""
        rows = [self.programs.index(program) for program in programs]
        return Scores(programs, self.seeds, self.values[rows])

    @property
    def means(self) -> F64:
        """Returns means over seeds as the only resample, [1, num_programs]."""
        means: F64 = self.values.mean(axis=1)[np.newaxis]
        return means

    def resampled(self, draws: CrossedDraws, factor: ResampledFactor = "both") -> F64:
        """Returns means over drawn seeds of drawn programs, [resamples, num_programs].

        Args:
            draws: draws shared by all that is compared.
            factor: `programs` or `seeds`, where only they are drawn.
        """
        return draws.resampled(self.values, self.programs, self.seeds, factor)


@dataclass(frozen=True)
class Draws:
    """Random draws that all sides of a comparison share.

    Attributes:
        programs: draws of programs one by one.
        applications: draws of whole applications.
    """

    programs: CrossedDraws
    applications: CrossedDraws

    def num_applications(self, sides: Iterable[Scores]) -> int:
        """Returns the number of applications of the side that has the fewest; 0 where they are too few."""
        num_applications = min(self.applications.num_drawn(scores.programs) for scores in sides)
        return num_applications if num_applications >= MIN_APPLICATIONS else 0


def applications_of(frame: pd.DataFrame) -> dict[str, str]:
    """Returns the application of each program of a frame of results."""
    return dict(frame.drop_duplicates("program").set_index("program")["application"].astype(str))


def make_draws(applications: Mapping[str, str], seed: int, *names: str, resamples: int = 10_000) -> Draws:
    """Returns draws for one comparison.

    Args:
        applications: application of each program.
        seed: seed of all random draws.
        names: name of the random stream.
        resamples: number of times that programs and seeds are drawn.
    """
    fewer = min(resamples, _APPLICATION_RESAMPLES)
    by_application = stream(seed, *names, "applications")
    return Draws(
        CrossedDraws(stream(seed, *names), resamples), CrossedDraws(by_application, fewer, applications)
    )


Resample = Callable[[Scores], F64]
"""Values of a side in each resample, [resamples, num_programs]."""


def score_index(frame: pd.DataFrame) -> ScoreIndex:
    """Returns the values over all kernels, a collection or whole programs, and those of all splits together.

    Args:
        frame: results of evaluation and searches (see `costbench.reports.frame`).
    """
    # Only the columns that are read: rows are taken hundreds of times, each text column at its own cost.
    frame = frame.loc[
        frame["group"].isin(["all", PROGRAMS]) | frame["group"].str.contains(":", regex=False),
        [*_GROUPED, *_READ, "application", "budget"],
    ]
    # What a search might spend is its variant for claims.
    frame = frame.assign(variant=frame["variant"].where(frame["budget"] == "", frame["budget"]))
    # A program may be in several splits, and has results with the models of each.
    pooled = frame.assign(program=frame["split"] + "/" + frame["program"], split=ANY)
    both = stack([frame, pooled])
    groups = both.groupby(_GROUPED).indices
    row_numbers = {}
    for key, rows in groups.items():
        task, metric, *side = map(str, key)  # type: ignore[call-overload]
        row_numbers[task, metric, Side(*side)] = np.asarray(rows)
    return ScoreIndex(both[_READ], row_numbers, applications_of(both))


_GROUPED = ["task", "metric", "model", "variant", "split", "chip", "group"]
_READ = ["program", "seed", "value"]


_NO_ROWS = np.empty(0, dtype=np.intp)


def scores_of(index: ScoreIndex, task: str, metric: str, side: Side) -> Scores:
    """Returns the values of a side as a matrix, without programs that lack a value for some seed.

    Task and metric of the side take precedence, where it has them.
    """
    rows = index.row_numbers.get((side.task or task, side.metric or metric, side.rows), _NO_ROWS)
    return score_matrix(index.frame.iloc[rows])


def score_matrix(results: pd.DataFrame) -> Scores:
    """Returns the values of results of one metric, without programs that lack a value for some seed.

    Of several values of a program and seed the last one counts.
    """
    if results.empty:
        return Scores((), (), np.empty((0, 0)))
    values = results.drop_duplicates(["program", "seed"], keep="last")
    matrix = values.pivot(index="program", columns="seed", values="value").sort_index()
    seeds, matrix = tuple(map(int, sorted(matrix.columns))), matrix.dropna()
    # In C's order: means over seeds depend on it in their last bit.
    numbers = np.ascontiguousarray(matrix[list(seeds)].to_numpy(dtype=np.float64))
    return Scores(tuple(map(str, matrix.index)), seeds, numbers)


def share_programs(scores: Mapping[Side, Scores]) -> dict[Side, Scores]:
    """Restricts the scores to programs that all sides of a split (and source of programs) share."""
    shared: dict[object, set[str]] = {}
    for side, of_side in scores.items():
        programs = set(of_side.programs)
        shared[side.programs] = shared.get(side.programs, programs) & programs
    # In the order of the sides, so that random draws depend on nothing else.
    return {side: of_side.over(tuple(sorted(shared[side.programs]))) for side, of_side in scores.items()}


def share_won(left: F64, right: F64, sign: float) -> F64:
    """Returns the share of programs on which the left side is ahead, ties counting half, [resamples].

    Args:
        left: values of the left side, [num_programs].
        right: values of the right side.
        sign: +1 where more is better, -1 where less is.
    """
    lead = sign * (left - right)
    won = (lead > 0.0) + 0.5 * (lead == 0.0)
    return mean_over_programs(np.where(np.isnan(lead), np.nan, won))


def resample_effects(
    effects: Callable[[Resample], F64], draws: CrossedDraws, num_programs: int, runs: int
) -> tuple[ResampledEffect, ...]:
    """Returns each of several effects with programs, with runs, and with both drawn again.

    Args:
        effects: function from a way to resample scores to the effects, [num_effects, resamples].
        draws: draws shared by all sides.
        num_programs: number of programs in a resample; the least, where several groups are drawn.
        runs: number of training runs in a resample, as `count_runs` has it.
    """
    estimates = effects(lambda scores: scores.means)

    def resample(factor: ResampledFactor) -> Resample:
        return lambda scores: scores.resampled(draws, factor)

    programs, seeds, both = (effects(resample(factor)) for factor in _FACTORS)
    return tuple(
        ResampledEffect(float(estimate[0]), of_programs, of_seeds, of_both, num_programs, runs)
        for estimate, of_programs, of_seeds, of_both in zip(estimates, programs, seeds, both, strict=True)
    )


_FACTORS: tuple[ResampledFactor, ...] = ("programs", "seeds", "both")


def count_runs(scores: Iterable[Scores]) -> int:
    """Returns the least number of training runs of a side that has several; 1 if none has.

    What has one run beside others that have several is not trained, and the same in each.
    """
    several = [of_side.runs for of_side in scores if of_side.runs > 1]
    return min(several, default=1)


def _over_programs(statistic: Callable[..., Any], without_gaps: Callable[..., Any]) -> Callable[[F64], F64]:
    """Returns a statistic over programs, [resamples, num_programs] -> [resamples].

    Args:
        statistic: function of NumPy that takes no account of NaN, which stands for no program.
        without_gaps: the same of values without NaN, which is faster.
    """

    def over_programs(values: F64) -> F64:
        over: F64 = (statistic if np.isnan(values).any() else without_gaps)(values, axis=1)
        return over

    return over_programs


mean_over_programs = _over_programs(np.nanmean, np.mean)


def geometric_mean(values: F64, floor: float = 0.0) -> F64:
    """Returns the geometric mean over programs, [resamples, num_programs] -> [resamples].

    Args:
        values: values, none below zero; NaN stands for no program.
        floor: what a value counts at the least.
    """
    with np.errstate(divide="ignore"):  # log(0) = -inf, of which the mean is 0
        return np.exp(mean_over_programs(np.log(np.maximum(values, floor))))


STATISTICS: Mapping[str, Callable[[F64], F64]] = {
    "geometric_mean": partial(geometric_mean, floor=APE_FLOOR_PERCENT),
    "mean": mean_over_programs,
    "median": _over_programs(np.nanmedian, np.median),
    "best": _over_programs(np.nanmax, np.max),
    # With n - 1: so the standard deviations of lpm2021's table 4 follow from the rows of its table 2.
    "standard_deviation": _over_programs(
        partial(np.nanstd, ddof=1),
        partial(np.std, ddof=1),
    ),
    # Of the means of training runs, [resamples, num_seeds].
    "seed_deviation": lambda values: values.std(axis=1, ddof=1),
}
"""Statistics over programs, [resamples, num_programs] -> [resamples]; NaN stands for no program."""
