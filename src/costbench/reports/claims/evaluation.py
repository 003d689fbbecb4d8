"""The papers' claims, decided on result rows by one rule. No verdict is written by hand.

**Effect.** A statistic over test programs (seeds averaged first; an error below 0.05% counts as 0.05% in
geometric means) is taken of both sides; the effect is the lead of the side that the paper sees ahead,
positive if our results agree (`no_difference`: the left side's lead). tpugraphs2023 averages errors over the
kernels of all programs, so there a program weighs as many kernels as it has. Where a claim is about several
pairs, all of which must agree, the effect is the least lead (of `no_difference`, the largest). The share of
programs won counts from one half. Speed-ups are compared by their ratio in each program: 100 (statistic of
ratios - 1) percent. Where a claim is about how much settings matter, the effect is the right side's range
over its settings less the left one's.

**Interval.** 95%, over test programs and training seeds (`metrics.intervals`), from 10,000 resamples
with the same draws on both sides. Programs of different splits (or of the xla and nlp collections of layouts)
are drawn independently. Each pair of several has an interval of its own (`claims.leads`); the least lead is
above the least of the lower ends, and below the least of the upper ends, each at its share of the error. A
largest gain or worst error is that of the programs tested, and only its runs are drawn.

**Verdict.** For a claim that one side leads:

- `holds` if the whole interval lies above zero, `does not hold` if below, else `cannot tell`.
- A claim of no difference `holds` if the interval lies between -margin and margin, and `does not hold` if it
  lies outside (`claims.claim.Margin`): differences of errors that the papers call none are relative to the
  errors that they print, and so are ours to ours.
- A claim that names how large something is (every model badly off on some program; the largest gain of a
  search) `holds` if the interval lies above the least of what the paper prints, and `does not hold` if below.
- Where doing nothing has a value (`Claim.null_value`), a claim that doing nothing passes too cannot hold.
- With fewer than 6 test programs the verdict is `cannot tell`: even if all agree, chance alone would do as
  much in more than 5% of cases (2 / 2^5 = 6%; with 6 programs, 3%). A largest gain needs two runs instead.
- Where a network of either side was not trained enough (`reports.training_guard`; of the models compared with
  crop2024's, by the analytical model's error), the verdict is `cannot tell`: the effect of another network or
  of other inputs is not separable from that of a short training.

**Many claims.** Each verdict that an interval can give has a p-value, the least error at which the interval
still decides, and a q-value over all claims of the papers, or over all restated ones (Benjamini and Hochberg,
1995). A verdict whose q-value is above 5% does not count after control: of this number of claims, chance
may have made it.

**Strongest baseline.** A claim about the analytical model is decided a second and a third time, against the
strongest baseline instead (`claims.restatement`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import pandas as pd

from costbench.metrics.intervals import CrossedDraws, false_discovery_rates, smallest_tail
from costbench.reports.baseline_comparison import STRONGEST, strongest_baseline
from costbench.reports.claims.claim import Claim, Margin, Side, margins
from costbench.reports.claims.leads import (
    LARGEST,
    Needed,
    agrees,
    effect_of,
    idle_scores,
    intervals,
    level,
    needed,
    summary,
    weights_of,
)
from costbench.reports.frame import select
from costbench.reports.results import ALL, BEST
from costbench.reports.scores import (
    MIN_PROGRAMS,
    ScoreIndex,
    Scores,
    count_runs,
    score_index,
    scores_of,
    share_programs,
)
from costbench.rng import stream

HOLDS, DOES_NOT_HOLD, CANNOT_TELL = "holds", "does not hold", "cannot tell"
NOT_EVALUATED = "not evaluated"
BY_CONSTRUCTION = "by construction"
NOT_TRAINED_ENOUGH = "not trained enough"
FALSE_DISCOVERIES = 0.05
"""Share of the decided claims that may be decided by chance."""
_VERDICTS = {True: HOLDS, False: DOES_NOT_HOLD, None: CANNOT_TELL}


@dataclass(frozen=True)
class Finding:
    """Verdict on a claim by the result rows.

    Attributes:
        claim: claim that was decided.
        verdict: `holds`, `does not hold`, `cannot tell`, `by construction` or `not evaluated`.
        effect: effect as the module's description defines it; None if not evaluated.
        low: lower end of its interval.
        high: upper end of its interval.
        n: number of test programs compared (of the smaller split where two are).
        seeds: largest number of training seeds of a side.
        missing: results that are lacking, if not evaluated.
        reason: why the verdict is what it is whatever the interval; empty where the interval decides.
        p: least error at which the interval still decides; None where no interval may.
        q: least rate of false discoveries at which it counts among all claims; None without a p-value.
        needed: programs, runs or steps that would decide it, where the interval does not.
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
    p: float | None = None
    q: float | None = None
    needed: Needed | None = None


Undertrained = Mapping[tuple[str, Side], float]
"""(task, side) of a network that was not trained enough -> its error over that of the main network."""
Steps = Mapping[tuple[str, Side], int]
"""(task, side) of a network -> steps in which it would see as many samples as the main network."""


def evaluate_claims(
    claims: tuple[Claim, ...],
    frame: pd.DataFrame,
    seed: int,
    resamples: int = 10_000,
    undertrained: Undertrained = MappingProxyType({}),
    steps: Steps = MappingProxyType({}),
) -> tuple[Finding, ...]:
    """Decides each claim on the rows over all kernels.

    Args:
        claims: claims, also the source of the margins.
        frame: results (see `costbench.reports.frame`).
        seed: seed of the bootstrap; each claim has a random stream of its own.
        resamples: number of times that programs and seeds are drawn.
        undertrained: networks that decide nothing.
        steps: training steps in which a network would see as many samples as the main one.
    """
    index = score_index(frame)
    allowed = margins(claims)
    findings = []
    for claim in claims:
        resolved = _name_strongest(_choose_chip(claim, index), index)
        margin = Margin(claim.margin) if claim.margin else allowed.get((claim.task, claim.unit))
        draws = CrossedDraws(stream(seed, "claims", claim.id), resamples)
        findings.append(
            _distrust_undertrained(_evaluate(resolved, index, margin, draws), undertrained, steps)
        )
    return control_false_discoveries(findings)


def _choose_chip(claim: Claim, index: ScoreIndex) -> Claim:
    """Returns the claim with `any` replaced by the first chip with results of the most sides, if any has."""

    def num_sides(candidate: Claim) -> int:
        return sum((candidate.task, candidate.metric, side) in index for side in candidate.sides)

    # The claim itself comes first: of equals, `max` takes the first.
    return max((claim, *(claim.on(chip) for chip in index.chips)), key=num_sides)


def _name_strongest(claim: Claim, index: ScoreIndex) -> Claim:
    """Returns the claim with the strongest baseline by name, where there is one."""

    def named(side: Side) -> Side:
        if side.model != STRONGEST:
            return side
        return replace(side, model=strongest_baseline(index, claim.task, claim.metric, side) or STRONGEST)

    return replace(claim, left=tuple(map(named, claim.left)), right=tuple(map(named, claim.right)))


def _distrust_undertrained(finding: Finding, undertrained: Undertrained, steps: Steps) -> Finding:
    """Returns the finding without a verdict where a side's network was not trained enough."""
    claim = finding.claim
    networks = {side: (side.task or claim.task, replace(side.rows, kernels=ALL)) for side in claim.sides}
    ratios = {
        side.variant if side.model == Side().model else f"{side.model} {side.variant}": undertrained[network]
        for side, network in networks.items()
        if network in undertrained
    }
    if finding.verdict == NOT_EVALUATED or not ratios:
        return finding
    named = ", ".join(f"{network} ({ratio:.1f} times the main error)" for network, ratio in ratios.items())
    enough = [steps[network] for network in networks.values() if network in undertrained and network in steps]
    return replace(
        finding,
        verdict=CANNOT_TELL,
        reason=f"{NOT_TRAINED_ENOUGH}: {named}",
        p=None,
        needed=Needed(steps=max(enough)) if enough else None,
    )


def _evaluate(claim: Claim, index: ScoreIndex, margin: Margin | None, draws: CrossedDraws) -> Finding:
    if claim.construction:
        return Finding(claim, BY_CONSTRUCTION, reason=claim.construction)
    if claim.needs:
        return Finding(claim, NOT_EVALUATED, missing=(claim.needs,))
    if claim.direction == "no_difference" and margin is None:
        return Finding(claim, NOT_EVALUATED, missing=("a difference that the papers call none",))
    weights = {weights_of(side) for side in claim.sides} if claim.statistic == "kernel_mean" else set()
    sides = (*claim.sides, *sorted(weights, key=lambda side: (side.split, side.chip, side.kernels)))
    by_side = {side: scores_of(index, claim.task, claim.metric, side) for side in sides}
    missing = [_row_name(claim, side) for side, scores in by_side.items() if not scores.programs]
    if claim.statistic == "seed_deviation":
        alone = (side for side, scores in by_side.items() if len(scores.seeds) == 1)
        missing += [f"{_row_name(claim, side)}, two or more seeds" for side in alone]
    if missing:
        return Finding(claim, NOT_EVALUATED, missing=tuple(missing))
    by_side = share_programs(by_side)
    n = min(len(scores.programs) for scores in by_side.values())
    if n < (2 if claim.statistic == "standard_deviation" else 1):
        return Finding(claim, NOT_EVALUATED, missing=("programs that all sides were tested on",))
    size = margin.at(lambda: level(claim, by_side)) if margin is not None else 0.0
    return _judge(claim, by_side, draws, size)


def _judge(claim: Claim, scores: Mapping[Side, Scores], draws: CrossedDraws, margin: float) -> Finding:
    """Returns the finding by the intervals of all pairs."""
    leads = intervals(claim, scores, draws)
    n, runs = min(len(s.programs) for s in scores.values()), count_runs(scores.values())
    seeds = max(len(s.seeds) for s in scores.values())
    low, high = summary(claim, leads)
    finding = Finding(claim, CANNOT_TELL, effect_of(claim, leads), low, high, n, seeds)
    if claim.statistic in LARGEST and runs == 1:
        reason = "one run of each cannot tell one program's luck from its gain"
        return replace(finding, low=None, high=None, reason=reason, needed=Needed(runs=2))
    if claim.statistic not in LARGEST and n < MIN_PROGRAMS:
        return replace(finding, needed=Needed(programs=MIN_PROGRAMS))
    verdict = _VERDICTS[agrees(claim, leads, margin)]
    if verdict == HOLDS and claim.null_value is not None:
        idle = intervals(claim, idle_scores(claim, scores), draws)
        if agrees(claim, idle, margin) is not False:
            shown = ", ".join(f"{end:.2f}" for end in summary(claim, idle))
            return replace(finding, reason=f"doing nothing cannot be told from it: {shown} {claim.unit}")
    finding = replace(finding, verdict=verdict)
    if claim.wall_time:
        return finding
    p = smallest_tail(lambda tail: agrees(claim, leads, margin, tail) is not None)
    return replace(
        finding,
        p=p,
        needed=needed(claim, leads, margin, programs=n, runs=runs) if verdict == CANNOT_TELL else None,
    )


def control_false_discoveries(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Returns the findings with their q-values, over all of the papers' claims that have a p-value.

    Restated claims are a family of their own: they test some claims a second time, and with many programs,
    and tests that are sure to be decided would make room for others among the papers' claims.

    Claims share programs and networks, so that their tests depend on each other. Benjamini and Hochberg's
    procedure holds for positive dependence, and is known to hold its rate for two-sided tests of correlated
    normal effects (Reiner-Benaim, 2007).
    """
    controlled = list(findings)
    for restated in (False, True):
        p_values = {
            i: finding.p
            for i, finding in enumerate(findings)
            if finding.p is not None and bool(finding.claim.restates) == restated
        }
        for i, rate in zip(p_values, false_discovery_rates(list(p_values.values())), strict=True):
            controlled[i] = replace(controlled[i], q=rate)
    return tuple(controlled)


def verdict_after_control(finding: Finding, rate: float = FALSE_DISCOVERIES) -> str:
    """Returns the verdict if it counts among all claims, else that it is undecided.

    Verdicts without a p-value (wall times) stay as they are.
    """
    decided = finding.verdict in (HOLDS, DOES_NOT_HOLD)
    return CANNOT_TELL if decided and finding.q is not None and finding.q > rate else finding.verdict


def _row_name(claim: Claim, side: Side) -> str:
    """Returns what rows of a side are found by: `tile/random/tpu_v2/learned/main/tile_size_ape`."""
    collection = () if side.kernels == ALL else (side.kernels,)
    parts = (side.split, side.chip, side.model, side.variant, *collection)
    return "/".join((side.task or claim.task, *parts, side.metric or claim.metric))


SHORT_SHARE = "short_share"
"""Share of a program's kernels that run less than 5 us."""


def derived_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns `short_share` of each program whose fusion kernels were counted by evaluation.

    Args:
        frame: results of evaluation; `kernels` and `kernels_lt5us` of the model `best` count.
    """
    counts = select(frame, model=BEST, metric=("kernels_lt5us", "kernels"))
    keys = [column for column in frame.columns if column not in ("metric", "value", "experiment")]
    short, every = (counts[counts["metric"] == name] for name in ("kernels_lt5us", "kernels"))
    both = short.merge(
        every[[*keys, "value"]].drop_duplicates(keys, keep="last"), on=keys, suffixes=("", "_all")
    )
    both = both[both["value_all"] > 0.0].drop_duplicates(keys, keep="last")
    return both.assign(metric=SHORT_SHARE, value=both["value"] / both["value_all"])[list(frame.columns)]
