"""The published version: the same values for everyone, an error where they differ, and never changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from costbench.errors import DataError
from costbench_suite import versions
from costbench_suite.cli import app
from costbench_suite.data import make_data
from costbench_suite.task_data import TaskData
from costbench_suite.tasks import TASKS
from costbench_suite.versions import (
    PublishedTask,
    differing_tables,
    is_same_data,
    publish,
    published,
    unpublished,
)
from tools import publish_suite

CHEAP = ("gpu", "schedules")
"""Tasks whose data are made in seconds."""
_MAX_BYTES = 300_000_000


@pytest.mark.parametrize("task", CHEAP)
def test_data_made_here_are_those_of_the_version(recorded: Path, task: str) -> None:
    facts = TaskData(recorded, task).facts
    assert facts.digest == published()[task].digest
    assert differing_tables(TASKS[task], facts.digests) == ()


@pytest.mark.slow
def test_kernels_of_a_real_machine_are_those_of_the_version(tmp_path: Path) -> None:
    (made,) = make_data(tmp_path, ["fusion_xla_cpu"], tmp_path / "work", lambda _: None, jobs=1)
    assert differing_tables(TASKS["fusion_xla_cpu"], made.digests) == ()


def test_every_task_is_published_or_said_not_to_be() -> None:
    folders = {task.folder for task in TASKS.values()}
    assert set(published()) | set(unpublished()) == folders
    assert not set(published()) & set(unpublished())
    assert sum(entry.size for entry in published().values()) < _MAX_BYTES


def test_ceilings_are_of_the_metrics_of_their_task() -> None:
    for folder, entry in published().items():
        assert set(entry.ceiling) in (set(TASKS[folder].metrics), set())
        assert entry.ceiling or not TASKS[folder].second
        assert set(TASKS[folder].tables) < set(entry.digests)


def test_the_ceiling_of_real_kernels_is_that_of_the_report(repository: Path) -> None:
    summary = json.loads((repository / "reports" / "summary.json").read_text("utf-8"))
    for metric, value in published()["fusion_xla_cpu"].ceiling.items():
        reported = summary[f"fusion/folds/xla_cpu/measured_again/{metric}"]
        assert value == pytest.approx(reported, rel=1e-3)


def test_the_page_says_what_is_published() -> None:
    assert publish_suite.main(["--check"]) == 0


def test_what_is_published_never_changes(tmp_path: Path) -> None:
    path = tmp_path / "version1.json"
    entry = PublishedTask({"decisions": "aa"}, 1, 10, 100, {"tau_mean": 0.9})
    publish({"gpu": entry}, path)
    publish({"gpu": entry, "schedules": replace(entry, size=7)}, path)
    assert list(published(path)) == ["gpu", "schedules"]
    with pytest.raises(DataError, match="gpu is published with other values"):
        publish({"gpu": replace(entry, digests={"decisions": "bb"})}, path)


def test_data_of_before_a_correction_are_the_versions_still(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = PublishedTask({"decisions": "aa", "summaries": "bb"}, 1, 10, 100, earlier={"summaries": "cc"})
    monkeypatch.setattr(versions, "published", lambda: {"tile": entry})
    tile = TASKS["tile"]
    assert differing_tables(tile, {"decisions": "aa", "summaries": "bb"}) == ()
    assert differing_tables(tile, {"decisions": "aa", "summaries": "cc"}) == ()
    assert differing_tables(tile, {"decisions": "cc", "summaries": "dd"}) == ("decisions", "summaries")
    assert differing_tables(tile, {"summaries": "bb"}) == ("decisions",)
    today, earlier = entry.data_digests
    assert today == entry.digest != earlier
    assert is_same_data("tile", earlier, today)
    assert not is_same_data("tile", earlier, "dd")
    assert is_same_data("gpu", "dd", "dd")


def test_a_part_of_the_data_is_not_published(
    recorded: Path, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = versions.PUBLISHED.read_bytes()
    assert publish_suite.main([str(recorded), "--work", str(work)]) == 1
    assert versions.PUBLISHED.read_bytes() == before
    problem = capsys.readouterr().err
    assert "is published with other values" in problem
    assert problem.count("\n") == 1


def test_other_values_than_published_are_an_error_that_names_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = published()["schedules"]
    other = replace(entry, digests={**entry.digests, "decisions": "00" * 32})
    monkeypatch.setattr(versions, "published", lambda: {"schedules": other})
    arguments = ["data", "--task", "schedules", "--out", str(tmp_path / "suite")]
    with pytest.raises(DataError, match="schedules: decisions") as error:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "loops" not in str(error.value)
    assert TaskData(tmp_path / "suite", "schedules").facts.digest == entry.digest
