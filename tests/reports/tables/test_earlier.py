"""lpm2020's tables: which rows of ours stand beside which of its columns."""

from __future__ import annotations

from pathlib import Path

from costbench.metrics.rows import MetricRow, write_rows
from costbench.reports.results import load_results
from costbench.reports.table import Table
from costbench.reports.tables.programs import earlier_tables
from tests.reports.conftest import fusion_rows, rows_of, variant_rows


def _tables(folder: Path, rows: list[MetricRow]) -> tuple[Table, ...]:
    write_rows(folder / "r.jsonl", rows)
    results = load_results(folder / "r.jsonl")
    return earlier_tables(results, results.cells[0])


def _column(table: Table, key: str) -> list[object]:
    index = [column.key for column in table.columns].index(key)
    return [row[index] for row in table.rows]


def test_fusion_has_errors_and_correlations_of_three_models(tmp_path: Path) -> None:
    (table,) = _tables(
        tmp_path, [*fusion_rows(), *variant_rows("lpm2020-lstm", "fusion", [9.0, 8.0, 7.0], 0.6)]
    )
    assert table.name == "lpm2020_table2_fusion_random_tpu_v2"
    # ConvDRAW, the user's program, RNN; then the median.
    assert _column(table, "mape_ge5us_lstm")[:4] == [8.0, 7.0, 9.0, 8.0]
    assert _column(table, "tau_ge5us_lstm")[:3] == [0.6, 0.6, 0.6]
    assert _column(table, "tau_ge5us_hybrid")[:3] == [0.95, 0.95, 0.95]
    assert _column(table, "paper_error_lstm")[:4] == [62.3, None, 23.5, 26.6]
    assert _column(table, "paper_tau_gnn") == [0.65, None, 0.91, 0.9, None, None, None]


def test_tile_has_correlations_of_both_losses(tmp_path: Path) -> None:
    loss = variant_rows("mse", "tile", [1.0] * 3, 0.4)
    (table,) = _tables(tmp_path, [*rows_of(), *loss, *variant_rows("vanilla", "tile", [1.0] * 3, 0.6)])
    keys = [column.key for column in table.columns]
    ours = ["tau_learned", "tau_rank", "tau_mse", "tau_analytical"]
    assert keys[2:] == [*ours, "paper_tau_rank", "paper_tau_mse", "paper_tau_analytical"]
    assert _column(table, "tau_mse")[0] == 0.4
    assert _column(table, "paper_tau_mse")[0] == 0.66


def test_without_the_rival_there_is_no_table(tmp_path: Path) -> None:
    assert _tables(tmp_path, rows_of()) == ()
    assert (
        _tables(tmp_path, [*rows_of("manual"), *variant_rows("mse", "tile", [1.0] * 3, split="manual")]) == ()
    )
    v3 = variant_rows("mse", "tile", [1.0] * 3, chip="tpu_v3")
    assert _tables(tmp_path, [*rows_of(chip="tpu_v3"), *v3]) == ()
