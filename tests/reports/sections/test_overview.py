"""What a visitor reads first follows from the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.metrics.rows import MetricRow, write_rows
from costbench.reports.baseline_comparison import Estimate, Standing, Standings
from costbench.reports.claims.claim import load_claims
from costbench.reports.claims.evaluation import HOLDS, NOT_EVALUATED, Finding
from costbench.reports.dataset_files import Card, read_cards
from costbench.reports.page import Pointer
from costbench.reports.results import Cell, load_results
from costbench.reports.searches import Searches, load_searches
from costbench.reports.sections.overview import (
    Overview,
    conclusions,
    overview_figures,
    overview_section,
    primary_cell,
)
from costbench.reports.sections.results import all_standings
from costbench.reports.training_runs import Budget
from tests.reports.conftest import fusion_rows, rows_of
from tests.reports.evidence_files import write_evidence
from tests.reports.search_rows import fusion_search_rows, tile_rows
from tests.reports.test_standings import model_rows

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


def _conclusions(folder: Path, rows: list[MetricRow]) -> tuple[Pointer, ...]:
    write_rows(folder / "r.jsonl", rows)
    results = load_results(folder / "r.jsonl")
    return conclusions(results.cells, all_standings(results, 0))


@pytest.mark.parametrize(
    ("errors", "headline", "numbers"),
    [
        (
            [10.0] * 6,
            "Fusion: The learned model is better than the strongest baseline (boosted trees)",
            "MAPE 10.0% against 20.0%, 10.0 points less (95% interval 10.0 to 10.0), "
            "ahead on 100% of 6 programs",
        ),
        (
            [30.0] * 6,
            "Fusion: The learned model is worse than the strongest baseline (boosted trees)",
            "MAPE 30.0% against 20.0%, 10.0 points more (95% interval 10.0 to 10.0), "
            "ahead on 0% of 6 programs",
        ),
        (
            [20.0] * 6,
            "Fusion: Whether the learned model is better than the strongest baseline (boosted trees) cannot "
            "be told",
            "MAPE 20.0% against 20.0%, a difference of +0.0 points (95% interval +0.0 to +0.0), "
            "ahead on 50% of 6 programs",
        ),
    ],
)
def test_words_follow_from_intervals(
    tmp_path: Path, errors: list[float], headline: str, numbers: str
) -> None:
    (said,) = _conclusions(tmp_path, [*model_rows("trees", [20.0] * 6), *model_rows("learned", errors)])
    assert said.question == headline
    assert said.answer == f"{numbers}; random split, tpu_v3, kernels from 5 µs."
    assert said.anchor == "baselines_fusion_random_tpu_v3"


def test_folds_come_before_the_random_split_and_the_measured_chip_before_the_other(tmp_path: Path) -> None:
    rows = [
        *model_rows("learned", [1.0] * 6, chip="tpu_v2"),
        *model_rows("learned", [1.0] * 6, chip="tpu_v3"),
        *model_rows("learned", [1.0] * 6, chip="tpu_v2", split="manual"),
    ]
    write_rows(tmp_path / "r.jsonl", rows)
    cells = load_results(tmp_path / "r.jsonl").cells
    chosen = primary_cell(cells, "fusion", "learned")
    assert chosen is not None
    assert chosen.name == "fusion_random_tpu_v3"
    write_rows(tmp_path / "r.jsonl", [*rows, *model_rows("learned", [1.0] * 6, chip="tpu_v2", split="folds")])
    chosen = primary_cell(load_results(tmp_path / "r.jsonl").cells, "fusion", "learned")
    assert chosen is not None
    assert chosen.name == "fusion_folds_tpu_v2"
    assert primary_cell(cells, "fusion", "hybrid") is None


def test_without_baselines_there_is_no_conclusion(tmp_path: Path) -> None:
    assert _conclusions(tmp_path, model_rows("learned", [1.0] * 6)) == ()


def test_hybrid_and_tuning(tmp_path: Path) -> None:
    write_rows(tmp_path / "r.jsonl", [*rows_of(), *fusion_rows(), *fusion_rows(chip="tpu_v3")])
    results = load_results(tmp_path / "r.jsonl")
    write_rows(tmp_path / "s.jsonl", [*tile_rows(), *fusion_search_rows()])
    found = all_standings(results, 0)
    searches = load_searches(tmp_path / "s.jsonl")
    hybrid, tune = overview_figures(results.cells, found, searches, tmp_path)
    # The tile task has no hybrid here; of two chips the measured one is shown.
    assert hybrid.path.name == "hybrid_random_tpu_v3.svg"
    assert "random split, tpu_v3" in hybrid.caption
    assert "strongest baseline: analytical" in hybrid.path.read_text()
    text = tune.path.read_text()
    for label in ("learned 10", "exhaustive", "model, then hardware 1 min", "best known"):
        assert label in text


def test_nothing_is_drawn_without_results(tmp_path: Path) -> None:
    write_rows(tmp_path / "r.jsonl", rows_of())
    results = load_results(tmp_path / "r.jsonl")
    assert overview_figures(results.cells, all_standings(results, 0), Searches(), tmp_path) == ()
