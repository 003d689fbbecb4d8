"""Figures show what they should and are the same bytes for the same numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from costbench.errors import DataError
from costbench.reports.figures.programs import (
    draw_shares,
    program_labels,
    read_scatter,
    write_curve_figure,
    write_program_figure,
    write_scatter_figures,
)
from costbench.reports.papers.printed import main_table
from tests.reports.conftest import draw_twice, fusion_rows, make_cell, rows_of


def test_tile_figure(tmp_path: Path) -> None:
    cell = make_cell()
    paper = main_table("tile", "random")
    _, text = draw_twice(lambda folder: write_program_figure(cell, paper, folder), tmp_path)
    for shown in ("learned, ours", "learned, lpm2021", "random, ours", "ConvDRAW", "median", "Kendall"):
        assert shown in text
    # Random tile sizes are far off the scale of the others, and named at the edge instead.
    assert "↑300" in text
    assert "<dc:date>" not in text


def test_another_chip_has_no_bars_of_the_paper(tmp_path: Path) -> None:
    cell = make_cell(rows_of(chip="tpu_v3"))
    svg, _ = write_program_figure(cell, main_table("tile", "random"), tmp_path)
    assert "lpm2021" not in svg.read_text()


def test_many_programs_are_curves_from_least_to_largest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("costbench.reports.figures.programs.MOST_NAMED", 2)
    svg, _ = write_program_figure(make_cell(), main_table("tile", "random"), tmp_path)
    text = svg.read_text()
    assert "programs (%), from the least of each model; 3 programs" in text
    assert "random" in text
    for of_bars in ("ConvDRAW", "median", "lpm2021"):
        assert of_bars not in text


def test_shares_leave_out_what_has_no_value() -> None:
    axes = Figure().subplots()
    draw_shares(axes, [3.0, np.nan, 1.0, 2.0])
    (line,) = axes.get_lines()
    assert np.asarray(line.get_xdata()).tolist() == [12.5, 37.5, 62.5, 87.5]
    np.testing.assert_array_equal(np.asarray(line.get_ydata()), [1.0, 2.0, 3.0, np.nan])


def test_curve_figure(tmp_path: Path) -> None:
    curves = {"seed 0": [(0.0, 0.1), (1.0, 0.4)], "seed 1": [(0.0, 0.2)]}
    svg, _ = write_curve_figure("curves", curves, "validation τ", tmp_path)
    assert "seed 1" in svg.read_text()
    assert "validation τ" in svg.read_text()


def test_fusion_figure_names_bars_beyond_the_axis(tmp_path: Path) -> None:
    cell = make_cell(fusion_rows())
    svg, _ = write_program_figure(cell, main_table("fusion", "random"), tmp_path)
    text = svg.read_text()
    assert "MAPE (%), kernels from 5 µs" in text
    assert "analytical, lpm2021" in text
    # The hybrid model has no bars of the paper's.
    assert "hybrid, ours" in text
    assert "hybrid, lpm2021" not in text


def test_programs_are_called_by_their_application_where_it_is_there_once() -> None:
    two = [
        ("WaveRNN", "wavernn_1_b8_train_f32"),
        ("WaveRNN", "user_mine"),
        ("NMT Model", "nmt_b32_infer_f32"),
    ]
    assert program_labels(two) == ["wavernn_1\ntrain", "user_mine", "NMT\nModel"]


POINT = {
    "task": "fusion",
    "split": "random",
    "chip": "tpu_v2",
    "model": "learned",
    "predicted_ns": 2000.0,
    "measured_ns": 1000,
}


def _write(folder: Path, points: object) -> Path:
    (folder / "scatter.json").write_text(json.dumps(points))
    return folder / "scatter.json"


def test_kernels_of_a_model_come_together_sorted(tmp_path: Path) -> None:
    many = {**POINT, "predicted_ns": [9.0, 8.0], "measured_ns": [7.0, 3000.0]}
    (one,) = read_scatter(_write(tmp_path, [POINT, many]))
    assert one.measured_ns.tolist() == [7.0, 1000.0, 3000.0]
    assert one.predicted_ns.tolist() == [9.0, 2000.0, 8.0]


def test_each_place_has_a_figure_and_each_model_a_panel(tmp_path: Path) -> None:
    points = [
        {**POINT, "model": m, "chip": c} for m in ("analytical", "learned") for c in ("tpu_v2", "tpu_v3")
    ]
    scatters = read_scatter(_write(tmp_path, points))
    written = write_scatter_figures(scatters, tmp_path / "first")
    again = write_scatter_figures(scatters, tmp_path / "second")
    assert list(written) == ["predicted_fusion_random_tpu_v2", "predicted_fusion_random_tpu_v3"]
    for name, path in written.items():
        assert path.read_bytes() == again[name].read_bytes()
        assert path.with_suffix(".png").exists()
        text = path.read_text()
        assert text.index(">learned, 1 kernels<") < text.index(">analytical, 1 kernels<")


@pytest.mark.parametrize(
    "broken",
    [
        {"points": []},
        [3],
        [{**POINT, "more": 1}],
        [{**POINT, "measured_ns": 0.0}],
        [{**POINT, "measured_ns": [1.0, 2.0]}],
        [{**POINT, "measured_ns": "fast"}],
    ],
)
def test_anything_else_is_refused(tmp_path: Path, broken: object) -> None:
    with pytest.raises(DataError, match=r"scatter\.json"):
        read_scatter(_write(tmp_path, broken))
