"""Generates a data set by tasks that each write complete shards, in one process or many.

A task is one program on one or several chips. It depends only on its own fields, so tasks can run in parallel
and in any order, and a task whose entries in the store are complete is not run again. Tasks that compile the
same program in the same way form a group, a work item, which one process computes with one compiled program.
`tile_generation`, `fusion_generation` and `layout_generation` define the tasks; this module has what they
share, and runs them.
"""

from __future__ import annotations

import gc
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import zstandard

from costbench.artifacts import digest_bytes, write_bytes
from costbench.compiler.program import PreparedProgram
from costbench.compiler.trip_counts import KNOWN_TRIP_COUNT, assumed_trip_counts
from costbench.datasets.measured_kernels import compiled_program_path
from costbench.datasets.storage import Shards, ShardSummary
from costbench.errors import CostbenchError
from costbench.execution.workers import Backend, run_work_items
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.module import HloModule
from costbench.hlo.reader import module_from_bytes
from costbench.params import digest
from costbench.store import Entry, key_of
from costbench.target import Target

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "Backend",
    "ProgramTask",
    "ShardSummary",
    "ShardTask",
    "Shards",
    "SharedProgram",
    "generate",
    "shard_key",
    "summaries_of",
    "write_compiled_program",
]
_log = logging.getLogger(__name__)
_ZSTD_LEVEL = 10
_KEY_DIGITS = 32
_OBJECTS_PER_COLLECTION = 100_000


class ShardTask(Protocol):
    """One unit of generation; a frozen dataclass that travels to worker processes."""

    @property
    def name(self) -> str:
        """Name of the program."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of all shards that it writes; the compiled program is not among them."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Where the store keeps its shards, one entry a chip."""

    @property
    def group(self) -> str:
        """Tasks of one group share a compiled program, so one process runs them in turn."""

    @property
    def weight(self) -> int:
        """Returns a relative estimate of the work; the largest tasks are run first."""

    def make(self, shared: SharedProgram | None = None) -> None:
        """Writes the shards that are missing, each of them atomically.

        Args:
            shared: the program of the task's group; without it the task compiles the program itself.

        Raises:
            CostbenchError: for a program that cannot be used or a file that cannot be written.
        """


@dataclass(frozen=True)
class ProgramTask(ABC):
    """The shards of one program for one decision of the compiler: the `ShardTask` of all three tasks.

    Attributes:
        name: name of the program.
        application: application that the program belongs to.
        program: bytes of its HLO module, plain or zstd.
        targets: chips that it runs on.
        params: parameters of the task.
        folder: folder of the data set.
        code: digest of the code that makes the shards.
        task: name of the task; the same for all of a class, as the next.
        version: version of the samples, to be raised when the same inputs would give others.
    """

    name: str
    application: str
    program: bytes
    targets: tuple[Target, ...]
    params: Any
    folder: Path
    code: str = ""

    task: ClassVar[str]
    version: ClassVar[int]

    @abstractmethod
    def shards(self, target: Target) -> Sequence[Path]:
        """Returns the paths of the shards of a chip, one or more."""

    @abstractmethod
    def make(self, shared: SharedProgram | None = None) -> None:
        """Writes the shards that are missing, each of them atomically; see `ShardTask`."""

    def key(self, target: Target) -> str:
        """Returns the digest of all inputs of a chip's shards but the code."""
        return shard_key(self.program, [target], self.params, self.version)

    @property
    def compiled_path(self) -> Path | None:
        """Path of the compiled program that the shards refer to; None if they refer to none."""
        return compiled_program_path(self.folder, self.name)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the shards, in the order of the chips."""
        return tuple(path for target in self.targets for path in self.shards(target))

    @property
    def group(self) -> str:
        """Path of the compiled program, which other tasks of the data set share."""
        return str(self.compiled_path or self.paths[0])

    @property
    def weight(self) -> int:
        """Returns an estimate of the work, which grows with the size of the program."""
        return len(self.program)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Where the store keeps the shards, in the order of the chips."""
        return tuple(map(self.entry, self.targets))

    def entry(self, target: Target) -> Entry:
        """Returns where the store keeps the shards of a chip."""
        shards, compiled = self.shards(target), self.compiled_path
        note = shards[0].with_name(f"{self.name}.json")
        files = (*shards, compiled) if compiled is not None else tuple(shards)
        return Entry(note, key_of(self.key(target), self.code), files)

    def metadata(self, target: Target, num_failed: int, device_seconds: float) -> dict[str, object]:
        """Returns what the metadata of the shards of all tasks hold.

        Args:
            target: chip that the program ran on.
            num_failed: number of compiles that failed.
            device_seconds: accelerator time charged.
        """
        return {
            "key": self.key(target),
            "task": self.task,
            "program": self.name,
            "application": self.application,
            "program_sha256": digest_bytes(self.program),
            "chip": target.name,
            "generator_version": self.version,
            "params": asdict(self.params),
            "num_failed": num_failed,
            "device_seconds": round(device_seconds, 9),
        }

    def summary(self, metadata: Mapping[str, Any], num_kernels: int, num_samples: int) -> ShardSummary:
        """Returns the summary of a shard with such metadata, kernels and samples."""
        return ShardSummary(
            task=self.task,
            name=self.name,
            chip=metadata["chip"],
            num_kernels=num_kernels,
            num_samples=num_samples,
            num_failed=int(metadata["num_failed"]),
            device_seconds=float(metadata["device_seconds"]),
        )


def shard_key(program: bytes, targets: Sequence[Target], params: DataclassInstance, version: int) -> str:
    """Returns the digest of everything that a program's shards depend on, 32 hexadecimal digits.

    Args:
        program: bytes of its HLO module.
        targets: chips that it runs on.
        params: parameters of the task.
        version: version of the task's generator.
    """
    parts = (digest_bytes(program), *(digest(target) for target in targets), digest(params), version)
    return digest_bytes("/".join(map(str, parts)).encode())[:_KEY_DIGITS]


class SharedProgram:
    """The program of a group of tasks: the first task reads, compiles and writes it, the others reuse it."""

    def __init__(self) -> None:
        self._key: tuple[bytes, str, Path] | None = None
        self._prepared: PreparedProgram | None = None

    def compile(self, program: bytes, name: str, path: Path) -> PreparedProgram:
        """Returns the compiled program, after writing it to `path`.

        Args:
            program: bytes of its HLO module, plain or zstd.
            name: name of the program.
            path: path of the compiled program.

        Raises:
            HloError: if the program cannot be read.
            DataError: if it cannot be written.
        """
        key = (program, name, path)
        if self._prepared is None or self._key != key:
            self._prepared = PreparedProgram(inline_fusions(module_from_bytes(program, where=name)), name)
            self._key = key
            write_compiled_program(path, self._prepared.module)
        return self._prepared

    def log_assumed_loops(self) -> None:
        """Warns of the loops of the program, if any task read it, whose trip counts are not stated in it."""
        if self._prepared is None:
            return
        for name, (trips, bounded) in assumed_trip_counts(self._prepared.module).items():
            basis = "the bound in its condition" if bounded else "no bound is known"
            _log.warning(
                "%s: loop %s: %d iterations assumed (%s); write %s behind it to set them",
                self._prepared.name, name, trips, basis, KNOWN_TRIP_COUNT,
            )  # fmt: skip


def summaries_of(task: ShardTask) -> tuple[ShardSummary, ...] | None:
    """Returns the summaries of a task's shards, in the order of its paths; None where some are missing."""
    results = [entry.read(Shards) for entry in task.entries]
    if None in results:
        return None
    return tuple(summary for shards in results if shards is not None for summary in shards.summaries)


def generate(
    tasks: Sequence[ShardTask],
    backend: Backend,
    on_made: Callable[[ShardSummary], None] | None = None,
    on_existing: Callable[[ShardSummary], None] | None = None,
    optional: Collection[str] = (),
    on_left_out: Callable[[ShardTask, str], None] | None = None,
) -> tuple[ShardSummary, ...]:
    """Runs all tasks that are not done yet.

    The work item of a killed worker is computed again.

    Args:
        tasks: tasks whose shards are wanted.
        backend: where the shards are made.
        on_made: called for every shard made, in order of completion of groups.
        on_existing: called first for every shard that was already there.
        optional: names of programs whose tasks may fail without ending the run; they leave no shards then.
        on_left_out: called with each task that failed and the reason.

    Returns:
        Summaries of what was made, in the order of `tasks` and of their paths.

    Raises:
        ParamsError: if the backend cannot be used.
        DataError: if workers are killed repeatedly.
        CostbenchError: whatever a task raises that is not optional.
    """
    summaries: dict[str, tuple[ShardSummary, ...]] = {}
    groups: dict[str, tuple[ShardTask, ...]] = {}
    for task in tasks:
        existing = summaries_of(task)
        if existing is None:
            groups[task.group] = (*groups.get(task.group, ()), task)
        else:
            summaries[_key(task)] = existing
            if on_existing is not None:
                for summary in existing:
                    on_existing(summary)

    def take(group: str, outcomes: Sequence[tuple[ShardSummary, ...] | str]) -> None:
        for task, outcome in zip(groups[group], outcomes, strict=True):
            made = summaries[_key(task)] = () if isinstance(outcome, str) else outcome
            if isinstance(outcome, str) and on_left_out is not None:
                on_left_out(task, outcome)
            if on_made is not None:
                for summary in made:
                    on_made(summary)

    # Largest groups first, so that processes finish at similar times.
    longest_first = sorted(groups, key=lambda group: (-sum(task.weight for task in groups[group]), group))
    work_items = {name: _Group(groups[name], groups[name][0].name in optional) for name in longest_first}
    run_work_items(_make, work_items, backend, take)
    return tuple(summary for task in tasks for summary in summaries[_key(task)])


def _key(task: ShardTask) -> str:
    return str(task.paths[0])


@dataclass(frozen=True)
class _Group:
    """Tasks that share a compiled program, and whether they may fail without ending the run."""

    tasks: tuple[ShardTask, ...]
    is_optional: bool


def _make(group: _Group) -> tuple[tuple[ShardSummary, ...] | str, ...]:
    """Returns the summaries of each task of a group, or the reason why an optional one failed."""
    shared = SharedProgram()
    failed: dict[str, str] = {}
    with _rare_collections():
        for task in group.tasks:
            # A killed worker may have finished some tasks of the group.
            if summaries_of(task) is None:
                try:
                    task.make(shared)
                except CostbenchError as error:
                    if not group.is_optional:
                        raise
                    failed[_key(task)] = str(error)
    made = {_key(task): summaries_of(task) or () for task in group.tasks}
    if group.is_optional:
        shared.log_assumed_loops()
        empty = [key for key, shards in made.items() if not sum(shard.num_kernels for shard in shards)]
        failed = dict.fromkeys(empty, "no kernel with two or more decisions") | failed
    for task in group.tasks:
        for entry in task.entries if _key(task) in failed else ():
            entry.remove()
    return tuple(failed.get(key, shards) for key, shards in made.items())


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Makes garbage collection rare.

    Compiling creates millions of objects and few cycles, and a fifth of its time would be spent on finding
    these.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(_OBJECTS_PER_COLLECTION, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def write_compiled_program(path: Path, module: HloModule) -> None:
    """Writes the program that the kernels of shards refer to, unless the file already has the same bytes.

    Several tasks of one program may do so at the same time. Raises: DataError, if it cannot be written.
    """
    data = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(module_to_bytes(module))
    if not path.exists() or path.read_bytes() != data:
        write_bytes(path, data)
