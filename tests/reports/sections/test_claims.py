"""Findings as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from costbench.reports.claims.claim import Side, load_claims
from costbench.reports.claims.evaluation import CANNOT_TELL, DOES_NOT_HOLD, HOLDS, NOT_EVALUATED, Finding
from costbench.reports.claims.leads import Needed
from costbench.reports.claims.restatement import restate_against_strongest
from costbench.reports.sections.claims import (
    claims_section,
    count_verdicts,
    findings_frame,
    write_claims,
)
from tests.sentences import numbers

CLAIMS = {claim.id: claim for claim in load_claims()}
FINDINGS = (
    Finding(CLAIMS["lpm2021.rank_vs_mse_tile"], HOLDS, 3.25, 1.5, 5.0, 8, 2),
    Finding(CLAIMS["lpm2021.lstm_equals_transformer_tile"], CANNOT_TELL, 0.5, -1.0, 2.0, 8, 1),
    Finding(CLAIMS["lpm2021.sage_beats_gat_fusion"], NOT_EVALUATED, missing=("fusion/random/tpu_v2/x",)),
)


def _counts(*findings: Finding) -> dict[str, Any]:
    return count_verdicts(findings_frame(findings))


def test_verdicts_are_counted_and_the_rule_is_told() -> None:
    (counts,) = _counts(*FINDINGS)["printed"].values()
    assert counts == {HOLDS: 1, CANNOT_TELL: 1, NOT_EVALUATED: 1}
    section = claims_section(FINDINGS)
    # Claims, and how many hold, do not, are undecided, are true by construction and were not evaluated.
    assert numbers(section.paragraphs[0]) == [3, 1, 0, 1, 0, 1]
    # The only claim of no difference here: 0.9 points of errors of 3.7 and 4.6.
    assert 22 in numbers(section.paragraphs[2].replace("%", " "))
    evaluated, missing = section.tables
    assert [row[0] for row in evaluated.rows] == [finding.claim.id for finding in FINDINGS[:2]]
    assert evaluated.rows[0][2:8] == ("holds", "better", "10.9", 3.25, 1.5, 5.0)
    assert missing.rows[0][3] == "fusion/random/tpu_v2/x"


def test_empty_tables_are_left_out() -> None:
    assert [table.name for table in claims_section(FINDINGS[:1]).tables] == ["claims"]
    assert [table.name for table in claims_section(FINDINGS[2:]).tables] == ["claims_not_evaluated"]


def test_files_are_the_same_for_the_same_findings(tmp_path: Path) -> None:
    markdown, plain = write_claims(FINDINGS, tmp_path / "one")
    again = write_claims(FINDINGS, tmp_path / "two")
    assert [markdown.read_bytes(), plain.read_bytes()] == [path.read_bytes() for path in again]
    assert markdown.name == "claims.md"
    assert "| lpm2021.rank_vs_mse_tile |" in markdown.read_text()
    first, _, last = json.loads(plain.read_text())
    assert first == {
        "id": "lpm2021.rank_vs_mse_tile",
        "effect": 3.25,
        "ci_low": 1.5,
        "ci_high": 5.0,
        "paper_effect": 10.9,
        "unit": "points",
        "verdict": "holds",
        "after_control": "holds",
        "p": None,
        "q": None,
        "needed": None,
        "n": 8,
        "missing": [],
        "reason": "",
        "against": [],
    }
    assert (last["verdict"], last["effect"], last["paper_effect"]) == ("not evaluated", None, [2.4, 10.1])
    assert last["missing"] == ["fusion/random/tpu_v2/x"]


def test_claims_against_the_strongest_baseline_come_first() -> None:
    claim = CLAIMS["lpm2021.fusion_random_vs_analytical"]
    folds, strongest = (
        next(one for one in restate_against_strongest([claim]) if one.id.endswith(basis))
        for basis in ("@folds", "@strongest")
    )
    trees = (Side("trees", split="folds", chip="tpu_v3"),)
    findings = (
        *FINDINGS,
        Finding(replace(folds, right=trees), DOES_NOT_HOLD, -1.0, -2.0, -0.5, 40, 1),
        Finding(strongest, NOT_EVALUATED, missing=("x",)),
    )
    counts = _counts(*findings)
    assert counts["strongest"] == {"folds over applications": {DOES_NOT_HOLD: 1}}
    # The paper's claims are counted without them.
    (printed,) = counts["printed"].values()
    assert printed.total() == 3
    section = claims_section(findings)
    assert numbers(section.paragraphs[0]) == [0, 1, 0]
    first, evaluated, missing = section.tables
    assert first.rows[0][0] == "lpm2021.fusion_random_vs_analytical"
    assert first.rows[0][2:6] == ("folds over applications, tpu_v3", "boosted trees", DOES_NOT_HOLD, -1.0)
    assert len(evaluated.rows) == 2
    assert [row[0] for row in missing.rows] == [FINDINGS[2].claim.id, strongest.id]
    assert section.folded == ("claims", "claims_not_evaluated")


def test_both_counts_of_decided_claims_are_printed() -> None:
    first, second = FINDINGS[:2]
    found = (
        replace(first, p=0.001, q=0.003),
        replace(second, verdict=DOES_NOT_HOLD, p=0.04, q=0.06),
        replace(second, claim=CLAIMS["lpm2021.edge_direction_tile"], p=0.5, q=0.5, needed=Needed(31)),
    )
    assert _counts(*found)["controlled"]["of the papers' claims"] == {
        "tested": 3,
        "decided": 2,
        "kept": 1,
        "lost": ["lpm2021.lstm_equals_transformer_tile"],
    }
    section = claims_section(found)
    assert numbers(section.paragraphs[1].replace("%", " ")) == [3, 2, 95, 1, 5]
    assert section.tables[0].rows[2][-4:-1] == (0.5, 0.5, "about 31 programs")


def test_why_nothing_can_be_told_is_said() -> None:
    table = claims_section([replace(FINDINGS[0], verdict=CANNOT_TELL, reason="few programs")]).tables[0]
    assert table.rows[0][2] == f"{CANNOT_TELL} (few programs)"


def test_a_verdict_is_shown_as_found() -> None:
    table = claims_section([replace(FINDINGS[0], verdict=CANNOT_TELL)]).tables[0]
    assert table.rows[0][2] == CANNOT_TELL


def test_claims_of_tpugraphs_are_counted_by_themselves_and_on_folds_have_a_table() -> None:
    claim = CLAIMS["tpugraphs2023.sage_vs_gcn"]
    folds = replace(claim, id=f"{claim.id}@folds", restates=claim.id)
    findings = (
        *FINDINGS,
        Finding(claim, HOLDS, 0.5, -0.5, 0.9, 8, 1),
        Finding(folds, CANNOT_TELL, 1.0, -2.0, 3.0, 9, 1),
    )
    counts = _counts(*findings)
    learned_models, tpugraphs = counts["printed"].values()
    assert (learned_models.total(), tpugraphs) == (3, {HOLDS: 1})
    # Those on folds are of lpm2021 and lpm2020 alone.
    assert not counts["folds"]
    section = claims_section(findings)
    tables = {table.name: table for table in section.tables}
    assert [row[0] for row in tables["claims_folds"].rows] == ["tpugraphs2023.sage_vs_gcn"]
    assert len(tables["claims"].rows) == 3
    assert "claims_strongest" not in tables


def test_a_wall_time_has_a_verdict_and_no_number() -> None:
    claim = CLAIMS["tpugraphs2023.batching_cheaper"]
    (row,) = claims_section([Finding(claim, HOLDS, n=7, seeds=1)]).tables[0].rows
    assert (row[2], row[4], *row[5:8]) == ("holds", "1.1 to 20", None, None, None)


def test_claims_about_networks_on_folds_have_a_table_and_a_count_of_their_own() -> None:
    claim = CLAIMS["lpm2021.rank_vs_mse_tile"]
    moved = replace(claim, id=f"{claim.id}@folds", restates=claim.id)
    findings = [*FINDINGS, Finding(moved, DOES_NOT_HOLD, -1.0, -2.0, -0.5, 138, 1)]
    assert _counts(*findings)["folds"] == {DOES_NOT_HOLD: 1}
    section = claims_section(findings)
    assert numbers(section.paragraphs[0]) == [1, 0, 1, 0]
    (folds,) = (table for table in section.tables if table.name == "claims_folds")
    assert [row[:3] for row in folds.rows] == [(claim.id, claim.statement, DOES_NOT_HOLD)]
    assert "claims_strongest" not in [table.name for table in section.tables]
