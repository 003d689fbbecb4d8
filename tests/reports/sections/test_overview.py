"""What a visitor reads first follows from the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from costbench.metrics.rows import write_rows
from costbench.reports.baseline_comparison import Estimate, Standing, Standings
from costbench.reports.claims.data import load_claims
from costbench.reports.claims.rule import HOLDS, NOT_EVALUATED, Finding
from costbench.reports.data.budgets import Budget
from costbench.reports.data.dataset_card import Card, read_cards
from costbench.reports.results import Cell
from costbench.reports.search.results import Searches, load_searches
from costbench.reports.sections.overview import Overview, overview_section
from tests.reports.evidence_files import write_evidence
from tests.reports.search_rows import fusion_search_rows, tile_rows

CLAIM = load_claims()[0]
FINDINGS = (Finding(CLAIM, HOLDS, 1.0, 0.5, 1.5, 8, 1), Finding(CLAIM, NOT_EVALUATED, missing=("x",)))


def _overview(
    cell: Cell, searches: Searches, cards: Sequence[Card] = (), budgets: Sequence[Budget] = ()
) -> Overview:
    close = Estimate(1.0, 0.5, 1.5)
    models = (
        Standing("learned", close, 0.8, 6, 1, 0.5, Estimate(-0.5, -1.0, 0.5), 6),
        Standing("analytical", close, 0.7, 6, 1),
    )
    found = {cell.name: Standings("analytical", models)}
    return Overview([cell], found, searches, FINDINGS, cards, budgets)


def test_answers_lead_to_their_sections(make_cell: Callable[..., Cell], tmp_path: Path) -> None:
    write_rows(tmp_path / "searches.jsonl", [*tile_rows(), *fusion_search_rows()])
    searches = load_searches(tmp_path / "searches.jsonl")
    cards = read_cards(write_evidence(tmp_path).card)
    budget = Budget("main-tile", "tile", "random", "tpu_v2", "main", 0, 100, 8, 32, 4)
    budgets = [budget, replace(budget, variant="mse", steps=50)]
    section = overview_section(_overview(make_cell(), searches, cards, budgets))
    answers = {pointer.anchor: pointer.answer for pointer in section.more}
    assert list(answers) == [
        "tile-search",
        "fusion-search",
        "claims",
        "data",
        "training",
        "provenance",
    ]
    assert "takes 50 times fewer hardware seconds and leaves programs 5.00% slower" in answers["tile-search"]
    # (1.2 x 1.2 x 1.1)^(1/3) and (1.3 x 1.5 x 1.1)^(1/3).
    assert "after a search on the model 16.6%" in answers["fusion-search"]
    assert "the best of all searches 29.0%" in answers["fusion-search"]
    assert answers["claims"].startswith("Of 1 that could be tested, 1 hold")
    assert answers["training"] == "2 models were trained; tile 25,600 samples in 100 steps."
    assert answers["data"].startswith("3 programs; 600 samples for 2 seconds")


def test_what_was_not_run_is_not_asked(make_cell: Callable[..., Cell]) -> None:
    section = overview_section(_overview(make_cell(), Searches()))
    assert [pointer.anchor for pointer in section.more] == ["claims", "provenance"]
    measured = overview_section(replace(_overview(make_cell(), Searches()), differences=True))
    assert measured.more[0].anchor == "differences"


def test_a_preview_leads_to_the_page_whose_verdicts_count(make_cell: Callable[..., Cell]) -> None:
    own = _overview(make_cell(), Searches())
    first = overview_section(replace(own, evidence="evidence/index.html")).pointers[0]
    assert (first.page, first.anchor) == ("evidence/index.html", "overview")
    assert "preview" in first.answer
    pointers = overview_section(own).pointers
    assert all(pointer.anchor and not pointer.page for pointer in pointers)


def test_the_first_screen_says_what_is_simulated_and_how_ours_differs(make_cell: Callable[..., Cell]) -> None:
    section = overview_section(_overview(make_cell(), Searches()))
    simulated, differs = section.paragraphs
    assert "Simulated: the compiler, the chips" in simulated
    assert "measured on a processor" not in simulated
    assert "of tpu_v2 nothing was measured" in simulated
    assert "tpu_v3 was fitted" not in simulated
    assert differs.startswith(
        "The model learned is not lpm2021's; it has more. Tile sizes: features of what a tile"
    )
    assert "Fusion" not in differs
    assert "as in lpm2021" not in differs
    # The results are those of one task, and so is the only conclusion.
    assert [pointer.anchor for pointer in section.pointers] == ["baselines_tile_random_tpu_v2"]
