"""Turns result files of stages into rows of an archive's tables, and back into equal files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from costbench.artifacts import read_bytes, read_json, write_json, write_text
from costbench.errors import DataError
from costbench.experiments.archive.storage import FILES, HISTORIES, POINTS, ROWS, Record, records_of
from costbench.experiments.grid.history import history_text, read_epochs
from costbench.metrics.rows import MetricRow, read_rows, write_rows

_ROWS_FILE, _HISTORY_FILE, _POINTS_FILE = "rows.jsonl", "history.csv", "scatter.json"
_POINT_KEYS = ("task", "split", "chip", "model")
_TIMES = ("predicted_ns", "measured_ns")


def read_results(out: Path, path: PurePosixPath) -> tuple[str, list[Record]]:
    """Return the table that a result file belongs to, and its contents as rows of it.

    A file whose contents do not fit the columns of its table, such as one without any, is stored as text.

    Args:
        out: output folder of the profile.
        path: of the file, relative to it.

    Raises:
        DataError: for a file that is missing or damaged.
    """
    file, records = FILES, list[Record]()
    if path.name == _ROWS_FILE:
        file, records = ROWS, _row_records(out, path)
    elif path.name == _HISTORY_FILE:
        file, records = HISTORIES, _history_records(out, path)
    elif path.name == _POINTS_FILE:
        file, records = POINTS, _point_records(out, path)
    return (file, records) if records else (FILES, [(str(path), _text(out / path))])


def write_results(out: Path, tables: Mapping[str, pa.Table]) -> None:
    """Write the result files of a part.

    Args:
        out: output folder of the profile.
        tables: by name of the archive's file.

    Raises:
        DataError: for contents that are no results, or a file that cannot be written.
    """
    for folder, rows in groupby(records_of(tables[ROWS]), lambda row: row[:2]):
        write_rows(_inside(out, *folder, _ROWS_FILE), (_metric_row(row[2:]) for row in rows))
    for folder, rows in groupby(records_of(tables[HISTORIES]), lambda row: row[:2]):
        write_text(_inside(out, "train", *folder, _HISTORY_FILE), _history(rows))
    for folder, rows in groupby(records_of(tables[POINTS]), lambda row: row[:1]):
        write_json(_inside(out, "evaluate", *folder, _POINTS_FILE), _points(rows))
    for path, text in records_of(tables[FILES]):
        write_text(_inside(out, _place(PurePosixPath(str(path)))), str(text))


def _place(path: PurePosixPath) -> str:
    """Return where a file belongs; in older archives, wall times lie beside the results."""
    if path.name == "timing.json":
        return f"machine/{path.parent}.json"
    return f"machine/{path}" if path.name == "overhead.json" else str(path)


def _inside(out: Path, *parts: str | int | float) -> Path:
    path = PurePosixPath(*map(str, parts))
    if path.is_absolute() or ".." in path.parts:
        raise DataError("leads out of the folder of results", where=str(path), expected=f"a file in {out}")
    return out / path


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 at byte {error.start}", where=path) from error


def _row_records(out: Path, path: PurePosixPath) -> list[Record]:
    stage, experiment = (*path.parent.parts, "")[:2]
    return [(stage, experiment, *astuple(row)) for row in sorted(read_rows(out / path), key=_neighbours)]


def _neighbours(row: MetricRow) -> tuple[str | int, ...]:
    """Return a sort key that puts a model's measures on a group of kernels side by side; many are equal."""
    place = (row.task, row.split, row.chip, row.program, row.kernels)
    return (*place, row.model, row.variant, row.seed, row.metric)


def _metric_row(values: Record) -> MetricRow:
    fields: Any = values
    return MetricRow(*fields)


def _history_records(out: Path, path: PurePosixPath) -> list[Record]:
    records: list[Record] = [
        (*path.parent.parts[1:], epoch, step, metric, value)
        for epoch, step, metrics in read_epochs(out / path)
        for metric, value in sorted(metrics.items())
    ]
    return records if _history(records) == _text(out / path) else []


def _history(records: Iterable[Record]) -> str:
    epochs = groupby(records, lambda row: row[2:4])
    return history_text(
        (int(epoch), int(step), {str(metric): float(value) for *_, metric, value in rows})
        for (epoch, step), rows in epochs
    )


def _point_records(out: Path, path: PurePosixPath) -> list[Record]:
    entries: Any = read_json(out / path)
    try:
        records: list[Record] = [
            (*path.parent.parts[1:], number, *(entry[name] for name in _POINT_KEYS), predicted, measured)
            for number, entry in enumerate(entries)
            for predicted, measured in zip(*(entry[name] for name in _TIMES), strict=True)
        ]
    except (KeyError, TypeError, ValueError):
        return []
    return records if list(_points(records)) == entries else []


def _points(records: Iterable[Record]) -> list[dict[str, object]]:
    def entry(rows: list[Record]) -> dict[str, object]:
        names = dict(zip(_POINT_KEYS, rows[0][2:6], strict=True))
        return {**names, **{name: [row[6 + i] for row in rows] for i, name in enumerate(_TIMES)}}

    return [entry(list(rows)) for _, rows in groupby(records, lambda row: row[1])]
