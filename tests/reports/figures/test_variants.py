"""The heat map: our numbers and the paper's, the same bytes for the same numbers."""

from __future__ import annotations

from pathlib import Path

from costbench.reports.results import ChipSplit, Results
from costbench.reports.sections.models import write_heat_map, write_scaling_figure
from tests.reports.conftest import draw_twice, results_of_rows, rows_of, variant_rows

PLACE = ChipSplit("random", "tpu_v2")


def test_heat_map(tmp_path: Path) -> None:
    rows = [
        *rows_of(),
        *variant_rows("gat-lstm", "tile", [23.4] * 3),
        *variant_rows("none-lstm", "tile", [2.1] * 3),
    ]
    results = results_of_rows(rows)
    _, text = draw_twice(lambda folder: write_heat_map(results, PLACE, folder), tmp_path)
    for shown in ("23.4", "2.1", "GraphSAGE", "Tile-Size APE (%), lpm2021", "3.7"):
        assert f">{shown}</text>" in text
    assert text.count(">not run</text>") == 10
    # Fusion was not run, so it has no panel.
    assert "MAPE" not in text
    assert write_heat_map(results, ChipSplit("random", "tpu_v3"), tmp_path) == ()


def _results(*variants: str) -> Results:
    rows = [row for name in variants for row in variant_rows(name, "tile", [4.0, 2.0, 1.0])]
    return results_of_rows([*rows_of(), *rows])


def test_two_shares_make_a_line(tmp_path: Path) -> None:
    svg, png = write_scaling_figure(_results("scale-25", "scale-100"), PLACE, tmp_path)
    assert (svg.name, png.name) == ("scaling_random_tpu_v2.svg", "scaling_random_tpu_v2.png")
    # No second panel for a task that was not run.
    assert svg.read_text().count('<g id="axes_') == 1


def test_one_share_makes_none(tmp_path: Path) -> None:
    assert write_scaling_figure(_results("scale-100"), PLACE, tmp_path) == ()
    assert not list(tmp_path.glob("*.svg"))
