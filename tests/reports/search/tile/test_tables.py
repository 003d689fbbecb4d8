"""Tile searches as tables, against the numbers in search_rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.metrics.rows import MetricRow, write_rows
from costbench.reports.searches import Place, load_searches
from costbench.reports.tables.searches import budget_table, figure_4_table
from tests.reports.search_rows import tile_rows


def _place(folder: Path, rows: list[MetricRow]) -> Place:
    write_rows(folder / "rows.jsonl", rows)
    return load_searches(folder / "rows.jsonl").places[0]


def test_figure_4_by_program(tmp_path: Path) -> None:
    table = figure_4_table(_place(tmp_path, tile_rows()))
    assert table.name == "lpm2021_figure4_random_tpu_v2"
    keys = [column.key for column in table.columns]
    rows = {str(row[0]): dict(zip(keys, row, strict=True)) for row in table.rows}
    rnn = rows["RNN"]
    assert (rnn["exhaustive_all"], rnn["learned_compiler"], rnn["learned_top10"]) == (1.25, 1.0, 1.2)
    assert rnn["slowdown_percent"] == pytest.approx(5.0)
    assert rnn["headroom"] == pytest.approx(25.0)
    assert rnn["fewer_seconds"] == pytest.approx(50.0)
    assert rows["Median"]["exhaustive_all"] == 1.25
    # 1.25 x 1.6 x 1 = 2.
    assert rows["Geometric mean"]["exhaustive_all"] == pytest.approx(2.0 ** (1 / 3))
    assert rows["Geometric mean"]["slowdown_percent"] is None
    assert rows["Arithmetic mean"]["fewer_seconds"] == pytest.approx(50.0)
    # Of those that measure ten, hybrid and the models in turn are best on RNN; exhaustive does not compete.
    best = [key for column, key in enumerate(keys) if table.is_best(1, column)]
    assert best == ["hybrid_top10", "alternating_top10"]


def test_bars_that_were_not_run_are_left_out_and_named(tmp_path: Path) -> None:
    rows = [row for row in tile_rows() if row.model in ("learned", "analytical")]
    table = figure_4_table(_place(tmp_path, rows))
    assert "exhaustive_all" not in [column.key for column in table.columns]
    assert "Not run here: exhaustive; hybrid 10" in table.notes[-1]
    assert table.rows[0][-1] is None


def test_budgets_have_totals(tmp_path: Path) -> None:
    table = budget_table(_place(tmp_path, tile_rows()))
    assert [row[:2] for row in table.rows[:5]] == [
        ("exhaustive", "all"),
        ("all candidates", "all"),
        ("learned", "none"),
        ("learned", "1"),
        ("learned", "10"),
    ]
    # Three programs: 30 tile sizes, 12 seconds in place of 600; (1.2 x 1.5 x 1)^(1/3).
    speedup, mean, worst, measured, seconds, fewer = table.rows[4][2:]
    assert speedup == pytest.approx(1.8 ** (1 / 3))
    assert (mean, worst) == (pytest.approx(5.0), pytest.approx(5.0))
    assert (measured, seconds, fewer) == (30.0, 12.0, 50.0)
    assert [row[0] for row in table.rows[-2:]] == ["analytical", "random"]
