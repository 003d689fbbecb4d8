"""Work items on processes: all are computed, errors keep their type, a killed worker costs no result."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.execution.workers import Backend, run_work_items


def _square(value: int) -> int:
    return value * value


def _fail(value: int) -> int:
    raise DataError("broken", where=f"item {value}")


def _die_once(marker: Path) -> str:
    if not marker.exists():
        marker.write_text("died")
        os.kill(os.getpid(), signal.SIGKILL)
    return marker.name


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_keep_the_order_of_the_work_items(jobs: int) -> None:
    done: dict[str, int] = {}
    found = run_work_items(_square, {"c": 3, "a": 1, "b": 2}, Backend(jobs=jobs), done.__setitem__)
    assert list(found.items()) == [("c", 9), ("a", 1), ("b", 4)]
    assert done == found


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_keep_type_and_place(jobs: int) -> None:
    with pytest.raises(DataError, match="item 1: broken"):
        run_work_items(_fail, {"a": 1, "b": 1}, Backend(jobs=jobs), lambda name, result: None)


def test_a_killed_worker_costs_its_work_item_only(tmp_path: Path) -> None:
    done: list[str] = []
    items = {name: tmp_path / name for name in ("a", "b", "c")}
    (tmp_path / "a").write_text("")
    (tmp_path / "c").write_text("")
    found = run_work_items(_die_once, items, Backend(jobs=2), lambda name, result: done.append(name))
    assert found == {"a": "a", "b": "b", "c": "c"}
    assert sorted(done) == ["a", "b", "c"]


def _die(value: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_that_keep_dying_are_an_error() -> None:
    with pytest.raises(DataError, match="workers died"):
        run_work_items(_die, {"a": 1, "b": 2}, Backend(jobs=2), lambda name, result: None)
