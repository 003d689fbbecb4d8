"""The heat map: our numbers and the paper's, the same bytes for the same numbers."""

from __future__ import annotations

from pathlib import Path

from costbench.metrics.rows import write_rows
from costbench.reports.figures.variants import write_heat_map
from costbench.reports.results import Testbed, load_results
from tests.reports.conftest import rows_of, variant_rows


def test_heat_map(tmp_path: Path) -> None:
    rows = [
        *rows_of(),
        *variant_rows("gat-lstm", "tile", [23.4] * 3),
        *variant_rows("none-lstm", "tile", [2.1] * 3),
    ]
    write_rows(tmp_path / "r.jsonl", rows)
    results, place = load_results(tmp_path / "r.jsonl"), Testbed("random", "tpu_v2")
    svg, png = write_heat_map(results, place, tmp_path / "first")
    again = write_heat_map(results, place, tmp_path / "second")
    assert [svg.read_bytes(), png.read_bytes()] == [path.read_bytes() for path in again]
    text = svg.read_text()
    for shown in ("23.4", "2.1", "GraphSAGE", "Tile-Size APE (%), lpm2021", "3.7"):
        assert f">{shown}</text>" in text
    assert text.count(">not run</text>") == 10
    # Fusion was not run, so it has no panel.
    assert "MAPE" not in text
    assert write_heat_map(results, Testbed("random", "tpu_v3"), tmp_path) == ()
