"""Results of a profile as Parquet files for git, from which its report is rendered without computing.

What the report reads is small; what it follows from is not: trained networks and shards are left out. A part
is an experiment (`experiments/NAME`: trained and evaluated), or one of the other stages by name. Parts that
are finished on different days accumulate in one archive:

    archive.json         profile, digests of the other files, and each part with what it follows from
    rows.parquet         metric rows of all stages: `stage`, `experiment` and the fields of `MetricRow`
    histories.parquet    learning curves, a row for each epoch and metric
    points.parquet       predicted and measured runtimes, a row for each kernel and model
    files.parquet        everything else as text: budgets, identities, cards, audits, trials, searches

Equal results are equal bytes, as long as the version of pyarrow is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, fields
from itertools import groupby
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from costbench.artifacts import (
    digest_bytes,
    parse_json,
    read_bytes,
    read_json,
    seal,
    write_bytes,
    write_json,
    write_text,
)
from costbench.datasets.parquet_files import read_parquet
from costbench.errors import DataError
from costbench.experiments.grid.history import history_text, read_epochs
from costbench.metrics.rows import MetricRow, read_rows, write_rows
from costbench.params import parse

MANIFEST_FILE = "archive.json"
ROWS, HISTORIES, POINTS, FILES = "rows.parquet", "histories.parquet", "points.parquet", "files.parquet"
FORMAT = 1
_LEVEL, _PAGE_BYTES = 19, 1 << 26


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


_TEXT, _INT, _FLOAT = pa.string(), pa.int64(), pa.float64()
_ROW_TYPES: Mapping[str, pa.DataType] = {"seed": _INT, "value": _FLOAT}
SCHEMAS: Mapping[str, pa.Schema] = {
    ROWS: _schema(
        stage=_TEXT,
        experiment=_TEXT,
        **{field.name: _ROW_TYPES.get(field.name, _TEXT) for field in fields(MetricRow)},
    ),
    HISTORIES: _schema(experiment=_TEXT, cell=_TEXT, epoch=_INT, step=_INT, metric=_TEXT, value=_FLOAT),
    POINTS: _schema(
        experiment=_TEXT,
        entry=_INT,
        task=_TEXT,
        split=_TEXT,
        chip=_TEXT,
        model=_TEXT,
        predicted_ns=_FLOAT,
        measured_ns=_FLOAT,
    ),
    FILES: _schema(path=_TEXT, text=_TEXT),
}
"""Columns of each file.

`experiment` of a row is the folder below its stage, empty where there is none; `entry` numbers the programs
and models of an experiment.
"""

Record = tuple[str | int | float, ...]


@dataclass(frozen=True)
class PartEntry:
    """What the manifest says of a part.

    Attributes:
        params_digest: identity of the parameters that it follows from.
        data_digest: identity of the samples.
        code_digest: identity of the code that computed it.
        git_revision: revision of that code; empty for parts without metric rows.
        rows: number of metric rows.
        cells: number of trained cells.
    """

    params_digest: str
    data_digest: str
    code_digest: str
    git_revision: str
    rows: int
    cells: int


@dataclass(frozen=True)
class Manifest:
    """The file `archive.json`.

    Attributes:
        format: version of the layout of the folder.
        profile: name of the profile that the results are of.
        files: SHA-256 of each Parquet file, by name.
        parts: description of each part, by name.
    """

    format: int
    profile: str
    files: Mapping[str, str]
    parts: Mapping[str, PartEntry]

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"format is {self.format}, must be {FORMAT}: this version reads no other")
        if sorted(self.files) != sorted(SCHEMAS):
            raise ValueError(f"files are {sorted(self.files)}, must be {sorted(SCHEMAS)}")


@dataclass(frozen=True)
class Part:
    """The results of a part.

    Attributes:
        entry: its description in the manifest.
        tables: rows of each Parquet file that belong to the part, by name of the file.
    """

    entry: PartEntry
    tables: Mapping[str, pa.Table]


def part_of(stage: str, experiment: str) -> str:
    """Returns the name of the part that a folder of results belongs to."""
    return f"experiments/{experiment}" if stage in ("train", "evaluate") else stage


def table_of(file: str, records: Iterable[Record]) -> pa.Table:
    """Returns records as a table with the columns of a Parquet file."""
    schema = SCHEMAS[file]
    columns = list(zip(*records, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def records_of(table: pa.Table) -> list[Record]:
    """Returns the rows of a table."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest of an archive. Raises: DataError, if it is missing, damaged or something else."""
    if folder.is_file():
        raise DataError("is no folder", where=folder, expected=f"the folder of {MANIFEST_FILE}")
    path = folder / MANIFEST_FILE
    return parse(Manifest, read_json(path), where=path, error=DataError)


def read_archive(folder: Path, manifest: Manifest, files: Iterable[str] = tuple(SCHEMAS)) -> dict[str, Part]:
    """Returns the parts of an archive by name.

    Args:
        folder: folder of the archive.
        manifest: manifest of that archive.
        files: names of the Parquet files that are read; tables of others are empty.

    Raises:
        DataError: naming the file, if one is missing, is not the one that the manifest is about, or has other
            columns.
    """
    tables: dict[str, dict[str, pa.Table]] = {name: {} for name in manifest.parts}
    for file in files:
        for name, table in _by_part(file, read_packed_table(folder / file, manifest.files[file])).items():
            if name not in tables:
                raise DataError(f"rows of {name!r}", where=folder / file, expected=", ".join(manifest.parts))
            tables[name][file] = table
    empty = {file: table_of(file, ()) for file in SCHEMAS}
    return {name: Part(entry, empty | tables[name]) for name, entry in manifest.parts.items()}


def read_packed_table(path: Path, digest: str) -> pa.Table:
    """Returns a Parquet file of an archive as a table.

    Args:
        path: path of the file, whose name says what its columns are.
        digest: SHA-256 that the manifest has of it.

    Raises:
        DataError: naming the file, if it is another one, has other columns, or expands to too much.
    """
    data = read_bytes(path)
    if digest_bytes(data) != digest:
        expected = f"the bytes that {MANIFEST_FILE} has the digest of, as git keeps them"
        raise DataError("damaged, or of another archive", where=path, expected=expected)
    try:
        table = read_parquet(data)
    except DataError as error:
        raise error.recast(DataError, where=path) from error
    if not table.schema.equals(SCHEMAS[path.name]):
        columns, expected = (
            ", ".join(f"{field.name}: {field.type}" for field in schema)
            for schema in (table.schema, SCHEMAS[path.name])
        )
        raise DataError(f"the columns {columns}", where=path, expected=expected)
    return table


def _by_part(file: str, table: pa.Table) -> dict[str, pa.Table]:
    """Returns the rows of each part, in their order."""
    if file == FILES:
        paths = (path.removeprefix("machine/") for path in table["path"].to_pylist())
        folders = [(*path.split("/"), "", "")[:2] for path in paths]
    elif file == ROWS:
        folders = list(zip(table["stage"].to_pylist(), table["experiment"].to_pylist(), strict=True))
    else:
        folders = [("train", name) for name in table["experiment"].to_pylist()]
    indices: dict[str, list[int]] = {}
    for index, (stage, experiment) in enumerate(folders):
        indices.setdefault(part_of(stage, experiment), []).append(index)
    return {name: table.take(pa.array(rows)) for name, rows in indices.items()}


def read_profile_manifest(folder: Path, profile: str) -> Manifest:
    """Reads the manifest of an archive. Raises: DataError, if it is damaged or of another profile."""
    manifest = read_manifest(folder)
    if manifest.profile != profile:
        problem = f"results of the profile {manifest.profile!r}"
        raise DataError(problem, where=folder / MANIFEST_FILE, field="profile", expected=profile)
    return manifest


def read_parts(folder: Path, profile: str) -> dict[str, Part]:
    """Returns the parts of an archive by name; none where there is no archive yet.

    Args:
        folder: folder of the archive.
        profile: name of the profile that it has to be of.

    Raises:
        DataError: for an archive that is damaged, of another profile, or without its manifest.
    """
    if (folder / MANIFEST_FILE).exists():
        return read_archive(folder, read_profile_manifest(folder, profile))
    if any((folder / name).exists() for name in SCHEMAS):
        raise DataError("not there", where=folder / MANIFEST_FILE, expected="that of the files beside it")
    return {}


def cells_of(part: Part) -> dict[str, str]:
    """Returns what the cells and sets of baselines of an experiment follow from, by name.

    Empty for a stage; with empty values for an experiment of an archive that does not say.
    """
    follows_from: Any = {}
    names = set()
    for name, text in records_of(part.tables[FILES]):
        path = PurePosixPath(str(name))
        if path.parts[0] == "train" and len(path.parts) > 3:
            names.add(path.parent.name)
        elif path.parts[0] == "train" and path.name == CELLS_FILE:
            follows_from = parse_json(str(text).encode(), path)
    return {name: str(follows_from.get(name, "")) for name in sorted(names)}


def write_archive(folder: Path, profile: str, parts: Mapping[str, Part]) -> Manifest:
    """Writes an archive, the manifest last, and seals it.

    Raises:
        DataError: if a file cannot be written.
    """
    files = {}
    for file, schema in SCHEMAS.items():
        table = pa.concat_tables(
            [schema.empty_table(), *(parts[name].tables[file] for name in sorted(parts))]
        )
        files[file] = _parquet(table)
    # All at once: between the first and the manifest an archive is damaged, and compressing takes seconds.
    for file, data in files.items():
        write_bytes(folder / file, data)
    digests = {file: digest_bytes(data) for file, data in files.items()}
    manifest = Manifest(FORMAT, profile, digests, {name: parts[name].entry for name in sorted(parts)})
    write_json(folder / MANIFEST_FILE, asdict(manifest))
    seal(folder, "`git checkout`, or `costbench results pack` once the folder is gone")
    return manifest


def _parquet(table: pa.Table) -> bytes:
    """Returns the bytes of a Parquet file."""
    # A measure and its relatives, or a group of kernels and a larger one, often have equal values: zstd finds
    # them in long pages, and packs them better than a dictionary or the bytes of numbers apart.
    plain = [field.name for field in table.schema if pa.types.is_floating(field.type) or field.name == "text"]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.combine_chunks(),
        sink,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=[name for name in table.schema.names if name not in plain],
        data_page_size=_PAGE_BYTES,
    )
    return bytes(sink.getvalue())


_ROWS_FILE, _HISTORY_FILE, _POINTS_FILE = "rows.jsonl", "history.csv", "scatter.json"
CELLS_FILE = "cells.json"
_POINT_KEYS = ("task", "split", "chip", "model")
_TIMES = ("predicted_ns", "measured_ns")


def read_results(out: Path, path: PurePosixPath) -> tuple[str, list[Record]]:
    """Returns the table that a result file belongs to, and its contents as rows of it.

    A file whose contents do not fit the columns of its table, such as one without any, is stored as text.

    Args:
        out: output folder of the profile.
        path: path of the file, relative to it.

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


def write_results(
    out: Path, tables: Mapping[str, pa.Table], write: Callable[[Path, str], None] = write_text
) -> None:
    """Writes the result files of a part.

    Args:
        out: output folder of the profile.
        tables: tables by name of the archive's file.
        write: function that writes a text into a file.

    Raises:
        DataError: for contents that are no results, or a file that cannot be written.
    """
    for folder, rows in groupby(records_of(tables[ROWS]), lambda row: row[:2]):
        write_rows(_inside(out, *folder, _ROWS_FILE), (metric_row(row) for row in rows))
    for folder, rows in groupby(records_of(tables[HISTORIES]), lambda row: row[:2]):
        write(_inside(out, "train", *folder, _HISTORY_FILE), _history(rows))
    for folder, rows in groupby(records_of(tables[POINTS]), lambda row: row[:1]):
        write_json(_inside(out, "evaluate", *folder, _POINTS_FILE), _points(rows))
    for path, text in records_of(tables[FILES]):
        write(_inside(out, _current_path(PurePosixPath(str(path)))), str(text))


def _current_path(path: PurePosixPath) -> str:
    """Returns the path of a file; in older archives, wall times lie beside the results."""
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
    return [(stage, experiment, *astuple(row)) for row in sorted(read_rows(out / path), key=_NEIGHBOURS)]


_NEIGHBOURS = attrgetter(
    *("task", "split", "chip", "program", "kernels", "model", "variant", "seed", "metric")
)
"""Sort key that puts a model's measures on a group of kernels side by side; many are equal."""


def metric_row(record: Record) -> MetricRow:
    """Returns the metric row of a row of the table."""
    fields: Any = record[2:]
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
