"""Imports tuning records of others: the formats that are known, and where the project reads the records.

A format holds single records, which become logs of our schedules where they can, or a tuning table. To add
one, write a function that reads it, and a row of `IMPORTERS`.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from costbench.artifacts import open_file
from costbench.errors import DataError
from costbench_schedules.records.imported.autotvm import read_autotvm
from costbench_schedules.records.imported.kernel_tuner import CACHE_KEYS, expand, read_cache, read_t4
from costbench_schedules.records.imported.metaschedule import read_metaschedule
from costbench_schedules.records.imported.parquet import MAGIC, read_parquet
from costbench_schedules.records.imported.record import ImportedRecord
from costbench_schedules.records.schedule_tuning import read_recorded
from costbench_schedules.records.tune_log import LogEntry, LogWriter, header_of, refuse_in_writing
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.spaces.space import ScheduleSpace

OTHERS_FILE = "others.jsonl"


_PEEKED_BYTES = 1 << 16
_ARROW = b"ARROW1"
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*:)?|([{}\[\]])')


@dataclass(frozen=True)
class Importer:
    """A format.

    Attributes:
        accepts: function of a path, and of the first bytes of a file, to whether it holds this format.
        read: function of a path to its records, read one at a time; None for a format of tables.
        read_table: function of a path to its table; None for a format of records.
    """

    accepts: Callable[[Path, bytes], bool]
    read: Callable[[Path], Iterator[ImportedRecord]] | None = None
    read_table: Callable[[Path], TuningTable] | None = None


def _outer_keys(start: bytes) -> set[str]:
    """Returns the keys of the JSON object that begins with these bytes, not those of objects in it."""
    keys, depth = set(), 0
    for text, colon, bracket in _TOKEN.findall(start):
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(bracket, 0)
        if colon and depth == 1:
            keys.add(text.decode(errors="replace"))
    return keys


IMPORTERS: Mapping[str, Importer] = {
    "MetaSchedule": Importer(lambda path, _: path.is_dir(), read_metaschedule),
    "Parquet": Importer(lambda _, start: start.startswith(MAGIC), read_table=read_parquet),
    "recorded table": Importer(lambda _, start: start.startswith(_ARROW), read_table=read_recorded),
    "Kernel Tuner cache": Importer(
        lambda _, start: not _outer_keys(start).isdisjoint(CACHE_KEYS), read_table=read_cache
    ),
    "T4": Importer(
        lambda _, start: not _outer_keys(start).isdisjoint(("results", "schema_version")), read_table=read_t4
    ),
    "AutoTVM": Importer(lambda *_: True, read_autotvm),
}
"""Importers by the tool that wrote the format; the first that accepts a path reads it."""


def importer_of(path: Path) -> Importer:
    """Returns the first importer that accepts a file or folder.

    Raises:
        DataError: naming the path, if there is nothing that can be read.
    """
    start = b""
    if not path.is_dir():
        with open_file(path) as stream:
            start = stream.read(_PEEKED_BYTES)
        with suppress(zlib.error):
            start = expand(start, _PEEKED_BYTES)[0]
    return next(importer for importer in IMPORTERS.values() if importer.accepts(path, start))


def read_records(path: Path) -> Iterator[ImportedRecord]:
    """Returns the records of a file or folder, by the first importer that accepts it.

    Raises:
        DataError: naming the path, if it holds a tuning table, or as the importer.
    """
    importer = importer_of(path)
    if importer.read is None:
        expected = "records of AutoTVM or MetaSchedule"
        raise DataError("holds a tuning table", where=path, expected=expected)
    return importer.read(path)


def read_tuning_table(path: Path) -> TuningTable:
    """Returns the tuning table in a file, by the first importer that accepts it.

    Raises:
        DataError: naming the path, if it holds none, or as the importer.
    """
    importer = importer_of(path)
    if importer.read_table is None:
        expected = "a cache of Kernel Tuner, T4, a table in Parquet, or a recorded table"
        raise DataError("is no tuning table", where=path, expected=expected)
    return importer.read_table(path)


@dataclass(frozen=True)
class ImportSummary:
    """What became of records.

    Attributes:
        logs: number of schedules by path of the log that they are in.
        repeated: schedules that occurred before in their log; the first counts.
        others: number of records in `OTHERS_FILE`, by the reason why they have no schedule of ours.
    """

    logs: Mapping[Path, int]
    repeated: int
    others: Mapping[str, int]


def write_imported(records: Iterable[ImportedRecord], folder: Path, source: str) -> ImportSummary:
    """Writes records, read one at a time.

    Schedules that are in our spaces go to `folder`/OPERATOR-TARGET.jsonl, a log that `read_log` reads; the
    others to `folder`/others.jsonl with workload, runtime and the reason.

    Args:
        records: records of an importer.
        folder: folder that is written; must not hold logs yet.
        source: name of the file that they were read from, for the logs.

    Raises:
        DataError: what reading raises, or if the folder holds such files or cannot be written; what was
            written before is kept then.
    """
    # Without a line where the first record could not be read: nothing is lost then.
    if any(path.stat().st_size for path in folder.glob("*.jsonl")):
        raise DataError("holds logs already", where=folder, expected="a new or empty folder")
    counts: Counter[Path] = Counter()
    others: Counter[str] = Counter()
    writers: dict[Path, tuple[LogWriter, ScheduleSpace, set[int]]] = {}
    repeated = 0
    with refuse_in_writing(folder), ExitStack() as opened:
        folder.mkdir(parents=True, exist_ok=True)
        table = opened.enter_context((folder / OTHERS_FILE).open("w", encoding="utf-8"))
        for record in records:
            if record.operator is None or record.choices is None:
                others[record.unmapped] += 1
                table.write(json.dumps(_plain(record)) + "\n")
                continue
            path = folder / f"{_label(record.operator.text)}-{_label(record.target)}.jsonl"
            if path not in writers:
                space = ScheduleSpace(record.operator)
                header = header_of(space, record.target, {"processor": f"unknown; {source}"}, {})
                writers[path] = (opened.enter_context(LogWriter(path, header)), space, set())
            writer, space, seen = writers[path]
            [number] = space.numbers(space.row_of(record.choices)[None])
            if number in seen:
                repeated += 1
                continue
            seen.add(number)
            runtime = None if record.runtime_ns is None else max(1, round(record.runtime_ns))
            writer.append(LogEntry(number, runtime, 0.0, reason=record.reason))
            counts[path] += 1
    return ImportSummary(counts, repeated, others)


def _plain(record: ImportedRecord) -> dict[str, object]:
    return {
        "workload": record.workload,
        "target": record.target,
        "runtime_ns": record.runtime_ns,
        "reason": record.reason,
        "operator": None if record.operator is None else record.operator.text,
        "unmapped": record.unmapped,
    }


def _label(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-") or "unnamed"
