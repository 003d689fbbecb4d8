"""Work on processes: all of it is done once, errors come through, a killed worker costs its piece only."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.workers import Backend, load, run_each, warmed


def _square(value: int) -> int:
    return value * value


def _fail(value: int) -> int:
    raise DataError("broken", where=f"piece {value}")


def _die_once(marker: Path) -> str:
    if not marker.exists():
        marker.write_text("died")
        os.kill(os.getpid(), signal.SIGKILL)
    return marker.name


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_keep_the_order_of_the_pieces(jobs: int) -> None:
    done: dict[str, int] = {}
    found = run_each(_square, {"c": 3, "a": 1, "b": 2}, Backend(jobs=jobs), done.__setitem__)
    assert list(found.items()) == [("c", 9), ("a", 1), ("b", 4)]
    assert done == found


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_keep_type_and_place(jobs: int) -> None:
    with pytest.raises(DataError, match="piece 1: broken"):
        run_each(_fail, {"a": 1, "b": 1}, Backend(jobs=jobs), lambda name, result: None)


def test_a_killed_worker_costs_its_piece_only(tmp_path: Path) -> None:
    done: list[str] = []
    pieces = {name: tmp_path / name for name in ("a", "b", "c")}
    (tmp_path / "a").write_text("")
    (tmp_path / "c").write_text("")
    found = run_each(_die_once, pieces, Backend(jobs=2), lambda name, result: done.append(name))
    assert found == {"a": "a", "b": "b", "c": "c"}
    assert sorted(done) == ["a", "b", "c"]


def _has_loaded(name: str) -> bool:
    return name in sys.modules


def test_warmed_processes_have_loaded_modules_before_their_first_piece() -> None:
    backend = Backend(jobs=2)
    # Not loaded by anything else here; a worker that came late loads it as its first work.
    with warmed(("colorsys",), backend):
        found = run_each(_has_loaded, {"a": "colorsys", "b": "colorsys"}, backend, lambda name, result: None)
    assert any(found.values())
    assert "colorsys" not in sys.modules


@pytest.mark.parametrize(("modules", "jobs"), [((), 2), (("colorsys",), 1)])
def test_nothing_is_warmed_without_modules_or_processes(modules: tuple[str, ...], jobs: int) -> None:
    with warmed(modules, Backend(jobs=jobs)):
        assert "colorsys" not in sys.modules


def test_a_process_killed_while_it_loads_costs_nothing(tmp_path: Path) -> None:
    """The death shows in the first piece, which is done again."""
    (tmp_path / "dies_while_loading.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    backend = Backend(jobs=2)
    run_each(_search_in, {name: str(tmp_path) for name in "ab"}, backend, lambda name, result: None)
    with warmed(("dies_while_loading",), backend):
        found = run_each(_square, {"a": 1, "b": 2}, backend, lambda name, result: None)
    assert found == {"a": 1, "b": 4}


@pytest.mark.filterwarnings("error")
def test_an_error_of_a_piece_leaves_warmed_processes_quietly() -> None:
    backend = Backend(jobs=2)
    with pytest.raises(DataError, match="piece 1: broken"), warmed(("colorsys",), backend):
        run_each(_fail, {"a": 1, "b": 1}, backend, lambda name, result: None)
    assert run_each(_square, {"a": 2, "b": 3}, backend, lambda name, result: None) == {"a": 4, "b": 9}


def test_a_module_that_cannot_be_loaded_is_told_of_by_what_needs_it() -> None:
    backend = Backend(jobs=2)
    with warmed(("no_such_module",), backend):
        found = run_each(_square, {"a": 1, "b": 2}, backend, lambda name, result: None)
    assert found == {"a": 1, "b": 4}


def _search_in(folder: str) -> None:
    sys.path.insert(0, folder)


@pytest.mark.parametrize("looks", [True, False])
def test_loading_leaves_the_collector_as_it_was(looks: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if looks else gc.disable)()
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            load(("json", "no_such_module"))
        assert gc.isenabled() is looks
    finally:
        (gc.enable if before else gc.disable)()


def _die(value: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_that_keep_dying_are_an_error() -> None:
    with pytest.raises(DataError, match="workers died"):
        run_each(_die, {"a": 1, "b": 2}, Backend(jobs=2), lambda name, result: None)
