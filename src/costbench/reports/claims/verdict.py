"""Whether intervals of leads lie inside or outside of what a claim says, and what would decide the others.

A claim names a region of leads: above zero for a side that is better, between -margin and margin for no
difference, above what is printed for how large something is. Inside, it holds; outside, it does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costbench.metrics.small_samples import CONFIDENCE, Interval
from costbench.reports.claims.data import Claim
from costbench.reports.claims.effects import LARGEST

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
