"""How a process with large libraries starts, logs and exits without waiting for the garbage collector."""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache


@contextmanager
def without_collection() -> Iterator[None]:
    """Turn garbage collection off for a while; it takes a third of the time of importing large libraries."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def load(modules: Sequence[str]) -> None:
    """Import modules by name, without garbage collection.

    Raises:
        ImportError: if one cannot be imported.
    """
    with without_collection():
        for name in modules:
            importlib.import_module(name)


class Imports:
    """Imports modules where it is unpickled, so that what is pickled after it finds them loaded.

    Unpickling a function imports its module, with all that this imports, while garbage is collected.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules

    def __reduce__(self) -> tuple[Callable[[Sequence[str]], None], tuple[Sequence[str]]]:
        return load, (self._modules,)


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
