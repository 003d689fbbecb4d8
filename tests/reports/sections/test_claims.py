"""Findings as text and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from costbench.reports.claims.claim import load_claims
from costbench.reports.claims.contrasts import strongest_statements
from costbench.reports.claims.evaluation import (
    DOES_NOT_HOLD,
    HOLDS,
    NO_DIFFERENCE,
    NOT_EVALUATED,
    SMALLER,
    UNDECIDED,
    VERDICTS,
    Finding,
)
from costbench.reports.claims.leads import Needed
from costbench.reports.sections.claims import (
    claims_of_papers,
    claims_section,
    count_verdicts,
    findings_frame,
    write_claims,
)
from tests.sentences import numbers

CLAIMS = {claim.id: claim for claim in load_claims()}
LOSS = CLAIMS["lpm2021.rank_vs_mse_tile"]
VANILLA, MSE = LOSS.sides
FINDINGS = (
    Finding(LOSS, HOLDS, 13.25, 11.5, 15.0, n=8, seeds={VANILLA: 2, MSE: 1}, steps={VANILLA: 6400}),
    Finding(CLAIMS["lpm2021.lstm_equals_transformer_tile"], UNDECIDED, 0.5, -1.0, 2.0, n=8),
    Finding(CLAIMS["lpm2021.sage_beats_gat_fusion"], NOT_EVALUATED, missing=("fusion/random/tpu_v2/x",)),
)


def _tables(*findings: Finding) -> dict[str, list[dict[str, object]]]:
    """Returns the rows of each table by its name, as column -> value."""
    return {table.name: table.data.to_dict("records") for table in claims_section(findings).tables}


def _on_folds(finding: Finding, **changes: Any) -> Finding:
    claim = replace(
        finding.claim, id=f"{finding.claim.id}@folds", restates=finding.claim.id, set="all_programs"
    )
    return replace(finding, claim=claim, **changes)


def test_what_is_missing_leads_to_the_page_that_has_it() -> None:
    assert claims_section(FINDINGS).pointers == ()
    (pointer,) = claims_section(FINDINGS, "evidence/index.html").pointers
    assert (pointer.page, pointer.anchor) == ("evidence/index.html", "overview")
    missing = sum(finding.verdict == NOT_EVALUATED for finding in FINDINGS)
    assert numbers(pointer.answer) == [missing]


def test_verdicts_are_counted_by_set_and_the_margins_told() -> None:
    findings = (*FINDINGS, _on_folds(FINDINGS[0], verdict=SMALLER))
    first, second = _tables(*findings)["claims_verdicts"]
    assert {name: first[name] for name in ("set", "total", *VERDICTS) if first[name]} == {
        "set": "printed",
        "total": 3,
        HOLDS: 1,
        UNDECIDED: 1,
        NOT_EVALUATED: 1,
    }
    assert {name: second[name] for name in ("set", "total", *VERDICTS) if second[name]} == {
        "set": "all_programs",
        "total": 1,
        SMALLER: 1,
    }
    # The only claim of no difference here: 0.9 points of errors of 3.7 and 4.6.
    rule = claims_section(FINDINGS).tables[0].notes
    assert any(22 in numbers(words.replace("%", " ")) for words in rule)


def test_verdicts_of_the_committed_claims_are_each_counted_once(repository: Path) -> None:
    entries = json.loads((repository / "reports" / "claims.json").read_text())
    rows = count_verdicts(pd.DataFrame(entries, dtype=object))
    expected = Counter((entry["set"], entry["verdict"]) for entry in entries)
    cells = {(row["set"], verdict): row[verdict] for row in rows for verdict in VERDICTS if row[verdict]}
    assert cells == expected
    assert [sum(row[verdict] for verdict in VERDICTS) for row in rows] == [row["total"] for row in rows]
    assert sum(row["total"] for row in rows) == len(entries)
    assert all(row["kept"] + len(row["lost"]) == row["decided"] <= row["tested"] for row in rows)


def test_a_claim_has_a_row_with_its_verdict_in_each_set() -> None:
    tables = _tables(*FINDINGS, _on_folds(FINDINGS[0], verdict=NO_DIFFERENCE, no_larger_than=0.416))
    first, *others = tables["claims"]
    assert (first["id"], first["paper_effect"]) == (LOSS.id, "10.9")
    assert (first["printed"], first["all_programs"], first["stand_in"]) == (
        HOLDS,
        "no difference larger than 0.42 points",
        "",
    )
    assert len(others) == 2
    compared = tables["claims_compared"]
    assert [row["id"] for row in compared] == [LOSS.id, FINDINGS[1].claim.id, f"{LOSS.id}@folds"]
    assert [row["missing"] for row in tables["claims_not_evaluated"]] == ["fusion/random/tpu_v2/x"]


def test_sides_are_named_with_their_budgets() -> None:
    (row, *_) = _tables(*FINDINGS)["claims_compared"]
    assert row["compared"] == "learned vanilla (2 seeds, 6,400 steps)"
    assert row["with"] == "learned mse"


def test_statements_about_the_strongest_baseline_come_first() -> None:
    statement = replace(strongest_statements()[0], set="strongest")
    section = claims_section((*FINDINGS, Finding(statement, DOES_NOT_HOLD, -1.0, -2.0, -0.5, n=40)))
    assert [table.name for table in section.tables[:2]] == ["claims_verdicts", "claims_strongest"]
    assert section.tables[0].data["set"].tolist() == ["strongest", "printed"]
    assert section.tables[1].rows[0][0] == statement.statement
    assert not {"claims_verdicts", "claims_strongest"} & set(section.folded)
    assert statement.id not in [row["id"] for row in _tables(*FINDINGS)["claims"]]


def test_empty_tables_are_left_out() -> None:
    assert set(_tables(FINDINGS[0])) == {"claims_verdicts", "claims", "claims_compared"}
    assert set(_tables(FINDINGS[2])) == {"claims_verdicts", "claims", "claims_not_evaluated"}


def test_files_are_the_same_for_the_same_findings(tmp_path: Path) -> None:
    markdown, plain = write_claims(FINDINGS, tmp_path / "one")
    again = write_claims(FINDINGS, tmp_path / "two")
    assert [markdown.read_bytes(), plain.read_bytes()] == [path.read_bytes() for path in again]
    assert f"| {LOSS.id} |" in markdown.read_text()
    first, _, last = json.loads(plain.read_text())
    left: dict[str, object] = {
        "model": "learned",
        "variant": "vanilla",
        "split": "random",
        "chip": "tpu_v2",
        "kernels": "all",
    }
    left |= dict.fromkeys(("fitted_kernels", "trees", "core_seconds", "at_plateau"))
    assert first["sides"] == {
        "left": [{**left, "knows_estimate": False, "seeds": 2, "steps": 6400}],
        "right": [{**left, "variant": "mse", "knows_estimate": False, "seeds": 1, "steps": None}],
    }
    assert first["size"] == {
        "effect": 13.25,
        "unit": "points",
        "no_larger_than": None,
        "printed": 10.9,
        "magnitude": "much",
    }
    assert (first["set"], first["verdict"], first["words"]) == ("printed", HOLDS, LOSS.statement)
    assert (last["verdict"], last["size"]["printed"]) == (NOT_EVALUATED, [2.4, 10.1])
    assert last["missing"] == ["fusion/random/tpu_v2/x"]


def test_decided_claims_are_counted_before_and_after_control() -> None:
    first, second = FINDINGS[:2]
    findings = (
        replace(first, p=0.001, q=0.003),
        replace(second, verdict=DOES_NOT_HOLD, p=0.04, q=0.06),
        replace(second, claim=CLAIMS["lpm2021.edge_direction_tile"], p=0.5, q=0.5, needed=Needed(31)),
    )
    (counted,) = count_verdicts(findings_frame(findings))
    assert {name: counted[name] for name in ("set", "tested", "decided", "kept", "lost")} == {
        "set": "printed",
        "tested": 3,
        "decided": 2,
        "kept": 1,
        "lost": ["lpm2021.lstm_equals_transformer_tile"],
    }
    verdicts = claims_section(findings).tables[0]
    assert verdicts.data.iloc[0][["tested", "decided", "kept"]].tolist() == [3, 2, 1]
    assert "lpm2021.lstm_equals_transformer_tile" in verdicts.notes[0]
    assert [row["needed"] for row in _tables(*findings)["claims_compared"]][-1] == "about 31 programs"


def test_of_a_claim_of_a_paper_the_papers_model_counts_where_there_is_one() -> None:
    printed = Finding(CLAIMS["lpm2021.tile_random_vs_analytical"], HOLDS)
    ours = replace(
        printed,
        claim=replace(printed.claim, id="lpm2021.x@learned", restates=printed.claim.id, set="stand_in"),
        verdict=DOES_NOT_HOLD,
    )
    alone = replace(FINDINGS[0], claim=replace(LOSS, set="stand_in"))
    assert claims_of_papers((printed, ours, alone)) == (printed, alone)
    # Folds count where the paper's kind of split was not run, and there alone; with our model they do not.
    absent, on_folds = replace(printed, verdict=NOT_EVALUATED), _on_folds(printed, verdict=HOLDS)
    assert claims_of_papers((absent, ours, on_folds, alone)) == (on_folds, alone)
    assert claims_of_papers((printed, on_folds, ours, alone)) == (printed, alone)


def test_a_wall_time_has_a_verdict_and_no_number() -> None:
    (row,) = _tables(Finding(CLAIMS["tpugraphs2023.batching_cheaper"], HOLDS, n=7))["claims_compared"]
    assert (row["verdict"], row["effect"], row["program_low"]) == (HOLDS, None, None)
