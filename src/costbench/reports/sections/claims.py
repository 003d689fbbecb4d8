"""Renders findings as a section of the page, as `claims.md` and as `claims.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from costbench.artifacts import write_json, write_text
from costbench.reports.claims.claim import TPUGRAPHS, Side, margins
from costbench.reports.claims.evaluation import (
    DOES_NOT_HOLD,
    FALSE_DISCOVERIES,
    HOLDS,
    NOT_EVALUATED,
    Finding,
    verdict_after_control,
)
from costbench.reports.declarations import fill_table
from costbench.reports.page import Section, paragraphs
from costbench.reports.rendering import to_markdown
from costbench.reports.results import FOLDS, title_of
from costbench.reports.scores import MIN_PROGRAMS
from costbench.reports.table import Table, Value
from costbench.reports.training_guard import MAX_RATIO

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
        paragraphs=_words(findings),
        tables=shown,
        folded=tuple(table.name for table in shown if table.name != STRONGEST_TABLE),
    )


def _words(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Returns how many claims hold, where and after control, and the rule."""
    printed, again = papers_own(findings), [one for one in findings if one.claim.restates]
    against = [one for one in again if _is_against_strongest(one) and one.verdict != NOT_EVALUATED]
    on_folds = {True: "folds over applications", False: "the papers' splits"}
    places = {
        where: _verdicts(one for one in against if (one.claim.sides[0].split == FOLDS) == folds)
        for folds, where in on_folds.items()
    }
    papers = {"lpm2021 and lpm2020 about accuracy and searches": [*_LEARNED_MODELS]}
    papers |= {
        one.claim.paper: [one.claim.paper] for one in printed if one.claim.paper not in _LEARNED_MODELS
    }
    counts = {
        named: _verdicts(one for one in printed if one.claim.paper in names)
        for named, names in papers.items()
    }
    return paragraphs(
        "claims",
        strongest={where: counted for where, counted in places.items() if counted},
        folds=_verdicts(one for one in again if _is_on_folds(one) and one.claim.paper != TPUGRAPHS),
        printed={named: counted for named, counted in counts.items() if counted},
        controlled={"of the papers' claims": _control(printed), "of restated claims": _control(again)},
        rate=100.0 * FALSE_DISCOVERIES,
        margins=sorted(margins(tuple(one.claim for one in findings)).items()),
        min_programs=MIN_PROGRAMS,
        max_ratio=MAX_RATIO,
    )


_LEARNED_MODELS = ("lpm2021", "lpm2020")


def _verdicts(findings: Iterable[Finding]) -> Counter[str]:
    return Counter(one.verdict for one in findings)


def _control(findings: Sequence[Finding]) -> dict[str, object]:
    """Returns how many verdicts are left when false discoveries among all of them are controlled."""
    tested = [one for one in findings if one.q is not None]
    decided = [one for one in tested if one.verdict in (HOLDS, DOES_NOT_HOLD)]
    lost = [one.claim.id for one in decided if verdict_after_control(one) != one.verdict]
    return {
        "tested": len(tested),
        "decided": len(decided),
        "kept": len(decided) - len(lost),
        "lost": lost,
    }


def papers_own(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Returns the findings on claims as the papers make them."""
    return tuple(one for one in findings if not one.claim.restates)


def _is_against_strongest(one: Finding) -> bool:
    """Whether a claim about the analytical model was decided against the strongest baseline."""
    networks = any(side.model == Side().model for side in one.claim.right)
    return bool(one.claim.restates) and one.claim.paper != TPUGRAPHS and not networks


def _is_on_folds(one: Finding) -> bool:
    """Whether a claim that compares networks was repeated on folds."""
    return bool(one.claim.restates) and not _is_against_strongest(one)


STRONGEST_TABLE = "claims_strongest"


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
    return fill_table(STRONGEST_TABLE, rows)


def _folds_table(findings: Sequence[Finding]) -> Table:
    """Returns the claims that compare networks, on folds over applications."""
    rows: list[tuple[Value, ...]] = []
    for one in findings:
        claim = one.claim
        if _is_on_folds(one) and one.verdict != NOT_EVALUATED:
            rows.append((claim.restates, claim.statement, _verdict(one), *_shown(one)))
    papers = dict.fromkeys(one.claim.paper for one in findings if _is_on_folds(one))
    return fill_table("claims_folds", rows, papers=", ".join(papers))


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
    return fill_table("claims", rows)


def _missing_table(findings: Sequence[Finding]) -> Table:
    rows = tuple(
        (one.claim.id, one.claim.statement, f"{one.claim.paper}, {one.claim.where}", "; ".join(one.missing))
        for one in findings
        if one.verdict == NOT_EVALUATED
    )
    return fill_table("claims_not_evaluated", rows)


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
