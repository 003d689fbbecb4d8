"""The main table: our numbers, the paper's beside them, and averages that are not those of the paper."""

from __future__ import annotations

import pytest

from costbench.metrics.rows import MetricRow
from costbench.reports.baseline_comparison import rank_models
from costbench.reports.papers.printed import main_table
from costbench.reports.table import Table
from costbench.reports.tables.programs import (
    baselines_table,
    comparison_table,
    earlier_tables,
    program_table,
    short_kernels_table,
)
from tests.reports.conftest import fusion_rows, make_cell, results_of_rows, rows_of, variant_rows
from tests.reports.test_baseline_comparison import model_rows


def test_rows_and_averages() -> None:
    table = program_table(make_cell(), main_table("tile", "random"))
    assert table.data["application"].tolist() == [
        "ConvDRAW",
        "Own",
        "RNN",
        "Median",
        "Geometric mean",
        "Arithmetic mean",
        "Standard deviation",
    ]
    assert table.data["ape_analytical"].tolist()[:4] == [8.0, 5.0, 2.0, 5.0]
    # Around 5: 3, 0, -3; the squares add up to 18, halved for three values.
    assert table.data["ape_analytical"].tolist()[-1] == pytest.approx(3.0)
    # Correlations of 0.8, 0.7 and 0.6.
    assert table.data["tau_analytical"].tolist()[4] == pytest.approx(0.336 ** (1 / 3))
    assert table.summary_rows == 4


def test_paper_numbers_stand_beside_their_namesakes() -> None:
    table = program_table(make_cell(), main_table("tile", "random"))
    assert table.data["paper_ape_learned"].tolist() == [9.7, None, 8.0, 3.3, 3.7, None, None]
    assert table.data["paper_tau_analytical"].tolist() == [0.79, None, 0.55, 0.75, 0.74, None, None]
    assert "lpm2021" in table.title


def test_rows_of_the_paper_that_ours_lack_are_told() -> None:
    """The cell has ConvDRAW and RNN alone of the paper's eight applications."""
    notes = program_table(make_cell(), main_table("tile", "random")).notes
    (missing,) = (note for note in notes if "WaveRNN" in note)
    assert "Translate" in missing
    assert "ConvDRAW" not in missing
    other_chip = program_table(make_cell(rows_of(chip="tpu_v3")), main_table("tile", "random"))
    assert not any("WaveRNN" in note for note in other_chip.notes)


def test_numbers_of_another_chip_are_not_shown() -> None:
    table = program_table(make_cell(rows_of(chip="tpu_v3")), main_table("tile", "random"))
    assert not [column for column in table.columns if column.key.startswith("paper_")]
    assert "lpm2021" not in table.title


def test_the_best_of_ours_and_of_theirs_are_marked() -> None:
    table = program_table(make_cell(), main_table("tile", "random"))
    keys = [column.key for column in table.columns]
    best = {key for index, key in enumerate(keys) if table.is_best(0, index)}
    assert best == {"ape_learned", "tau_analytical", "paper_ape_analytical", "paper_tau_analytical"}


def test_a_spread_is_no_contest() -> None:
    table = program_table(make_cell(), None)
    last = len(table.rows) - 1
    assert not [column for column in range(len(table.columns)) if table.is_best(last, column)]


def test_fusion_table_counts_long_kernels() -> None:
    table = program_table(make_cell(fusion_rows()), main_table("fusion", "random"))
    assert table.data["kernels"].tolist()[:3] == [11.0, 12.0, 10.0]
    assert table.data["mape_ge5us_hybrid"].tolist()[:3] == [1.0, 1.0, 2.0]
    assert table.data["mape_ge5us_analytical"].tolist()[3:5] == [27.0, pytest.approx(24.0)]
    assert table.data["tau_ge5us_learned"].tolist()[0] == 0.9
    assert table.data["paper_mape_ge5us_analytical"].tolist() == [21.6, None, 20.5, 24.0, 31.1, None, None]
    assert table.name == "fusion_random_tpu_v2"


def test_baselines_other_than_the_strongest_are_left_to_their_own_table() -> None:
    keys = [column.key for column in program_table(make_cell(), None).columns]
    assert keys[2:] == ["ape_learned", "ape_analytical", "tau_learned", "tau_analytical"]
    keys = [column.key for column in program_table(make_cell(), None, "random").columns]
    assert keys[2:5] == ["ape_learned", "ape_analytical", "ape_random"]


def test_short_kernels_have_a_table_of_their_own() -> None:
    table = short_kernels_table(make_cell(fusion_rows()))
    assert table.data["kernels"].tolist()[:3] == [21.0, 22.0, 20.0]
    assert table.data["mape_lt5us_learned"].tolist()[:3] == [2.0, 4.0, 8.0]
    assert table.name == "fusion_random_tpu_v2_short"
    long = [row for row in fusion_rows() if "lt5us" not in row.metric]
    assert short_kernels_table(make_cell(long)).rows == ()


def _tables(rows: list[MetricRow]) -> tuple[Table, ...]:
    results = results_of_rows(rows)
    return earlier_tables(results, results.cells[0])


def test_fusion_has_errors_and_correlations_of_three_models() -> None:
    (table,) = _tables([*fusion_rows(), *variant_rows("lpm2020-lstm", "fusion", [9.0, 8.0, 7.0], 0.6)])
    assert table.name == "lpm2020_table2_fusion_random_tpu_v2"
    # ConvDRAW, the user's program, RNN; then the median.
    assert table.data["mape_ge5us_lstm"].tolist()[:4] == [8.0, 7.0, 9.0, 8.0]
    assert table.data["tau_ge5us_lstm"].tolist()[:3] == [0.6, 0.6, 0.6]
    assert table.data["tau_ge5us_hybrid"].tolist()[:3] == [0.95, 0.95, 0.95]
    assert table.data["paper_error_lstm"].tolist()[:4] == [62.3, None, 23.5, 26.6]
    assert table.data["paper_tau_gnn"].tolist() == [0.65, None, 0.91, 0.9, None, None, None]


def test_tile_has_correlations_of_both_losses() -> None:
    loss = variant_rows("mse", "tile", [1.0] * 3, 0.4)
    (table,) = _tables([*rows_of(), *loss, *variant_rows("vanilla", "tile", [1.0] * 3, 0.6)])
    keys = [column.key for column in table.columns]
    ours = ["tau_learned", "tau_rank", "tau_mse", "tau_analytical"]
    assert keys[2:] == [*ours, "paper_tau_rank", "paper_tau_mse", "paper_tau_analytical"]
    assert table.data["tau_mse"].tolist()[0] == 0.4
    assert table.data["paper_tau_mse"].tolist()[0] == 0.66


def test_without_the_rival_there_is_no_table() -> None:
    assert _tables(rows_of()) == ()
    assert _tables([*rows_of("manual"), *variant_rows("mse", "tile", [1.0] * 3, split="manual")]) == ()
    v3 = variant_rows("mse", "tile", [1.0] * 3, chip="tpu_v3")
    assert _tables([*rows_of(chip="tpu_v3"), *v3]) == ()


def test_one_row_a_baseline_and_metric() -> None:
    table = comparison_table(make_cell(), seed=0)
    assert [(row[0], row[1]) for row in table.rows] == [
        ("analytical", "Kendall's τ"),
        ("analytical", "Tile-Size APE (points)"),
        ("random", "Kendall's τ"),
        ("random", "Tile-Size APE (points)"),
    ]


def test_being_better_is_up_for_tau_and_down_for_ape() -> None:
    tau, ape = comparison_table(make_cell(), seed=0).rows[2:]
    assert tau[3] == pytest.approx(0.8)
    assert ape[3] == pytest.approx(5 / 3 - 200)
    # Better than random on every program, so in every resample.
    assert tau[6] == ape[6] == 1.0


def test_the_same_seed_gives_the_same_table() -> None:
    cell = make_cell()
    assert comparison_table(cell, 0) == comparison_table(cell, 0)
    assert comparison_table(cell, 0) != comparison_table(cell, 1)


def test_rows_say_what_a_model_is_and_how_it_stands() -> None:
    rows = [
        *model_rows("learned", [10.0] * 6, split="folds"),
        *model_rows("analytical_constant", [20.0] * 6, split="folds"),
        *model_rows("trees", [16.0] * 6, split="folds"),
        *model_rows("mine:MyModel", [12.0] * 6, split="folds"),
    ]
    results = results_of_rows(rows)
    cell = results.cells[0]
    table = baselines_table(cell, rank_models(results, cell, 0))
    assert table.name == "baselines_fusion_folds_tpu_v3"
    assert [row[:2] for row in table.rows] == [
        ("learned", "network"),
        ("MyModel", "yours"),
        ("boosted trees", "strongest baseline"),
        ("analytical x constant", "baseline"),
    ]
    shown = [[table.text(row, column) for column in range(2, 13)] for row in (0, 2, 3)]
    assert shown[0] == ["10.0", "10.0", "10.0", "–", "0.50", "100", "-6.0", "-6.0", "-6.0", "6", "1"]
    assert shown[1] == ["16.0", "16.0", "16.0", "–", "0.50", "–", "–", "–", "–", "6", "1"]
    assert shown[2][5:9] == ["0", "4.0", "4.0", "4.0"]


def test_ceilings_are_rows_below_the_models_and_no_models() -> None:
    rows = [
        *model_rows("learned", [10.0] * 6, split="folds"),
        *model_rows("trees", [16.0] * 6, split="folds"),
        *model_rows("regular_machine", [2.0] * 6, split="folds"),
        *model_rows("measured_again", [0.5] * 6, split="folds"),
    ]
    results = results_of_rows(rows)
    cell = results.cells[0]
    assert cell.models == ("learned", "trees")
    assert cell.ceilings == ("measured_again", "regular_machine")
    found = rank_models(results, cell, 0)
    assert found.strongest == "trees"
    table = baselines_table(cell, found)
    assert table.summary_rows == 2
    assert [row[:3] for row in table.rows[2:]] == [
        ("measured again", "ceiling", 0.5),
        ("machine without irregular code", "ceiling", 2.0),
    ]
    assert [table.text(3, column) for column in range(3, 13)] == [*["–"] * 3, "0.50", *["–"] * 4, "6", "1"]
