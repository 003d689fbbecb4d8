"""Parquet files with a row group for each program, so that they are written and read a program at a time.

The digest of such a file is of its values, not of its bytes, which differ between versions of the writer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from costbench.artifacts import atomic_path
from costbench.errors import DataError, one_line
from costbench.limits import MAX_FILE_BYTES

_LEVEL = 9


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
def table_writers(folder: Path, names: tuple[str, ...]) -> Iterator[Mapping[str, TableWriter]]:
    """Yields a writer for each file `NAME.parquet` of a folder; they appear when all are complete.

    Raises:
        DataError: naming the file, if it cannot be written.
    """
    if not names:
        yield {}
        return
    name, *others = names
    with (
        atomic_path(folder / f"{name}.parquet") as path,
        table_writers(folder, tuple(others)) as writers,
    ):
        writer = TableWriter(path)
        try:
            yield {name: writer, **writers}
        finally:
            writer.close()


def open_table(path: Path) -> pq.ParquetFile:
    """Opens a Parquet file.

    Raises:
        DataError: if it is missing or damaged.
    """
    try:
        return pq.ParquetFile(path, memory_map=True)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"cannot be read: {one_line(error)}", where=path, expected="a Parquet file"
        ) from error


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
    try:
        return file.read_row_group(number, columns=None if columns is None else list(columns))
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"cannot be read: {one_line(error)}", where=path, expected="a Parquet file"
        ) from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        problem = f"cannot be read: {one_line(error)}"
        raise DataError(problem, where=path, expected="a Parquet file") from error


def _values(array: Any) -> Iterator[bytes]:
    """Yields the values of an array as bytes that say it whole."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_list(array.type):
        yield np.asarray(array.value_lengths()).astype(np.int64).tobytes()
        yield from _values(array.flatten())
    elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        yield "\n".join(array.to_pylist()).encode()
    else:
        # Of objects there would be addresses.
        assert pa.types.is_primitive(array.type), array.type
        yield np.ascontiguousarray(array.to_numpy(zero_copy_only=False)).tobytes()
