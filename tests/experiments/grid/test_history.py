"""Training curves on disk: they grow by an epoch, survive a restart, and refuse other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.experiments.grid.history import History


def test_rows_by_hand(tmp_path: Path) -> None:
    history = History(tmp_path / "h.csv", 10)
    history.log_metrics({"validation/tau": 0.5, "loss": 1.25}, 10)
    history.log_metrics({"validation/tau": 0.625}, 20)
    assert (tmp_path / "h.csv").read_text() == "epoch,step,loss,validation/tau\n1,10,1.25,0.5\n2,20,,0.625\n"


def test_a_resumed_curve_is_that_of_an_uninterrupted_run(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"
    values = {10: {"tau": 0.1}, 20: {"tau": 0.2}, 30: {"tau": 1 / 3}}
    history = History(whole, 10)
    for step, metrics in values.items():
        history.log_metrics(metrics, step)
    first = History(cut, 10)
    first.log_metrics(values[10], 10)
    first.log_metrics(values[20], 20)
    # Killed before the epoch could be resumed from, so that it is trained and logged again.
    second = History(cut, 10)
    second.log_metrics(values[20], 20)
    second.log_metrics(values[30], 30)
    assert cut.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "epoch,step,tau\n1,one,2\n", "epoch,step,tau\n1,1,high\n"])
def test_other_files_are_no_history(tmp_path: Path, text: str) -> None:
    (tmp_path / "h.csv").write_text(text)
    with pytest.raises(DataError, match=r"h\.csv: is no training history"):
        History(tmp_path / "h.csv", 10)
