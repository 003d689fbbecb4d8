"""Learned against each baseline, with the sign that each metric needs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from costbench.reports.results import Cell
from costbench.reports.tables.programs import comparison_table


def test_one_row_a_baseline_and_metric(make_cell: Callable[..., Cell]) -> None:
    table = comparison_table(make_cell(), seed=0)
    assert [(row[0], row[1]) for row in table.rows] == [
        ("analytical", "Kendall's τ"),
        ("analytical", "Tile-Size APE (points)"),
        ("random", "Kendall's τ"),
        ("random", "Tile-Size APE (points)"),
    ]


def test_being_better_is_up_for_tau_and_down_for_ape(make_cell: Callable[..., Cell]) -> None:
    tau, ape = comparison_table(make_cell(), seed=0).rows[2:]
    assert tau[3] == pytest.approx(0.8)
    assert ape[3] == pytest.approx(5 / 3 - 200)
    # Better than random on every program, so in every resample.
    assert tau[6] == ape[6] == 1.0


def test_the_same_seed_gives_the_same_table(make_cell: Callable[..., Cell]) -> None:
    cell = make_cell()
    assert comparison_table(cell, 0) == comparison_table(cell, 0)
    assert comparison_table(cell, 0) != comparison_table(cell, 1)
