"""Work items whose results are kept in a file each, until something that they follow from changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from costbench.artifacts import digest_bytes, read_json, write_json
from costbench.errors import DataError, ParamsError
from costbench.execution.workers import Backend, run_work_items
from costbench.experiments.identity import remove_outdated
from costbench.params import parse

_log = logging.getLogger(__name__)
_KEY_LENGTH = 32


class Task(Protocol):
    """What a work item computes."""

    @property
    def name(self) -> str:
        """Returns what tells it from the others of its folder."""
        ...


@dataclass(frozen=True)
class KeyedResult:
    """A result as stored in its file.

    Attributes:
        key: digest of everything that it depends on.
    """

    key: str


T = TypeVar("T", bound=Task)
K = TypeVar("K", bound=KeyedResult)


@dataclass(frozen=True)
class WorkItem(Generic[T]):
    """A task, the file of its result, and the digest of everything that the result depends on."""

    task: T
    path: Path
    key: str

    @classmethod
    def of(cls, task: T, folder: Path, parts: Iterable[str]) -> WorkItem[T]:
        """Returns the work item of a task.

        Args:
            task: what is computed.
            folder: of the results.
            parts: digests and settings that the result follows from.
        """
        key = digest_bytes("\0".join(parts).encode())[:_KEY_LENGTH]
        return cls(task, folder / f"{task.name}.json", key)

    def keep(self, result: K) -> K:
        """Writes the result to the item's file, and returns it.

        Raises:
            DataError: if the file cannot be written.
        """
        write_json(self.path, asdict(result))
        return result


@dataclass(frozen=True)
class Progress(Generic[K]):
    """A result that has just been computed.

    Attributes:
        done: results computed so far, this one among them.
        total: how many are to be computed.
        name: of its task.
        result: itself.
    """

    done: int
    total: int
    name: str
    result: K


@dataclass(frozen=True)
class KeptResults(Generic[K]):
    """A folder of results of one kind.

    Attributes:
        folder: holds a file for each, and no others.
        kind: class of the results.
        title: what the work items are, in the log.
    """

    folder: Path
    kind: type[K]
    title: str

    def completed(
        self,
        compute: Callable[[WorkItem[T]], K],
        items: Sequence[WorkItem[T]],
        backend: Backend,
        log: Callable[[Progress[K]], None] | None = None,
    ) -> dict[str, K]:
        """Returns the results by name of the task: valid ones of earlier runs, and those computed now.

        Files of other tasks are removed.

        Args:
            compute: a function of a module, which computes a result and keeps it.
            items: all that are wanted, the longest first.
            backend: where they are computed.
            log: called after each that was computed.

        Raises:
            CostbenchError: whatever `compute` raises.
        """
        remove_outdated(self.folder, {one.path for one in items})
        kept, missing = kept_and_missing(self.kind, {one.task.name: one for one in items})
        _log.info("%d %s: %d kept, %d to do", len(items), self.title, len(kept), len(missing))
        done = 0

        def on_done(name: str, result: K) -> None:
            nonlocal done
            done += 1
            if log is not None:
                log(Progress(done, len(missing), name, result))

        return kept | run_work_items(compute, missing, backend, on_done)


def kept_and_missing(
    kind: type[K], wanted: Mapping[str, WorkItem[T]]
) -> tuple[dict[str, K], dict[str, WorkItem[T]]]:
    """Returns the valid results of earlier runs and the work items that have none, both by name.

    A file that is damaged or of another key is as good as none.
    """
    kept: dict[str, K] = {}
    for name, one in wanted.items():
        found = _read(kind, one)
        if found is not None:
            kept[name] = found
    return kept, {name: one for name, one in wanted.items() if name not in kept}


def _read(kind: type[K], wanted: WorkItem[T]) -> K | None:
    if not wanted.path.exists():
        return None
    try:
        found = parse(kind, read_json(wanted.path), where=wanted.path)
    except (DataError, ParamsError):
        return None
    return found if found.key == wanted.key else None
