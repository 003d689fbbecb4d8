"""Tile searches as tables, against the numbers in search_rows."""

from __future__ import annotations

import pytest

from costbench.reports.sections.searches import budget_table, cost_table, figure_4_table, start_table
from tests.reports.conftest import searches_of_rows
from tests.reports.search_rows import fusion_search_rows, tile_rows
from tests.sentences import listed, numbers


def test_figure_4_by_program() -> None:
    table = figure_4_table(searches_of_rows(tile_rows()).results[0])
    assert table.name == "lpm2021_figure4_random_tpu_v2"
    rows = table.data.set_index("application").to_dict("index")
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
    best = [key for column, key in enumerate(table.data) if table.is_best(1, column)]
    assert best == ["hybrid_top10", "alternating_top10"]


def test_bars_that_were_not_run_are_left_out_and_named() -> None:
    rows = [row for row in tile_rows() if row.model in ("learned", "analytical")]
    table = figure_4_table(searches_of_rows(rows).results[0])
    assert "exhaustive_all" not in table.data
    assert listed(table.notes[-1])[:2] == ["exhaustive", "hybrid 10"]
    assert table.rows[0][-1] is None


def test_budgets_have_totals() -> None:
    table = budget_table(searches_of_rows(tile_rows()).results[0])
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


def test_figure_5a_by_program() -> None:
    table = start_table(searches_of_rows(fusion_search_rows()).results[0], "lpm2021", "default")
    assert table.name == "lpm2021_figure5a_random_tpu_v2"
    rows = table.data.set_index("application").to_dict("index")
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
    assert 3 in numbers(table.notes[0])


def test_figure_4b_of_the_earlier_version_is_from_a_random_start() -> None:
    table = start_table(searches_of_rows(fusion_search_rows()).results[0], "lpm2020", "random")
    assert table.name == "lpm2020_figure4b_random_tpu_v2"
    assert "hardware_10m" not in table.data
    rnn = table.data.set_index("application").loc["RNN"]
    assert (rnn["hardware_5m"], rnn["best_known_all"]) == (0.5, 1.3)


def test_a_start_that_was_not_run_has_no_rows() -> None:
    rows = [row for row in fusion_search_rows() if not row.variant.startswith("random")]
    assert start_table(searches_of_rows(rows).results[0], "lpm2021", "random").rows == ()


def test_costs_are_means_of_a_search() -> None:
    table = cost_table(searches_of_rows(fusion_search_rows((1, 10))).results[0])
    first, last, known = table.rows[0], table.rows[-2], table.rows[-1]
    assert first[:3] == ("default", "hardware", 1.0)
    assert first[4:] == (None, 4.0, 59.0, 0.0)
    assert last[:3] == ("random", "analytical, then hardware", 10.0)
    assert last[5:] == (40.0, 590.0, 5000.0)
    assert known[:3] == (None, "best known", None)
    assert known[4:] == (0.0, 5000.0, None, None)
    assert len(table.rows) == 18
