"""Hyper-parameters beside the paper's, from mappings that may lack anything."""

from __future__ import annotations

from costbench.reports.settings_tables import setting, settings_tables

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
    fixed, tuned = settings_tables({"train": {"tasks": ["tile"], "model": MODEL}})
    assert fixed.name == "lpm2021_table5"
    by_name = {row[2]: row[3:] for row in fixed.rows}
    assert by_name["model.net.columns"] == ("mean, max", "mean, max")
    assert by_name["model.net.opcode_embedding"] == ("–", "256")
    assert tuned.name == "lpm2021_table6"
    assert len(tuned.rows) == 13
    last = tuned.rows[-1]
    assert last[:5] == ("section train (gat + lstm)", "ours", "64", "no", "–")
    assert last[7:9] == ("0.0007", "–")


def test_what_sweeps_found_stands_below_the_papers_row() -> None:
    tables = settings_tables({"tuned": {"fusion": {"gat-lstm": MODEL}}})
    assert [table.name for table in tables] == ["lpm2021_table7"]
    pairs = [row[:3] for row in tables[0].rows if row[0] == "GAT + LSTM"]
    assert pairs == [("GAT + LSTM", "lpm2021", "1024"), ("GAT + LSTM", "ours", "64")]
    assert [row[11] for row in tables[0].rows if row[1] == "ours"] == ["hinge"]


def test_without_parameters_there_are_no_tables() -> None:
    assert settings_tables({}) == ()
    assert settings_tables({"train": 3, "tuned": {"tile": None}}) == ()
