"""Runs independent work items on several processes or machines; losing a worker does not end the run.

Every stage passes its work items to `run_work_items`. A work item is idempotent: it writes its outputs
atomically under names that follow from its key, and an output that exists for the same inputs is kept. So an
item may be computed twice, by a worker that was given up too early and by the one that took its place, and
the bytes are the same. On this machine joblib's loky starts the processes; `costbench.execution.cluster` has
the other backend, a Dask cluster.

Which backend is a fact of the machine, not of the experiment, so it stands in no parameter file: a stage
whose results exist is not stale because it would now run elsewhere. Flags of the command line win over the
environment variables `COSTBENCH_BACKEND`, `COSTBENCH_SCHEDULER` and `COSTBENCH_JOBS`, which `dvc repro` hands
to every stage; without either, `run.jobs` processes of this machine work.

Processes with large libraries start, log and exit without waiting for the garbage collector.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from costbench.errors import DataError, ParamsError

BACKEND, SCHEDULER, JOBS = "COSTBENCH_BACKEND", "COSTBENCH_SCHEDULER", "COSTBENCH_JOBS"
_MAX_LOSSES = 3
_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Backend:
    """Where work items are computed.

    Attributes:
        kind: `loky`, processes of this machine, or `dask`, the workers of a Dask scheduler.
        jobs: number of processes of this machine, of one thread each; with 1 the work is done in this
            process.
        scheduler: address of the Dask scheduler (tcp://host:8786) or its scheduler file (.json).
        folder: folder that inputs and results of the work items lie below, which every worker has to see
            under this path; None where nothing is written.
    """

    kind: Literal["loky", "dask"] = "loky"
    jobs: int = 1
    scheduler: str = ""
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("loky", "dask"):
            raise ValueError(f"backend is {self.kind!r}, must be loky or dask")
        if self.jobs < 1:
            raise ValueError(f"jobs is {self.jobs}, must be at least 1")
        if self.kind == "dask" and not self.scheduler:
            raise ValueError("scheduler is empty, must be the address of a Dask scheduler for backend dask")

    @property
    def in_this_process(self) -> bool:
        """Returns whether no other process takes part."""
        return self.kind == "loky" and self.jobs == 1


@dataclass(frozen=True)
class BackendFlags:
    """Flags of the command line about the backend, None for one that is left out.

    Attributes:
        backend: `loky` or `dask`; a scheduler alone means `dask`.
        scheduler: address of the Dask scheduler.
        jobs: number of processes of this machine.
    """

    backend: str | None = None
    scheduler: str | None = None
    jobs: int | None = None

    def resolve(self, jobs: int, folder: Path) -> Backend:
        """Returns the backend that these flags, the environment and `jobs` choose, in this order.

        Args:
            jobs: number of processes of this machine where neither a flag nor the environment says how many.
            folder: folder that work items read and write below.

        Raises:
            ParamsError: for an unknown backend, jobs below 1, or Dask without a scheduler.
        """
        environment = BackendFlags(
            os.environ.get(BACKEND) or None, os.environ.get(SCHEDULER) or None, _jobs_of_environment()
        )
        kind = self._kind() or environment._kind() or "loky"
        scheduler = self.scheduler or environment.scheduler or ""
        num_jobs = next((number for number in (self.jobs, environment.jobs) if number is not None), jobs)
        try:
            return Backend(kind, num_jobs, scheduler if kind == "dask" else "", folder)  # type: ignore[arg-type]
        except ValueError as error:
            where = f"--backend, --scheduler, --jobs or {BACKEND}, {SCHEDULER}, {JOBS}"
            raise ParamsError(str(error), where=where) from error

    def _kind(self) -> str | None:
        return self.backend or ("dask" if self.scheduler else None)


NO_FLAGS = BackendFlags()
"""The environment and the parameter file choose the backend."""


def _jobs_of_environment() -> int | None:
    text = os.environ.get(JOBS, "").strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise ParamsError(f"is {text!r}", where=JOBS, expected="a number of processes") from error


class WorkersLostError(Exception):
    """Workers died with their work items, which have to be submitted again."""


class _Pool(Protocol):
    def results(self, function: Callable[[_T], _R], work_items: Mapping[_K, _T]) -> Iterator[tuple[_K, _R]]:
        """Computes all work items and yields their results in order of completion.

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
    """Computes `function(item)` for every work item.

    Args:
        function: function of one work item; it, the items and the results travel between processes.
        work_items: work items by key, in the order in which they are begun: the longest first.
        backend: backend that computes them.
        on_done: function that is called in this process for each finished work item, in order of completion.
        max_losses: number of times in a row that workers may be lost without a work item finished in between.

    Returns:
        results by key, in the order of `work_items`.

    Raises:
        ParamsError: if the Dask cluster cannot be used.
        DataError: if workers were lost too often.
        CostbenchError: whatever a work item raises; those in work are then given up.
    """
    results: dict[_K, _R] = {}
    losses = 0
    with _open_pool(backend, len(work_items)) as pool:
        while len(results) < len(work_items) and losses < max_losses:
            missing = {key: item for key, item in work_items.items() if key not in results}
            try:
                for key, result in pool.results(function, missing):
                    results[key] = result
                    losses = 0
                    on_done(key, result)
            except WorkersLostError:
                losses += 1
    for key in work_items:
        if key not in results:
            raise DataError(f"workers died {max_losses} times", where=str(key), expected="enough memory")
    return {key: results[key] for key in work_items}


@contextmanager
def _open_pool(backend: Backend, num_items: int) -> Iterator[_Pool]:
    if num_items == 0 or backend.in_this_process or (backend.kind == "loky" and num_items == 1):
        yield _ThisProcess()
    elif backend.kind == "loky":
        yield _Processes(backend.jobs)
    else:
        # Dask takes a third of a second to import, and is an optional dependency.
        from costbench.execution.cluster import connect

        with connect(backend.scheduler, backend.folder) as cluster:
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
        # Joblib takes a while to import, and most commands run in one process.
        import joblib
        from joblib.externals.loky.process_executor import TerminatedWorkerError

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


@contextmanager
def without_collection() -> Iterator[None]:
    """Turns garbage collection off for a while; it takes a third of the time of importing large libraries."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def load(modules: Sequence[str]) -> None:
    """Imports modules by name, without garbage collection.

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
    """Logs progress of costbench on stderr, one line each, and only warnings of other libraries."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("costbench").setLevel(logging.INFO)
    warnings.filterwarnings("ignore", category=FutureWarning)


@cache
def exit_without_teardown() -> None:
    """Lets this process exit without a last collection, which takes two seconds with torch and MLflow loaded.

    Objects in reference cycles are then not finalised: whoever opens a file has to close it. Workers of
    a Dask cluster belong to whoever started them and are left running.
    """
    atexit.register(gc.freeze)
