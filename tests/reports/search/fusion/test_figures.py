"""Figures of fusion searches: both starts, either paper's minutes."""

from __future__ import annotations

from pathlib import Path

from costbench.metrics.rows import write_rows
from costbench.reports.figures.searches import write_fusion_figure
from costbench.reports.searches import Place, load_searches
from tests.reports.search_rows import fusion_search_rows


def _places(folder: Path, minutes: tuple[int, ...] = (1, 5, 10)) -> tuple[Place, ...]:
    write_rows(folder / "rows.jsonl", fusion_search_rows(minutes))
    return load_searches(folder / "rows.jsonl").places


def test_figures_of_both_papers(tmp_path: Path) -> None:
    places = _places(tmp_path)
    svg, png = write_fusion_figure(places, "lpm2021", tmp_path / "one")
    again = write_fusion_figure(places, "lpm2021", tmp_path / "two")
    assert [svg.read_bytes(), png.read_bytes()] == [path.read_bytes() for path in again]
    assert svg.name == "lpm2021_figure5_random_tpu_v2.svg"
    text = svg.read_text()
    for shown in (
        "hardware 1 min",
        "hybrid, then hardware 10 min",
        "best known",
        "random configuration",
    ):
        assert shown in text
    earlier, _ = write_fusion_figure(places, "lpm2020", tmp_path / "one")
    assert earlier.name == "lpm2020_figure4_random_tpu_v2.svg"
    assert "hardware 5 min" in earlier.read_text()
    assert "hardware 10 min" not in earlier.read_text()


def test_what_has_other_minutes_has_no_figure(tmp_path: Path) -> None:
    assert write_fusion_figure(_places(tmp_path, (2,)), "lpm2021", tmp_path) == ()
