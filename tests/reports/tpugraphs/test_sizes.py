"""Tables 1 and 5."""

from __future__ import annotations

from pathlib import Path

from costbench.datasets.layout.sizes import CollectionSize
from costbench.reports.dataset_files import read_cards
from costbench.reports.tables.hyperparameters import tried_table
from costbench.reports.tables.tpugraphs import sizes_table
from tests.reports.evidence_files import write_evidence

LAYOUTS = CollectionSize("layout:xla:random", 2, 15.0, 10, 20, 3.5, 3, 4, 7, 9)


def test_rows_of_ours_stand_below_the_papers(tmp_path: Path) -> None:
    cards = read_cards(write_evidence(tmp_path).card)
    table = sizes_table([LAYOUTS], cards, "tpu_v2")
    rows = {(row[0], row[1]): row[2:] for row in table.rows}
    assert rows["layout:xla:random", "ours"] == (2, 15.0, 10, 20, 3.5, 3, 4, 7, 9)
    assert rows["layout:xla:random", "paper"][0] == 78
    # 30 kernels with 600 tile sizes; the card of this test has no tile sizes of each kernel.
    assert rows["tile:xla", "ours"] == (30, 25.5, 2, 99, None, None, None, 600, 600)
    assert (
        table.notes[1] == "Without data of ours: layout:xla:default, layout:nlp:default, layout:nlp:random."
    )
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
