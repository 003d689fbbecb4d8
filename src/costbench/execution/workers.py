"""Runs independent work items on several processes or machines; losing a worker does not end the run.

Every stage passes its work items to `run_work_items`. A work item is idempotent: it writes its outputs
atomically under names that follow from its key, and an output that exists for the same inputs is kept. So an
item may be computed twice, by a worker that was given up too early and by the one that took its place, and
the bytes are the same. On this machine joblib's loky starts the processes; `costbench.execution.cluster` has
the other backend.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from costbench.errors import DataError
from costbench.execution.backend import Backend
from costbench.execution.process import Imports, exit_without_teardown, start_logging

__all__ = ["Backend", "WorkersLostError", "run_work_items"]
_MAX_LOSSES = 3
_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")
_R = TypeVar("_R")


class WorkersLostError(Exception):
    """Workers died with their work items, which have to be submitted again."""


class _Pool(Protocol):
    def results(self, function: Callable[[_T], _R], work_items: Mapping[_K, _T]) -> Iterator[tuple[_K, _R]]:
        """Compute all work items and yield their results in order of completion.

        Raises:
            WorkersLostError: after the results that were finished, if some work items were lost.
        """


def run_work_items(
    function: Callable[[_T], _R],
    work_items: Mapping[_K, _T],
    backend: Backend,
    on_done: Callable[[_K, _R], None],
    max_losses: int = _MAX_LOSSES,
) -> dict[_K, _R]:
    """Compute `function(item)` for every work item.

    Args:
        function: of one work item; it, the items and the results travel between processes.
        work_items: by key, in the order in which they are begun: the longest first.
        backend: where they are computed.
        on_done: called in this process for each finished work item, in order of completion.
        max_losses: how often in a row workers may be lost without a work item finished in between.

    Returns:
        results by key, in the order of `work_items`.

    Raises:
        ParamsError: if the Dask cluster cannot be used.
        DataError: if workers were lost too often.
        CostbenchError: whatever a work item raises; those in work are then given up.
    """
    found: dict[_K, _R] = {}
    losses = 0
    with _opened(backend, len(work_items)) as pool:
        while len(found) < len(work_items) and losses < max_losses:
            missing = {key: item for key, item in work_items.items() if key not in found}
            try:
                for key, result in pool.results(function, missing):
                    found[key] = result
                    losses = 0
                    on_done(key, result)
            except WorkersLostError:
                losses += 1
    left = [key for key in work_items if key not in found]
    if left:
        raise DataError(f"workers died {max_losses} times", where=str(left[0]), expected="enough memory")
    return {key: found[key] for key in work_items}


@contextmanager
def _opened(backend: Backend, num_items: int) -> Iterator[_Pool]:
    if num_items == 0 or backend.in_this_process or (backend.kind == "loky" and num_items == 1):
        yield _ThisProcess()
    elif backend.kind == "loky":
        yield _Processes(backend.jobs)
    else:
        # Dask takes a third of a second to import, and is an optional dependency.
        from costbench.execution.cluster import connected

        with connected(backend.scheduler, backend.folder) as cluster:
            yield cluster


class _ThisProcess:
    """Computes one work item after another."""

    def results(self, function: Callable[[_T], _R], work_items: Mapping[_K, _T]) -> Iterator[tuple[_K, _R]]:
        for key, item in work_items.items():
            yield key, function(item)


class _Processes:
    """Processes of this machine, one thread each; where one is killed, loky ends the others as well."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def results(self, function: Callable[[_T], _R], work_items: Mapping[_K, _T]) -> Iterator[tuple[_K, _R]]:
        module = function.__module__
        imports = Imports(*([module] if module.startswith("costbench.") else []))
        calls = (
            joblib.delayed(_in_process)(imports, function, key, item) for key, item in work_items.items()
        )
        with warnings.catch_warnings():
            # loky replaces a worker whose memory has grown and warns of it; nothing is lost by that.
            warnings.filterwarnings("ignore", message="A worker stopped")
            with joblib.parallel_config("loky", inner_max_num_threads=1):
                parallel = joblib.Parallel(n_jobs=self._jobs, return_as="generator_unordered", batch_size=1)
                try:
                    yield from parallel(calls)
                except TerminatedWorkerError as error:
                    raise WorkersLostError from error


def _in_process(_imported: None, function: Callable[[_T], _R], key: _K, item: _T) -> tuple[_K, _R]:
    exit_without_teardown()
    start_logging()
    return key, function(item)
