"""Figures of tile searches show all that was run, as the same bytes each time."""

from __future__ import annotations

from pathlib import Path

from costbench.metrics.rows import write_rows
from costbench.reports.figures.searches import write_tile_figure, write_top_k_figure
from costbench.reports.searches import GAINS, Place, load_searches
from tests.reports.search_rows import search_rows, tile_rows


def _places(folder: Path) -> tuple[Place, ...]:
    write_rows(folder / "rows.jsonl", [*tile_rows(), *tile_rows(split=GAINS)])
    return load_searches(folder / "rows.jsonl").places


def test_figure_4_has_test_programs_and_those_that_gain_most(tmp_path: Path) -> None:
    places = _places(tmp_path)
    svg, png = write_tile_figure(places, tmp_path / "one")
    again = write_tile_figure(places, tmp_path / "two")
    assert [svg.read_bytes(), png.read_bytes()] == [path.read_bytes() for path in again]
    assert svg.name == "lpm2021_figure4_random_tpu_v2.svg"
    text = svg.read_text()
    for shown in (
        "exhaustive",
        "learned 1, in the compiler",
        "hybrid 10",
        "test programs",
        "gain most",
        "↓0.25",
    ):
        assert shown in text
    alone, _ = write_tile_figure(places[:1], tmp_path / "alone")
    assert "gain most" not in alone.read_text()


def test_curves_are_over_measurements_and_over_seconds(tmp_path: Path) -> None:
    svg, png = write_top_k_figure(_places(tmp_path), tmp_path / "one")
    assert svg.name == "tile_search_random_tpu_v2.svg"
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    for shown in ("tile sizes measured per kernel", "hardware seconds per program", "alternating"):
        assert shown in text


def test_there_are_no_figures_of_nothing(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", search_rows("tile", ("iterations", "compiler"), [[1.0]]))
    places = load_searches(tmp_path / "rows.jsonl").places
    assert write_tile_figure(places, tmp_path) == ()
    assert write_top_k_figure(places, tmp_path) == ()
