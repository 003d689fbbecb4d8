"""Tables of variants: what was run, what was not, and the paper's numbers beside."""

from __future__ import annotations

import pytest

from costbench.reports.results import ChipSplit, Results
from costbench.reports.tables.variants import (
    ablation_tables,
    differences_tables,
    known_differences,
    tables_without_results,
    variant_splits,
)
from tests.reports.conftest import fusion_rows, results_of_rows, rows_of, variant_rows
from tests.reports.test_baseline_comparison import model_rows
from tests.sentences import listed

TASK_NAMES = ("tile", "fusion")


def test_inputs_stand_beside_the_papers() -> None:
    vanilla = variant_rows("vanilla", "tile", [1.0, 2.0, 4.0], seed=0)
    again = variant_rows("vanilla", "tile", [3.0, 2.0, 4.0], seed=1)
    loss = variant_rows("mse", "tile", [8.0, 8.0, 8.0])
    edges = variant_rows("undirected", "fusion", [5.0, 5.0, 5.0])
    (table,) = ablation_tables(results_of_rows(rows_of(), vanilla, again, loss, edges))
    assert table.name == "lpm2021_table3_random_tpu_v2"
    assert table.data["variant"].tolist() == ["vanilla", "undirected", "mse"]
    # Seeds first: 2, 2, 4.
    assert table.data["tile_mean"].tolist() == [pytest.approx(16.0 ** (1 / 3)), None, pytest.approx(8.0)]
    assert table.data["tile_median"].tolist() == [2.0, None, 8.0]
    assert table.data["tile_deviation"].tolist() == [pytest.approx((4 / 3) ** 0.5), None, 0.0]
    assert table.data["tile_seeds"].tolist() == [2, None, 1]
    assert table.data["paper_tile_mean"].tolist() == [6.8, 6.8, 17.7]
    assert table.data["paper_fusion_median"].tolist() == [9.5, 11.0, None]
    tile, fusion = (next(note for note in table.notes if f" {task} task: " in note) for task in TASK_NAMES)
    assert listed(tile) == ["undirected", "static_node", "static_kernel", "tile_kernel"]
    # The paper has no fusion numbers of the last two, so nobody asks for ours.
    assert listed(fusion) == ["vanilla", "static_node", "static_kernel"]


def test_networks_print_deviations() -> None:
    (table,) = ablation_tables(
        results_of_rows(rows_of(), variant_rows("gat-lstm", "fusion", [1.0, 1.0, 1.0]))
    )
    assert table.name == "lpm2021_table4_random_tpu_v2"
    assert table.data["label"].tolist() == ["GAT + LSTM"]
    assert table.data[["paper_fusion_mean", "paper_fusion_deviation"]].to_numpy().tolist() == [[7.4, 4.5]]
    assert table.data.filter(regex="^tile").empty


def test_elsewhere_the_papers_numbers_are_no_comparison() -> None:
    rows = variant_rows("vanilla", "tile", [1.0, 1.0, 1.0], chip="tpu_v3", split="manual")
    results = results_of_rows(rows_of(), rows)
    assert variant_splits(results) == (ChipSplit("manual", "tpu_v3"),)
    (table,) = ablation_tables(results)
    assert table.name == "lpm2021_table3_manual_tpu_v3"
    assert table.data.filter(regex="^paper").empty


def test_other_variants_stand_below_the_main_model() -> None:
    rows = [variant_rows(name, "tile", [1.0, 1.0, 1.0]) for name in ("scale-25", "own-idea", "unbalanced")]
    labels = {"unbalanced": "without balanced sampling", "scale-25": "25% of the training programs"}
    (table,) = ablation_tables(results_of_rows(rows_of(), *rows), labels=labels)
    assert table.name == "variants_random_tpu_v2"
    assert table.data["variant"].tolist() == ["main", "unbalanced", "scale-25", "own-idea"]
    assert table.data["tile_median"].tolist() == [1.0, 1.0, 1.0, 1.0]


def test_tables_without_results_are_named() -> None:
    missing = tables_without_results(results_of_rows(rows_of()))
    assert missing["splits"] == [
        ("Table 2 of lpm2021", "random", "fusion"),
        ("Table 8 of lpm2021", "manual", "tile", "fusion"),
    ]
    assert [table for table, *_ in missing["ablations"]] == ["Table 3 of lpm2021", "Table 4 of lpm2021"]
    assert missing["variants"] == [("Table 2 of lpm2020", "lpm2020-lstm"), ("Table 3 of lpm2020", "mse")]
    everything = [rows_of(), rows_of("manual"), fusion_rows(), fusion_rows("manual")]
    everything += [variant_rows(v, "tile", [1.0] * 3) for v in ("mse", "none-lstm", "lpm2020-lstm")]
    assert not any(tables_without_results(results_of_rows(*everything)).values())


def test_main_results_alone_have_no_ablations() -> None:
    assert ablation_tables(results_of_rows(rows_of(), fusion_rows())) == ()


def _differences_results(*, base: bool = True) -> Results:
    rows = [
        *model_rows("learned", [10.0] * 6),
        *model_rows("learned", [14.0] * 6, variant="lpm2021-plus-huber"),
        *model_rows("learned", [18.0] * 6, variant="lpm2021-plus-something"),
        *(model_rows("lpm2021", [16.0] * 6) if base else ()),
    ]
    return results_of_rows(rows)


def test_each_difference_has_a_row_with_its_effect() -> None:
    (table,) = differences_tables(_differences_results(), 0)
    assert table.name == "differences_fusion_random_tpu_v3"
    keys = [column.key for column in table.columns]
    shown = [
        [table.text(i, keys.index(k)) for k in ("variant", "mape_ge5us")] for i in range(len(table.rows))
    ]
    assert shown == [
        ["lpm2021", "16.0"],
        ["lpm2021-plus-huber", "14.0"],
        ["lpm2021-plus-something", "18.0"],
        ["main", "10.0"],
    ]
    texts = {one.name: one.text for one in known_differences()}
    assert table.rows[1][1] == f"+ {texts['huber']}"
    # What is not described goes by its name.
    assert table.rows[2][1] == "+ something"
    effects = ("mape_ge5us_effect", "mape_ge5us_low", "mape_ge5us_high", "tau_ge5us_effect")
    assert [table.text(0, keys.index(key)) for key in effects] == ["–"] * 4
    assert [table.text(1, keys.index(key)) for key in effects] == ["-2.00", "-2.00", "-2.00", "0.000"]
    assert table.text(3, keys.index("mape_ge5us_effect")) == "-6.00"


def test_variants_are_compared_at_their_own_budget() -> None:
    rows = [
        *model_rows("lpm2021", [16.0] * 6),
        *model_rows("learned", [10.0] * 6),
        *model_rows("learned", [20.0] * 6, variant="lpm2021-base"),
        *model_rows("learned", [15.0] * 6, variant="lpm2021-plus-all"),
    ]
    (table,) = differences_tables(results_of_rows(rows), 0)
    assert [row[0] for row in table.rows] == ["lpm2021-base", "lpm2021-plus-all"]
    keys = [column.key for column in table.columns]
    assert table.text(1, keys.index("mape_ge5us_effect")) == "-5.00"


def test_without_the_base_there_is_no_table() -> None:
    assert differences_tables(_differences_results(base=False), 0) == ()


def test_differences_are_not_among_the_other_variants() -> None:
    assert ablation_tables(_differences_results()) == ()
