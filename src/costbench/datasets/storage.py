"""Shards as Arrow files: written whole, read by memory map, refused where they are damaged.

A shard is one table (`arrow_tables`) whose schema says in its metadata what the samples were made from, and
the digest of every column. Opening compares all bytes once in a process: with the checksums of the finished
folder that the shard lies in, elsewhere with the digests of its own.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from costbench.arrays import AnyArray
from costbench.artifacts import Stamp, atomic_path, check_sealed, open_file, stamp_of
from costbench.datasets.arrow_files import MAGIC, UNREADABLE, open_arrow
from costbench.datasets.arrow_tables import (
    ArrayViews,
    StoredColumn,
    array_views,
    arrow_batch,
    arrow_schema,
    check_levels,
    stored_column,
    stored_columns,
)
from costbench.datasets.record_types import RECORD_TYPES, TILE
from costbench.datasets.records import (
    Column,
    RecordType,
    check_columns,
    check_offsets,
    check_shape,
    check_values,
)
from costbench.errors import DataError, one_line
from costbench.store import KeyedResult


@dataclass(frozen=True)
class ShardSummary:
    """How much a shard holds, and what it cost to measure.

    Attributes:
        task: name of the task: `tile`, `fusion` or `layout`.
        name: name of the program.
        chip: name of the chip that it ran on.
        num_kernels: number of unique kernels that have samples.
        num_samples: number of decisions that ran.
        num_failed: number of compiles that failed.
        device_seconds: accelerator time charged.
    """

    task: str
    name: str
    chip: str
    num_kernels: int
    num_samples: int
    num_failed: int
    device_seconds: float


@dataclass(frozen=True)
class Shards(KeyedResult):
    """Finished shards, as the store keeps them.

    Attributes:
        summaries: summary of each shard, in the order of their paths.
    """

    summaries: tuple[ShardSummary, ...]


SUFFIX = ".arrow"
_OLD_MAGIC = b"CBSHARD"
_KEYS = {"record", "version", "metadata", "sha256"}
_FACTS, _FACTS_DIGEST = b"costbench", b"costbench.sha256"
_AGAIN = "run `costbench generate` and `costbench features` again"


def write_shard(
    path: Path, columns: Mapping[str, AnyArray], metadata: Mapping[str, object], record: RecordType = TILE
) -> None:
    """Writes a shard atomically; equal columns and metadata give equal bytes.

    Contiguous columns are written without a copy.

    Args:
        path: destination, overwritten if it exists.
        columns: all columns of `record` by key.
        metadata: JSON values that say what the shard was made from.
        record: record type of the shard.

    Raises:
        DataError: naming the column, if columns are incomplete, of a wrong shape or hold invalid values (a
            NaN, zero or negative runtime), or if metadata cannot be written as JSON.
    """
    check_columns(record, columns, path)
    arrays = {column.key: np.ascontiguousarray(columns[column.key]) for column in record.columns}
    schema = arrow_schema(record).with_metadata(_schema_metadata(record, arrays, metadata, path))
    batch = arrow_batch(record, arrays, schema)
    with atomic_path(path) as temporary:
        try:
            with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, schema) as writer:
                writer.write_batch(batch)
        except OSError as error:
            if error.errno is None:
                raise
            # Arrow replaces the system's reason by a sentence of its own.
            raise OSError(error.errno, os.strerror(error.errno), str(temporary)) from error


def _schema_metadata(
    record: RecordType, arrays: Mapping[str, AnyArray], metadata: Mapping[str, object], path: Path
) -> dict[bytes, bytes]:
    facts = {
        "record": record.name,
        "version": record.version,
        "metadata": dict(metadata),
        "sha256": {key: _digest(array) for key, array in arrays.items()},
    }
    try:
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise DataError(f"cannot be stored: {error}", where=path, field="metadata") from error
    schema_metadata = {_FACTS: text, _FACTS_DIGEST: hashlib.sha256(text).hexdigest().encode()}
    for stored in stored_columns(record):
        if stored.field is None:
            schema_metadata[_aside(stored)] = arrays[stored.column.key].tobytes().hex().encode()
    return schema_metadata


def _aside(stored: StoredColumn) -> bytes:
    return f"costbench.{stored.column.key}".encode()


def _digest(array: AnyArray) -> str:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()


@dataclass(frozen=True, slots=True)
class _Table:
    """An opened file.

    Attributes:
        record: record type of the shard.
        metadata: JSON values that say what its samples were made from.
        sha256: SHA-256 of the columns by key.
        schema: schema of the table, with the metadata of the shard.
        batch: single record batch of the table.
        file: bytes of the file, mapped.
    """

    record: RecordType
    metadata: Mapping[str, Any]
    sha256: Mapping[str, str]
    schema: pa.Schema
    batch: pa.RecordBatch
    file: pa.Buffer


class Shard:
    """A shard opened for reading: `shard["config_runtime_ns"]` is a read-only view of the file.

    Columns are mapped, not loaded, and come and go with the operating system's page cache. A shard travels to
    another process as its path.
    """

    def __init__(self, path: Path, table: _Table) -> None:
        self.path = path
        self.record = table.record
        self.metadata = table.metadata
        self._table = table
        self._views: dict[str, ArrayViews] = {}
        self._checked: dict[str, AnyArray] = {}
        self._sizes = {self.record.row: table.batch.num_rows} if self.record.row else {}

    @staticmethod
    def open(path: Path | str) -> Shard:
        """Opens a shard.

        Raises:
            DataError: naming the file and the column, if it is missing, truncated, damaged, of another
                version or no shard at all.
        """
        path = Path(path)
        is_sealed = path.exists() and check_sealed(path)
        shard = Shard(path, _read_table(path))
        if not is_sealed:
            shard.verify()
        return shard

    def __getitem__(self, key: str) -> AnyArray:
        """Returns a column.

        Raises:
            DataError: if there is none of that name, or if it holds values that cannot be data.
        """
        array = self._checked.get(key)
        if array is None:
            column = self.record.column(key)
            array = self._offsets(column) if column.offsets_into is not None else self._values(column)
            self._checked[key] = array
        return array

    def _offsets(self, column: Column) -> AnyArray:
        """Returns an offsets column, which is stored with the column that it divides."""
        assert column.offsets_into is not None
        views = self._view(column.offsets_into)
        levels = stored_column(self.record, column.offsets_into).levels
        offsets = views.offsets[levels.index(column.key)]
        check_offsets(column, offsets, len(views.values), self.path)
        return offsets

    def _values(self, column: Column) -> AnyArray:
        views = self._view(column.key)
        check_shape(column, views.values.shape, self._sizes, self.path)
        check_values(column, views.values, self.path)
        if views.offsets:
            stored = stored_column(self.record, column.key)
            shared = {level: self[level] for level in stored.levels if level}
            with _named(self.path, column.key):
                check_levels(stored, views, shared)
        return views.values

    def _view(self, key: str) -> ArrayViews:
        """Returns views of a column other than an offsets column, as it is in the file."""
        if key not in self._views:
            stored, table = stored_column(self.record, key), self._table
            with _named(self.path, key):
                if stored.field is None:
                    self._views[key] = ArrayViews(_read_aside(stored, table.schema), ())
                else:
                    self._views[key] = array_views(stored, table.batch.column(key), table.file)
        return self._views[key]

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.key for column in self.record.columns)

    @property
    def num_kernels(self) -> int:
        """Kernels in the shard; 0 for records of whole programs."""
        return self._table.batch.num_rows if self.record.row else 0

    @property
    def num_configs(self) -> int:
        """Measured decisions in the shard, of all kernels together."""
        return len(self._view(self.record.runtime).values)

    def verify(self) -> None:
        """Checks the values of all columns and compares them with their digests.

        Raises:
            DataError: naming the file and the column, at the first difference.
        """
        path, stamp = self.path.absolute(), stamp_of(self.path)
        if stamp is not None and _VERIFIED.get(path) == stamp:
            return
        for key in self.keys:
            expected = self._table.sha256.get(key)
            if _digest(self[key]) != expected:
                raise DataError("damaged", where=self.path, field=key, expected=f"SHA-256 {expected}")
        if stamp is not None:
            _VERIFIED[path] = stamp

    def __reduce__(self) -> tuple[object, ...]:
        return (Shard.open, (self.path,))


_VERIFIED: dict[Path, Stamp] = {}
"""Shards that this process has compared with their own digests, by path."""


def list_shards(folder: Path | str) -> tuple[Path, ...]:
    """Returns the shards in a folder and below, sorted by path, without files that are still being written.

    Raises:
        DataError: if the folder does not exist.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError("no such folder", where=folder, expected="a folder of shards")
    return tuple(
        sorted(path for path in folder.rglob(f"*{SUFFIX}") if path.is_file() and path.name[0] != ".")
    )


def _read_table(path: Path) -> _Table:
    """Maps a file and checks everything except its columns' offsets and values."""
    file = _mapped(path)
    try:
        opened = open_arrow(file)
        facts = _read_facts(opened.schema, path)
        record = _record_type(facts, path)
        _check_schema(opened.schema, arrow_schema(record), path)
        batch = opened.read(max_bytes=0)
    except DataError as error:
        raise error.recast(DataError, where=path) from error
    except UNREADABLE as error:
        problem = f"truncated or damaged: {one_line(error)}"
        raise DataError(problem, where=path, expected="an Arrow IPC file") from error
    if not record.row and batch.num_rows != 1:
        raise DataError(f"{batch.num_rows} rows", where=path, expected="one")
    return _Table(record, facts["metadata"], facts["sha256"], opened.schema, batch, file)


def _mapped(path: Path) -> pa.Buffer:
    """Memory-maps a file."""
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise DataError(f"cannot read: {error.strerror}", where=path, expected="a shard") from error
    begin = bytes(mapped[: len(MAGIC)])
    if begin.startswith(_OLD_MAGIC):
        raise DataError("is a shard of an older format", where=path, expected=f"an Arrow file; {_AGAIN}")
    if begin != MAGIC[: len(begin)]:
        raise DataError("is no shard", where=path, expected="an Arrow IPC file")
    return pa.py_buffer(mapped)


def _read_facts(schema: pa.Schema, path: Path) -> dict[str, Any]:
    metadata = schema.metadata or {}
    text = metadata.get(_FACTS)
    if text is None:
        raise DataError("is an Arrow file, but no shard", where=path, expected="`costbench` in its metadata")
    if hashlib.sha256(text).hexdigest().encode() != metadata.get(_FACTS_DIGEST):
        raise DataError("truncated or damaged", where=path, field="metadata", expected="its SHA-256")
    facts = json.loads(text)
    if not isinstance(facts, dict) or not facts.keys() >= _KEYS or not isinstance(facts["metadata"], dict):
        keys = ", ".join(sorted(_KEYS))
        raise DataError("are not those of a shard", where=path, field="metadata", expected=f"the keys {keys}")
    return facts


def _record_type(facts: Mapping[str, Any], path: Path) -> RecordType:
    record = RECORD_TYPES.get(facts["record"])
    if record is None or facts["version"] != record.version:
        versions = ", ".join(f"{r.name} {r.version}" for r in RECORD_TYPES.values())
        raise DataError(
            f"{facts['record']} records of version {facts['version']}",
            where=path,
            expected=f"{versions}; {_AGAIN}",
        )
    return record


def _check_schema(schema: pa.Schema, expected: pa.Schema, path: Path) -> None:
    """Raises DataError unless the columns are the record type's, in its order."""
    if schema.equals(expected, check_metadata=False):
        return
    if schema.names != expected.names:
        raise DataError(f"columns {', '.join(schema.names)}", where=path, expected=", ".join(expected.names))
    for stored, field in zip(schema, expected, strict=True):
        if not stored.equals(field):
            null = "" if stored.nullable == field.nullable else " that may be null"
            raise DataError(
                f"has type {stored.type}{null}", where=path, field=field.name, expected=str(field.type)
            )


def _read_aside(stored: StoredColumn, schema: pa.Schema) -> AnyArray:
    """Returns a column that is stored in the schema's metadata."""
    column = stored.column
    try:
        raw = bytes.fromhex(schema.metadata[_aside(stored)].decode("ascii"))
        shape = tuple(int(size) for size in column.shape[1:])
        return np.frombuffer(raw, column.dtype).reshape(-1, *shape)
    except (KeyError, ValueError) as error:
        raise DataError("missing or damaged", expected="hexadecimal digits in the metadata") from error


@contextmanager
def _named(path: Path, key: str) -> Iterator[None]:
    """Adds the file and the column to errors that name neither."""
    try:
        yield
    except DataError as error:
        raise error.recast(DataError, where=path, field=key) from error
