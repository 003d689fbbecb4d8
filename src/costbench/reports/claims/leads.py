"""Leads of the side that a paper sees ahead, with intervals, and whether they agree with the claim.

Each pair of a claim about several has an interval of its own. The least of resampled leads would be biased:
the less certain the pairs, the further it falls below the least lead. The claim holds if every pair alone
does, which needs no correction (the intersection-union test of Berger, 1982).

A claim names a region of leads: above zero for a side that is better, between -margin and margin for no
difference, above what is printed for how large something is. Inside, it holds; outside, it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from costbench.arrays import F64
from costbench.errors import choose
from costbench.metrics.intervals import (
    CONFIDENCE,
    CrossedDraws,
    Interval,
    IntervalOfLog,
    LargestInterval,
    PercentileInterval,
    ShareInterval,
    small_sample_interval,
)
from costbench.metrics.measures import APE_FLOOR_PERCENT
from costbench.metrics.rows import MAIN
from costbench.reports.claims.claim import Claim, Side, magnitudes, printed_sizes
from costbench.reports.results import BEST
from costbench.reports.scores import (
    STATISTICS,
    Resample,
    Scores,
    count_runs,
    geometric_mean,
    mean_over_programs,
    resample_effects,
    share_won,
)

_RIGHT_AHEAD = ("right_better", "at_most")
_WITH_THEIR_BOUND = ("no_difference", "not_worse", "at_most")
"""Directions that a lead at the very bound agrees with."""
LARGEST = ("best", "worst")
"""Statistics that are those of one program."""
TAIL = (1.0 - CONFIDENCE) / 2.0
_MANY = 10_000


def weights_of(side: Side) -> Side:
    """Returns the side whose values are the numbers of kernels of the programs of another one."""
    return replace(side, model=BEST, variant=MAIN, metric="kernels")


def intervals(claim: Claim, scores: Mapping[Side, Scores], draws: CrossedDraws) -> tuple[Interval, ...]:
    """Returns the lead of each pair of the claim (each side, of a magnitude), with its interval.

    Args:
        claim: claim that has the statistic.
        scores: scores of its sides, over the programs that sides of a split share.
        draws: random draws that all sides share.
    """
    if claim.statistic in LARGEST:
        return _largest(claim, scores, draws)
    if claim.statistic == "seed_deviation":
        return _deviations(claim, scores, draws)
    # Independent draws of programs, or of applications, of the smallest side.
    num_drawn = min(draws.num_drawn(side_scores.programs) for side_scores in scores.values())
    runs = count_runs(scores.values())
    scaled = _LOG.get(claim.scale, np.asarray)
    effects = resample_effects(
        lambda resample: scaled(np.stack(leads(claim, scores, resample))), draws, num_drawn, runs
    )
    by_pair = [small_sample_interval(effect) for effect in effects]
    if claim.scale in _LOG:
        return tuple(IntervalOfLog(interval, _FROM_LOG[claim.scale]) for interval in by_pair)
    if claim.statistic == "share_of_programs":
        return tuple(ShareInterval(interval, num_drawn) for interval in by_pair)
    return tuple(by_pair)


def leads(claim: Claim, scores: Mapping[Side, Scores], resample: Resample) -> list[F64]:
    """Returns the lead of each pair in each resample, [resamples] each."""
    values = _values(claim, scores, resample)
    if claim.scale != "difference":
        # A floor is one of errors in percent.
        is_mean = claim.statistic == "geometric_mean"
        statistic = geometric_mean if is_mean else choose(STATISTICS, claim.statistic, "statistic")
        factors = [statistic(ratio) for ratio in _ratios(claim, values)]
        return factors if claim.scale == "factor" else [100.0 * (factor - 1.0) for factor in factors]
    if claim.statistic == "share_of_programs":
        shares = [share_won(values[left], values[right], claim.sign) for left, right in claim.pairs]
        return shares if claim.direction == "left_better" else [1.0 - share for share in shares]
    if claim.direction == "magnitude":
        return [_statistic_of(claim, side, values) for side in claim.sides]
    signed = {side: claim.sign * _statistic_of(claim, side, values) for side in claim.sides}
    if claim.pairing == "spread":
        left, right = (
            np.ptp([signed[side] for side in sides], axis=0) for sides in (claim.left, claim.right)
        )
        differences = [right - left]
    else:
        differences = [signed[left] - signed[right] for left, right in claim.pairs]
    return [-lead for lead in differences] if claim.direction in _RIGHT_AHEAD else differences


def level(claim: Claim, scores: Mapping[Side, Scores]) -> float:
    """Returns the mean of the claim's statistic over its sides, what relative margins are relative to."""
    values = _values(claim, scores, lambda side_scores: side_scores.means)
    return float(np.mean([_statistic_of(claim, side, values)[0] for side in claim.sides]))


def _values(claim: Claim, scores: Mapping[Side, Scores], resample: Resample) -> dict[Side, F64]:
    """Returns the values that the claim's statistic is of: of programs, or of training runs."""
    of_side = partial(_means_of_seeds, resample=resample) if claim.statistic == "seed_deviation" else resample
    return {side: of_side(side_scores) for side, side_scores in scores.items()}


def idle_scores(claim: Claim, scores: Mapping[Side, Scores]) -> dict[Side, Scores]:
    """Returns the scores with the left sides doing nothing.

    They have `Claim.null_value` in each program and run, or else the scores of `Claim.blind`.
    """

    def idle(side_scores: Scores) -> Scores:
        if claim.null_value is not None:
            return replace(side_scores, values=np.full_like(side_scores.values, claim.null_value))
        return side_scores if claim.blind is None else scores[claim.blind]

    return {side: idle(of_side) if side in claim.left else of_side for side, of_side in scores.items()}


def _means_of_seeds(scores: Scores, resample: Resample) -> F64:
    """Returns the means over (drawn) programs of each training run, [resamples, num_seeds]."""
    runs = [
        mean_over_programs(resample(Scores(scores.programs, (seed,), scores.values[:, i : i + 1])))
        for i, seed in enumerate(scores.seeds)
    ]
    return np.stack(runs, axis=1)


def _deviations(claim: Claim, scores: Mapping[Side, Scores], draws: CrossedDraws) -> tuple[Interval, ...]:
    """Returns the intervals of differences between standard deviations over training runs.

    Programs are drawn; that a deviation is one of few runs is known from the chi-square distribution.
    """
    estimates = leads(claim, scores, lambda side_scores: side_scores.means)
    sign = -claim.sign if claim.direction in _RIGHT_AHEAD else claim.sign
    signed = {}
    for side, side_scores in scores.items():
        runs = _means_of_seeds(side_scores, lambda run: run.resampled(draws, "programs"))
        deviations = STATISTICS["seed_deviation"](runs) * draws.deviation_scales(len(side_scores.seeds))
        signed[side] = sign * deviations
    differences = [signed[left] - signed[right] for left, right in claim.pairs]
    return tuple(
        PercentileInterval(float(lead[0]), np.sort(drawn))
        for lead, drawn in zip(estimates, differences, strict=True)
    )


def _statistic_of(claim: Claim, side: Side, values: Mapping[Side, F64]) -> F64:
    """Returns the claim's statistic of a side, [resamples]."""
    if claim.statistic == "kernel_mean":
        weights = values[weights_of(side)]
        mean: F64 = np.nansum(values[side] * weights, axis=1) / np.nansum(weights, axis=1)
        return mean
    return choose(STATISTICS, claim.statistic, "statistic")(values[side])


def _ratios(claim: Claim, values: Mapping[Side, F64]) -> list[F64]:
    """Returns the lead of the side that the paper sees ahead as factors, pair by pair, of each program."""
    if claim.against is not None:
        ratios = [values[left] / claim.against for left in claim.left]
    else:
        ratios = [values[left] / values[right] for left, right in claim.pairs]
    # Inverted where needed, so that a ratio above 1 means that the side expected ahead leads.
    inverted = (claim.direction in _RIGHT_AHEAD) == (claim.sign > 0.0)
    return [1.0 / ratio for ratio in ratios] if inverted else ratios


def _largest(claim: Claim, scores: Mapping[Side, Scores], draws: CrossedDraws) -> tuple[Interval, ...]:
    """Returns the intervals of the largest ratio of given programs, or of each side's worst program."""

    def logs(resample: Resample) -> list[F64]:
        values = {side: resample(side_scores) for side, side_scores in scores.items()}
        is_ratio = claim.scale != "difference"
        factors = _ratios(claim, values) if is_ratio else [values[side] for side in claim.sides]
        return [np.log(np.maximum(factor, 0.0 if is_ratio else APE_FLOOR_PERCENT)) for factor in factors]

    runs = count_runs(scores.values())
    resampled = logs(lambda side_scores: side_scores.resampled(draws, "seeds"))
    by_pair = []
    for mean, drawn in zip(logs(lambda side_scores: side_scores.means), resampled, strict=True):
        # A bootstrap variance of m runs is (m - 1) / m of an unbiased one.
        variance = float(drawn.var(axis=0).mean()) * runs / max(1, runs - 1)
        freedom = float(mean.size * max(1, runs - 1))
        largest = LargestInterval(mean[0], float(np.sqrt(variance)), freedom)
        by_pair.append(IntervalOfLog(largest, _FROM_LOG[claim.scale]))
    return tuple(by_pair)


_LOG: Mapping[str, Callable[[F64], F64]] = {
    "factor": np.log,
    "ratio": lambda percent: np.log1p(percent / 100.0),
}
"""From leads of a scale to logarithms of factors."""
_FROM_LOG: Mapping[str, Callable[[float], float]] = {
    "difference": lambda log: float(np.exp(log)),
    "factor": lambda log: float(np.exp(log)),
    "ratio": lambda log: 100.0 * float(np.expm1(log)),
}


def region(claim: Claim, margin: float) -> tuple[float, float]:
    """Returns the least and the greatest lead with which a claim is true, words of size left aside.

    Args:
        claim: claim; a magnitude and a largest gain are held against the least that the paper prints.
        margin: margin of a claim of no difference.
    """
    least_printed = min(claim.printed, default=0.0)
    if claim.direction == "no_difference":
        return -margin, margin
    if claim.direction == "at_most":
        return -math.inf, least_printed
    if claim.direction == "magnitude" or claim.statistic in LARGEST:
        return least_printed, math.inf
    if claim.direction == "not_worse":
        return 0.0, math.inf
    return nothing(claim), math.inf


def nothing(claim: Claim) -> float:
    """Returns the lead of a side that is not ahead: one half of the programs, a factor of 1, or 0."""
    return 0.5 if claim.statistic == "share_of_programs" else float(claim.scale == "factor")


def region_of_words(claim: Claim, margin: float) -> tuple[float, float]:
    """Returns the same with what a word of size asks (`Claim.magnitude`).

    Args:
        claim: claim.
        margin: margin of a claim of no difference.
    """
    lower, upper = region(claim, margin)
    if not claim.magnitude:
        return lower, upper
    word, printed = magnitudes()[claim.magnitude], printed_sizes(claim)
    if word.least is not None:
        lower = word.least * (printed[0] if word.of == "printed" else 1.0)
    if word.most is not None:
        upper = word.most * (printed[-1] if word.of == "printed" else 1.0)
    return lower, upper


def lie_within(
    claim: Claim, leads: Sequence[Interval], lower: float, upper: float, tail: float = TAIL
) -> bool | None:
    """Returns whether the leads of all pairs lie within bounds; None where their intervals cannot tell.

    They do if every pair is inside. They do not if any is outside; as any of several would do, each has its
    share of the error.

    Args:
        claim: claim that the leads are of.
        leads: lead of each pair.
        lower: least lead, such as that of `region`.
        upper: greatest lead.
        tail: error on either side.
    """
    if claim.direction in _WITH_THEIR_BOUND:
        inside = (lower <= lead.low(tail) and lead.high(tail) <= upper for lead in leads)
    else:
        inside = (lower < lead.low(tail) and lead.high(tail) < upper for lead in leads)
    if all(inside):
        return True
    share = tail / len(leads)
    if any(lead.high(share) < lower or lead.low(share) > upper for lead in leads):
        return False
    return None


def largest_difference(claim: Claim, leads: Sequence[Interval], tail: float = TAIL) -> float:
    """Returns the least X such that no side leads by more than X: two one-sided tests, each at 2 * `tail`."""
    middle, of_each = nothing(claim), min(0.5, 2.0 * tail)
    return max(max(middle - lead.low(of_each), lead.high(of_each) - middle) for lead in leads)


def effect_of(claim: Claim, leads: Sequence[Interval]) -> float:
    """Returns the lead of the pair that agrees least with the claim."""
    lower, upper = region_of_words(claim, 0.0)
    # How far outside of the region a lead is; of leads inside, how far from its bound (a negative number).
    return max(
        (lead.estimate for lead in leads), key=lambda estimate: max(lower - estimate, estimate - upper)
    )


def summary(claim: Claim, leads: Sequence[Interval]) -> tuple[float, float]:
    """Returns the 95% interval of the effect: of the least lead, or of all where none may be far above."""
    if claim.direction == "at_most":
        share = TAIL / len(leads)
        return max(lead.low(share) for lead in leads), max(lead.high(TAIL) for lead in leads)
    if math.isfinite(region_of_words(claim, 0.0)[1]):
        return min(lead.low(TAIL) for lead in leads), max(lead.high(TAIL) for lead in leads)
    share = TAIL / len(leads)
    return min(lead.low(TAIL) for lead in leads), min(lead.high(share) for lead in leads)


@dataclass(frozen=True)
class Needed:
    """About how many programs, or training runs of each side, or steps of training, would decide a claim.

    Attributes:
        programs: number of programs in place of those there are; None where something else is lacking.
        runs: number of training runs in place of those there are; None where something else is lacking.
        steps: least number of steps of each training of a network that was not trained enough; None where
            something else is lacking.
    """

    programs: int | None = None
    runs: int | None = None
    steps: int | None = None

    def in_words(self, programs: str = "programs") -> str:
        """Returns `about 31 programs`, `more than 10,000 runs`.

        Args:
            programs: what is counted as a program.
        """
        if self.steps:
            return f"{self.steps:,} steps of training at least"
        number, what = (self.programs, programs) if self.programs else (self.runs or 0, "runs")
        if number > _MANY:
            return f"more than {_MANY:,} {what}"
        # Two digits: an estimate from an estimate.
        return f"about {number if number < 100 else round(number, 1 - int(math.log10(number))):,} {what}"


def needed(
    claim: Claim, leads: Sequence[Interval], margin: float, *, programs: int, runs: int
) -> Needed | None:
    """Returns about how many programs or runs would decide a claim; None if the effect is at the very bound.

    The half width of an interval falls as 1 / sqrt(n): n (half width / distance to the bound)^2 programs, if
    the effect and the spread stay what they are; of factors, those of their logarithms. Where more of the
    variance is that of runs, it is they that are counted.

    Args:
        claim: undecided claim.
        leads: lead of each pair.
        margin: margin of a claim of no difference.
        programs: number of programs there are.
        runs: number of training runs there are.
    """
    lower, upper = region_of_words(claim, margin)
    outside = [lead for lead in leads if not lower <= lead.estimate <= upper]
    # Any pair outside decides, and of pairs inside all must be.
    factors = [(_variance_factor(claim, lead, lower, upper), lead.of_runs) for lead in outside or leads]
    factor, of_runs = (min if outside else max)(factors)
    if not math.isfinite(factor):
        return None
    if of_runs > 0.5 and runs > 1:
        return Needed(runs=max(runs + 1, math.ceil(runs * factor)))
    return Needed(programs=max(programs + 1, math.ceil(programs * factor)))


def _variance_factor(claim: Claim, lead: Interval, lower: float, upper: float) -> float:
    """Returns the factor by which the variance must shrink for the interval to lie inside or outside."""
    ends = (lead.low(TAIL), lead.estimate, lead.high(TAIL), lower, upper)
    low, estimate, high, lower, upper = (_as_resampled(claim, value) for value in ends)
    below, above = estimate - low, high - estimate
    if estimate < lower:
        return _squared_ratio(above, lower - estimate)
    if estimate > upper:
        return _squared_ratio(below, estimate - upper)
    return max(_squared_ratio(below, estimate - lower), _squared_ratio(above, upper - estimate))


def _as_resampled(claim: Claim, lead: float) -> float:
    """Returns a lead or a bound on the scale that leads are resampled on: a factor's logarithm."""
    if claim.scale not in _LOG:
        return lead
    factor = lead if claim.scale == "factor" else 1.0 + lead / 100.0
    return math.log(factor) if factor > 0.0 else -math.inf


def _squared_ratio(width: float, distance: float) -> float:
    if math.isinf(distance) or width == 0.0:
        return 0.0
    return (width / distance) ** 2 if distance > 0.0 else math.inf
