from __future__ import annotations

from pathlib import Path

import pytest

from costbench_schedules.experiments.gpu_tuning import search_gpus
from costbench_schedules.reports.gpus.results import GpuResults, flat_gpus, load_gpus
from tests.schedules.experiments.test_gpu_tuning import SECTION, write_tables
from tests.schedules.workspaces import workspace_in


def test_headline_numbers_are_those_of_the_rows(tmp_path: Path) -> None:
    write_tables(tmp_path)
    search_gpus(SECTION, workspace_in(tmp_path), tmp_path / "gpus")
    results = load_gpus(tmp_path / "gpus")
    flat = flat_gpus(results)
    # Two tables and strategies, marks of development, and ratios of the strategies over one table and two.
    assert len([key for key in flat if not key.startswith("gpu/ratios/")]) == 2 * 2 * 5 + 2
    rows = {
        metric: [
            row.value
            for row in results.rows
            if (row.program, row.model, row.metric) == ("k-b", "genetic", metric)
        ]
        for metric in ("trials_to_95", "reached_95", "auc")
    }
    expected = sum(rows["trials_to_95"]) / max(1.0, sum(rows["reached_95"]))
    assert flat["gpu/k/b/genetic/trials_to_95"] == pytest.approx(expected)
    assert flat["gpu/k/b/genetic/auc"] == pytest.approx(sum(rows["auc"]) / 3)
    assert results.development == {("k", "a")}
    assert results.strategies == ("random", "genetic")


def test_without_results_there_are_no_numbers(tmp_path: Path) -> None:
    assert load_gpus(tmp_path).rows == ()
    assert flat_gpus(GpuResults()) == {}
