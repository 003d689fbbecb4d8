"""Work items on the workers of a Dask cluster, which may be other machines.

Items go through Dask's own client, since joblib's Dask backend (1.6) waits for ever once Dask gives an item
up. Before it computes anything, a worker is checked: it has to run the same sources and libraries as this
process, with one thread, and to see the same folder. Otherwise results would differ from those of one
machine, or would not be found again. A worker that joins later is checked with its first work item.
"""

from __future__ import annotations

import importlib
import platform
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from costbench.artifacts import digest_bytes, read_json, write_text
from costbench.errors import CostbenchError, DataError, ParamsError, one_line
from costbench.execution.closure import Closure, find_closure, installed_sources
from costbench.execution.dotted import is_installed
from costbench.execution.workers import WorkersLostError, start_logging, without_collection
from costbench.installation import install_line

_CONNECT_S = 20
"""A scheduler with much to do may take several seconds to answer."""
_WORKERS_S = 30
_IN_FLIGHT = 256
"""Work items that the scheduler has at a time: enough to keep a cluster busy, few enough for its memory."""
_PYTHON = ".".join(platform.python_version_tuple()[:2])
_EXPECTED = "the same commit of costbench and the same libraries on every machine, and workers started since"
_own_modules: dict[str, tuple[Path, str]] = {}
"""File of each module of a user's own that this worker has loaded, and its digest as it was then."""
_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")
_R = TypeVar("_R")


@cache
def code_of(module: str) -> Closure:
    """Returns the code and libraries that a module of costbench, or of a package that extends it, runs.

    Args:
        module: name of the module; for one of another package, the code that runs work items is meant.
    """
    sources = installed_sources()
    return find_closure((module if module in sources.modules else __name__,), sources)


@dataclass(frozen=True)
class Requirements:
    """What a worker must have in common with the process that submits work items.

    Attributes:
        module: module of the function that computes work items.
        code: code of that module there, as `code_of` gives it.
        python: minor version of Python there, whose byte code Numba compiles.
        mark: file that was written there, below the folder of the results; None for no folder.
    """

    module: str
    code: Closure
    python: str
    mark: Path | None

    def check(self, num_threads: int) -> None:
        """Refuses this process as a worker unless it meets the requirements.

        Args:
            num_threads: number of work items that it computes at a time.

        Raises:
            ParamsError: naming the machine, what it has and what is required.
        """
        where = f"worker on {socket.gethostname()}"
        if num_threads != 1:
            # Seeds and thread counts of torch belong to the process, so two items would disturb each other.
            expected = "`dask worker --nthreads 1`"
            raise ParamsError(f"has {num_threads} threads", where=where, expected=expected)
        differences = [
            *_differences(self.code, code_of(self.module)),
            *_difference("Python", self.python, _PYTHON),
            *(name for name, (file, digest) in _own_modules.items() if _digest_of(file) != digest),
        ]
        if differences:
            raise ParamsError(
                f"runs other code: {', '.join(differences[:3])}", where=where, expected=_EXPECTED
            )
        if self.mark is not None and not self.mark.exists():
            raise ParamsError(
                f"does not see {self.mark.parent}",
                where=where,
                expected="a folder that all machines share under the same path, such as a network drive",
            )


def _differences(required: Closure, present: Closure) -> Iterator[str]:
    for name in sorted({*required.libraries, *present.libraries}):
        yield from _difference(name, required.libraries.get(name, ""), present.libraries.get(name, ""))
    for ours, theirs in ((required.modules, present.modules), (required.data, present.data)):
        yield from (name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name))


def _difference(name: str, required: str, present: str) -> Iterator[str]:
    if required != present:
        yield f"{name} {present or 'missing'} in place of {required or 'none'}"


def _note_own_modules(since: float) -> None:
    """Notes a user's modules that this process has loaded; a file written since `since` may be another."""
    packages = installed_sources().names
    for name, module in list(sys.modules.items()):
        # What stands for a module may have no attributes, or load itself when it is asked for one.
        file = None if name in _own_modules else getattr(module, "__dict__", {}).get("__file__")
        if file and name.partition(".")[0] not in packages and not is_installed(path := Path(file)):
            is_older = path.exists() and path.stat().st_mtime <= since
            _own_modules[name] = path, _digest_of(path) if is_older else ""


def _digest_of(file: Path) -> str:
    return digest_bytes(file.read_bytes()) if file.exists() else "missing"


def _check(requirements: Requirements, num_threads: Mapping[str, int], dask_worker: Any) -> None:
    """Runs `Requirements.check` on every worker; Dask fills `dask_worker` in."""
    requirements.check(num_threads.get(dask_worker.address, 1))


def _compute_on_worker(requirements: Requirements, work_item: bytes) -> object:
    """Computes one work item on a worker, with one thread of BLAS and OpenMP.

    Args:
        requirements: requirements that the worker has to meet.
        work_item: function, key and argument as Dask serialises them. Dask's scheduler, which reads all
            arguments, would import the modules of a function that it were given as such, among them torch.

    Returns:
        the key and what the function returns.
    """
    distributed = _distributed()
    requirements.check(distributed.get_worker().state.nthreads)
    start_logging()
    began = time.time()
    try:
        with without_collection():
            function, key, item = distributed.protocol.deserialize_bytes(work_item)
        with importlib.import_module("threadpoolctl").threadpool_limits(1):
            return key, function(item)
    finally:
        _note_own_modules(began)


class Cluster:
    """The workers of a Dask scheduler.

    Args:
        client: client of the scheduler.
        scheduler: address of the scheduler, for messages.
        mark: file below the folder of the results, which every worker has to see; None for no folder.
    """

    def __init__(self, client: Any, scheduler: str, mark: Path | None) -> None:
        self._client = client
        self._scheduler = scheduler
        self._mark = mark

    def _check(self, requirements: Requirements) -> None:
        """Checks the workers that exist.

        Raises:
            ParamsError: for a worker that does not meet the requirements.
        """
        try:
            self._client.run(_check, requirements, self._client.nthreads())
        except CostbenchError:
            raise
        except Exception as error:  # a worker without costbench, or with another `_check`
            problem = f"a worker cannot run costbench: {one_line(error)[:300]}"
            raise ParamsError(problem, where=self._scheduler, expected=_EXPECTED) from error

    def results(self, function: Callable[[_T], _R], work_items: Mapping[_K, _T]) -> Iterator[tuple[_K, _R]]:
        """Computes all work items and yields their results in order of completion.

        Raises:
            WorkersLostError: after the results that were finished, if Dask gave some work items up.
            ParamsError: for a worker that does not meet the requirements.
            DataError: if the scheduler is lost.
        """
        distributed = _distributed()
        module = function.__module__
        requirements = Requirements(module, code_of(module), _PYTHON, self._mark)
        self._check(requirements)
        futures = (self._submit(requirements, function, key, item) for key, item in work_items.items())
        running = distributed.as_completed(list(islice(futures, _IN_FLIGHT)), loop=self._client.loop)
        lost = False
        for future in running:
            for following in islice(futures, 1):
                running.add(following)
            try:
                result: tuple[_K, _R] = future.result()
            except distributed.KilledWorker:  # after as many deaths as the scheduler allows
                lost = True
            except CancelledError as error:
                raise DataError(
                    "the Dask scheduler was lost",
                    where=self._scheduler,
                    expected="the same command again; finished work items are kept",
                ) from error
            else:
                yield result
        if lost:
            raise WorkersLostError

    def _submit(self, requirements: Requirements, function: Callable[[_T], _R], key: _K, item: _T) -> Any:
        # Dask's dashboard shows a key up to its last dash as the kind of a task.
        name = f"{function.__name__.strip('_')}-{secrets.token_hex(8)}"
        work_item = _distributed().protocol.serialize_bytes(
            (function, key, item), serializers=("pickle",), on_error="raise"
        )
        return self._client.submit(_compute_on_worker, requirements, work_item, key=name, pure=False)


@contextmanager
def connect(scheduler: str, folder: Path | None) -> Iterator[Cluster]:
    """Connects to a Dask cluster.

    Args:
        scheduler: address of the scheduler, or its scheduler file.
        folder: folder below which work items read and write; every worker has to see it.

    Raises:
        ParamsError: if no scheduler answers, or it has no worker.
        DataError: for a scheduler file that cannot be used, or a folder that cannot be written.
    """
    mark = None if folder is None else folder / f".cluster-{secrets.token_hex(8)}"
    client = _connect_client(scheduler)
    try:
        if mark is not None:
            write_text(mark, "every worker sees this file\n")
        yield Cluster(client, scheduler, mark)
    finally:
        if mark is not None:
            mark.unlink(missing_ok=True)
        # Work items that are still running there are given up with the client.
        with suppress(Exception):
            client.close(timeout=_CONNECT_S)


def _connect_client(scheduler: str) -> Any:
    start = partial(_distributed().Client, timeout=_CONNECT_S, set_as_default=False)
    address = _address(scheduler)
    try:
        client = _in_time(lambda: start(address))
    except Exception as error:  # whatever the server at that address says, if there is one
        raise ParamsError(
            f"no Dask scheduler answers: {one_line(error)[:300]}",
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
    """Calls `connect` in a thread that is left behind if it hangs: another server's port never answers.

    Raises:
        TimeoutError: after a little more than the time that Dask takes to give up by itself.
    """
    result: Future[_R] = Future()

    def work() -> None:
        try:
            result.set_result(connect())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return result.result(timeout=_CONNECT_S + 2)


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
            expected=f"`{install_line('scale')}` here and on the machines of the cluster",
        ) from error
