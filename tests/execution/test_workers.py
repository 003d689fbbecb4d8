"""Work items on processes: all are computed, errors keep their type, a killed worker costs no result."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from costbench.errors import DataError, ParamsError
from costbench.execution.workers import NO_FLAGS, Backend, BackendFlags, load, run_work_items


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
    results = run_work_items(_square, {"c": 3, "a": 1, "b": 2}, Backend(jobs=jobs), done.__setitem__)
    assert list(results.items()) == [("c", 9), ("a", 1), ("b", 4)]
    assert done == results


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_keep_type_and_place(jobs: int) -> None:
    with pytest.raises(DataError, match="item 1: broken"):
        run_work_items(_fail, {"a": 1, "b": 1}, Backend(jobs=jobs), lambda name, result: None)


def test_a_killed_worker_costs_its_work_item_only(tmp_path: Path) -> None:
    done: list[str] = []
    items = {name: tmp_path / name for name in ("a", "b", "c")}
    (tmp_path / "a").write_text("")
    (tmp_path / "c").write_text("")
    results = run_work_items(_die_once, items, Backend(jobs=2), lambda name, result: done.append(name))
    assert results == {"a": "a", "b": "b", "c": "c"}
    assert sorted(done) == ["a", "b", "c"]


def _die(value: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_that_keep_dying_are_an_error() -> None:
    with pytest.raises(DataError, match="workers died"):
        run_work_items(_die, {"a": 1, "b": 2}, Backend(jobs=2), lambda name, result: None)


FOLDER = Path("out")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without variables of the caller's own."""
    for name in ("COSTBENCH_BACKEND", "COSTBENCH_SCHEDULER", "COSTBENCH_JOBS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_without_flags_and_environment_processes_of_this_machine_work() -> None:
    assert NO_FLAGS.resolve(4, FOLDER) == Backend("loky", 4, "", FOLDER)


def test_the_environment_wins_over_the_parameter_file(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("COSTBENCH_JOBS", "3")
    assert NO_FLAGS.resolve(4, FOLDER) == Backend("loky", 3, "", FOLDER)
    environment.setenv("COSTBENCH_SCHEDULER", "tcp://a:1")
    assert NO_FLAGS.resolve(4, FOLDER) == Backend("dask", 3, "tcp://a:1", FOLDER)
    environment.setenv("COSTBENCH_BACKEND", "loky")
    assert NO_FLAGS.resolve(4, FOLDER) == Backend("loky", 3, "", FOLDER)


def test_flags_win_over_the_environment(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("COSTBENCH_SCHEDULER", "tcp://a:1")
    environment.setenv("COSTBENCH_JOBS", "3")
    assert BackendFlags(jobs=2).resolve(4, FOLDER) == Backend("dask", 2, "tcp://a:1", FOLDER)
    assert BackendFlags(scheduler="tcp://b:2").resolve(4, FOLDER).scheduler == "tcp://b:2"
    assert BackendFlags(backend="loky").resolve(4, FOLDER) == Backend("loky", 3, "", FOLDER)
    environment.setenv("COSTBENCH_BACKEND", "loky")
    assert BackendFlags(scheduler="tcp://b:2").resolve(4, FOLDER).kind == "dask"


@pytest.mark.parametrize(
    ("flags", "variables", "message"),
    [
        (BackendFlags(backend="ray"), {}, "backend is 'ray', must be loky or dask"),
        (BackendFlags(backend="dask"), {}, "scheduler is empty"),
        (BackendFlags(jobs=0), {}, "jobs is 0, must be at least 1"),
        (NO_FLAGS, {"COSTBENCH_BACKEND": "ray"}, "backend is 'ray'"),
        (NO_FLAGS, {"COSTBENCH_JOBS": "two"}, "COSTBENCH_JOBS: is 'two'"),
    ],
)
def test_mistakes_are_one_line(
    environment: pytest.MonkeyPatch, flags: BackendFlags, variables: dict[str, str], message: str
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    with pytest.raises(ParamsError, match=message):
        flags.resolve(2, FOLDER)


@pytest.mark.parametrize("collects", [True, False])
def test_loading_leaves_the_collector_as_it_was(collects: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        load(("json",))
        assert gc.isenabled() is collects
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            load(("json", "no_such_module"))
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()


def printed_by(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("call", ['load(("watched",))', 'copy.copy(Imports("watched"))'])
def test_modules_are_loaded_without_a_collection(call: str) -> None:
    """A module sees whether the collector is on while it is loaded; copying calls what unpickling would."""
    code = f"""
import copy, gc, sys, importlib.abc, importlib.util
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_loader(name, self) if name == "watched" else None
    def exec_module(self, module):
        print(gc.isenabled())
sys.meta_path.insert(0, Finder())
from costbench.execution.workers import Imports, load
{call}
print("watched" in sys.modules, gc.isenabled())
"""
    assert printed_by(code).split() == ["False", "True", "True"]


@pytest.mark.parametrize(("calls", "frozen"), [(0, False), (1, True), (2, True)])
def test_an_ending_process_has_nothing_left_to_collect(calls: int, frozen: bool) -> None:
    code = f"""
import atexit, gc
from costbench.execution.workers import exit_without_teardown
atexit.register(lambda: print(gc.get_freeze_count() > 0))
for _ in range({calls}):
    exit_without_teardown()
"""
    assert printed_by(code) == str(frozen)
