"""The papers' claims, decided on result rows by one rule. No verdict is written by hand.

**Effect.** A statistic over test programs (seeds averaged first; an error below 0.05% counts as 0.05% in
geometric means) is taken of both sides; the effect is the lead of the side that the paper sees ahead,
positive if our results agree (`no_difference`: the left side's lead). Where a claim is about several pairs,
all of which must agree, the effect is the least lead. The share of programs won counts from one half.
Speed-ups are compared by their ratio in each program: 100 (statistic of ratios - 1) percent. Where a claim is
about how much settings matter, the effect is the right side's range over its settings less the left one's.

**Interval.** 10,000 resamples of test programs and training seeds together
(`metrics.intervals.CrossedDraws`), the same draws on both sides; the interval is between the 2.5% and 97.5%
percentiles of the effect. Programs of different splits are drawn independently.

**Verdict.** For a claim that one side leads:

- `holds` if the whole interval lies above zero, `does not hold` if below, else `cannot tell`.
- A claim of no difference `holds` if the interval lies between -margin and margin, and `does not hold` if it
  lies outside. The margin is the largest difference of the same task and unit that they still call none.
- A claim that every model is badly off on some program `holds` if the interval of the better model's worst
  program lies above the least of what the paper prints, and `does not hold` if below.
- With fewer than 6 test programs the verdict is `cannot tell`: even if all agree, chance alone would do as
  much in more than 5% of cases (2 / 2^5 = 6%; with 6 programs, 3%).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from costbench.errors import choose
from costbench.metrics.averages import APE_FLOOR_PERCENT
from costbench.metrics.checks import Floats
from costbench.metrics.intervals import CrossedDraws
from costbench.metrics.rows import MetricRow
from costbench.reports.claims.data import ANY, Claim, Side, margins
from costbench.rng import stream

HOLDS, DOES_NOT_HOLD, CANNOT_TELL = "holds", "does not hold", "cannot tell"
NOT_EVALUATED = "not evaluated"
MIN_PROGRAMS = 6
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Finding:
    """Verdict on a claim by the result rows.

    Attributes:
        claim: the claim.
        verdict: `holds`, `does not hold`, `cannot tell` or `not evaluated`.
        effect: as the module's description defines it; None if not evaluated.
        low: lower end of its interval.
        high: upper end.
        n: test programs compared (of the smaller split where two are).
        seeds: most training seeds of a side.
        missing: what stands in the way, if not evaluated.
    """

    claim: Claim
    verdict: str
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    seeds: int = 0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Scores:
    """Values of one side, [num_programs, num_seeds]."""

    programs: tuple[str, ...]
    seeds: tuple[int, ...]
    values: Floats

    def over(self, programs: tuple[str, ...]) -> _Scores:
        places = [self.programs.index(program) for program in programs]
        return _Scores(programs, self.seeds, self.values[places])


_Index = Mapping[tuple[str, str, Side], Mapping[tuple[str, int], float]]
_Resample = Callable[[_Scores], Floats]


def evaluate_claims(
    claims: tuple[Claim, ...], rows: Sequence[MetricRow], seed: int, resamples: int = 10_000
) -> tuple[Finding, ...]:
    """Decide each claim on the rows over all kernels.

    Args:
        claims: also the source of the margins.
        rows: results.
        seed: of the bootstrap; each claim has a random stream of its own.
        resamples: how often programs and seeds are drawn.
    """
    index: dict[tuple[str, str, Side], dict[tuple[str, int], float]] = {}
    for row in rows:
        if row.kernels == "all":
            side = Side(row.model, row.variant, row.split, row.chip)
            index.setdefault((row.task, row.metric, side), {})[(row.program, row.seed)] = row.value
            # A program may be in several splits, and has results with the models of each.
            pooled = (row.task, row.metric, replace(side, split=ANY))
            index.setdefault(pooled, {})[(f"{row.split}/{row.program}", row.seed)] = row.value
    allowed = margins(claims)
    return tuple(_evaluate(_placed(claim, index), index, allowed, (seed, resamples)) for claim in claims)


def _placed(claim: Claim, index: _Index) -> Claim:
    """Returns the claim with `any` replaced by the first chip with results of the most sides, if any has."""

    def there(one: Claim) -> int:
        return sum((one.task, one.metric, side) in index for side in one.sides)

    chips = sorted({side.chip for _, _, side in index})
    # The claim itself comes first: of equals, `max` takes the first.
    return max((claim, *(claim.on(chip) for chip in chips)), key=there)


def _evaluate(
    claim: Claim, index: _Index, allowed: Mapping[tuple[str, str], float], drawing: tuple[int, int]
) -> Finding:
    if claim.needs:
        return Finding(claim, NOT_EVALUATED, missing=(claim.needs,))
    margin = allowed.get((claim.task, claim.unit))
    if claim.direction == "no_difference" and margin is None:
        return Finding(claim, NOT_EVALUATED, missing=("a difference that the papers call none",))
    found = {side: _scores(index.get((claim.task, claim.metric, side), {})) for side in claim.sides}
    missing = tuple(_named(claim, side) for side in claim.sides if not found[side].programs)
    if missing:
        return Finding(claim, NOT_EVALUATED, missing=missing)
    scores = _matched(found)
    n = min(len(own.programs) for own in scores.values())
    if n < (2 if claim.statistic == "standard_deviation" else 1):
        return Finding(claim, NOT_EVALUATED, missing=("programs that all sides were tested on",))
    seed, resamples = drawing
    draws = CrossedDraws(stream(seed, "claims", claim.id), resamples)
    effect = float(_effect(claim, scores, lambda own: own.values.mean(axis=1)[np.newaxis])[0])
    effects = _effect(claim, scores, lambda own: draws.resampled(own.values, own.programs, own.seeds))
    tail = (1.0 - _CONFIDENCE) / 2.0
    low, high = (float(end) for end in np.quantile(effects, [tail, 1.0 - tail]))
    verdict = verdict_of(claim, (low, high), margin or 0.0) if n >= MIN_PROGRAMS else CANNOT_TELL
    return Finding(claim, verdict, effect, low, high, n, max(len(own.seeds) for own in scores.values()))


def _named(claim: Claim, side: Side) -> str:
    return "/".join((claim.task, side.split, side.chip, side.model, side.variant, claim.metric))


def _scores(values: Mapping[tuple[str, int], float]) -> _Scores:
    """Returns the values as a matrix, without programs that lack a value for some seed."""
    seeds = tuple(sorted({seed for _, seed in values}))
    names = sorted({program for program, _ in values})
    programs = tuple(name for name in names if all((name, seed) in values for seed in seeds))
    matrix = np.array([[values[name, seed] for seed in seeds] for name in programs], dtype=np.float64)
    return _Scores(programs, seeds, matrix)


def _matched(found: Mapping[Side, _Scores]) -> dict[Side, _Scores]:
    """Restricts the scores to programs that all sides of a split share."""
    scores = {}
    for split in {side.split for side in found}:
        own = [side for side in found if side.split == split]
        shared = reduce(set.intersection, (set(found[side].programs) for side in own))
        for side in own:
            scores[side] = found[side].over(tuple(sorted(shared)))
    # In the order of the claim, so that the random draws depend on the claim alone.
    return {side: scores[side] for side in found}


def _effect(claim: Claim, scores: Mapping[Side, _Scores], resample: _Resample) -> Floats:
    """Returns the effect in each resample, [resamples]."""
    values = {side: resample(own) for side, own in scores.items()}
    if claim.scale == "ratio":
        leads = _ratio_leads(claim, values)
    elif claim.statistic == "share_of_programs":
        leads = [_share_won(claim, values[left], values[right]) for left, right in claim.pairs]
    elif claim.direction == "magnitude":
        leads = [own.max(axis=1) for own in values.values()]
    else:
        statistic = choose(STATISTICS, claim.statistic, "statistic")
        summed = {side: claim.sign * statistic(own) for side, own in values.items()}
        if claim.pairing == "spread":
            left, right = (np.ptp([summed[one] for one in own], axis=0) for own in (claim.left, claim.right))
            leads = [right - left]
        else:
            leads = [summed[left] - summed[right] for left, right in claim.pairs]
        if claim.direction in _RIGHT_AHEAD:
            leads = [-lead for lead in leads]
    return np.min(np.stack(leads), axis=0)  # type: ignore[no-any-return]


_RIGHT_AHEAD = ("right_better", "at_most")


def _ratio_leads(claim: Claim, values: Mapping[Side, Floats]) -> list[Floats]:
    """Returns the lead of the side that the paper sees ahead, in percent, for each pair."""
    if claim.against is not None:
        ratios = [values[left] / claim.against for left in claim.left]
    else:
        ratios = [values[left] / values[right] for left, right in claim.pairs]
    # Inverted where needed, so that a ratio above 1 means that the side expected ahead leads.
    if (claim.direction in _RIGHT_AHEAD) == (claim.sign > 0.0):
        ratios = [1.0 / ratio for ratio in ratios]
    statistic = choose(STATISTICS, claim.statistic, "statistic")
    return [100.0 * (statistic(ratio) - 1.0) for ratio in ratios]


def _share_won(claim: Claim, left: Floats, right: Floats) -> Floats:
    lead = claim.sign * (left - right)
    share: Floats = np.mean((lead > 0.0) + 0.5 * (lead == 0.0), axis=1)
    return share if claim.direction == "left_better" else 1.0 - share


def _geometric_mean(values: Floats) -> Floats:
    return np.exp(np.log(np.maximum(values, APE_FLOOR_PERCENT)).mean(axis=1))  # type: ignore[no-any-return]


STATISTICS: Mapping[str, Callable[[Floats], Floats]] = {
    "geometric_mean": _geometric_mean,
    "mean": lambda values: values.mean(axis=1),
    "median": lambda values: np.median(values, axis=1),
    "best": lambda values: values.max(axis=1),
    # With n - 1: so the standard deviations of lpm2021's table 4 follow from the rows of its table 2.
    "standard_deviation": lambda values: values.std(axis=1, ddof=1),
}
"""Statistics over programs, [resamples, num_programs] -> [resamples]."""


def verdict_of(claim: Claim, interval: tuple[float, float], margin: float) -> str:
    """Returns the verdict for an interval, by the rule in the module's description."""
    low, high = interval
    if claim.direction == "no_difference":
        if -margin <= low and high <= margin:
            return HOLDS
        return DOES_NOT_HOLD if low > margin or high < -margin else CANNOT_TELL
    if claim.direction == "not_worse":
        return HOLDS if low >= 0.0 else DOES_NOT_HOLD if high < 0.0 else CANNOT_TELL
    if claim.direction == "at_most":
        most = claim.paper_effect if isinstance(claim.paper_effect, float) else 0.0
        return HOLDS if high <= most else DOES_NOT_HOLD if low > most else CANNOT_TELL
    threshold = 0.5 if claim.statistic == "share_of_programs" else 0.0
    if claim.direction == "magnitude":
        printed = claim.paper_effect
        threshold = min(printed) if isinstance(printed, tuple) else float(printed or 0.0)
    if low > threshold:
        return HOLDS
    return DOES_NOT_HOLD if high < threshold else CANNOT_TELL
