"""Rows become cells; seeds are averaged; what contradicts itself is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.metrics.rows import write_rows
from costbench.reports.results import load_results
from costbench.reports.tables.variants import ablation_tables
from tests.reports.conftest import fusion_rows, make_cell, make_row, results_of_rows, rows_of, variant_rows


def test_seeds_of_a_model_are_averaged() -> None:
    cell = make_cell([make_row(seed=0, value=2.0), make_row(seed=7, value=5.0)])
    assert cell.score("learned", "tile_size_ape", "rnn_gru_b128_train_f32") == 3.5
    assert cell.seeds == {"learned": (0, 7)}


def test_training_runs_deviate_over_the_programs_that_all_have() -> None:
    cell = make_cell(
        [
            *(
                make_row(seed=seed, program=f"p{i}", value=[2.0, 8.0][i] + seed)
                for seed in (0, 2)
                for i in range(2)
            ),
            make_row(seed=2, program="p2", value=90.0),
            make_row(model="analytical", value=3.0),
        ]
    )
    error = cell.described.measures[0]
    # Geometric means of 2 and 8, and of 4 and 10: 4 and sqrt(40).
    assert cell.deviation("learned", error) == pytest.approx((40.0**0.5 - 4.0) / 2.0**0.5)
    assert cell.deviation("analytical", error) is None
    assert cell.deviation("nobody", error) is None


def test_groups_of_kernels_are_cells_of_their_own() -> None:
    unseen = make_row(kernels="unseen", value=9.0)
    results = results_of_rows([*rows_of(), unseen, make_row(model="best", metric="kernels")])
    (cell,) = results.cells
    part = results.part(cell, "unseen")
    assert part is not None
    assert part.over_programs("learned", "tile_size_ape") == [9.0]
    assert part.programs == (("RNN", "rnn_gru_b128_train_f32"),)
    assert results.part(cell, "all") is cell
    assert results.part(cell, "reduction") is None
    # What depends on no model is no model.
    assert cell.models == ("learned", "analytical", "random")


def test_undefined_metrics_are_none_and_left_out() -> None:
    cell = make_cell([make_row(), make_row(program="other", metric="kendall_tau")])
    assert cell.score("learned", "kendall_tau", "rnn_gru_b128_train_f32") is None
    assert cell.over_programs("learned", "kendall_tau") == [1.0]


def test_cells_come_random_split_first_and_models_in_fixed_order() -> None:
    rows = [*rows_of("folds"), *rows_of("manual"), *rows_of("random", "tpu_v3"), *rows_of()]
    results = results_of_rows(rows)
    assert [cell.name for cell in results.cells] == [
        "tile_random_tpu_v2",
        "tile_random_tpu_v3",
        "tile_manual_tpu_v2",
        "tile_folds_tpu_v2",
    ]
    assert results.cells[0].models == ("learned", "analytical", "random")
    assert results.identities("chip") == ("tpu_v2", "tpu_v3")


def test_experiments_may_use_the_same_variant_name(tmp_path: Path) -> None:
    """The later one's is listed with its name; baselines, which are the same, are not."""
    for name, value in (("main-tile", 2.0), ("mine", 4.0)):
        place = {"split": "random", "chip": "tpu_v2"}
        rows = [
            make_row(**place, value=value),
            make_row(**place, value=value, variant="wide"),
            make_row(**place, value=value, model="hybrid"),
            make_row(**place, value=9.0, model="analytical"),
        ]
        write_rows(tmp_path / name / "rows.jsonl", rows)
    results = load_results(tmp_path / "main-tile" / "rows.jsonl", tmp_path / "mine" / "rows.jsonl")
    (cell,) = results.cells
    program = cell.programs[0][1]
    error = "tile_size_ape"
    assert [cell.score(m, error, program) for m in ("learned", "hybrid", "analytical")] == [2.0, 2.0, 9.0]
    found = {one.variant: one.score("learned", error, program) for one in results.variants}
    assert found == {"wide": 2.0, "mine.main": 4.0, "mine.wide": 4.0, "mine.hybrid": 4.0}
    assert results.experiments["wide"] == "main-tile"
    tables = {table.name: table for table in ablation_tables(results)}
    shown = [row[1] for row in tables["variants_random_tpu_v2"].rows]
    assert [label for label in shown if label != "main model"] == [
        "mine: hybrid", "mine: main", "mine: wide", "main-tile: wide",
    ]  # fmt: skip


def test_no_rows_are_no_results() -> None:
    with pytest.raises(DataError, match="no result rows"):
        results_of_rows()


def test_a_program_has_one_application() -> None:
    with pytest.raises(DataError, match="application of rnn_gru"):
        results_of_rows([make_row(), make_row(application="SSD", metric="kendall_tau")])


def test_variants_are_cells_of_their_own() -> None:
    results = results_of_rows([*rows_of(), *variant_rows("mse", "tile", [7.0] * 3), *fusion_rows()])
    assert [cell.name for cell in results.cells] == ["tile_random_tpu_v2", "fusion_random_tpu_v2"]
    (variant,) = results.variants
    assert (variant.variant, variant.over_programs("learned", "tile_size_ape")) == ("mse", [7.0] * 3)
    assert results.cell("tile", "random", "tpu_v2", "mse") is variant
    assert results.cell("tile", "random", "tpu_v2") is results.cells[0]
    assert results.cell("tile", "manual", "tpu_v2") is None
    assert results.cells[1].models == ("learned", "hybrid", "analytical")
