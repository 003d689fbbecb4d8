"""The heat map: our numbers and the paper's, the same bytes for the same numbers."""

from __future__ import annotations

from pathlib import Path

from costbench.metrics.rows import write_rows
from costbench.reports.results import ChipSplit, Results, load_results
from costbench.reports.sections.models import write_heat_map, write_scaling_figure
from tests.reports.conftest import rows_of, variant_rows


def test_heat_map(tmp_path: Path) -> None:
    rows = [
        *rows_of(),
        *variant_rows("gat-lstm", "tile", [23.4] * 3),
        *variant_rows("none-lstm", "tile", [2.1] * 3),
    ]
    write_rows(tmp_path / "r.jsonl", rows)
    results, place = load_results(tmp_path / "r.jsonl"), ChipSplit("random", "tpu_v2")
    svg, png = write_heat_map(results, place, tmp_path / "first")
    again = write_heat_map(results, place, tmp_path / "second")
    assert [svg.read_bytes(), png.read_bytes()] == [path.read_bytes() for path in again]
    text = svg.read_text()
    for shown in ("23.4", "2.1", "GraphSAGE", "Tile-Size APE (%), lpm2021", "3.7"):
        assert f">{shown}</text>" in text
    assert text.count(">not run</text>") == 10
    # Fusion was not run, so it has no panel.
    assert "MAPE" not in text
    assert write_heat_map(results, ChipSplit("random", "tpu_v3"), tmp_path) == ()


PLACE = ChipSplit("random", "tpu_v2")


def _results(folder: Path, *variants: str) -> Results:
    rows = [row for name in variants for row in variant_rows(name, "tile", [4.0, 2.0, 1.0])]
    write_rows(folder / "r.jsonl", [*rows_of(), *rows])
    return load_results(folder / "r.jsonl")


def test_two_shares_make_a_line(tmp_path: Path) -> None:
    svg, png = write_scaling_figure(_results(tmp_path, "scale-25", "scale-100"), PLACE, tmp_path)
    assert (svg.name, png.name) == ("scaling_random_tpu_v2.svg", "scaling_random_tpu_v2.png")
    # No second panel for a task that was not run.
    assert svg.read_text().count('<g id="axes_') == 1


def test_one_share_makes_none(tmp_path: Path) -> None:
    assert write_scaling_figure(_results(tmp_path, "scale-100"), PLACE, tmp_path) == ()
    assert not list(tmp_path.glob("*.svg"))
