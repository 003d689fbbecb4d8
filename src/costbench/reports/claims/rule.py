"""The papers' claims, decided on result rows by one rule. No verdict is written by hand.

**Effect.** A statistic over test programs (seeds averaged first; an error below 0.05% counts as 0.05% in
geometric means) is taken of both sides; the effect is the lead of the side that the paper sees ahead,
positive if our results agree (`no_difference`: the left side's lead). tpugraphs2023 averages errors over the
kernels of all programs, so there a program weighs as many kernels as it has. Where a claim is about several
pairs, all of which must agree, the effect is the least lead. The share of programs won counts from one half.
Speed-ups are compared by their ratio in each program: 100 (statistic of ratios - 1) percent. Where a claim
is about how much settings matter, the effect is the right side's range over its settings less the left
one's.

**Interval.** 10,000 resamples of test programs and training seeds together
(`metrics.intervals.CrossedDraws`), the same draws on both sides; the interval is between the 2.5% and 97.5%
percentiles of the effect. Programs of different splits (or of the xla and nlp collections of layouts) are
drawn independently.

**Verdict.** For a claim that one side leads:

- `holds` if the whole interval lies above zero, `does not hold` if below, else `cannot tell`.
- A claim of no difference `holds` if the interval lies between -margin and margin, and `does not hold` if it
  lies outside. The margin is the largest difference of the same task and unit that they still call none; of
  claims that are curves only, one given with the claim.
- A claim that every model is badly off on some program `holds` if the interval of the better model's worst
  program lies above the least of what the paper prints, and `does not hold` if below.
- With fewer than 6 test programs the verdict is `cannot tell`: even if all agree, chance alone would do as
  much in more than 5% of cases (2 / 2^5 = 6%; with 6 programs, 3%).
- Where a network of either side was not trained enough (`reports.undertrained`; of crop2024's rivals
  `reports.networks.results.not_trained_enough`, whose main error is the analytical model's), the verdict is
  `cannot tell`: what another network or other inputs do and what a short training does cannot be told apart.

**Strongest baseline.** A claim about the analytical model is decided a second and a third time, against the
strongest baseline instead (`claims.restated`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from costbench.errors import choose
from costbench.metrics.checks import Floats
from costbench.metrics.intervals import CrossedDraws
from costbench.metrics.rows import MAIN, MetricRow
from costbench.reports.claims.data import Claim, Side, margins
from costbench.reports.results import ALL, BEST
from costbench.reports.scores import (
    MIN_PROGRAMS,
    STATISTICS,
    ScoreIndex,
    Scores,
    interval,
    matched,
    score_index,
    scores_of,
    share_won,
)
from costbench.reports.strongest import STRONGEST, strongest_baseline
from costbench.rng import stream

HOLDS, DOES_NOT_HOLD, CANNOT_TELL = "holds", "does not hold", "cannot tell"
NOT_EVALUATED = "not evaluated"
NOT_TRAINED_ENOUGH = "not trained enough"


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
        reason: why the verdict is `cannot tell` whatever the interval; empty where the interval decides.
    """

    claim: Claim
    verdict: str
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    seeds: int = 0
    missing: tuple[str, ...] = ()
    reason: str = ""


Undertrained = Mapping[tuple[str, Side], float]
"""(task, side) of a network that was not trained enough -> its error over that of the main network."""
_Resample = Callable[[Scores], Floats]


def evaluate_claims(
    claims: tuple[Claim, ...],
    rows: Sequence[MetricRow],
    seed: int,
    resamples: int = 10_000,
    undertrained: Undertrained = MappingProxyType({}),
) -> tuple[Finding, ...]:
    """Decide each claim on the rows over all kernels.

    Args:
        claims: also the source of the margins.
        rows: results.
        seed: of the bootstrap; each claim has a random stream of its own.
        resamples: how often programs and seeds are drawn.
        undertrained: networks that decide nothing.
    """
    index = score_index(rows)
    allowed = margins(claims)
    found = []
    for claim in claims:
        placed = _resolved(_placed(claim, index), index)
        found.append(_judged(_evaluate(placed, index, allowed, (seed, resamples)), undertrained))
    return tuple(found)


def _resolved(claim: Claim, index: ScoreIndex) -> Claim:
    """Returns the claim with the strongest baseline by name, where there is one."""

    def named(sides: tuple[Side, ...]) -> tuple[Side, ...]:
        return tuple(
            replace(side, model=strongest_baseline(index, claim.task, claim.metric, side) or STRONGEST)
            if side.model == STRONGEST
            else side
            for side in sides
        )

    return replace(claim, left=named(claim.left), right=named(claim.right))


def _judged(finding: Finding, undertrained: Undertrained) -> Finding:
    """Returns the finding without a verdict where a side's network was not trained enough."""
    task = finding.claim.task
    trained = {side: (side.task or task, replace(side.rows, kernels=ALL)) for side in finding.claim.sides}
    short = {_named_network(side): ratio for side, key in trained.items() if (ratio := undertrained.get(key))}
    if finding.verdict == NOT_EVALUATED or not short:
        return finding
    named = ", ".join(f"{variant} ({ratio:.1f} times the main error)" for variant, ratio in short.items())
    return replace(finding, verdict=CANNOT_TELL, reason=f"{NOT_TRAINED_ENOUGH}: {named}")


def _named_network(side: Side) -> str:
    return side.variant if side.model == Side().model else f"{side.model} {side.variant}"


def _placed(claim: Claim, index: ScoreIndex) -> Claim:
    """Returns the claim with `any` replaced by the first chip with results of the most sides, if any has."""

    def there(one: Claim) -> int:
        return sum((one.task, one.metric, side) in index for side in one.sides)

    chips = sorted({side.chip for _, _, side in index})
    # The claim itself comes first: of equals, `max` takes the first.
    return max((claim, *(claim.on(chip) for chip in chips)), key=there)


def _evaluate(
    claim: Claim, index: ScoreIndex, allowed: Mapping[tuple[str, str], float], drawing: tuple[int, int]
) -> Finding:
    if claim.needs:
        return Finding(claim, NOT_EVALUATED, missing=(claim.needs,))
    margin = claim.margin or allowed.get((claim.task, claim.unit))
    if claim.direction == "no_difference" and margin is None:
        return Finding(claim, NOT_EVALUATED, missing=("a difference that the papers call none",))
    weights = {_weights_of(side) for side in claim.sides} if claim.statistic == "kernel_mean" else set()
    sides = (*claim.sides, *sorted(weights, key=lambda side: (side.split, side.chip, side.kernels)))
    found = {side: scores_of(index, claim.task, claim.metric, side) for side in sides}
    missing = tuple(_named(claim, side) for side in sides if not found[side].programs)
    if claim.statistic == "seed_deviation":
        missing = (*missing, *(_named(claim, one) + ", two or more seeds" for one in _alone(found)))
    if missing:
        return Finding(claim, NOT_EVALUATED, missing=missing)
    scores = matched(found)
    n = min(len(own.programs) for own in scores.values())
    if n < (2 if claim.statistic == "standard_deviation" else 1):
        return Finding(claim, NOT_EVALUATED, missing=("programs that all sides were tested on",))
    seed, resamples = drawing
    draws = CrossedDraws(stream(seed, "claims", claim.id), resamples)
    effect = float(_effect(claim, scores, lambda own: own.means)[0])
    low, high = interval(_effect(claim, scores, lambda own: own.resampled(draws)))
    verdict = verdict_of(claim, (low, high), margin or 0.0) if n >= MIN_PROGRAMS else CANNOT_TELL
    return Finding(claim, verdict, effect, low, high, n, max(len(own.seeds) for own in scores.values()))


def _weights_of(side: Side) -> Side:
    """Returns the side whose values are the numbers of kernels of the programs of another one."""
    return replace(side, model=BEST, variant=MAIN, metric="kernels")


def _alone(found: Mapping[Side, Scores]) -> list[Side]:
    """Returns the sides that have results, but those of one training run only."""
    return [side for side, own in found.items() if len(own.seeds) == 1]


def _named(claim: Claim, side: Side) -> str:
    collection = () if side.kernels == ALL else (side.kernels,)
    parts = (side.split, side.chip, side.model, side.variant, *collection)
    return "/".join((side.task or claim.task, *parts, side.metric or claim.metric))


def _effect(claim: Claim, scores: Mapping[Side, Scores], resample: _Resample) -> Floats:
    """Returns the effect in each resample, [resamples]."""
    if claim.statistic == "seed_deviation":
        values = {side: _means_of_seeds(own, resample) for side, own in scores.items()}
    else:
        values = {side: resample(own) for side, own in scores.items()}
    if claim.scale != "difference":
        leads = _ratio_leads(claim, values)
    elif claim.statistic == "share_of_programs":
        leads = [_share_won(claim, values[left], values[right]) for left, right in claim.pairs]
    elif claim.direction == "magnitude":
        leads = [_largest(claim, values[side]) for side in claim.sides]
    else:
        summed = {side: claim.sign * _summed(claim, side, values) for side in claim.sides}
        if claim.pairing == "spread":
            left, right = (np.ptp([summed[one] for one in own], axis=0) for own in (claim.left, claim.right))
            leads = [right - left]
        else:
            leads = [summed[left] - summed[right] for left, right in claim.pairs]
        if claim.direction in _RIGHT_AHEAD:
            leads = [-lead for lead in leads]
    return np.min(np.stack(leads), axis=0)  # type: ignore[no-any-return]


def _means_of_seeds(own: Scores, resample: _Resample) -> Floats:
    """Returns the means over (drawn) programs of each training run, [resamples, num_seeds]."""
    runs = [
        resample(Scores(own.programs, (seed,), own.values[:, place : place + 1])).mean(axis=1)
        for place, seed in enumerate(own.seeds)
    ]
    return np.stack(runs, axis=1)


def _summed(claim: Claim, side: Side, values: Mapping[Side, Floats]) -> Floats:
    """Returns the claim's statistic of a side, [resamples]."""
    if claim.statistic == "kernel_mean":
        weights = values[_weights_of(side)]
        mean: Floats = (values[side] * weights).sum(axis=1) / weights.sum(axis=1)
        return mean
    return choose(STATISTICS, claim.statistic, "statistic")(values[side])


def _largest(claim: Claim, values: Floats) -> Floats:
    if claim.statistic == "worst":
        worst: Floats = values.max(axis=1)
        return worst
    return choose(STATISTICS, claim.statistic, "statistic")(values)


_RIGHT_AHEAD = ("right_better", "at_most")


def _ratio_leads(claim: Claim, values: Mapping[Side, Floats]) -> list[Floats]:
    """Returns the lead of the side that the paper sees ahead, in percent or as a factor, for each pair."""
    if claim.against is not None:
        ratios = [values[left] / claim.against for left in claim.left]
    else:
        ratios = [values[left] / values[right] for left, right in claim.pairs]
    # Inverted where needed, so that a ratio above 1 means that the side expected ahead leads.
    if (claim.direction in _RIGHT_AHEAD) == (claim.sign > 0.0):
        ratios = [1.0 / ratio for ratio in ratios]
    statistic = choose(STATISTICS, claim.statistic, "statistic")
    factors = [statistic(ratio) for ratio in ratios]
    return factors if claim.scale == "factor" else [100.0 * (factor - 1.0) for factor in factors]


def _share_won(claim: Claim, left: Floats, right: Floats) -> Floats:
    share = share_won(left, right, claim.sign)
    return share if claim.direction == "left_better" else 1.0 - share


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
    threshold = 0.5 if claim.statistic == "share_of_programs" else float(claim.scale == "factor")
    if claim.direction == "magnitude":
        printed = claim.paper_effect
        threshold = min(printed) if isinstance(printed, tuple) else float(printed or 0.0)
    if low > threshold:
        return HOLDS
    return DOES_NOT_HOLD if high < threshold else CANNOT_TELL
