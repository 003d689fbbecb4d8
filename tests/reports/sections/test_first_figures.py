"""Figures of the first section are drawn from what is there."""

from __future__ import annotations

from pathlib import Path

from costbench.metrics.rows import write_rows
from costbench.reports.results import load_results
from costbench.reports.search.results import Searches, load_searches
from costbench.reports.sections.first_figures import overview_figures
from costbench.reports.sections.results import all_standings
from tests.reports.conftest import fusion_rows, rows_of
from tests.reports.search_rows import fusion_search_rows, tile_rows


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
