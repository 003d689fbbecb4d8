"""Renders findings on claims as a section of the page, as `claims.md` and as `claims.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any

import pandas as pd

from costbench.artifacts import write_text
from costbench.reports.claims.claim import Side, magnitudes, margins
from costbench.reports.claims.contrasts import knows_estimate
from costbench.reports.claims.evaluation import (
    DECIDED,
    FALSE_DISCOVERIES,
    MIN_SEEDS,
    NO_DIFFERENCE,
    NOT_EVALUATED,
    VERDICTS,
    Bounds,
    Finding,
    verdict_after_control,
)
from costbench.reports.declared_tables import fill_table
from costbench.reports.page import Page, Section, paragraphs, pointer
from costbench.reports.rendering import to_markdown, write_numbers
from costbench.reports.results import title_of
from costbench.reports.scores import MIN_PROGRAMS
from costbench.reports.table import Table

STRONGEST_TABLE = "claims_strongest"
_OPEN_TABLES = ("claims_verdicts", STRONGEST_TABLE, "claims")
STRONGEST, PRINTED, ALL_PROGRAMS, STAND_IN, REAL = "strongest", "printed", "all_programs", "stand_in", "real"
_SETS = {
    STRONGEST: "networks held against boosted trees, like with like, or layouts that need no model, on folds",
    PRINTED: "claims as printed, with the paper's own model and baseline on its kind of split",
    ALL_PROGRAMS: "the same comparisons on folds, where every program is tested once",
    STAND_IN: "claims of lpm2021 and lpm2020 with our network in place of the paper's",
    REAL: "the same on a machine that exists, XLA on a processor",
}
"""What is asked in each set of comparisons."""
_UPWARDS = Context(prec=2, rounding=ROUND_CEILING)
_STATISTICS = {
    "worst": "worst program",
    "best": "best program",
    "kernel_mean": "mean over kernels",
    "seed_deviation": "std. dev. over seeds",
}
"""Those with another name for people."""
_DIRECTIONS = {
    "left_better": "better",
    "right_better": "better",
    "no_difference": "equal",
    "not_worse": "not worse",
    "at_most": "at most",
    "magnitude": "at least",
}
_BY_CLAIM = [PRINTED, ALL_PROGRAMS, STAND_IN, REAL]
"""Sets that a claim of a paper may have a verdict in."""
_NOT_ON_REAL = {"tile": "no tile sizes there", "layout": "no layouts to choose there"}
"""Why a real machine, which has samples of fusion alone, has no verdict on claims of a task."""
_UNIT_OF_SHARES = "share of programs"
_PLATEAU = {True: [], False: ["not at its plateau"], None: ["no learning curve"]}
"""What is said of a model of the headline that is at its plateau, that is not, and where nobody tried."""


def claims_section(findings: Sequence[Finding], evidence: str = "") -> Section:
    """Returns the section: verdicts by set, the rule, and each comparison with its intervals.

    Counts of verdicts come first, then statements about the strongest baseline; then a row a claim, with its
    verdicts as printed, on all programs, and with our network in place of the paper's.

    Args:
        findings: findings on all comparisons.
        evidence: path of the page that has results which are missing here, from that of this report; empty if
            there is none.
    """
    frame = findings_frame(findings)
    is_missing, is_ours = frame["verdict"] == NOT_EVALUATED, frame["set"] == STRONGEST
    rows = frame.assign(verdict=frame["shown_verdict"])
    tables = (
        _verdicts_table(frame, findings),
        fill_table(STRONGEST_TABLE, rows[~is_missing & is_ours]),
        fill_table("claims", _by_claim(rows)),
        fill_table("claims_compared", rows[~is_missing & ~is_ours]),
        fill_table("claims_not_evaluated", rows[is_missing]),
    )
    shown = tuple(table for table in tables if table.rows)
    missing = int(is_missing.sum())
    elsewhere = (pointer("claims", "evidence", "overview", page=evidence, count=missing),)
    return Section(
        anchor="claims",
        pointers=elsewhere if evidence and missing else (),
        title="Do the papers' claims hold here?",
        label="Claims",
        page=Page("claims", "Claims"),
        paragraphs=paragraphs("claims"),
        tables=shown,
        folded=tuple(name for table in shown if (name := table.name) not in _OPEN_TABLES),
    )


def _verdicts_table(frame: pd.DataFrame, findings: Sequence[Finding]) -> Table:
    """Returns how many comparisons have which verdict, with the rule that gives these."""
    counted = count_verdicts(frame)
    rule = paragraphs(
        "claims",
        "rule",
        lost=[name for row in counted for name in row["lost"]],
        margins=sorted(margins(tuple(finding.claim for finding in findings)).items()),
        magnitudes=magnitudes().values(),
        min_programs=MIN_PROGRAMS,
        min_seeds=MIN_SEEDS,
    )
    return fill_table("claims_verdicts", counted, notes=rule, rate=f"{100.0 * FALSE_DISCOVERIES:g}")


def findings_frame(findings: Sequence[Finding]) -> pd.DataFrame:
    """Returns a row a finding, with the columns of the tables of claims.

    Returns:
        besides these: `set` of comparisons; `task`; `claim_id`, id of the paper's claim; `verdict`, which
        `shown_verdict` follows with its size or reason; `after_control`.
    """
    rows = []
    for finding in findings:
        claim, printed = finding.claim, finding.claim.printed
        rows.append(
            {
                "set": claim.set,
                "task": claim.task,
                "id": claim.id,
                "claim_id": claim.restates or claim.id,
                "paper": claim.paper,
                "statement": claim.statement,
                "where": f"{claim.paper}, {claim.where}",
                "tested_on": claim.tested_on,
                "compared": sides_in_words(finding, claim.left),
                "with": sides_in_words(finding, claim.right),
                "verdict": finding.verdict,
                "shown_verdict": shown_verdict(finding),
                "after_control": verdict_after_control(finding),
                "claim": _DIRECTIONS[claim.direction],
                "paper_effect": " to ".join(f"{value:g}" for value in printed) or "–",
                "effect": finding.effect,
                "ci_low": finding.low,
                "ci_high": finding.high,
                **_bounds("program", finding.by_program),
                **_bounds("application", finding.by_application),
                "unit": claim.unit,
                "statistic": _STATISTICS.get(claim.statistic, claim.statistic.replace("_", " ")),
                "n": finding.n,
                "applications": finding.by_application.units if finding.by_application else None,
                "units": f"{claim.counted}, {claim.grouped_by}",
                "about": finding.about,
                "p": finding.p,
                "q": finding.q,
                "needed": finding.needed and finding.needed.in_words(claim.counted),
                "missing": "; ".join(finding.missing),
            }
        )
    # As they are: pandas would make floats of whole numbers beside missing ones.
    return pd.DataFrame(rows, dtype=object)


def shown_verdict(finding: Finding) -> str:
    """Returns a verdict with its size, or with the reason for it: `no difference larger than 0.4 points`."""
    if finding.verdict == NO_DIFFERENCE and finding.no_larger_than is not None:
        size, unit = finding.no_larger_than, finding.claim.unit
        if unit == _UNIT_OF_SHARES:
            size, unit = 100 * size, "% of programs"
        # Rounded to the next digit a smaller difference would be shown than was excluded.
        larger = float(_UPWARDS.create_decimal(str(float(size))))
        return f"{NO_DIFFERENCE} larger than {larger:.2g} {unit}"
    return f"{finding.verdict} ({finding.reason})" if finding.reason else finding.verdict


def _bounds(name: str, bounds: Bounds | None) -> dict[str, float | None]:
    return {f"{name}_{end}": getattr(bounds, end, None) for end in ("low", "high")}


def sides_in_words(finding: Finding, sides: Sequence[Side]) -> str:
    """Returns models with what they were given: `hybrid (3 seeds, 6,400 steps, 90 core-seconds)`."""
    words = []
    for side in sides:
        name = " ".join(filter(None, (title_of(side.model), side.variant if side.variant != "main" else "")))
        seeds, given = finding.seeds.get(side, 0), finding.given.get(side)
        amounts = {"steps": finding.steps.get(side, 0)} if given is None else asdict(given)
        counted = {"seed" if seeds == 1 else "seeds": seeds, **amounts}
        budget = [f"{amount:,.0f} {unit.replace('_', '-')}" for unit, amount in counted.items() if amount]
        if given is not None and finding.profile:
            budget += _PLATEAU[finding.at_plateau.get(side)]
        words.append(f"{name} ({', '.join(budget)})" if any(amounts.values()) else name)
    return "; ".join(words)


def _by_claim(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a row a claim of the papers: its words, and its verdict in each set that it is in."""
    of_papers = frame[frame["paper"] != STRONGEST]
    first = of_papers.drop_duplicates("claim_id")
    verdicts = of_papers.drop_duplicates(["claim_id", "set"]).pivot(
        index="claim_id", columns="set", values="shown_verdict"
    )
    verdicts = verdicts.reindex(index=first["claim_id"], columns=_BY_CLAIM, fill_value="").fillna("")
    if (frame["set"] == REAL).any():
        tasks = first.set_index("claim_id")["task"]
        verdicts[REAL] = verdicts[REAL].where(verdicts[REAL] != "", tasks.map(_NOT_ON_REAL).fillna(""))
    return first.assign(id=first["claim_id"], **{name: verdicts[name].to_list() for name in verdicts.columns})


def count_verdicts(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns a row a set of comparisons: how many have which verdict, and how many keep it after control.

    Args:
        frame: all findings (`findings_frame`).

    Returns:
        the columns of table `claims_verdicts`, and `lost`: ids of comparisons that are not decided when false
        discoveries among all of the set are controlled.
    """
    counted = []
    for name, rows in frame.groupby("set"):
        tested = rows[rows["q"].notna()]
        decided = tested[tested["verdict"].isin(DECIDED)]
        lost = decided["id"][decided["after_control"] != decided["verdict"]].tolist()
        by_verdict = {verdict: int((rows["verdict"] == verdict).sum()) for verdict in VERDICTS}
        kept = len(decided) - len(lost)
        counts = {"total": len(rows), "tested": len(tested), "decided": len(decided), "kept": kept}
        counted.append({"set": name, "words": _SETS[str(name)], **by_verdict, **counts, "lost": lost})
    return sorted(counted, key=lambda row: [*_SETS].index(row["set"]))


def claims_of_papers(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Returns a finding a claim of the papers, with the paper's own model where there is one.

    It is that on the paper's kind of split; where that was not evaluated, the one on folds.
    """
    by_claim: dict[str, Finding] = {}
    for finding in findings:
        name = finding.claim.restates or finding.claim.id
        if finding.claim.set in (PRINTED, STAND_IN):
            by_claim.setdefault(name, finding)
        elif finding.claim.set == ALL_PROGRAMS:
            before = by_claim.get(name)
            if before is not None and before.verdict == NOT_EVALUATED:
                by_claim[name] = finding
    return tuple(by_claim.values())


def write_claims(findings: Sequence[Finding], folder: Path) -> tuple[Path, Path]:
    """Writes `claims.md` and `claims.json`, and returns their paths.

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
    write_numbers(plain, [_json_entry(finding) for finding in findings])
    return markdown, plain


def _json_entry(finding: Finding) -> dict[str, object]:
    claim, effect = finding.claim, finding.claim.paper_effect
    return {
        "id": claim.id,
        "claim": claim.restates or claim.id,
        "set": claim.set,
        "words": claim.statement,
        "sides": {
            "left": [_json_side(finding, side) for side in claim.left],
            "right": [_json_side(finding, side) for side in claim.right],
        },
        "verdict": finding.verdict,
        "after_control": verdict_after_control(finding),
        "about": finding.about,
        "size": {
            "effect": finding.effect,
            "unit": claim.unit,
            "no_larger_than": finding.no_larger_than,
            "printed": list(effect) if isinstance(effect, tuple) else effect,
            "magnitude": claim.magnitude or None,
        },
        "ci_low": finding.low,
        "ci_high": finding.high,
        "intervals": {
            "programs": _json_bounds(finding.by_program),
            "applications": _json_bounds(finding.by_application),
        },
        "p": finding.p,
        "q": finding.q,
        "needed": None if finding.needed is None else asdict(finding.needed),
        "n": finding.n,
        "units": [claim.counted, claim.grouped_by],
        "missing": list(finding.missing),
        "reason": finding.reason,
        "profile": finding.profile or None,
        "looks": finding.looks,
    }


def _json_side(finding: Finding, side: Side) -> dict[str, object]:
    given = finding.given.get(side)
    return {
        **{name: getattr(side, name) for name in ("model", "variant", "split", "chip", "kernels")},
        "knows_estimate": knows_estimate(side.model),
        "seeds": finding.seeds.get(side),
        "steps": finding.steps.get(side),
        "fitted_kernels": None if given is None else given.kernels or None,
        "trees": None if given is None else given.trees or None,
        "core_seconds": None if given is None else given.core_seconds,
        "at_plateau": finding.at_plateau.get(side) if finding.profile else None,
    }


def _json_bounds(bounds: Bounds | None) -> dict[str, object] | None:
    return None if bounds is None or bounds.low is None else asdict(bounds)
