"""Parquet files with a row group for each program, so that they are written and read a program at a time.

The digest of such a file is of its values, not of its bytes, which differ between versions of the writer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from costbench.artifacts import atomic_path, open_file
from costbench.errors import DataError, one_line
from costbench.limits import MAX_FILE_BYTES

_LEVEL = 9
ColumnKinds = Mapping[str, Callable[[pa.DataType], bool]]
"""Functions that say whether a column has the right type, by name of the column."""


class TableWriter:
    """Writes the tables of programs, one row group each.

    Args:
        path: file to write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Adds the rows of a program; tables of all programs have the same columns."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path, table.schema, compression="zstd", compression_level=_LEVEL
            )
        self._writer.write_table(table, row_group_size=max(1, len(table)))

    def close(self) -> None:
        """Ends the file."""
        if self._writer is not None:
            self._writer.close()


@contextmanager
def table_writer(path: Path) -> Iterator[TableWriter]:
    """Yields a writer of a file, which appears when it is complete.

    Raises:
        DataError: naming the file, if it cannot be written.
    """
    with atomic_path(path) as temporary:
        writer = TableWriter(temporary)
        try:
            yield writer
        finally:
            writer.close()


@contextmanager
def table_writers(folder: Path, names: tuple[str, ...]) -> Iterator[Mapping[str, TableWriter]]:
    """Yields a writer for each file `NAME.parquet` of a folder; they appear when all are written.

    Raises:
        DataError: naming the file, if it cannot be written.
    """
    with ExitStack() as stack:
        yield {name: stack.enter_context(table_writer(folder / f"{name}.parquet")) for name in names}


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        problem = f"cannot be read: {one_line(error)}"
        raise DataError(problem, where=path, expected="a Parquet file") from error


def open_table(path: Path) -> pq.ParquetFile:
    """Opens a Parquet file.

    Raises:
        DataError: if it is missing, no file, or damaged.
    """
    with _reading(path), open_file(path):
        return pq.ParquetFile(path, memory_map=True)


def read_columns(path: Path, kinds: ColumnKinds, expected: str, optional: str = "") -> pa.Table:
    """Returns the rows of a file of anyone's, which has certain columns and a value in each place.

    Args:
        path: the file.
        kinds: types of the columns.
        expected: the columns in words, for errors.
        optional: name of a column that may be missing.

    Raises:
        DataError: naming the file and the column, if it has other columns or types, or empty values.
    """
    file = open_table(path)
    names = file.schema_arrow.names
    if sorted(names) != sorted(name for name in kinds if name != optional or name in names):
        raise DataError(f"columns {', '.join(names)}", where=path, expected=expected)
    for field in file.schema_arrow:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if not kinds[field.name](kind):
            raise DataError(f"is of type {field.type}", where=path, field=field.name, expected=expected)
    with _reading(path):
        table = file.read()
    for name in names:
        if empty := table.column(name).null_count:
            problem = f"{empty:,} empty values"
            raise DataError(problem, where=path, field=name, expected="a value in each row")
    return table


def is_text(kind: pa.DataType) -> bool:
    """Returns whether values of a type are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def digest_table(path: Path) -> str:
    """Returns the digest of the columns and values of a file, 64 hexadecimal digits.

    Raises:
        DataError: if it is missing or damaged.
    """
    file, digest = open_table(path), hashlib.sha256()
    schema = file.schema_arrow
    digest.update("\n".join(f"{field.name} {field.type}" for field in schema).encode())
    for group in range(file.num_row_groups):
        for column in read_program(file, group, path).columns:
            for part in _values(column.combine_chunks()):
                digest.update(part)
    return digest.hexdigest()


def read_program(
    file: pq.ParquetFile, number: int, path: Path, columns: Sequence[str] | None = None
) -> pa.Table:
    """Returns the rows of a program.

    Args:
        file: file of all programs.
        number: number of the program.
        path: path of the file, for errors.
        columns: columns to read; all for None.

    Raises:
        DataError: if the file is damaged, or lacks a column.
    """
    names = file.schema_arrow.names
    for column in columns or ():
        if column not in names:
            raise DataError("no such column", where=path, field=column, expected=", ".join(names))
    expanded = file.metadata.row_group(number).total_byte_size
    if expanded > MAX_FILE_BYTES:
        raise DataError(f"a program of {expanded} bytes", where=path, expected=f"at most {MAX_FILE_BYTES}")
    with _reading(path):
        return file.read_row_group(number, columns=None if columns is None else list(columns))


def _values(array: Any) -> Iterator[bytes]:
    """Yields the values of an array as bytes that say it whole."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_list(array.type):
        yield np.asarray(array.value_lengths()).astype(np.int64).tobytes()
        yield from _values(array.flatten())
    elif is_text(array.type):
        yield "\n".join(array.to_pylist()).encode()
    else:
        # Of objects there would be addresses.
        assert pa.types.is_primitive(array.type), array.type
        yield np.ascontiguousarray(array.to_numpy(zero_copy_only=False)).tobytes()
