"""Stage `report` before anything has been evaluated."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.reports.stage import run


@pytest.mark.parametrize(
    ("partial", "problem"),
    [
        (False, r"folds-tile/identity\.json: not there"),
        (True, r"out/laptop/evaluate: no finished experiment"),
    ],
)
def test_a_report_needs_an_evaluated_experiment(
    partial: bool, problem: str, repository: Path, tmp_path: Path
) -> None:
    for name in ("params.yaml", "schedules.yaml"):
        shutil.copy(repository / name, tmp_path / name)
    with pytest.raises(DataError, match=problem):
        run(tmp_path / "params.yaml", partial=partial)
    assert not (tmp_path / "reports").exists()
