"""Making a data set: units of work that each write their shards whole, on one process or many.

A task is one program, on one or several chips. It depends on nothing but its own fields, so tasks are done
side by side, in any order, and a task whose shards are already there for the same inputs is not done again.
What a task makes is told in `tile_generation` and its neighbours; here is how tasks are run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import joblib
import zstandard
from joblib.externals.loky.process_executor import TerminatedWorkerError

from costbench.artifacts import write_bytes
from costbench.errors import DataError
from costbench.hlo.module import HloModule
from costbench.hlo.writer import module_to_bytes

_ATTEMPTS = 3
_ZSTD_LEVEL = 10


@dataclass(frozen=True)
class ShardSummary:
    """What a shard holds.

    Attributes:
        task: what is decided: `tile`, `fusion` or `layout`.
        name: of the program.
        chip: it ran on.
        num_kernels: unique kernels that have samples.
        num_samples: decisions that ran.
        num_failed: compiles that failed.
        device_seconds: accelerator time charged.
    """

    task: str
    name: str
    chip: str
    num_kernels: int
    num_samples: int
    num_failed: int
    device_seconds: float


class Task(Protocol):
    """One unit of generation; a frozen dataclass that travels to worker processes."""

    @property
    def name(self) -> str:
        """Of the program."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every shard that it writes; the compiled program lies elsewhere."""

    @property
    def weight(self) -> int:
        """How much work it is beside others; the heaviest are done first."""

    def is_done(self) -> bool:
        """Whether all its shards are there, whole, and of the same inputs."""

    def make(self) -> None:
        """Writes its shards, each of them atomically.

        Raises:
            CostbenchError: for a program that cannot be used or a file that cannot be written.
        """

    def summaries(self) -> tuple[ShardSummary, ...]:
        """What its finished shards hold, in the order of `paths`."""


@dataclass(frozen=True)
class Backend:
    """Where tasks are done.

    Attributes:
        kind: `loky`, processes of this machine.
        jobs: processes of one thread each.
        scheduler: address of a Dask scheduler.
    """

    kind: Literal["loky", "dask"] = "loky"
    jobs: int = 1
    scheduler: str = ""


OnDone = Callable[[ShardSummary], None]


def generate(
    tasks: Sequence[Task], backend: Backend, on_done: OnDone | None = None, on_kept: OnDone | None = None
) -> tuple[ShardSummary, ...]:
    """Does all tasks that are not done yet.

    A killed worker costs the task in work, which is begun again.

    Args:
        tasks: the shards wanted.
        backend: where they are made.
        on_done: called for every shard made, in order of completion.
        on_kept: called first for every shard that was already there.

    Returns:
        summaries in the order of `tasks` and of their paths.

    Raises:
        DataError: if workers keep dying.
        CostbenchError: whatever a task raises.
    """
    found: dict[int, tuple[ShardSummary, ...]] = {}
    for index, task in enumerate(tasks):
        if task.is_done():
            found[index] = task.summaries()
            _tell(on_kept, found[index])
    for _ in range(_ATTEMPTS):
        missing = {index: task for index, task in enumerate(tasks) if index not in found}
        if not missing:
            break
        try:
            for index, summaries in _run(missing, backend):
                found[index] = summaries
                _tell(on_done, summaries)
        except TerminatedWorkerError:
            continue
    left = [task.paths[0] for index, task in enumerate(tasks) if index not in found]
    if left:
        raise DataError("workers died repeatedly while making it", where=left[0], expected="enough memory")
    return tuple(summary for index in range(len(tasks)) for summary in found[index])


def _tell(listener: OnDone | None, summaries: Sequence[ShardSummary]) -> None:
    if listener is not None:
        for summary in summaries:
            listener(summary)


def _run(tasks: dict[int, Task], backend: Backend) -> Iterator[tuple[int, tuple[ShardSummary, ...]]]:
    if backend.jobs == 1 or len(tasks) == 1:
        for index, task in tasks.items():
            yield _make(index, task)
        return
    # Long tasks first, so that none is left over at the end.
    longest_first = sorted(tasks.items(), key=lambda item: (-item[1].weight, str(item[1].paths[0])))
    parallel = joblib.Parallel(
        n_jobs=backend.jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs", batch_size=1
    )
    yield from parallel(joblib.delayed(_make)(index, task) for index, task in longest_first)


def _make(index: int, task: Task) -> tuple[int, tuple[ShardSummary, ...]]:
    task.make()
    return index, task.summaries()


def write_compiled_program(path: Path, module: HloModule) -> None:
    """Writes the program that the kernels of shards refer to, unless the same bytes are there already.

    Several tasks of one program may do so at the same time. Raises: DataError, if it cannot be written.
    """
    data = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(module_to_bytes(module))
    if not path.exists() or path.read_bytes() != data:
        write_bytes(path, data)
