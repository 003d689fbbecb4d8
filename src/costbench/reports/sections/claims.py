"""Renders findings on claims as a section of the page, as `claims.md` and as `claims.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

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
from costbench.reports.declared_tables import fill_table
from costbench.reports.page import Section, paragraphs
from costbench.reports.rendering import to_markdown
from costbench.reports.results import FOLDS, title_of
from costbench.reports.scores import MIN_PROGRAMS
from costbench.reports.training_guard import MAX_RATIO

STRONGEST_TABLE = "claims_strongest"
_PRINTED, _AGAINST_STRONGEST, _ON_FOLDS = "printed", "strongest", "folds"
_ABOUT_LEARNED_MODELS = ("lpm2021", "lpm2020")
"""Papers whose claims are counted together."""
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
    frame = findings_frame(findings)
    is_missing = frame["verdict"] == NOT_EVALUATED
    shown_frame = frame.assign(verdict=frame["shown_verdict"])
    decided, missing = shown_frame[~is_missing], shown_frame[is_missing]
    folds = frame[frame["kind"] == _ON_FOLDS]
    tables = (
        fill_table(STRONGEST_TABLE, decided[decided["kind"] == _AGAINST_STRONGEST]),
        fill_table(
            "claims_folds",
            decided[decided["kind"] == _ON_FOLDS],
            papers=", ".join(folds["paper"].unique()),
        ),
        fill_table("claims", decided[decided["kind"] == _PRINTED]),
        fill_table("claims_not_evaluated", missing.assign(id=missing["own_id"])),
    )
    shown = tuple(table for table in tables if table.rows)
    return Section(
        anchor="claims",
        title="Do the papers' claims hold here?",
        label="Claims",
        paragraphs=paragraphs(
            "claims",
            **count_verdicts(frame),
            rate=100.0 * FALSE_DISCOVERIES,
            margins=sorted(margins(tuple(finding.claim for finding in findings)).items()),
            min_programs=MIN_PROGRAMS,
            max_ratio=MAX_RATIO,
        ),
        tables=shown,
        folded=tuple(table.name for table in shown if table.name != STRONGEST_TABLE),
    )


def findings_frame(findings: Sequence[Finding]) -> pd.DataFrame:
    """Returns a row a finding, with the columns of the tables of claims.

    Returns:
        besides these: `kind`, whether the claim is as printed, restated against the strongest baseline, or
        repeated on folds; `own_id`, the claim's own id, where `id` is that of the claim that it restates;
        `verdict`, which `shown_verdict` follows with its reason; `after_control`; `where_decided`.
    """
    rows = []
    for finding in findings:
        claim = finding.claim
        networks = any(side.model == Side().model for side in claim.right)
        restated = _ON_FOLDS if claim.paper == TPUGRAPHS or networks else _AGAINST_STRONGEST
        rows.append(
            {
                "kind": restated if claim.restates else _PRINTED,
                "own_id": claim.id,
                "id": claim.restates or claim.id,
                "paper": claim.paper,
                "statement": claim.statement,
                "where": f"{claim.paper}, {claim.where}",
                "where_decided": claim.sides[0].split if claim.sides else "",
                "tested_on": claim.tested_on,
                "against": " and ".join(title_of(side.model) for side in claim.right),
                "verdict": finding.verdict,
                "shown_verdict": f"{finding.verdict} ({finding.reason})"
                if finding.reason
                else finding.verdict,
                "after_control": verdict_after_control(finding),
                "claim": _DIRECTIONS[claim.direction],
                "paper_effect": printed_effect(claim.paper_effect),
                "effect": finding.effect,
                "ci_low": finding.low,
                "ci_high": finding.high,
                "unit": claim.unit,
                "statistic": _STATISTICS[claim.statistic],
                "n": finding.n,
                "seeds": finding.seeds,
                "p": finding.p,
                "q": finding.q,
                "needed": None if finding.needed is None else str(finding.needed),
                "missing": "; ".join(finding.missing),
            }
        )
    # As they are: pandas would make floats of whole numbers beside missing ones.
    return pd.DataFrame(rows, dtype=object)


def count_verdicts(frame: pd.DataFrame) -> dict[str, object]:
    """Returns how many claims have which verdict, and how many keep it when false discoveries are controlled.

    Args:
        frame: all findings (`findings_frame`).

    Returns:
        `strongest`: verdicts against the strongest baseline, by where they were decided; `folds`: verdicts of
        comparisons of networks repeated on folds; `printed`: verdicts on the claims as printed, by papers;
        `controlled`: by family of claims, what is left after control.
    """
    printed, restated = frame[frame["kind"] == _PRINTED], frame[frame["kind"] != _PRINTED]
    strongest = frame[(frame["kind"] == _AGAINST_STRONGEST) & (frame["verdict"] != NOT_EVALUATED)]
    on_folds = strongest["where_decided"] == FOLDS
    folds = frame[(frame["kind"] == _ON_FOLDS) & (frame["paper"] != TPUGRAPHS)]
    together = "lpm2021 and lpm2020 about accuracy and searches"
    papers = printed["paper"].where(~printed["paper"].isin(_ABOUT_LEARNED_MODELS), together)
    counts = {
        "folds over applications": Counter(strongest["verdict"][on_folds]),
        "the papers' splits": Counter(strongest["verdict"][~on_folds]),
    }
    by_paper = {name: Counter(printed["verdict"][papers == name]) for name in (together, *papers.unique())}
    return {
        "strongest": {where: verdicts for where, verdicts in counts.items() if verdicts},
        "folds": Counter(folds["verdict"]),
        "printed": {name: verdicts for name, verdicts in by_paper.items() if verdicts},
        "controlled": {
            "of the papers' claims": _count_after_control(printed),
            "of restated claims": _count_after_control(restated),
        },
    }


def _count_after_control(frame: pd.DataFrame) -> dict[str, object]:
    """Returns how many verdicts are left when false discoveries among all of them are controlled."""
    tested = frame[frame["q"].notna()]
    decided = tested[tested["verdict"].isin((HOLDS, DOES_NOT_HOLD))]
    lost = decided["own_id"][decided["after_control"] != decided["verdict"]].tolist()
    return {
        "tested": len(tested),
        "decided": len(decided),
        "kept": len(decided) - len(lost),
        "lost": lost,
    }


def printed_claims(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Returns the findings on claims as the papers print them, without the restated ones."""
    return tuple(finding for finding in findings if not finding.claim.restates)


def printed_effect(effect: float | tuple[float, float] | None) -> str:
    """Returns a printed effect as tables show it: a number, a range, or a dash."""
    if effect is None:
        return "–"
    return " to ".join(f"{value:g}" for value in (effect if isinstance(effect, tuple) else (effect,)))


def write_claims(findings: Sequence[Finding], folder: Path) -> tuple[Path, Path]:
    """Writes `claims.md` and `claims.json`; returns their paths.

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
    write_json(plain, [_json_entry(finding) for finding in findings])
    return markdown, plain


def _json_entry(finding: Finding) -> dict[str, object]:
    claim, effect = finding.claim, finding.claim.paper_effect
    return {
        "id": claim.id,
        "effect": finding.effect,
        "ci_low": finding.low,
        "ci_high": finding.high,
        "paper_effect": list(effect) if isinstance(effect, tuple) else effect,
        "unit": claim.unit,
        "verdict": finding.verdict,
        "after_control": verdict_after_control(finding),
        "p": finding.p,
        "q": finding.q,
        "needed": None if finding.needed is None else asdict(finding.needed),
        "n": finding.n,
        "missing": list(finding.missing),
        "reason": finding.reason,
        "against": [side.model for side in claim.right] if claim.restates else [],
    }
