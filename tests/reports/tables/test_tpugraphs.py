"""What belongs to the paper, and averages over kernels and programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costbench.datasets.layout_graphs import CollectionSize
from costbench.reports.dataset_files import read_cards
from costbench.reports.declared_tables import declared_tables
from costbench.reports.papers.printed import printed_table
from costbench.reports.results import ChipSplit
from costbench.reports.sections.tpugraphs import DECLARED
from costbench.reports.tables.hyperparameters import tried_table
from costbench.reports.tables.tpugraphs import (
    LOSSES,
    NETWORKS,
    best_table,
    collection_table,
    flat_collections,
    is_of_paper,
    kernel_mean,
    layout_mean,
    layout_splits,
    pool_sizes,
    sizes_table,
    tile_splits,
    without_large_k,
)
from tests.reports.conftest import results_of_rows
from tests.reports.evidence_files import write_evidence
from tests.reports.tpugraphs_rows import layout_rows, tile_rows
from tests.sentences import listed

CHIP_SPLIT = ChipSplit("random", "tpu_v3")


def test_variants_are_those_of_table_8_and_6() -> None:
    assert set(printed_table("tpugraphs2023", "tile_variants").labels) == {
        f"{n}-{loss}" for n in NETWORKS for loss in LOSSES
    }
    assert is_of_paper("late-gcn-mse")
    assert is_of_paper("full-listmle")
    assert not is_of_paper("mse")


def test_kernels_weigh_alike() -> None:
    results = results_of_rows(tile_rows({"early-sage-listmle": [2.0, 10.0]}))
    # One kernel of 2 and three of 10.
    assert kernel_mean(results, CHIP_SPLIT, "early-sage-listmle", "kernel_top_1") == pytest.approx(8.0)
    assert kernel_mean(results, CHIP_SPLIT, "late-sage-mse", "kernel_top_1") is None
    assert tile_splits(results) == (CHIP_SPLIT,)
    assert layout_splits(results) == ()


def test_collections_are_apart() -> None:
    rows = layout_rows({("gst-listmle", "xla:random"): [0.2, 0.6], ("gst-listmle", "nlp:random"): [0.9]})
    chance = layout_rows({("main", "xla:random"): [0.1, -0.1]}, "random")
    results = results_of_rows(rows, chance)
    assert layout_splits(results) == (CHIP_SPLIT,)
    assert layout_mean(results, CHIP_SPLIT, "gst-listmle", "xla:random", "kendall_tau") == pytest.approx(0.4)
    assert layout_mean(results, CHIP_SPLIT, "random", "xla:random", "kendall_tau") == pytest.approx(0.0)
    assert layout_mean(results, CHIP_SPLIT, "gst-listmle", "nlp:default", "kendall_tau") is None
    assert layout_mean(results, CHIP_SPLIT, "gst-listmle", "nlp:random", "top_1") == 10.0
    flat = flat_collections(results)
    assert flat["layout/random/tpu_v3/learned@gst-listmle/xla:random/kendall_tau_mean"] == pytest.approx(0.4)
    assert flat["layout/random/tpu_v3/random/xla:random/opa_mean"] == pytest.approx(0.7)


TAUS = {
    ("gst-listmle", "xla:random"): [0.2, 0.6],
    ("gst-listmle", "xla:default"): [0.1, 0.2],
    ("full-listmle", "xla:random"): [0.5, 0.5],
    ("gst-listmle", "nlp:random"): [0.9],
}


def test_table_2_takes_the_papers_best_models() -> None:
    results = results_of_rows(layout_rows(TAUS), tile_rows({"early-sage-listmle": [2.0, 10.0]}))
    table = best_table(results, CHIP_SPLIT, CHIP_SPLIT)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["layout:xla:random"][:4] == pytest.approx((0.4, 10.0, 5.0, 1.0))
    # Geometric mean, median and share of programs above 5%: the top-1 error is 10% on both.
    assert rows["layout:xla:random"][4:7] == pytest.approx((10.0, 10.0, 100.0))
    assert rows["layout:xla:random"][7:] == (0.19, 0.34, 19.8, 10.9, 12.3, 5.7, 9.7, 1.6)
    assert rows["layout:nlp:default"][:4] == (None, None, None, None)
    assert rows["tile:xla"][:4] == pytest.approx((0.8, 8.0, 4.0, 0.8))
    assert rows["tile:xla"][4:7] == (None, None, None)
    # Nothing was ordered at random, and the paper's Table 2 has no such row.
    assert rows["layout:xla:random, random order"] == (None,) * 15
    alone = best_table(results, None, None)
    assert all(value is None for row in alone.rows for value in row[1:5])


def test_table_6_compares_training_on_one_collection() -> None:
    chance = layout_rows({("main", "xla:random"): [0.1, -0.1]}, "random")
    results = results_of_rows(layout_rows(TAUS), chance)
    table, _ = declared_tables(DECLARED, results.frame)["tpugraphs"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["Full Graph"][0] == pytest.approx(0.5)
    assert rows["Random"][0] == pytest.approx(0.0)
    assert rows["MSE loss"][0] is None
    assert rows["GST"][4:7] == pytest.approx((10.0, 10.0, 100.0))
    assert rows["GST"][7:9] == (0.13, 0.32)


def test_table_7_has_our_programs_above_theirs() -> None:
    chance = layout_rows({("main", "xla:random"): [0.1]}, "random")
    results = results_of_rows(layout_rows(TAUS), chance)
    _, table = declared_tables(DECLARED, results.frame)["tpugraphs"]
    ours = [row for row in table.rows if row[0] == "ours" and str(row[1]).startswith("xla")]
    # GST, whole graphs and MSE on random configs, then GST near the default: tau and top-1 each. Then top-10
    # of GST, and top-1 and top-10 of a random order.
    assert ours == [
        ("ours", "xla0", 0.2, 10.0, 0.5, 10.0, None, None, 0.1, 10.0, 5.0, 10.0, 5.0),
        ("ours", "xla1", 0.6, 10.0, 0.5, 10.0, None, None, 0.2, 10.0, 5.0, None, None),
    ]
    assert len(table.rows) == 2 + 7 + 4
    median, geometric, mean, above = table.rows[-4:]
    assert median[2:4] == pytest.approx((0.4, 10.0))
    assert mean[2:4] == pytest.approx((0.4, 10.0))
    # A correlation has no geometric mean here, and no top-10 error is above 5%.
    assert (geometric[2], above[2], above[3], above[10]) == (None, None, 100.0, 0.0)


def test_every_model_is_on_the_table_of_collections() -> None:
    chance = layout_rows({("main", "xla:random"): [0.1, -0.1]}, "random")
    table = collection_table(results_of_rows(layout_rows(TAUS), chance), CHIP_SPLIT)
    assert [row[:4] for row in table.rows] == [
        ("layout:xla:random", "learned", "full-listmle", 2),
        ("layout:xla:random", "learned", "gst-listmle", 2),
        ("layout:xla:random", "random", "main", 2),
        ("layout:xla:default", "learned", "gst-listmle", 2),
        ("layout:nlp:random", "learned", "gst-listmle", 1),
    ]
    # tau and OPA; of top-1 and top-10 arithmetic and geometric mean, median, share above 5%; top-100.
    errors = (10.0, 10.0, 10.0, 100.0, 5.0, 5.0, 5.0, 0.0, 1.0)
    assert table.rows[1][4:] == pytest.approx((0.4, 0.7, *errors))


def test_a_ceiling_is_marked_and_follows_the_models() -> None:
    """With results of K as a share of the configs there are columns of them."""
    again = layout_rows({("main", "xla:random"): [0.99, 0.97]}, "measured_again")
    chance = layout_rows({("main", "xla:random"): [0.1, -0.1]}, "random")
    shares = {"top_1": "top_1_percent", "top_10": "top_10_percent"}
    of_shares = [
        replace(row, metric=shares[row.metric], value=row.value / 2.0)
        for row in chance
        if row.metric in shares
    ]
    results = results_of_rows(layout_rows(TAUS), again, chance, of_shares)
    rows = collection_table(results, CHIP_SPLIT).data
    of_random = rows[rows["collection"] == "layout:xla:random"]
    assert list(of_random["model"]) == ["learned", "learned", "random", "measured_again (ceiling)"]
    assert of_random["kendall_tau"].iloc[-1] == pytest.approx(0.98)
    assert list(of_random[["top_1_percent", "top_10_percent"]].iloc[2]) == pytest.approx([5.0, 2.5])
    best = best_table(results, None, CHIP_SPLIT).data.set_index("collection")
    assert best.loc["layout:xla:random, random order", "ours_top_10_percent"] == pytest.approx(2.5)
    assert best.loc["layout:xla:random", "ours_top_10_percent"] is None
    table, _ = declared_tables(DECLARED, results.frame)["tpugraphs"]
    assert table.data.set_index("model").loc["Random", "ours_top_1_percent"] == pytest.approx(5.0)


def test_means_of_losses_differ() -> None:
    rows = layout_rows({("gst-listmle", "xla:random"): [0.5] * 4})
    losses = iter([1.0, 4.0, 16.0, 64.0])
    rows = [replace(row, value=next(losses)) if row.metric == "top_1" else row for row in rows]
    (row,) = collection_table(results_of_rows(rows), CHIP_SPLIT).data.to_dict("records")
    assert row["top_1"] == pytest.approx(21.25)
    assert row["top_1_geometric_mean"] == pytest.approx(8.0)
    assert row["top_1_median"] == pytest.approx(10.0)
    assert row["top_1_above_5"] == pytest.approx(50.0)


def test_a_k_that_is_most_of_the_configs_is_left_out() -> None:
    """Pools of 99 runs and of 1,200, of which 1,000 are scored: 10 and 100 are a tenth of 100 and 1,000."""
    results = results_of_rows(layout_rows(TAUS), tile_rows({"early-sage-listmle": [2.0, 10.0]}))
    sizes = [
        CollectionSize("layout:xla:random", 2, 15.0, 10, 20, 90.0, 90, 90, 180, 198),
        CollectionSize("layout:nlp:random", 1, 15.0, 10, 20, 900.0, 900, 900, 900, 1200),
    ]
    assert pool_sizes(sizes) == {"xla:random": 99.0, "nlp:random": 1000.0}
    frame = without_large_k(results, sizes).frame
    left = frame.groupby("group")["metric"].unique().map(set).to_dict()
    assert not {"top_10", "top_100"} & left["xla:random"]
    assert {"top_1", "top_10", "top_100"} <= left["nlp:random"]
    # Without a known size nothing is left out, and nothing of tiles.
    assert "top_100" in left["xla:default"]
    assert "kernel_top_10" in left["all"]
    # A table without any top-10 and top-100 has no such columns.
    alone = results_of_rows(layout_rows({("gst-listmle", "xla:random"): [0.2]}))
    table = collection_table(without_large_k(alone, sizes), CHIP_SPLIT, sizes)
    keys = [column.key for column in table.columns]
    assert keys[-2:] == ["top_1_median", "top_1_above_5"]
    assert any("99 (xla:random)" in note for note in table.notes)


def test_table_8_has_every_line_of_the_paper() -> None:
    results = results_of_rows(tile_rows({"early-sage-listmle": [2.0, 10.0], "mlp-mse": [40.0, 40.0]}))
    table, _ = declared_tables(DECLARED, results.frame)["tpugraphs"]
    assert table.name == "tpugraphs2023_table8_random_tpu_v3"
    assert len(table.rows) == 10
    first, last = table.rows[0], table.rows[-1]
    # Our top-1, top-5, top-10 and OPA, then theirs, validation before test.
    assert first[:2] == ("ListMLE", "EarlySAGE")
    assert first[2:6] == pytest.approx((8.0, 4.0, 0.8, 0.9))
    assert first[6:] == (10.5, 9.1, 3.0, 4.2, 1.8, 2.8)
    assert (last[:3], last[6]) == (("MSE", "MLP", 40.0), 117.5)
    assert table.rows[1][2:6] == (None, None, None, None)
    assert listed(table.notes[1])[:2] == ["early-gcn-listmle", "late-sage-listmle"]


def test_table_9_has_our_programs_above_theirs() -> None:
    results = results_of_rows(tile_rows({"late-gcn-listmle": [2.0, 10.0], "mlp-mse": [40.0, 40.0]}))
    _, table = declared_tables(DECLARED, results.frame)["tpugraphs"]
    keys = [column.key for column in table.columns]
    ours = [row for row in table.rows if row[0] == "ours"]
    assert [row[1:3] for row in ours] == [("p0", 1.0), ("p1", 3.0)]
    assert [row[keys.index("k1_late-gcn")] for row in ours] == [2.0, 10.0]
    assert [row[keys.index("k2_late-gcn")] for row in ours] == [1.0, 5.0]
    assert [row[keys.index("k1_mlp")] for row in ours] == [None, None]
    theirs = {row[1]: row for row in table.rows if row[0] == "paper"}
    assert len(theirs) == 7
    assert theirs["unet_3d.4x4.bf16"][keys.index("k1_early-sage")] == 48


LAYOUTS = CollectionSize("layout:xla:random", 2, 15.0, 10, 20, 3.5, 3, 4, 7, 9)


def test_rows_of_ours_stand_below_the_papers(tmp_path: Path) -> None:
    cards = read_cards(write_evidence(tmp_path).card)
    table = sizes_table([LAYOUTS], cards, "tpu_v2")
    rows = {(row[0], row[1]): row[2:] for row in table.rows}
    assert rows["layout:xla:random", "ours"] == (2, 15.0, 10, 20, 3.5, 3, 4, 7, 9)
    assert rows["layout:xla:random", "paper"][0] == 78
    # 30 kernels with 600 tile sizes; the card of this test has no tile sizes of each kernel.
    assert rows["tile:xla", "ours"] == (30, 25.5, 2, 99, None, None, None, 600, 600)
    assert listed(table.notes[1]) == ["layout:xla:default", "layout:nlp:default", "layout:nlp:random"]
    other = sizes_table([], cards, "tpu_v3")
    assert all(row[1] == "paper" for row in other.rows)


def test_settings_are_those_of_the_variants() -> None:
    tile = {
        "early-sage-listmle": {
            "net": {"hidden": 64, "encoder_layers": 3},
            "batch": {"kernels": 8, "configs": 32, "per_epoch": 400},
            "epochs": 5,
            "loss": "listmle",
            "optimizer": {"learning_rate": 0.001},
        }
    }
    tile["mlp-mse"] = {**tile["early-sage-listmle"], "loss": "mse"}
    rows = {row[0]: row[1:] for row in tried_table({"tile": tile}).rows}
    assert rows["hidden size"] == ("–", "100, 200", "64", "64, 128")
    assert rows["training iterations"][2] == "2000"
    assert rows["batch size"][2] == "8 x 32"
    assert rows["loss"][2] == "listmle, mse"
    assert rows["opcode embedding size"][2] == "–"
    assert rows["optimizer"] == ("–", "Adam", "Adam", "Adam")
