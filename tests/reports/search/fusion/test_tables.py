"""Fusion searches as tables, against the numbers in search_rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.metrics.rows import MetricRow, write_rows
from costbench.reports.searches import Place, load_searches
from costbench.reports.tables.searches import cost_table, start_table
from tests.reports.search_rows import fusion_search_rows


def _place(folder: Path, rows: list[MetricRow]) -> Place:
    write_rows(folder / "rows.jsonl", rows)
    return load_searches(folder / "rows.jsonl").places[0]


def test_figure_5a_by_program(tmp_path: Path) -> None:
    table = start_table(_place(tmp_path, fusion_search_rows()), "lpm2021", "default")
    assert table.name == "lpm2021_figure5a_random_tpu_v2"
    keys = [column.key for column in table.columns]
    rows = {str(row[0]): dict(zip(keys, row, strict=True)) for row in table.rows}
    rnn = rows["RNN"]
    assert (rnn["hardware_10m"], rnn["hardware_10m_lowest"], rnn["hardware_10m_highest"]) == (1.0, 1.0, 1.1)
    assert (rnn["model_and_hardware_1m"], rnn["best_known_all"]) == (1.2, 1.3)
    assert rnn["headroom"] == pytest.approx(30.0)
    # The best known gains 30, 50 and 10%.
    assert rows["Median"]["headroom"] == pytest.approx(30.0)
    # Medians 1.2, 1.2, 1.1 of the three programs.
    expected = (1.2 * 1.2 * 1.1) ** (1 / 3)
    assert rows["Geometric mean"]["model_and_hardware_10m"] == pytest.approx(expected)
    assert rows["Median"]["model_and_hardware_10m_highest"] == pytest.approx(1.2)
    assert "of 3 searches" in table.notes[0]


def test_figure_4b_of_the_earlier_version_is_from_a_random_start(tmp_path: Path) -> None:
    table = start_table(_place(tmp_path, fusion_search_rows()), "lpm2020", "random")
    assert table.name == "lpm2020_figure4b_random_tpu_v2"
    keys = [column.key for column in table.columns]
    assert "hardware_10m" not in keys
    rnn = next(row for row in table.rows if row[0] == "RNN")
    assert rnn[keys.index("hardware_5m")] == 0.5
    assert rnn[keys.index("best_known_all")] == 1.3


def test_a_start_that_was_not_run_has_no_rows(tmp_path: Path) -> None:
    rows = [row for row in fusion_search_rows() if not row.variant.startswith("random")]
    assert start_table(_place(tmp_path, rows), "lpm2021", "random").rows == ()


def test_costs_are_means_of_a_search(tmp_path: Path) -> None:
    table = cost_table(_place(tmp_path, fusion_search_rows((1, 10))))
    first, last, known = table.rows[0], table.rows[-2], table.rows[-1]
    assert first[:3] == ("default", "hardware", 1.0)
    assert first[4:] == (None, 4.0, 59.0, 0.0)
    assert last[:3] == ("random", "analytical, then hardware", 10.0)
    assert last[5:] == (40.0, 590.0, 5000.0)
    assert known[:3] == (None, "best known", None)
    assert known[4:] == (0.0, 5000.0, None, None)
    assert len(table.rows) == 18
