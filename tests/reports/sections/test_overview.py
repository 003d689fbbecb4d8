"""What a visitor reads first follows from the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from costbench.metrics.rows import write_rows
from costbench.reports.claims.data import load_claims
from costbench.reports.claims.rule import HOLDS, NOT_EVALUATED, Finding
from costbench.reports.data.budgets import Budget
from costbench.reports.data.dataset_card import read_cards
from costbench.reports.results import Cell
from costbench.reports.search.results import Searches, load_searches
from costbench.reports.sections.overview import overview_section
from tests.reports.evidence_files import write_evidence
from tests.reports.search_rows import fusion_search_rows, tile_rows

CLAIM = load_claims()[0]
FINDINGS = (Finding(CLAIM, HOLDS, 1.0, 0.5, 1.5, 8, 1), Finding(CLAIM, NOT_EVALUATED, missing=("x",)))


def test_answers_lead_to_their_sections(make_cell: Callable[..., Cell], tmp_path: Path) -> None:
    write_rows(tmp_path / "searches.jsonl", [*tile_rows(), *fusion_search_rows()])
    searches = load_searches(tmp_path / "searches.jsonl")
    cards = read_cards(write_evidence(tmp_path).card)
    budget = Budget("main-tile", "tile", "random", "tpu_v2", "main", 0, 100, 8, 32, 4)
    budgets = [budget, replace(budget, variant="mse", steps=50)]
    section = overview_section([make_cell()], searches, FINDINGS, cards, budgets)
    answers = {pointer.anchor: pointer.answer for pointer in section.pointers}
    assert list(answers) == [
        "tile_random_tpu_v2",
        "tile-search",
        "fusion-search",
        "claims",
        "data",
        "training",
        "provenance",
    ]
    # The cube roots of 0.2 and 80.
    assert answers["tile_random_tpu_v2"].startswith("Tile-Size APE: learned 0.6% (τ 0.80), analytical 4.3%")
    assert "takes 50 times fewer hardware seconds and leaves programs 5.00% slower" in answers["tile-search"]
    # (1.2 x 1.2 x 1.1)^(1/3) and (1.3 x 1.5 x 1.1)^(1/3).
    assert "after a search on the model 16.6%" in answers["fusion-search"]
    assert "240 minutes of hardware alone 29.0%" in answers["fusion-search"]
    assert answers["claims"].startswith("Of 1 that could be tested, 1 hold")
    assert answers["training"] == "2 models were trained; tile 25,600 samples in 100 steps."
    assert answers["data"].startswith("3 programs; 600 samples for 2 seconds")


def test_what_was_not_run_is_not_asked(make_cell: Callable[..., Cell]) -> None:
    section = overview_section([make_cell()], Searches(), FINDINGS, ())
    anchors = [pointer.anchor for pointer in section.pointers]
    assert anchors == ["tile_random_tpu_v2", "claims", "provenance"]
