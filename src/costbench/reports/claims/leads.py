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

import numpy as np

from costbench.arrays import F64
from costbench.errors import choose
from costbench.metrics.intervals import (
    CONFIDENCE,
    CrossedDraws,
    Interval,
    LargestInterval,
    Redrawn,
    ShareInterval,
    small_sample_interval,
)
from costbench.metrics.measures import APE_FLOOR_PERCENT
from costbench.metrics.rows import MAIN
from costbench.reports.claims.claim import Claim, Side
from costbench.reports.results import BEST
from costbench.reports.scores import STATISTICS, Resample, Scores, num_runs, redrawn, share_won

_RIGHT_AHEAD = ("right_better", "at_most")
LARGEST = ("best", "worst")
"""Statistics that are those of one program."""


def weights_of(side: Side) -> Side:
    """Returns the side whose values are the numbers of kernels of the programs of another one."""
    return replace(side, model=BEST, variant=MAIN, metric="kernels")


def intervals(claim: Claim, scores: Mapping[Side, Scores], draws: CrossedDraws) -> tuple[Interval, ...]:
    """Returns the lead of each pair of the claim (each side, of a magnitude), with its interval.

    Args:
        claim: has the statistic.
        scores: of its sides, over the programs that sides of a split share.
        draws: shared by all sides.
    """
    if claim.statistic in LARGEST:
        return _largest(claim, scores, draws)
    if claim.statistic == "seed_deviation":
        return _deviations(claim, scores, draws)
    counted = leads(claim, scores, lambda own: own.means)
    runs = num_runs(scores.values())
    n = min(len(own.programs) for own in scores.values())
    drawn = redrawn(lambda resample: np.stack(leads(claim, scores, resample)), draws, n, runs)
    found = [small_sample_interval(drawn(place)) for place in range(len(counted))]
    if claim.statistic == "share_of_programs":
        return tuple(ShareInterval(one, n) for one in found)
    return tuple(found)


def leads(claim: Claim, scores: Mapping[Side, Scores], resample: Resample) -> list[F64]:
    """Returns the lead of each pair in each resample, [resamples] each."""
    if claim.statistic == "seed_deviation":
        values = {side: _means_of_seeds(own, resample) for side, own in scores.items()}
    else:
        values = {side: resample(own) for side, own in scores.items()}
    if claim.scale != "difference":
        statistic = choose(STATISTICS, claim.statistic, "statistic")
        factors = [statistic(ratio) for ratio in _ratios(claim, values)]
        return factors if claim.scale == "factor" else [100.0 * (factor - 1.0) for factor in factors]
    if claim.statistic == "share_of_programs":
        return [_share_won(claim, values[left], values[right]) for left, right in claim.pairs]
    if claim.direction == "magnitude":
        return [_summed(claim, side, values) for side in claim.sides]
    summed = {side: claim.sign * _summed(claim, side, values) for side in claim.sides}
    if claim.pairing == "spread":
        left, right = (np.ptp([summed[one] for one in own], axis=0) for own in (claim.left, claim.right))
        found = [right - left]
    else:
        found = [summed[left] - summed[right] for left, right in claim.pairs]
    return [-lead for lead in found] if claim.direction in _RIGHT_AHEAD else found


def level(claim: Claim, scores: Mapping[Side, Scores]) -> float:
    """Returns the mean of the claim's statistic over its sides, what relative margins are relative to."""
    values = {side: own.means for side, own in scores.items()}
    return float(np.mean([_summed(claim, side, values)[0] for side in claim.sides]))


def idle_scores(claim: Claim, scores: Mapping[Side, Scores]) -> dict[Side, Scores]:
    """Returns the scores with the left sides doing nothing: `Claim.nothing` in each program and run."""
    nothing = 0.0 if claim.nothing is None else claim.nothing
    return {
        side: replace(own, values=np.full_like(own.values, nothing)) if side in claim.left else own
        for side, own in scores.items()
    }


def _means_of_seeds(own: Scores, resample: Resample) -> F64:
    """Returns the means over (drawn) programs of each training run, [resamples, num_seeds]."""
    runs = [
        resample(Scores(own.programs, (seed,), own.values[:, place : place + 1])).mean(axis=1)
        for place, seed in enumerate(own.seeds)
    ]
    return np.stack(runs, axis=1)


def _deviations(claim: Claim, scores: Mapping[Side, Scores], draws: CrossedDraws) -> tuple[Interval, ...]:
    """Returns the intervals of differences between standard deviations over training runs.

    Programs are drawn; that a deviation is one of few runs is known from the chi-square distribution.
    """
    n = min(len(own.programs) for own in scores.values())
    found = leads(claim, scores, lambda own: own.means)

    def drawn(own: Scores) -> F64:
        runs = _means_of_seeds(own, lambda one: one.resampled(draws, "programs"))
        return STATISTICS["seed_deviation"](runs) * draws.deviation_scales(len(own.seeds))

    sign = -claim.sign if claim.direction in _RIGHT_AHEAD else claim.sign
    summed = {side: sign * drawn(own) for side, own in scores.items()}
    several = [summed[left] - summed[right] for left, right in claim.pairs]
    return tuple(
        small_sample_interval(Redrawn(float(lead[0]), effect, effect, effect, n, 1))
        for lead, effect in zip(found, several, strict=True)
    )


def _summed(claim: Claim, side: Side, values: Mapping[Side, F64]) -> F64:
    """Returns the claim's statistic of a side, [resamples]."""
    if claim.statistic == "kernel_mean":
        weights = values[weights_of(side)]
        mean: F64 = (values[side] * weights).sum(axis=1) / weights.sum(axis=1)
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


def _share_won(claim: Claim, left: F64, right: F64) -> F64:
    share = share_won(left, right, claim.sign)
    return share if claim.direction == "left_better" else 1.0 - share


def _largest(claim: Claim, scores: Mapping[Side, Scores], draws: CrossedDraws) -> tuple[Interval, ...]:
    """Returns the intervals of the largest ratio of given programs, or of each side's worst program."""

    def logs(resample: Resample) -> list[F64]:
        values = {side: resample(own) for side, own in scores.items()}
        ratio = claim.scale != "difference"
        factors = _ratios(claim, values) if ratio else [values[side] for side in claim.sides]
        return [np.log(np.maximum(one, APE_FLOOR_PERCENT if not ratio else 0.0)) for one in factors]

    runs = num_runs(scores.values())
    drawn = logs(lambda own: own.resampled(draws, "seeds"))
    found = []
    for mean, several in zip(logs(lambda own: own.means), drawn, strict=True):
        # A bootstrap variance of m runs is (m - 1) / m of an unbiased one.
        variance = float(several.var(axis=0).mean()) * runs / max(1, runs - 1)
        freedom = float(mean.size * max(1, runs - 1))
        found.append(LargestInterval(mean[0], float(np.sqrt(variance)), freedom, _SHOWN[claim.scale]))
    return tuple(found)


_SHOWN: Mapping[str, Callable[[float], float]] = {
    "difference": lambda log: float(np.exp(log)),
    "factor": lambda log: float(np.exp(log)),
    "ratio": lambda log: 100.0 * float(np.expm1(log)),
}


TAIL = (1.0 - CONFIDENCE) / 2.0
_WITH_THEIR_BOUND = ("no_difference", "not_worse", "at_most")
"""Directions that a lead at the very bound agrees with."""


def region(claim: Claim, margin: float) -> tuple[float, float]:
    """Returns the least and the greatest lead with which a claim is true.

    Args:
        claim: a magnitude and a largest gain are held against the least that the paper prints.
        margin: of a claim of no difference.
    """
    printed = claim.paper_effect
    least = min(printed) if isinstance(printed, tuple) else float(printed or 0.0)
    if claim.direction == "no_difference":
        return -margin, margin
    if claim.direction == "at_most":
        return -math.inf, least
    if claim.direction == "magnitude" or claim.statistic in LARGEST:
        return least, math.inf
    if claim.direction == "not_worse":
        return 0.0, math.inf
    return 0.5 if claim.statistic == "share_of_programs" else float(claim.scale == "factor"), math.inf


def agrees(claim: Claim, leads: Sequence[Interval], margin: float, tail: float = TAIL) -> bool | None:
    """Returns whether the claim is true by the intervals of all its pairs; None where they cannot tell.

    It is true if every pair is inside of the region. It is false if any is outside; as any of several would
    do, each has its share of the error.

    Args:
        claim: gives the region.
        leads: of each pair.
        margin: of a claim of no difference.
        tail: the error on either side.
    """
    least, most = region(claim, margin)
    closed = claim.direction in _WITH_THEIR_BOUND
    if all(_inside((one.low(tail), one.high(tail)), (least, most), closed) for one in leads):
        return True
    share = tail / len(leads)
    if any(one.high(share) < least or one.low(share) > most for one in leads):
        return False
    return None


def _inside(interval: tuple[float, float], bounds: tuple[float, float], closed: bool) -> bool:
    (low, high), (least, most) = interval, bounds
    return least <= low and high <= most if closed else least < low and high < most


def effect_of(claim: Claim, leads: Sequence[Interval]) -> float:
    """Returns the lead of the pair that agrees least with the claim."""
    least, most = region(claim, 0.0)
    # How far outside of the region a lead is; of leads inside, how far from its bound (a negative number).
    return max((one.estimate for one in leads), key=lambda lead: max(least - lead, lead - most))


def summary(claim: Claim, leads: Sequence[Interval]) -> tuple[float, float]:
    """Returns the 95% interval of the effect: of the least lead, or of all where none may differ."""
    if claim.direction in ("no_difference", "at_most"):
        share = TAIL / len(leads) if claim.direction == "at_most" else TAIL
        low = max if claim.direction == "at_most" else min
        return low(one.low(share) for one in leads), max(one.high(TAIL) for one in leads)
    return min(one.low(TAIL) for one in leads), min(one.high(TAIL / len(leads)) for one in leads)


_MANY = 10_000


@dataclass(frozen=True)
class Needed:
    """About how many programs, or training runs of each side, or steps of training, would decide a claim.

    Attributes:
        programs: in place of those there are; None where something else is lacking.
        runs: in place of those there are; likewise.
        steps: of each training of a network that was not trained enough, at the least; likewise.
    """

    programs: int | None = None
    runs: int | None = None
    steps: int | None = None

    def __str__(self) -> str:
        if self.steps:
            return f"{self.steps:,} steps of training at least"
        number, what = (self.programs, "programs") if self.programs else (self.runs or 0, "runs")
        if number > _MANY:
            return f"more than {_MANY:,} {what}"
        # Two digits: an estimate from an estimate.
        return f"about {number if number < 100 else round(number, 1 - int(math.log10(number))):,} {what}"


def needed(claim: Claim, leads: Sequence[Interval], margin: float, counts: tuple[int, int]) -> Needed | None:
    """Returns about how many programs or runs would decide a claim; None if the effect is at the very bound.

    The half width of an interval falls as 1 / sqrt(n): n (half width / distance to the bound)^2 programs, if
    the effect and the spread stay what they are. Where more of the variance is that of runs, it is they that
    are counted.

    Args:
        claim: undecided.
        leads: of each pair.
        margin: of a claim of no difference.
        counts: programs and runs there are.
    """
    least, most = region(claim, margin)
    outside = [one for one in leads if not least <= one.estimate <= most]
    # Any pair outside decides, and of pairs inside all must be.
    factors = [(_factor(one, (least, most), bool(outside)), one.of_runs) for one in outside or leads]
    factor, of_runs = (min if outside else max)(factors)
    if not math.isfinite(factor):
        return None
    programs, runs = counts
    if of_runs > 0.5 and runs > 1:
        return Needed(runs=max(runs + 1, math.ceil(runs * factor)))
    return Needed(programs=max(programs + 1, math.ceil(programs * factor)))


def _factor(one: Interval, bounds: tuple[float, float], outside: bool) -> float:
    """Returns by what an interval's square must shrink to lie on one side of the bounds."""
    (least, most), lead = bounds, one.estimate
    below, above = lead - one.low(TAIL), one.high(TAIL) - lead
    if outside:
        width, distance = (above, least - lead) if lead < least else (below, lead - most)
        return _squared(width, distance)
    return max(_squared(below, lead - least), _squared(above, most - lead))


def _squared(width: float, distance: float) -> float:
    if math.isinf(distance) or width == 0.0:
        return 0.0
    return (width / distance) ** 2 if distance > 0.0 else math.inf
