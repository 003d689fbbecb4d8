"""Hyper-parameters beside the paper's, from mappings that may lack anything."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.models.spec import NetSpec
from costbench.reports.tables.hyperparameters import setting, settings_tables, trials_table
from tests.sentences import numbers

MODEL = {
    "net": {
        "encoder": "gat",
        "reduction": "lstm",
        "hidden": 64,
        "l2_normalize": False,
        "columns": ["mean", "max"],
    },
    "optimizer": {"learning_rate": 0.0007},
    "loss": "hinge",
}


def test_paths_lead_into_mappings_or_nowhere() -> None:
    assert setting(MODEL, "net.hidden") == 64
    assert setting(MODEL, "net.gone") is None
    assert setting(MODEL, "loss.kind") is None


def test_what_training_uses_stands_beside_what_is_fixed() -> None:
    fixed, tuned = settings_tables({"train": {"tile": MODEL}})
    assert fixed.name == "lpm2021_table5"
    by_name = {row[2]: row[3:] for row in fixed.rows}
    assert by_name["net.columns"] == ("mean, max", "mean, max")
    assert by_name["net.opcode_embedding"] == ("–", "256")
    assert tuned.name == "lpm2021_table6"
    assert len(tuned.rows) == 13
    last = tuned.rows[-1]
    assert last[:5] == ("section train (gat + lstm)", "ours", "64", "no", "–")
    assert last[7:9] == ("0.0007", "–")


def test_tasks_have_columns_of_their_own() -> None:
    wider = {**MODEL, "net": {**MODEL["net"], "columns": ["mean", "max", "sum"]}}
    fixed, *_ = settings_tables({"train": {"tile": MODEL, "fusion": wider}})
    assert [column.header for column in fixed.columns[3:]] == ["ours, tile", "ours, fusion", "lpm2021"]
    assert {row[2]: row[3:] for row in fixed.rows}["net.columns"] == (
        "mean, max", "mean, max, sum", "mean, max"
    )  # fmt: skip


def test_what_settings_leave_out_is_as_the_note_says() -> None:
    fixed, *_ = settings_tables({"train": {"tile": MODEL}})
    assert NetSpec().transformer_heads in numbers(fixed.notes[0])
    named = {row[2] for row in fixed.rows} - {"net.transformer_reduction"}
    assert named <= {f"net.{field.name}" for field in fields(NetSpec)}


def test_a_hybrid_and_the_schedule_are_named() -> None:
    """Decay means another thing to a cosine than after every epoch."""
    cosine = {
        "net": {"residual": "analytical"},
        "optimizer": {"schedule": "cosine", "decay": 0.02},
    }
    steps = {"net": {"residual": "none"}, "optimizer": {"schedule": "exponential", "decay": 0.95}}
    (table,) = settings_tables({"tuned": {"fusion": {"gat-lstm": cosine, "best of sweep": steps}}})
    headers = [column.header for column in table.columns]
    shown = {row[0]: dict(zip(headers, row, strict=True)) for row in table.rows if row[1] == "ours"}
    assert (shown["GAT + LSTM"]["decay"], shown["GAT + LSTM"]["added to"]) == ("cosine to 0.02", "analytical")
    assert (shown["best of sweep"]["decay"], shown["best of sweep"]["added to"]) == ("0.95", "none")
    assert {row[-1] for row in table.rows if row[1] == "lpm2021"} == {"–"}


def test_what_sweeps_found_stands_below_the_papers_row() -> None:
    tables = settings_tables({"tuned": {"fusion": {"gat-lstm": MODEL}}})
    assert [table.name for table in tables] == ["lpm2021_table7"]
    pairs = [row[:3] for row in tables[0].rows if row[0] == "GAT + LSTM"]
    assert pairs == [("GAT + LSTM", "lpm2021", "1024"), ("GAT + LSTM", "ours", "64")]
    assert [row[11] for row in tables[0].rows if row[1] == "ours"] == ["hinge"]


def test_without_parameters_there_are_no_tables() -> None:
    assert settings_tables({}) == ()
    assert settings_tables({"train": 3, "tuned": {"tile": None}}) == ()


TRIALS = """trial,state,seed,epochs,metric,loss,net.encoder,optimizer.decay,optimizer.learning_rate
0,complete,5,1,0.5,hinge,graphsage,,0.001
0,complete,5,2,0.625,hinge,graphsage,,0.001
1,pruned,6,1,,logistic,none,0.99,0.00012345
"""


def test_a_trial_stands_after_its_last_epoch(tmp_path: Path) -> None:
    (tmp_path / "tile.csv").write_text(TRIALS)
    (tmp_path / "tile.yaml").write_text("trial: 0\nmonitor: tau\n")
    table = trials_table("tile", tmp_path)
    assert table is not None
    assert [column.header for column in table.columns] == [
        *("trial", "state", "epochs", "validation tau", "graph network", "learning rate", "loss")
    ]
    assert table.rows == (
        ("0*", "complete", "2", 0.625, "graphsage", "0.001", "hinge"),
        ("1", "pruned", "1", None, "none", "0.000123", "logistic"),
    )


def test_trials_that_are_hybrids_say_so(tmp_path: Path) -> None:
    head, *rows = TRIALS.splitlines()
    added = [
        f"{head},net.residual",
        *(f"{row},{kind}" for row, kind in zip(rows, ("none", "none", "analytical"), strict=True)),
    ]
    (tmp_path / "tile.csv").write_text("\n".join(added) + "\n")
    (tmp_path / "tile.yaml").write_text("trial: 0\nmonitor: tau\n")
    table = trials_table("tile", tmp_path)
    assert table is not None
    assert table.columns[-1].header == "added to"
    assert [row[-1] for row in table.rows] == ["none", "analytical"]
    assert any("hybrids" in note for note in table.notes)


def test_what_was_not_swept_has_no_table(tmp_path: Path) -> None:
    assert trials_table("fusion", tmp_path) is None
    (tmp_path / "tile.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no trials"):
        trials_table("tile", tmp_path)
