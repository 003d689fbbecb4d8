"""A process loads and ends without the garbage collector, and is otherwise as it was."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from costbench.execution.process import load


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
from costbench.execution.process import Imports, load
{call}
print("watched" in sys.modules, gc.isenabled())
"""
    assert printed_by(code).split() == ["False", "True", "True"]


@pytest.mark.parametrize(("calls", "frozen"), [(0, False), (1, True), (2, True)])
def test_an_ending_process_has_nothing_left_to_collect(calls: int, frozen: bool) -> None:
    code = f"""
import atexit, gc
from costbench.execution.process import exit_without_teardown
atexit.register(lambda: print(gc.get_freeze_count() > 0))
for _ in range({calls}):
    exit_without_teardown()
"""
    assert printed_by(code) == str(frozen)
