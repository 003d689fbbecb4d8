"""Independent pieces of work on several processes or machines: a lost worker costs its piece, not the run.

On this machine joblib's loky starts the processes (`joblib.parallel_config` puts another of its backends in
their place). On several machines a Dask scheduler hands the pieces out; that goes through Dask's own client,
since joblib's Dask backend (1.6) waits for ever once Dask gives a piece up.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeVar

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from costbench.artifacts import read_json
from costbench.errors import DataError, ParamsError
from costbench.execution.process import end_quickly

_ATTEMPTS = 3
_CONNECT_S = 8
_WORKERS_S = 30
# Enough to keep a cluster busy without sending it all pieces at once.
_IN_FLIGHT = 256
_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Backend:
    """Where pieces of work are done.

    Attributes:
        kind: `loky`, processes of this machine, or `dask`, the workers of a Dask scheduler.
        jobs: processes of one thread each on this machine; with 1 the work is done in this one.
        scheduler: of Dask: its address, as in tcp://host:8786, or its scheduler file (.json).
    """

    kind: Literal["loky", "dask"] = "loky"
    jobs: int = 1
    scheduler: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("loky", "dask"):
            raise ValueError(f"backend is {self.kind!r}, must be loky or dask")
        if self.jobs < 1:
            raise ValueError(f"jobs is {self.jobs}, must be at least 1")
        if self.kind == "dask" and not self.scheduler:
            raise ValueError("scheduler is empty, must be the address of a Dask scheduler for backend dask")


class _WorkerDiedError(Exception):
    """A worker was lost with its piece."""


def run_each(
    function: Callable[[_T], _R],
    pieces: Mapping[_K, _T],
    backend: Backend,
    on_done: Callable[[_K, _R], None],
) -> dict[_K, _R]:
    """`function` of every piece.

    Args:
        function: of one piece; arguments and results travel between processes.
        pieces: by name, the longest work first. One that is done twice must leave the same.
        backend: where the work is done.
        on_done: called for each finished piece, in order of completion.

    Returns:
        results by name, in the order of `pieces`.

    Raises:
        ParamsError: if the Dask scheduler cannot be used.
        DataError: if workers died three times and no piece was finished in between.
        CostbenchError: whatever a piece raises.
    """
    found: dict[_K, _R] = {}
    deaths = 0
    alone = backend.kind == "loky" and (backend.jobs == 1 or len(pieces) == 1)
    with _opened(backend) as client:
        while len(found) < len(pieces) and deaths < _ATTEMPTS:
            missing = {name: piece for name, piece in pieces.items() if name not in found}
            try:
                for name, result in _results(function, missing, 1 if alone else backend.jobs, client):
                    found[name] = result
                    deaths = 0
                    on_done(name, result)
            except _WorkerDiedError:
                deaths += 1
    left = [name for name in pieces if name not in found]
    if left:
        raise DataError(f"workers died {_ATTEMPTS} times", where=str(left[0]), expected="enough memory")
    return {name: found[name] for name in pieces}


def _results(
    function: Callable[[_T], _R], pieces: Mapping[_K, _T], jobs: int, client: Any
) -> Iterator[tuple[_K, _R]]:
    if client is not None:
        yield from _on_cluster(function, pieces, client)
    elif jobs == 1:
        yield from (_named(function, name, piece) for name, piece in pieces.items())
    else:
        yield from _on_processes(function, pieces, jobs)


def _named(function: Callable[[_T], _R], name: _K, piece: _T) -> tuple[_K, _R]:
    return name, function(piece)


def _in_process(function: Callable[[_T], _R], name: _K, piece: _T) -> tuple[_K, _R]:
    end_quickly()
    return _named(function, name, piece)


def _on_processes(
    function: Callable[[_T], _R], pieces: Mapping[_K, _T], jobs: int
) -> Iterator[tuple[_K, _R]]:
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    calls = (joblib.delayed(_in_process)(function, name, piece) for name, piece in pieces.items())
    # A worker whose memory has grown is replaced by a fresh one; loky warns of it, and need not.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A worker stopped")
        try:
            yield from parallel(calls)
        except TerminatedWorkerError as error:
            raise _WorkerDiedError from error


def _on_cluster(
    function: Callable[[_T], _R], pieces: Mapping[_K, _T], client: Any
) -> Iterator[tuple[_K, _R]]:
    distributed = _distributed()
    waiting = (client.submit(_named, function, name, piece, pure=False) for name, piece in pieces.items())
    running = distributed.as_completed(list(islice(waiting, _IN_FLIGHT)), loop=client.loop)
    died = False
    for future in running:
        for following in islice(waiting, 1):
            running.add(following)
        try:
            result: tuple[_K, _R] = future.result()
        except distributed.KilledWorker:  # after as many deaths as the scheduler allows
            died = True
        else:
            yield result
    if died:
        raise _WorkerDiedError


@contextmanager
def _opened(backend: Backend) -> Iterator[Any]:
    """A client of the scheduler; None where there is none."""
    if backend.kind == "loky":
        yield None
        return
    client = _connect(backend.scheduler)
    try:
        yield client
    finally:
        # What is still running there is given up with the client.
        with suppress(Exception):
            client.close(timeout=_CONNECT_S)


def _connect(scheduler: str) -> Any:
    start = partial(_distributed().Client, timeout=_CONNECT_S, set_as_default=False)
    address = _address(scheduler)
    try:
        client = _in_time(lambda: start(address))
    except Exception as error:  # whatever is said by what answers there, if anything does
        raise ParamsError(
            f"no Dask scheduler answers: {str(error) or type(error).__name__}",
            where=scheduler,
            expected="one started by `dask scheduler`, as tcp://host:port or its scheduler file",
        ) from error
    try:
        client.wait_for_workers(1, timeout=_WORKERS_S)
    except TimeoutError as error:
        client.close()
        raise ParamsError(
            f"the Dask scheduler has no worker after {_WORKERS_S} s",
            where=scheduler,
            expected="some started by `dask worker ADDRESS --nthreads 1`",
        ) from error
    return client


def _in_time(connect: Callable[[], _R]) -> _R:
    """What `connect` gives, in a thread that is left behind if it hangs: another server's port never answers.

    Raises:
        TimeoutError: after a little more than the time that Dask takes to give up by itself.
    """
    found: Future[_R] = Future()

    def work() -> None:
        try:
            found.set_result(connect())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return found.result(timeout=_CONNECT_S + 2)


def _address(scheduler: str) -> str:
    if not scheduler.endswith(".json"):
        return scheduler
    # Read here, since Dask would wait for the file to appear.
    content = read_json(scheduler)
    if not isinstance(content, dict) or not isinstance(content.get("address"), str):
        raise DataError("names no address", where=scheduler, expected="a scheduler file of Dask")
    return str(content["address"])


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise ParamsError(
            "backend dask needs the packages dask and distributed",
            expected="`pip install 'costbench[scale]'` here and on the machines of the cluster",
        ) from error
