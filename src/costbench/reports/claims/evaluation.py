"""The papers' claims, decided on result rows by one rule. No verdict is written by hand.

**Effect.** A statistic over test programs (seeds averaged first, of networks and of all that has several as
many as each of these has, but for deviations over runs; an error below 0.05% counts as 0.05% in geometric
means) is taken of both sides; the effect is the lead of the side that the paper sees ahead, positive if our
results agree (`no_difference`: the left side's lead). tpugraphs2023 averages errors over the kernels of all
programs, so there a program weighs as many kernels as it has. Where a claim is about several pairs, all of
which must agree, the effect is the least lead (of `no_difference`, the largest). The share of programs won
counts from one half. Speed-ups are compared by their ratio in each program: 100 (statistic of ratios - 1)
percent. Where a claim is about how much settings matter, the effect is the right side's range over its
settings less the left one's.

**Interval.** 95%, over test programs and training seeds (`metrics.intervals`), from 10,000 resamples
with the same draws on both sides. Programs of different splits (or of the xla and nlp collections of layouts)
are drawn independently. Programs of one application are alike, so that there is a second interval for which
whole applications are drawn; the wider one decides. Each pair of several has an interval of its own
(`claims.leads`); the least lead is above the least of the lower ends, and below the least of the upper ends,
each at its share of the error. A largest gain or worst error is that of the programs tested, and only its
runs are drawn.

**Verdict.** For a claim that one side leads:

- `holds` if the whole interval lies above zero; with a word of size ("much", "nearly every"), above the
  least that the word asks (`papers/magnitudes.yaml`).
- `holds, smaller than printed` if it lies above zero, but wholly below the least effect that the paper
  prints, or below what the word asks.
- `does not hold` if the whole interval lies below zero, or where the word asks for little, above that.
- `no difference larger than X` if two one-sided tests, each at 5%, say that no side leads by X, and X is less
  than the paper's effect, or without one, than the largest difference that the papers call none.
- else `undecided`.

Of other claims:

- A claim of no difference `holds` if the interval lies between -margin and margin, and `does not hold` if it
  lies outside (`claims.claim.Margin`): differences of errors that the papers call none are relative to the
  errors that they print, and so are ours to ours.
- A claim that names how large something is (every model badly off on some program; the largest gain of a
  search) `holds` if the interval lies above the least of what the paper prints, and `does not hold` if below.
- A claim that doing nothing passes too (`Claim.null_value`), or a side that knows nothing (`Claim.blind`),
  cannot hold.

And of all:

- `by construction` where our results agree by how they are made, `not evaluated` where results are missing.
- `not trained enough` where a network of either side was not (`reports.training_guard`; of models compared
  with crop2024's, by the analytical model's error): what another network or other inputs do and what a short
  training does is not separable.
- With fewer than 6 test programs the verdict is `undecided`: even if all agree, chance alone would do as
  much in more than 5% of cases (2 / 2^5 = 6%; with 6 programs, 3%). A largest gain needs two runs instead.
- With fewer than three seeds on a side, a verdict is about the networks as trained, not about architectures
  (`Finding.about`).

**Many claims.** Each verdict that an interval can give has a p-value, the least error at which the interval
still decides, and a q-value over all claims of its set (`claims.contrasts`; Benjamini and Hochberg, 1995). A
verdict whose q-value is above 5% does not count after control: of this number of claims, chance may have made
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pandas as pd

from costbench.metrics.intervals import (
    CrossedDraws,
    Interval,
    WiderInterval,
    false_discovery_rates,
    smallest_tail,
)
from costbench.reports.claims.claim import (
    TRAININGS,
    Claim,
    Margin,
    Side,
    magnitudes,
    margins,
    printed_sizes,
)
from costbench.reports.claims.leads import (
    LARGEST,
    TAIL,
    Needed,
    effect_of,
    idle_scores,
    intervals,
    largest_difference,
    level,
    lie_within,
    needed,
    region,
    region_of_words,
    summary,
    weights_of,
)
from costbench.reports.frame import select
from costbench.reports.results import ALL, BEST, TRAINED
from costbench.reports.scores import (
    MIN_INTERVAL,
    MIN_PROGRAMS,
    Draws,
    ScoreIndex,
    Scores,
    count_runs,
    make_draws,
    score_index,
    scores_of,
    share_programs,
)
from costbench.reports.training_guard import ModelBudget, TrainingGuard

HOLDS, DOES_NOT_HOLD, UNDECIDED = "holds", "does not hold", "undecided"
SMALLER = "holds, smaller than printed"
NO_DIFFERENCE = "no difference"
NOT_EVALUATED = "not evaluated"
BY_CONSTRUCTION = "by construction"
NOT_TRAINED_ENOUGH = "not trained enough"
DECIDED = (HOLDS, SMALLER, NO_DIFFERENCE, DOES_NOT_HOLD)
"""Verdicts that an interval gives."""
VERDICTS = (*DECIDED, UNDECIDED, NOT_TRAINED_ENOUGH, BY_CONSTRUCTION, NOT_EVALUATED)
"""All verdicts, in the order in which reports count them."""
FALSE_DISCOVERIES = 0.05
"""Share of the decided claims that may be decided by chance."""
MIN_SEEDS = 3
"""Training runs of each side that a verdict about architectures takes."""
_LEADS = ("left_better", "right_better")


@dataclass(frozen=True)
class Bounds:
    """A 95% interval of an effect, and how many independent units it is over."""

    low: float
    high: float
    units: int


@dataclass(frozen=True)
class Finding:
    """Verdict on a claim by the result rows.

    Attributes:
        claim: claim that was decided.
        verdict: one of `VERDICTS`.
        effect: effect as the module's description defines it; None if not evaluated.
        low: lower end of its interval, the wider of those over programs and over applications.
        high: upper end of its interval.
        no_larger_than: X of the verdict `no difference larger than X`.
        by_program: interval over test programs, or what `Claim.counted` says.
        by_application: interval over applications, or `Claim.grouped_by`; None with too few.
        n: number of test programs (or `Claim.counted`) compared; of the smaller split where two are.
        seeds: number of training seeds by side.
        steps: number of training steps by side, of networks whose budget is known.
        given: what the model of a side was given, where it is known.
        at_plateau: whether more training would not change the models of sides, where that was tried.
        profile: name of the profile whose packed results decide it; empty for the report's own results.
        about: `architectures` if networks are compared with enough seeds each, `networks as trained` with
            fewer; empty without networks.
        missing: results that are lacking, if not evaluated.
        reason: why the verdict is what it is whatever the interval; empty where the interval decides.
        looks: how often the claim was looked at while its results grew, each of which might have decided it.
        p: least error at which the interval still decides, times `looks` (Bonferroni); None where no interval
            may.
        q: least rate of false discoveries at which it counts among all claims; None without a p-value.
        needed: programs, runs or steps that would decide it, where the interval does not.
    """

    claim: Claim
    verdict: str
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    no_larger_than: float | None = None
    by_program: Bounds | None = None
    by_application: Bounds | None = None
    n: int = 0
    seeds: Mapping[Side, int] = field(default_factory=dict)
    steps: Mapping[Side, int] = field(default_factory=dict)
    given: Mapping[Side, ModelBudget] = field(default_factory=dict)
    at_plateau: Mapping[Side, bool] = field(default_factory=dict)
    profile: str = ""
    about: Literal["", "architectures", "networks as trained"] = ""
    missing: tuple[str, ...] = ()
    reason: str = ""
    looks: int = 1
    p: float | None = None
    q: float | None = None
    needed: Needed | None = None


def evaluate_claims(
    claims: tuple[Claim, ...],
    frame: pd.DataFrame,
    seed: int,
    resamples: int = 10_000,
    guard: TrainingGuard = TrainingGuard(),  # noqa: B008  frozen
    margins_of: tuple[Claim, ...] = (),
) -> tuple[Finding, ...]:
    """Decides each claim on the rows over all kernels.

    Args:
        claims: claims.
        frame: results (see `costbench.reports.frame`).
        seed: seed of the bootstrap; each claim has a random stream of its own.
        resamples: number of times that programs and seeds are drawn.
        guard: what networks were trained for, and which decide nothing.
        margins_of: claims that margins are taken from; empty for the claims themselves.
    """
    index = score_index(frame)
    allowed = margins(margins_of or claims)
    findings = []
    for claim in claims:
        margin = Margin(claim.margin) if claim.margin else allowed.get((claim.task, claim.unit))
        draws = make_draws(index.applications, seed, "claims", claim.id, resamples=resamples)
        finding = _evaluate(_choose_chip(claim, index), index, margin, draws)
        findings.append(_distrust_untrained(finding, guard))
    return control_false_discoveries(findings)


def _choose_chip(claim: Claim, index: ScoreIndex) -> Claim:
    """Returns the claim with `any` replaced by the first chip with results of the most sides, if any has."""

    def num_sides(candidate: Claim) -> int:
        return sum((candidate.task, candidate.metric, side) in index for side in candidate.sides)

    # The claim itself comes first: of equals, `max` takes the first.
    return max((claim, *(claim.on(chip) for chip in index.chips)), key=num_sides)


def _distrust_untrained(finding: Finding, guard: TrainingGuard) -> Finding:
    """Returns the finding with its networks' budgets, and no verdict where one was not trained enough."""
    claim = finding.claim
    networks = {side: guard.networks_of(side.task or claim.task, side) for side in claim.sides}
    known = {
        side: [guard.trained[key] for key in keys if key in guard.trained] for side, keys in networks.items()
    }
    given = {side: guard.budget_of(side.task or claim.task, side) for side in claim.sides}
    at_plateau = {side: guard.at_plateau(side.task or claim.task, side) for side in claim.sides}
    finding = replace(
        finding,
        steps={side: min(steps) for side, steps in known.items() if steps},
        given={side: budget for side, budget in given.items() if budget is not None},
        at_plateau={side: answer for side, answer in at_plateau.items() if answer is not None},
    )
    by_reason: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for keys in networks.values() for key in keys):
        reason, network = guard.reasons.get(key), key[1]
        if reason:
            named = network.variant if network.model == Side().model else f"{network.model} {network.variant}"
            by_reason.setdefault(reason, []).append(named)
    if finding.verdict in (NOT_EVALUATED, BY_CONSTRUCTION) or not by_reason:
        return finding
    enough = [guard.steps[key] for keys in networks.values() for key in keys if key in guard.steps]
    return replace(
        finding,
        verdict=NOT_TRAINED_ENOUGH,
        no_larger_than=None,
        reason="; ".join(
            f"{', '.join(dict.fromkeys(named))}: {reason}" for reason, named in by_reason.items()
        ),
        p=None,
        needed=Needed(steps=max(enough)) if enough else None,
    )


def _evaluate(claim: Claim, index: ScoreIndex, margin: Margin | None, draws: Draws) -> Finding:
    if claim.construction:
        return Finding(claim, BY_CONSTRUCTION, reason=claim.construction)
    if claim.needs:
        return Finding(claim, NOT_EVALUATED, missing=(claim.needs,))
    if claim.direction == "no_difference" and margin is None:
        return Finding(claim, NOT_EVALUATED, missing=("a difference that the papers call none",))
    beside = {weights_of(side) for side in claim.sides} if claim.statistic == "kernel_mean" else set()
    beside |= {claim.blind} if claim.blind is not None else set()
    sides = (*claim.sides, *sorted(beside, key=lambda side: (side.split, side.chip, side.kernels)))
    by_side = {side: scores_of(index, claim.task, claim.metric, side) for side in sides}
    missing = [_row_name(claim, side) for side, scores in by_side.items() if not scores.programs]
    if claim.statistic == "seed_deviation":
        alone = (side for side, scores in by_side.items() if len(scores.seeds) == 1)
        missing += [f"{_row_name(claim, side)}, two or more seeds" for side in alone]
    if missing:
        return Finding(claim, NOT_EVALUATED, missing=tuple(missing))
    by_side = share_programs(by_side)
    if claim.statistic != "seed_deviation":
        by_side = share_runs(by_side)
    n = min(len(scores.programs) for scores in by_side.values())
    if n < (2 if claim.statistic == "standard_deviation" else 1):
        return Finding(claim, NOT_EVALUATED, missing=("programs that all sides were tested on",))
    size = margin.at(lambda: level(claim, by_side)) if margin is not None else 0.0
    return look(_judge(claim, by_side, draws, size), claim.looks)


def share_runs(scores: Mapping[Side, Scores]) -> dict[Side, Scores]:
    """Restricts scores to the first training runs, as many as each network and each side with several has.

    The mean of runs before a geometric mean over programs is the larger the more runs there are: one that
    fails on a program is in it.
    """
    counts = [of_side.runs for side, of_side in scores.items() if of_side.runs > 1 or side.model in TRAINED]
    runs = min(counts, default=1)
    return {side: of_side.first(runs) for side, of_side in scores.items()}


def _judge(claim: Claim, scores: Mapping[Side, Scores], draws: Draws, margin: float) -> Finding:
    """Returns the finding by the intervals of all pairs."""
    n, runs = min(len(of_side.programs) for of_side in scores.values()), count_runs(scores.values())
    over_programs, over_applications, leads = _intervals(claim, scores, draws)
    by_program, by_application = Bounds(*summary(claim, over_programs), n), None
    if over_applications is not None:
        by_application = Bounds(*summary(claim, over_applications), draws.num_applications(scores.values()))
    low, high = summary(claim, leads)
    seeds = {side: _count_seeds(claim, scores[side], draws.applications) for side in claim.sides}
    finding = Finding(
        claim,
        UNDECIDED,
        effect_of(claim, leads),
        low,
        high,
        by_program=by_program,
        by_application=by_application,
        n=n,
        seeds=seeds,
        about=_about(seeds),
    )
    if claim.statistic in LARGEST and runs == 1:
        reason = "one run of each does not separate a program's luck from its gain"
        return replace(finding, low=None, high=None, by_program=None, reason=reason, needed=Needed(runs=2))
    if claim.statistic not in LARGEST and n < MIN_PROGRAMS:
        finding = replace(finding, needed=Needed(programs=MIN_PROGRAMS))
        if n < MIN_INTERVAL:
            return replace(finding, low=None, high=None, by_program=None, by_application=None)
        return finding
    verdict = decide(claim, leads, margin)
    if verdict == HOLDS and not (claim.null_value is None and claim.blind is None):
        *_, idle = _intervals(claim, idle_scores(claim, scores), draws)
        if lie_within(claim, idle, *region(claim, margin)) is not False:
            named = "doing nothing" if claim.blind is None else claim.blind.model
            low, high = summary(claim, idle)
            shown = f"{effect_of(claim, idle):z.2f} {claim.unit}, from {low:z.2f} to {high:z.2f}"
            within = f"; {margin:.2f} would count" if claim.direction == "no_difference" else ""
            return replace(finding, reason=f"{named} may pass too: {shown}{within}")
    finding = replace(
        finding,
        verdict=verdict or UNDECIDED,
        no_larger_than=largest_difference(claim, leads) if verdict == NO_DIFFERENCE else None,
    )
    if claim.wall_time:
        return finding

    def is_decided(tail: float) -> bool:
        verdict_at_tail = decide(claim, leads, margin, tail)
        # As it is printed: where a claim holds at any tail, "smaller than printed" may not.
        return verdict_at_tail is not None and (tail >= TAIL or verdict in (None, verdict_at_tail))

    smallest = smallest_tail(is_decided)
    estimated = None if verdict else needed(claim, leads, margin, programs=n, runs=runs)
    return replace(finding, p=smallest, needed=estimated)


def look(finding: Finding, times: int) -> Finding:
    """Returns the finding with the p-value of several looks at results that grew, of which it is the last.

    Who adds results until an interval decides is wrong more often than it says; a verdict that any of n looks
    may give, by no more than the sum of their errors (Bonferroni).
    """
    p = None if finding.p is None else min(1.0, times * finding.p)
    return replace(finding, looks=times * finding.looks, p=p)


def _intervals(
    claim: Claim, scores: Mapping[Side, Scores], draws: Draws
) -> tuple[tuple[Interval, ...], tuple[Interval, ...] | None, tuple[Interval, ...]]:
    """Returns the leads of all pairs over programs, over applications if there are enough, and the wider."""
    over_programs = intervals(claim, scores, draws.programs)
    if claim.statistic in LARGEST or not draws.num_applications(scores.values()):
        return over_programs, None, over_programs
    over_applications = intervals(claim, scores, draws.applications)
    return over_programs, over_applications, tuple(map(WiderInterval, over_programs, over_applications))


def _count_seeds(claim: Claim, scores: Scores, applications: CrossedDraws) -> int:
    """Returns the number of training seeds; where trainings stand as programs, that of each fold."""
    if claim.counted != TRAININGS:
        return scores.runs
    return len(scores.programs) // applications.num_drawn(scores.programs)


def _about(seeds: Mapping[Side, int]) -> Literal["", "architectures", "networks as trained"]:
    networks = [number for side, number in seeds.items() if side.model in TRAINED]
    if not networks:
        return ""
    return "architectures" if min(networks) >= MIN_SEEDS else "networks as trained"


def decide(claim: Claim, leads: Sequence[Interval], margin: float, tail: float = TAIL) -> str | None:
    """Returns one of `DECIDED`, as the module's description says; None where the intervals cannot tell.

    Args:
        claim: claim.
        leads: lead of each pair.
        margin: margin of a claim of no difference, and of no difference where none is printed; 0 without one.
        tail: error on either side.
    """
    as_worded = lie_within(claim, leads, *region_of_words(claim, margin), tail)
    holds = as_worded
    if claim.direction in _LEADS:
        holds = lie_within(claim, leads, *region(claim, margin), tail)
    if as_worded:
        return SMALLER if _is_smaller(claim, leads, tail) else HOLDS
    if holds and as_worded is False:
        return SMALLER if magnitudes()[claim.magnitude].least is not None else DOES_NOT_HOLD
    if holds:
        return SMALLER if _is_smaller(claim, leads, tail) else None
    if holds is False:
        return DOES_NOT_HOLD
    if claim.direction not in _LEADS or claim.scale == "factor" or claim.statistic in LARGEST:
        return None
    printed = printed_sizes(claim)
    meaningful = printed[0] if printed and printed[0] > 0.0 else margin
    if claim.statistic == "share_of_programs" and printed:
        meaningful = printed[0] - 0.5
    return NO_DIFFERENCE if largest_difference(claim, leads, tail) < meaningful else None


def _is_smaller(claim: Claim, leads: Sequence[Interval], tail: float) -> bool:
    """Whether some pair's lead lies wholly below the least effect that the paper prints."""
    printed = printed_sizes(claim)
    share = tail / len(leads)
    counted = claim.direction in _LEADS and claim.statistic not in LARGEST and bool(printed)
    return counted and any(lead.high(share) < printed[0] for lead in leads)


def control_false_discoveries(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Returns the findings with their q-values, over all claims of a set that have a p-value.

    Each set is a family of its own: sets test some claims again, and with many programs, and tests that are
    sure to be decided would make room for others among the papers' claims.

    Claims share programs and networks, so that their tests depend on each other. Benjamini and Hochberg's
    procedure holds for positive dependence, and is known to hold its rate for two-sided tests of correlated
    normal effects (Reiner-Benaim, 2007).
    """
    controlled = list(findings)
    for family in dict.fromkeys(finding.claim.set for finding in findings):
        p_values = {
            i: finding.p
            for i, finding in enumerate(findings)
            if finding.p is not None and finding.claim.set == family
        }
        for i, rate in zip(p_values, false_discovery_rates(list(p_values.values())), strict=True):
            controlled[i] = replace(controlled[i], q=rate)
    return tuple(controlled)


def verdict_after_control(finding: Finding) -> str:
    """Returns the verdict if it counts among all claims, else that it is open.

    Verdicts without a p-value (wall times) stay as they are.
    """
    decided = finding.verdict in DECIDED
    is_chance = decided and finding.q is not None and finding.q > FALSE_DISCOVERIES
    return UNDECIDED if is_chance else finding.verdict


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
