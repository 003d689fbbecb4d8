"""How a process with large libraries starts, logs and exits without waiting for the garbage collector."""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import sys
import warnings
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


def start_logging() -> None:
    """Log progress of costbench on stderr, one line each, and only warnings of other libraries."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("costbench").setLevel(logging.INFO)
    warnings.filterwarnings("ignore", category=FutureWarning)


@cache
def exit_without_teardown() -> None:
    """Let this process exit without a last collection, which takes two seconds with torch and MLflow loaded.

    Objects in reference cycles are then not finalised: whoever opens a file has to close it. Workers of
    a Dask cluster belong to whoever started them and are left running.
    """
    atexit.register(gc.freeze)
