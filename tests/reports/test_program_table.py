"""The main table: our numbers, the paper's beside them, and averages that are not those of the paper."""

from __future__ import annotations

from collections.abc import Callable

from costbench.reports.papers import tile_table_of_paper
from costbench.reports.results import Cell
from costbench.reports.tables import Table
from costbench.reports.tile_table import tile_table
from tests.reports.conftest import rows_of


def _column(table: Table, key: str) -> list[object]:
    index = [column.key for column in table.columns].index(key)
    return [row[index] for row in table.rows]


def test_rows_and_averages(make_cell: Callable[..., Cell]) -> None:
    table = tile_table(make_cell(), tile_table_of_paper("random"))
    assert _column(table, "application") == [
        "ConvDRAW",
        "Own",
        "RNN",
        "Median",
        "Geometric mean",
        "Arithmetic mean",
    ]
    assert _column(table, "ape_analytical")[:4] == [8.0, 5.0, 2.0, 5.0]
    assert _column(table, "tau_random")[4] is None
    assert table.summary_rows == 3


def test_paper_numbers_stand_beside_their_namesakes(make_cell: Callable[..., Cell]) -> None:
    table = tile_table(make_cell(), tile_table_of_paper("random"))
    assert _column(table, "paper_ape_learned") == [9.7, None, 8.0, 3.3, 3.7, None]
    assert _column(table, "paper_tau_analytical") == [0.79, None, 0.55, 0.75, 0.74, None]
    assert "Table 2 of lpm2021" in table.title


def test_numbers_of_another_chip_are_not_shown(make_cell: Callable[..., Cell]) -> None:
    table = tile_table(make_cell(rows_of(chip="tpu_v3")), tile_table_of_paper("random"))
    assert not [column for column in table.columns if column.key.startswith("paper_")]
    assert "lpm2021" not in table.title


def test_the_best_of_ours_and_of_theirs_are_marked(make_cell: Callable[..., Cell]) -> None:
    table = tile_table(make_cell(), tile_table_of_paper("random"))
    keys = [column.key for column in table.columns]
    best = {key for index, key in enumerate(keys) if table.is_best(0, index)}
    assert best == {"ape_learned", "tau_analytical", "paper_ape_analytical", "paper_tau_analytical"}
