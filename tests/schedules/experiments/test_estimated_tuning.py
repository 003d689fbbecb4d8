"""Rows and curves by hand; results are kept, and made again when what they follow from changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costbench.errors import ChoiceError
from costbench.metrics.rows import read_rows
from costbench_schedules.experiments.estimated_tuning import EstimatedTuning, search_estimated
from costbench_schedules.experiments.recorded_tables import TableFile
from costbench_schedules.experiments.repeats import RepeatedSearch
from tests.schedules.experiments.made_up_estimates import SECTION, write_all
from tests.schedules.workspaces import workspace_in


def test_trials_by_hand() -> None:
    shares = np.array([[50.0, 96.0, 100.0], [10.0, 94.0, 94.0]])
    search = RepeatedSearch(TableFile("native", "C6", "conv2d", Path("C6.arrow"), ""), "trees", shares)
    assert search.trials_until(95).tolist() == [2.0, 4.0]
    assert search.trials_until(50).tolist() == [1.0, 2.0]


def test_results_are_kept_until_something_changes(tmp_path: Path, repository: Path) -> None:
    index = workspace_in(tmp_path)
    folder = tmp_path / "out" / "schedules" / "estimated"
    assert search_estimated(SECTION, index, folder) == ""
    write_all(tmp_path)
    first = search_estimated(SECTION, index, folder)
    rows = read_rows(folder / "rows.jsonl")
    assert {row.program for row in rows} == {"matmul-256"}
    assert {row.model for row in rows} == {"best", *SECTION.arms}
    assert {row.seed for row in rows if row.model != "best"} == {0, 1}
    assert {row.metric for row in rows if row.model == "crop"} == {
        *("trials_to_90", "trials_to_95", "trials_to_99", "share_end")
    }
    [searched] = [row.value for row in rows if row.metric == "programs"]
    assert searched < next(row.value for row in rows if row.metric == "configs")
    curves = json.loads((folder / "curves.json").read_text())
    assert [one["arm"] for one in curves] == list(SECTION.arms)
    assert all(one["repeats"] == 2 and one["trials"][-1] == 24 for one in curves)

    kept = {path: path.stat().st_mtime_ns for path in (folder / "searches").iterdir()}
    assert len(kept) == 10
    assert search_estimated(SECTION, index, folder) == first
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    write_all(tmp_path, noise=0.2)
    assert search_estimated(SECTION, index, folder) != first
    assert all(path.stat().st_mtime_ns != kept[path] for path in kept)
    search_estimated(None, index, folder)
    assert not (folder / "rows.jsonl").exists()


@pytest.mark.parametrize(
    "wrong", [{"arms": ("best",)}, {"arms": ("crop", "crop")}, {"trials": 0}, {"trials": 500}], ids=str
)
def test_impossible_sections(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, ChoiceError), match=r"arm|trials"):
        EstimatedTuning(**wrong)
