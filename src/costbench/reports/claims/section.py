"""Renders findings as a section of the page, as `claims.md` and as `claims.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from costbench.artifacts import write_json, write_text
from costbench.reports.claims.data import TPUGRAPHS, Margin, Side, margins
from costbench.reports.claims.rule import (
    BY_CONSTRUCTION,
    CANNOT_TELL,
    DOES_NOT_HOLD,
    FALSE_DISCOVERIES,
    HOLDS,
    NOT_EVALUATED,
    NOT_TRAINED_ENOUGH,
    Finding,
    verdict_after_control,
)
from costbench.reports.described_table import described_table
from costbench.reports.page import Section
from costbench.reports.rendering import to_markdown
from costbench.reports.results import FOLDS, title_of
from costbench.reports.scores import MIN_PROGRAMS
from costbench.reports.table import Table, Value
from costbench.reports.undertrained import MAX_RATIO

_STATISTICS = {
    "geometric_mean": "geometric mean",
    "mean": "mean",
    "median": "median",
    "standard_deviation": "standard deviation",
    "share_of_programs": "share of programs",
    "worst": "worst program",
    "best": "best program",
    "kernel_mean": "mean over kernels",
    "seed_deviation": "std. dev. over seeds",
}
_DIRECTIONS = {
    "left_better": "better",
    "right_better": "better",
    "no_difference": "equal",
    "not_worse": "not worse",
    "at_most": "at most",
    "magnitude": "at least",
}


def claims_section(findings: Sequence[Finding]) -> Section:
    """Returns the section: how many claims hold, the rule, the evaluated claims, and what others lack.

    Claims restated against the strongest baseline come first, in a table and a sentence of their own.
    """
    printed = papers_own(findings)
    tables = (
        _strongest_table(findings),
        _folds_table(findings),
        _evaluated_table(printed),
        _missing_table(findings),
    )
    shown = tuple(table for table in tables if table.rows)
    return Section(
        anchor="claims",
        title="Do the papers' claims hold here?",
        label="Claims",
        paragraphs=(
            *_against_strongest(findings),
            *_counted_on_folds(findings),
            *_counted(printed),
            *_after_control(printed, "of the papers' claims"),
            *_after_control([one for one in findings if one.claim.restates], "of restated claims"),
            *_rule(findings),
        ),
        tables=shown,
        folded=tuple(table.name for table in shown if table.name != STRONGEST_TABLE),
    )


def _counted(printed: Sequence[Finding]) -> tuple[str, ...]:
    """Returns how many claims hold: those about accuracy and searches, then of each other paper."""
    sentences = []
    learned_models = ("lpm2021", "lpm2020")
    others = dict.fromkeys(one.claim.paper for one in printed if one.claim.paper not in learned_models)
    for papers, names in (
        ("lpm2021 and lpm2020 about accuracy and searches", learned_models),
        *((paper, (paper,)) for paper in others),
    ):
        own = [one for one in printed if one.claim.paper in names]
        counts = {verdict: sum(one.verdict == verdict for one in own) for verdict in _VERDICTS}
        if own:
            sentences.append(
                f"Of {len(own)} claims of {papers}, {counts[HOLDS]} hold, {counts[DOES_NOT_HOLD]} do not "
                f"hold, {counts[CANNOT_TELL]} cannot be told either way, {counts[BY_CONSTRUCTION]} are true "
                f"of our results by construction, and {counts[NOT_EVALUATED]} were not evaluated."
            )
    return tuple(sentences)


def _after_control(findings: Sequence[Finding], named: str) -> tuple[str, ...]:
    """Returns how many verdicts are left when false discoveries among all of them are controlled."""
    tested = [one for one in findings if one.q is not None]
    decided = [one for one in tested if one.verdict in (HOLDS, DOES_NOT_HOLD)]
    if not decided:
        return ()
    kept = [one for one in decided if verdict_after_control(one) == one.verdict]
    lost = [one.claim.id for one in decided if verdict_after_control(one) != one.verdict]
    others = f" Not among these are {', '.join(lost)}." if lost else ""
    return (
        f"Of {len(tested)} verdicts {named} that an interval could give, {len(decided)} are decided by "
        f"their 95% interval alone, and {len(kept)} with false discoveries among all of them held at "
        f"{100.0 * FALSE_DISCOVERIES:g}% (Benjamini and Hochberg).{others}",
    )


def papers_own(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Returns the findings on claims as the papers make them."""
    return tuple(one for one in findings if not one.claim.restates)


def _against_strongest(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Returns how many claims about the analytical model hold against the strongest baseline, by split."""
    sentences = []
    for folds in (True, False):
        own = [
            one
            for one in findings
            if _is_against_strongest(one)
            and one.verdict != NOT_EVALUATED
            and (one.claim.sides[0].split == FOLDS) == folds
        ]
        if own:
            counts = {verdict: sum(one.verdict == verdict for one in own) for verdict in _VERDICTS}
            where = "folds over applications" if folds else "the papers' splits"
            sentences.append(
                f"on {where} {counts[HOLDS]} hold, {counts[DOES_NOT_HOLD]} do not hold and "
                f"{counts[CANNOT_TELL]} cannot be told either way"
            )
    if not sentences:
        return ()
    return (
        "The claims that compare a network with the analytical model, held against the strongest baseline: "
        f"{'; '.join(sentences)}. The strongest baseline is the one with the best mean of the claim's metric "
        "on the very test programs, which favours it. Folds, where every program is tested once and no "
        "application is on both sides, are the evidence that counts.",
    )


def _is_against_strongest(one: Finding) -> bool:
    """Whether a claim about the analytical model was decided against the strongest baseline."""
    networks = any(side.model == Side().model for side in one.claim.right)
    return bool(one.claim.restates) and one.claim.paper != TPUGRAPHS and not networks


def _counted_on_folds(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Returns how many claims of lpm2021 and lpm2020 about networks hold on folds, if any was decided."""
    own = [one for one in findings if _is_on_folds(one) and one.claim.paper != TPUGRAPHS]
    if not own:
        return ()
    counts = {verdict: sum(one.verdict == verdict for one in own) for verdict in _VERDICTS}
    return (
        "Claims of lpm2021 and lpm2020 that compare networks, repeated on folds over applications, where all "
        f"programs are tested: of {len(own)}, {counts[HOLDS]} hold, {counts[DOES_NOT_HOLD]} do not hold and "
        f"{counts[CANNOT_TELL]} cannot be told either way.",
    )


def _is_on_folds(one: Finding) -> bool:
    """Whether a claim that compares networks was repeated on folds."""
    return bool(one.claim.restates) and not _is_against_strongest(one)


STRONGEST_TABLE = "claims_strongest"
_VERDICTS = (HOLDS, DOES_NOT_HOLD, CANNOT_TELL, BY_CONSTRUCTION, NOT_EVALUATED)


def _rule(findings: Sequence[Finding]) -> tuple[str, ...]:
    allowed = margins(tuple(one.claim for one in findings))
    said = ", ".join(_margin(place, margin) for place, margin in sorted(allowed.items()))
    return (
        "The effect is the lead of the side that the paper sees ahead (the first-named one's, where it "
        "sees none), positive if our results agree; of a claim about several pairs, the least lead. "
        "Speed-ups are compared by their ratio in each program; of a claim about settings, the ranges over "
        "them are. Claims about wall times have a verdict here and no number, which is another one on every "
        "machine. The interval is over test programs and training seeds (repeats, of searches), of 10,000 "
        "resamples that are the same for both sides, and corrected for few programs and seeds. p is the "
        "least error at which it still decides, q the least rate of false discoveries at which its verdict "
        "counts among all. What would decide a claim is an estimate: the width of an interval falls as the "
        "square root of the number of programs.",
        "A claim holds if the whole interval lies above zero (a share of programs: above one half), does not "
        "hold if it lies below, and else cannot be told. A claim of no difference holds if the interval lies "
        f"within the margin, the largest difference that the papers still call none: {said}. That a side "
        "is not worse holds if the interval does not reach below zero; that it trails by at most what is "
        "printed, if the interval lies below that and doing nothing trails by more. That every "
        "model has a bad program, or that one program gains much, holds if the interval lies above the "
        "least that the paper prints; these programs are given, and only runs are drawn. Fewer than "
        f"{MIN_PROGRAMS} test programs cannot tell, and "
        f"neither can networks that were {NOT_TRAINED_ENOUGH}: fewer samples than the main network saw, and "
        f"an error above {MAX_RATIO:g} times its. With "
        "one training seed, the interval knows nothing of how training runs differ. A verdict about a "
        "network is about the training that it had; learning curves, where they were run, say what more "
        "would bring.",
    )


def _margin(place: tuple[str, str], margin: Margin) -> str:
    task, unit = place
    if margin.relative:
        return f"{100.0 * margin.size:.0f}% of the mean error ({task}, {unit})"
    return f"{margin.size:g} {unit} ({task})"


def _shown(one: Finding) -> tuple[Value, ...]:
    """Returns the values of the columns `effect_columns`."""
    statistic, asked = _STATISTICS[one.claim.statistic], None if one.needed is None else str(one.needed)
    return (one.effect, one.low, one.high, one.claim.unit, statistic, one.n, one.seeds, one.p, one.q, asked)


def _strongest_table(findings: Sequence[Finding]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for one in findings:
        claim = one.claim
        if not _is_against_strongest(one) or one.verdict == NOT_EVALUATED:
            continue
        against = " and ".join(title_of(side.model) for side in claim.right)
        named = (claim.restates, claim.statement, claim.tested_on, against, _verdict(one))
        rows.append((*named, *_shown(one)))
    return described_table(STRONGEST_TABLE, rows)


def _folds_table(findings: Sequence[Finding]) -> Table:
    """Returns the claims that compare networks, on folds over applications."""
    rows: list[tuple[Value, ...]] = []
    for one in findings:
        claim = one.claim
        if _is_on_folds(one) and one.verdict != NOT_EVALUATED:
            rows.append((claim.restates, claim.statement, _verdict(one), *_shown(one)))
    papers = dict.fromkeys(one.claim.paper for one in findings if _is_on_folds(one))
    return described_table("claims_folds", rows, papers=", ".join(papers))


def _verdict(one: Finding) -> str:
    return f"{one.verdict} ({one.reason})" if one.reason else one.verdict


def _evaluated_table(findings: Sequence[Finding]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for one in findings:
        claim = one.claim
        if one.verdict == NOT_EVALUATED:
            continue
        rows.append(
            (
                claim.id,
                claim.statement,
                _verdict(one),
                _DIRECTIONS[claim.direction],
                printed_effect(claim.paper_effect),
                *_shown(one),
                f"{claim.paper}, {claim.where}",
            )
        )
    return described_table("claims", rows)


def _missing_table(findings: Sequence[Finding]) -> Table:
    rows = tuple(
        (one.claim.id, one.claim.statement, f"{one.claim.paper}, {one.claim.where}", "; ".join(one.missing))
        for one in findings
        if one.verdict == NOT_EVALUATED
    )
    return described_table("claims_not_evaluated", rows)


def printed_effect(effect: float | tuple[float, float] | None) -> str:
    """Formats a printed effect for tables: a number, a range, or a dash."""
    if effect is None:
        return "–"
    return " to ".join(f"{value:g}" for value in (effect if isinstance(effect, tuple) else (effect,)))


def write_claims(findings: Sequence[Finding], folder: Path) -> tuple[Path, Path]:
    """Write `claims.md` and `claims.json`; their paths.

    Raises:
        DataError: if one cannot be written.
    """
    section = claims_section(findings)
    markdown, plain = folder / "claims.md", folder / "claims.json"
    parts = [
        f"# {section.title}",
        *section.paragraphs,
        *(to_markdown(table).rstrip() for table in section.tables),
    ]
    write_text(markdown, "\n\n".join(parts) + "\n")
    write_json(plain, [_plain(one) for one in findings])
    return markdown, plain


def _plain(one: Finding) -> dict[str, object]:
    effect = one.claim.paper_effect
    return {
        "id": one.claim.id,
        "effect": one.effect,
        "ci_low": one.low,
        "ci_high": one.high,
        "paper_effect": list(effect) if isinstance(effect, tuple) else effect,
        "unit": one.claim.unit,
        "verdict": one.verdict,
        "after_control": verdict_after_control(one),
        "p": one.p,
        "q": one.q,
        "needed": None if one.needed is None else asdict(one.needed),
        "n": one.n,
        "missing": list(one.missing),
        "reason": one.reason,
        "against": [side.model for side in one.claim.right] if one.claim.restates else [],
    }
