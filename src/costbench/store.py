"""What is computed already: results that are kept in files until something that they follow from changes.

A result has an entry: a note, which is a JSON file with the result itself, its key, the digests of its files
and its own. The key is a digest of everything that the result follows from: parameters, inputs, code. The
note is written last, so a result whose note is missing, damaged, of another key, or names a file that was
altered, counts as missing. What a killed process leaves of an entry is resumed by the next of the same key.

Stages compute what is missing by `compute`, on the backend that they are given. This module passes on what
functions return and reads back the same, so no result depends on its code.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from costbench.artifacts import (
    digest_bytes,
    digest_file,
    read_bytes,
    read_json,
    remove_stale_temporaries,
    with_checksum,
    without_checksum,
    write_bytes,
    write_json,
)
from costbench.errors import DataError
from costbench.execution.workers import Backend, run_work_items
from costbench.params import parse

_log = logging.getLogger(__name__)
_KEY_LENGTH = 32
_FILES, _CONTENT = "files", "content"


@dataclass(frozen=True)
class KeyedResult:
    """A result as its note holds it; results are dataclasses that add their own fields.

    Attributes:
        key: digest of everything that the result follows from.
    """

    key: str


T = TypeVar("T")
R = TypeVar("R", bound=KeyedResult)


def key_of(*parts: str) -> str:
    """Returns the key of a result: a digest of the parts that it follows from, 32 hexadecimal digits."""
    return digest_bytes("\0".join(parts).encode())[:_KEY_LENGTH]


@dataclass(frozen=True)
class Entry:
    """Files of a result, and what it follows from.

    Attributes:
        note: file that is written once the result is complete.
        key: digest of everything that the result follows from.
        files: files of the result besides the note; None for all files of the note's folder, which then
            belongs to this entry alone.
        content: digest like `key` of what its files follow from, for results that differ in their names only.
        siblings: folder of folders of entries of one kind; the files of one of the same content are copied.
    """

    note: Path
    key: str
    files: tuple[Path, ...] | None = ()
    content: str = ""
    siblings: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """Returns everything on disk that belongs to the entry: files, or its folder."""
        return (self.note.parent,) if self.files is None else (self.note, self._started, *self.files)

    @property
    def _started(self) -> Path:
        return self.note.with_suffix(".started")

    def read(self, kind: type[R]) -> R | None:
        """Returns the result; None where it is missing, which a damaged one or one of another key is, too."""
        try:
            result, files, _ = _read(self.note, kind)
            is_whole = all(digest_file(self.note.parent / name) == value for name, value in files.items())
        except DataError:
            return None
        return result if result.key == self.key and is_whole else None

    def get(self, kind: type[R], compute: Callable[[], R]) -> R:
        """Returns the result, which is computed and kept if it is missing.

        Args:
            kind: class of the result.
            compute: function that writes the files of the entry, maybe continuing those of a killed call, and
                returns the result.

        Raises:
            DataError: if the result cannot be written.
            CostbenchError: whatever `compute` raises.
        """
        result = self.read(kind)
        if result is None:
            self.begin()
            result = self._copy_sibling(kind)
        return self.keep(compute()) if result is None else result

    def begin(self) -> None:
        """Removes the files of the entry, unless a killed process of the same key left them."""
        with suppress(DataError):
            if read_bytes(self._started) == self.key.encode():
                return
        self.remove()
        if self.files != ():
            write_bytes(self._started, self.key.encode())

    def remove(self) -> None:
        """Removes note and files, but for files in other folders than the note's, which entries may share."""
        if self.files is None:
            shutil.rmtree(self.note.parent, ignore_errors=True)
        for path in (self.note, self._started, *(self.files or ())):
            if path.parent == self.note.parent:
                path.unlink(missing_ok=True)

    def keep(self, result: R) -> R:
        """Writes the note of a computed result whose files are complete, and returns the result.

        Raises:
            DataError: if a file is missing, or the note cannot be written.
        """
        folder = self.note.parent
        digests = {os.path.relpath(path, folder): digest_file(path) for path in self._files()}
        content = {_FILES: digests} | ({_CONTENT: self.content} if self.content else {})
        write_json(self.note, with_checksum(asdict(result) | content))
        self._started.unlink(missing_ok=True)
        return result

    def _files(self) -> Iterator[Path]:
        if self.files is not None:
            yield from self.files
            return
        for path in sorted(self.note.parent.rglob("*")):
            if path.is_file() and path not in (self.note, self._started) and path.name[0] != ".":
                yield path

    def _copy_sibling(self, kind: type[R]) -> R | None:
        """Returns the result of a sibling of the same content after copying its files; None without one."""
        notes = self.siblings.glob(f"*/*/{self.note.name}") if self.siblings is not None else ()
        for note in sorted(notes):
            with suppress(DataError):
                result, files, content = _read(note, kind)
                if content != self.content or note == self.note:
                    continue
                # Another process may be about to replace that entry: what is copied has to be what it names.
                copies = {name: read_bytes(note.parent / name) for name in files}
                if all(digest_bytes(copies[name]) == value for name, value in files.items()):
                    for name, data in copies.items():
                        write_bytes(self.note.parent / name, data)
                    _log.info("%s: files of %s/%s", self.note.parent.name, *note.parts[-3:-1])
                    return self.keep(replace(result, key=self.key))
        return None


def _read(note: Path, kind: type[R]) -> tuple[R, dict[str, str], str]:
    """Returns a result, the digests of its files and its content. Raises: DataError."""
    stored = read_json(note)
    values = without_checksum(stored, note) if isinstance(stored, dict) else {}
    files = values.pop(_FILES, None)
    if not isinstance(files, dict):
        raise DataError("no note of a result", where=note)
    content = str(values.pop(_CONTENT, ""))
    return parse(kind, values, where=note, error=DataError), files, content


@dataclass(frozen=True)
class WorkItem(Generic[T]):
    """A task whose result is kept.

    Attributes:
        name: name that no other item has.
        task: task that is computed; it travels to other processes.
        entry: entry of the result.
        parts: entries that the task makes the result from; the result is missing where one of them is.
    """

    name: str
    task: T
    entry: Entry
    parts: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, name: str, task: T, folder: Path, parts: Iterable[str]) -> WorkItem[T]:
        """Returns the work item of a result that has no files but its note.

        Args:
            name: name of the item, and of the note in the folder.
            task: task that is computed.
            folder: folder of the notes.
            parts: digests and settings that the result follows from.
        """
        return cls(name, task, Entry(folder / f"{name}.json", key_of(*parts)))

    @property
    def key(self) -> str:
        """Returns the key of the result."""
        return self.entry.key

    def read(self, kind: type[R]) -> R | None:
        """Returns the result; None where it or a part of it, which is of the same kind, is missing."""
        is_whole = all(part.read(kind) is not None for part in self.parts)
        return self.entry.read(kind) if is_whole else None

    def keep(self, result: R) -> R:
        """Writes the result to its note, and returns it. Raises: DataError, if that is impossible."""
        return self.entry.keep(result)


@dataclass(frozen=True)
class Progress(Generic[R]):
    """A result that has just been computed.

    Attributes:
        done: number of results computed so far, this one among them.
        total: number of results to compute.
        name: name of its item.
        result: the result.
    """

    done: int
    total: int
    name: str
    result: R


def compute(
    function: Callable[[WorkItem[T]], R],
    kind: type[R],
    items: Sequence[WorkItem[T]],
    backend: Backend,
    title: str,
    on_done: Callable[[Progress[R]], None] | None = None,
    *,
    folder: Path | None = None,
) -> dict[str, R]:
    """Returns the results of all items by name: those of earlier runs, and the missing ones, computed now.

    Of items of the same content one is computed, before the others take over its files.

    Args:
        function: module-level function that computes the result of an item and keeps it.
        kind: class of the results.
        items: all items, the longest first.
        backend: backend that computes missing results.
        title: name of the results in the log.
        on_done: function that is called after each result that was computed.
        folder: folder that holds these results alone, from which everything else is removed first.

    Raises:
        CostbenchError: whatever `function` raises.
    """
    if folder is not None:
        remove_outdated(folder, [path for item in items for path in item.entry.paths])
    results = {item.name: result for item in items if (result := item.read(kind)) is not None}
    missing = {item.name: item for item in items if item.name not in results}
    names = {item.entry.content or item.name: item.name for item in reversed(missing.values())}
    first = {name: item for name, item in missing.items() if name in names.values()}
    _log.info("%d %s: %d kept, %d to do", len(items), title, len(results), len(missing))
    done = 0

    def count(name: str, result: R) -> None:
        nonlocal done
        done += 1
        results[name] = result
        if on_done is not None:
            on_done(Progress(done, len(missing), name, result))

    run_work_items(function, first, backend, count)
    for name, item in missing.items():
        if name not in first:
            count(name, function(item))
    return {item.name: results[item.name] for item in items}


def remove_outdated(folder: Path, wanted: Iterable[Path]) -> None:
    """Removes the files of a folder that nobody asks for, and temporary files of killed processes.

    Args:
        folder: folder whose files are results; its sub-folders count, too.
        wanted: paths of files to keep, and of folders to keep with everything in them.
    """
    paths_to_keep = set(wanted)
    paths = sorted(folder.rglob("*"), reverse=True) if folder.is_dir() else []
    for inner in (folder, *(path for path in paths if path.is_dir())):
        remove_stale_temporaries(inner)
    for path in paths:
        # Remaining files with a temporary's name are being written by another process.
        if path.name[0] == "." or path in paths_to_keep or not paths_to_keep.isdisjoint(path.parents):
            continue
        if path.is_dir():
            with suppress(OSError):  # not empty
                path.rmdir()
        else:
            path.unlink(missing_ok=True)
