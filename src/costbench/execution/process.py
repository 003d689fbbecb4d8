"""How a process that needs large libraries starts and ends without waiting for the garbage collector."""

from __future__ import annotations

import atexit
import gc
import importlib
from collections.abc import Sequence
from functools import cache


def load(modules: Sequence[str]) -> None:
    """Import modules by name with garbage collection off, which takes a third of the time of large libraries.

    Raises:
        ImportError: if one cannot be imported.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        for name in modules:
            importlib.import_module(name)
    finally:
        if collects:
            gc.enable()


@cache
def end_quickly() -> None:
    """Let this process end without a last collection, which takes two seconds with torch and MLflow loaded.

    What lies in cycles is then not finalised: files have to be closed by whoever opened them.
    """
    atexit.register(gc.freeze)
