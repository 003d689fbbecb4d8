"""Figures show what they should and are the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from costbench.reports.figures.programs import program_labels, write_curve_figure, write_program_figure
from costbench.reports.papers.printed import main_table
from costbench.reports.results import Cell
from tests.reports.conftest import fusion_rows, rows_of


def test_tile_figure(make_cell: Callable[..., Cell], tmp_path: Path) -> None:
    cell = make_cell()
    paper = main_table("tile", "random")
    svg, png = write_program_figure(cell, paper, tmp_path / "first")
    again = write_program_figure(cell, paper, tmp_path / "second")
    assert [svg.read_bytes(), png.read_bytes()] == [path.read_bytes() for path in again]
    text = svg.read_text()
    for shown in ("learned, ours", "learned, lpm2021", "random, ours", "ConvDRAW", "median", "Kendall"):
        assert shown in text
    # Random tile sizes are far off the scale of the others, and named at the edge instead.
    assert "↑300" in text
    assert "<dc:date>" not in text
    assert png.read_bytes().startswith(b"\x89PNG")


def test_another_chip_has_no_bars_of_the_paper(make_cell: Callable[..., Cell], tmp_path: Path) -> None:
    cell = make_cell(rows_of(chip="tpu_v3"))
    svg, _ = write_program_figure(cell, main_table("tile", "random"), tmp_path)
    assert "lpm2021" not in svg.read_text()


def test_curve_figure(tmp_path: Path) -> None:
    curves = {"seed 0": [(0.0, 0.1), (1.0, 0.4)], "seed 1": [(0.0, 0.2)]}
    svg, _ = write_curve_figure("curves", curves, "validation τ", tmp_path)
    assert "seed 1" in svg.read_text()
    assert "validation τ" in svg.read_text()


def test_fusion_figure_names_bars_beyond_the_axis(make_cell: Callable[..., Cell], tmp_path: Path) -> None:
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
