"""Trials of a sweep as a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.reports.tables.hyperparameters import trials_table

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
