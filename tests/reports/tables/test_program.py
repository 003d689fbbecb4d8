"""The main table: our numbers, the paper's beside them, and averages that are not those of the paper."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from costbench.reports.papers.printed import main_table
from costbench.reports.results import Cell
from costbench.reports.table import Table
from costbench.reports.tables.programs import program_table, short_kernels_table
from tests.reports.conftest import fusion_rows, rows_of


def _column(table: Table, key: str) -> list[object]:
    index = [column.key for column in table.columns].index(key)
    return [row[index] for row in table.rows]


def test_rows_and_averages(make_cell: Callable[..., Cell]) -> None:
    table = program_table(make_cell(), main_table("tile", "random"))
    assert _column(table, "application") == [
        "ConvDRAW",
        "Own",
        "RNN",
        "Median",
        "Geometric mean",
        "Arithmetic mean",
        "Standard deviation",
    ]
    assert _column(table, "ape_analytical")[:4] == [8.0, 5.0, 2.0, 5.0]
    # Around 5: 3, 0, -3; the squares add up to 18, halved for three values.
    assert _column(table, "ape_analytical")[-1] == pytest.approx(3.0)
    # Correlations of 0.8, 0.7 and 0.6.
    assert _column(table, "tau_analytical")[4] == pytest.approx(0.336 ** (1 / 3))
    assert table.summary_rows == 4


def test_paper_numbers_stand_beside_their_namesakes(make_cell: Callable[..., Cell]) -> None:
    table = program_table(make_cell(), main_table("tile", "random"))
    assert _column(table, "paper_ape_learned") == [9.7, None, 8.0, 3.3, 3.7, None, None]
    assert _column(table, "paper_tau_analytical") == [0.79, None, 0.55, 0.75, 0.74, None, None]
    assert "Table 2 of lpm2021" in table.title


def test_rows_of_the_paper_that_ours_lack_are_told(make_cell: Callable[..., Cell]) -> None:
    """The cell has ConvDRAW and RNN alone of the paper's eight applications."""
    (told,) = (
        note
        for note in program_table(make_cell(), main_table("tile", "random")).notes
        if "averages are over these" in note
    )
    assert "WaveRNN (Tile-Size APE" in told
    assert "Translate" in told
    assert "ConvDRAW" not in told
    other_chip = program_table(make_cell(rows_of(chip="tpu_v3")), main_table("tile", "random"))
    assert not any("averages are over these" in note for note in other_chip.notes)


def test_numbers_of_another_chip_are_not_shown(make_cell: Callable[..., Cell]) -> None:
    table = program_table(make_cell(rows_of(chip="tpu_v3")), main_table("tile", "random"))
    assert not [column for column in table.columns if column.key.startswith("paper_")]
    assert "lpm2021" not in table.title


def test_the_best_of_ours_and_of_theirs_are_marked(make_cell: Callable[..., Cell]) -> None:
    table = program_table(make_cell(), main_table("tile", "random"))
    keys = [column.key for column in table.columns]
    best = {key for index, key in enumerate(keys) if table.is_best(0, index)}
    assert best == {"ape_learned", "tau_analytical", "paper_ape_analytical", "paper_tau_analytical"}


def test_a_spread_is_no_contest(make_cell: Callable[..., Cell]) -> None:
    table = program_table(make_cell(), None)
    last = len(table.rows) - 1
    assert not [column for column in range(len(table.columns)) if table.is_best(last, column)]


def test_fusion_table_counts_long_kernels(make_cell: Callable[..., Cell]) -> None:
    table = program_table(make_cell(fusion_rows()), main_table("fusion", "random"))
    assert _column(table, "kernels")[:3] == [11.0, 12.0, 10.0]
    assert _column(table, "mape_ge5us_hybrid")[:3] == [1.0, 1.0, 2.0]
    assert _column(table, "mape_ge5us_analytical")[3:5] == [27.0, pytest.approx(24.0)]
    assert _column(table, "tau_ge5us_learned")[0] == 0.9
    assert _column(table, "paper_mape_ge5us_analytical") == [21.6, None, 20.5, 24.0, 31.1, None, None]
    assert table.name == "fusion_random_tpu_v2"
    assert "beside Table 2 of lpm2021" in table.title


def test_baselines_other_than_the_strongest_are_left_to_their_own_table(
    make_cell: Callable[..., Cell],
) -> None:
    keys = [column.key for column in program_table(make_cell(), None).columns]
    assert keys[2:] == ["ape_learned", "ape_analytical", "tau_learned", "tau_analytical"]
    keys = [column.key for column in program_table(make_cell(), None, "random").columns]
    assert keys[2:5] == ["ape_learned", "ape_analytical", "ape_random"]


def test_short_kernels_have_a_table_of_their_own(make_cell: Callable[..., Cell]) -> None:
    table = short_kernels_table(make_cell(fusion_rows()))
    assert _column(table, "kernels")[:3] == [21.0, 22.0, 20.0]
    assert _column(table, "mape_lt5us_learned")[:3] == [2.0, 4.0, 8.0]
    assert table.name == "fusion_random_tpu_v2_short"
    long = [row for row in fusion_rows() if "lt5us" not in row.metric]
    assert short_kernels_table(make_cell(long)).rows == ()
