"""Maps the columns of a record type to one Arrow table, and the table's columns back to NumPy arrays.

A shard is one table of one record batch. A row stands for what is decided about, a kernel or (layout) the
program; what a row has many of, such as measured decisions, is a list column:

    arrays of the record type                        column of the table
    kernel_runs          int64 [k]                   kernel_runs: int64
    kernel_ranks         int32 [k, 2]                kernel_ranks: fixed_size_list<int32>[2]
    kernel_fingerprint   uint8 [k, 16]               kernel_fingerprint: fixed_size_binary[16]
    config_runtime_ns    int64 [c]                   config_runtime_ns: large_list<int64>,
    config_offsets       int64 [k + 1]                 whose offsets are config_offsets

Arrow stores a list column as the values of all rows end to end and the offsets of the rows, which are exactly
the arrays of the record type, so nothing is copied when writing or reading. Columns whose lists are equally
long share one array of offsets in memory and have one each in the file. There are no nulls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from costbench.arrays import AnyArray
from costbench.datasets.records import Column, RecordType
from costbench.errors import DataError

_ALL = ""
"""Level of the single list in a table with one row, which needs no offsets."""


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """How one column of a record type is stored.

    Attributes:
        column: description of the column.
        levels: offsets columns of the nested lists that hold its values, outermost first; empty for one value
            per row.
        field: field in the schema, with `unit` and `meaning` as metadata; None for a column that does not
            belong to the rows and is stored in the metadata of the schema, as hexadecimal digits.
        dtype: type of the values.
        fixed: trailing sizes of an entry that are the same in all files, written as numbers in the shape.
        varies: whether entries are lists whose length is constant within a file but differs between files.
    """

    column: Column
    levels: tuple[str, ...]
    field: pa.Field | None
    dtype: np.dtype[np.generic]
    fixed: tuple[int, ...]
    varies: bool


@cache
def stored_columns(record: RecordType) -> tuple[StoredColumn, ...]:
    """Returns how the columns of a record type are stored, offsets columns excluded."""
    descriptions = []
    for column in record.columns:
        if column.offsets_into is None:
            levels = _levels(record, column.shape[0])
            metadata = {"unit": column.unit, "meaning": column.meaning}
            field = None
            if levels is not None:
                field = pa.field(column.key, _arrow_type(column, levels), nullable=False, metadata=metadata)
            fixed = tuple(int(size) for size in column.shape[1:] if size.isdigit())
            varies = len(fixed) + 1 < len(column.shape)
            descriptions.append(
                StoredColumn(column, levels or (), field, np.dtype(column.dtype), fixed, varies)
            )
    return tuple(descriptions)


@cache
def stored_column(record: RecordType, key: str) -> StoredColumn:
    """Returns how column `key` is stored. Raises: KeyError, if it is an offsets column or does not exist."""
    return {stored.column.key: stored for stored in stored_columns(record)}[key]


@cache
def arrow_schema(record: RecordType) -> pa.Schema:
    """Returns the schema of a record type's tables, without the metadata of a shard."""
    return pa.schema([stored.field for stored in stored_columns(record) if stored.field is not None])


def _levels(record: RecordType, letter: str) -> tuple[str, ...] | None:
    """Returns the offsets columns from a row to entries counted by `letter`; None if there are none."""
    if letter == record.row:
        return ()
    for column in record.columns:
        if column.offsets_into is not None and record.column(column.offsets_into).shape[0] == letter:
            outer = _levels(record, column.shape[0].removesuffix("+1"))
            return None if outer is None else (*outer, column.key)
    return None if record.row else (_ALL,)


def _is_binary(column: Column) -> bool:
    return column.dtype == "|u1" and column.unit == "bytes"


def _arrow_type(column: Column, levels: tuple[str, ...]) -> pa.DataType:
    arrow_type = pa.from_numpy_dtype(np.dtype(column.dtype))
    if _is_binary(column):
        return pa.large_binary()
    for size in reversed(column.shape[1:]):
        if not size.isdigit():
            arrow_type = pa.large_list(_item(arrow_type))
        elif column.dtype == "|u1":
            arrow_type = pa.binary(int(size))
        else:
            arrow_type = pa.list_(_item(arrow_type), int(size))
    for _ in levels:
        arrow_type = pa.large_list(_item(arrow_type))
    return arrow_type


def _item(arrow_type: pa.DataType) -> pa.Field:
    return pa.field("item", arrow_type, nullable=False)


def arrow_batch(record: RecordType, columns: Mapping[str, AnyArray], schema: pa.Schema) -> pa.RecordBatch:
    """Returns the record batch of a shard, whose buffers are the arrays, without copies.

    Args:
        record: record type of the shard.
        columns: all columns of the record type, contiguous and checked (`records.check_columns`).
        schema: schema of the record type, with any metadata.
    """
    stored = [stored for stored in stored_columns(record) if stored.field is not None]
    return pa.RecordBatch.from_arrays([_arrow_array(column, columns) for column in stored], schema=schema)


def _arrow_array(stored: StoredColumn, columns: Mapping[str, AnyArray]) -> pa.Array:
    values = columns[stored.column.key]
    offsets = _all_offsets(stored, values, columns)
    assert stored.field is not None
    return _nested(stored.field.type, offsets, _buffer(values), values.size)


def _all_offsets(stored: StoredColumn, values: AnyArray, columns: Mapping[str, AnyArray]) -> list[AnyArray]:
    """Returns the offsets of the nested lists that hold a column's values, outermost first."""
    offsets = [columns[key] for key in stored.levels if key != _ALL]
    if stored.varies:
        offsets.append(_offsets(len(values), values.shape[1]))
    if _ALL in stored.levels:
        offsets.insert(0, _offsets(1, len(offsets[0]) - 1 if offsets else len(values)))
    return offsets


def _nested(arrow_type: pa.DataType, offsets: list[AnyArray], values: pa.Buffer, size: int) -> pa.Array:
    """Returns an Arrow array of nested lists, given by their offsets, outermost first, over `size` values."""
    if pa.types.is_large_binary(arrow_type):
        return pa.Array.from_buffers(arrow_type, 1, [None, _buffer(offsets[0]), values])
    if pa.types.is_large_list(arrow_type):
        child = _nested(arrow_type.value_type, offsets[1:], values, size)
        buffers = [None, _buffer(offsets[0])]
        return pa.Array.from_buffers(arrow_type, len(offsets[0]) - 1, buffers, children=[child])
    if pa.types.is_fixed_size_list(arrow_type):
        child = _nested(arrow_type.value_type, offsets, values, size)
        return pa.Array.from_buffers(arrow_type, size // arrow_type.list_size, [None], children=[child])
    width = arrow_type.byte_width if pa.types.is_fixed_size_binary(arrow_type) else 1
    return pa.Array.from_buffers(arrow_type, size // width, [None, values])


def _offsets(count: int, length: int) -> AnyArray:
    """Returns the offsets of `count` lists of equal length, int64 [count + 1]."""
    return np.arange(count + 1, dtype=np.int64) * length


def _buffer(array: AnyArray) -> pa.Buffer:
    return pa.py_buffer(array.reshape(-1).view(np.uint8))


@dataclass(frozen=True, slots=True)
class ArrayViews:
    """A stored column as NumPy views of the file's buffers.

    Attributes:
        values: values in the shape of the record type's column.
        offsets: offsets of its lists in the order of `StoredColumn.levels`; one more where their length
            varies.
    """

    values: AnyArray
    offsets: tuple[AnyArray, ...]


def array_views(stored: StoredColumn, array: pa.Array, file: pa.Buffer) -> ArrayViews:
    """Returns views of a table's column without copying.

    Args:
        stored: description of how the column is stored.
        array: column of the table; its type is that of `stored`.
        file: bytes of the file, in which all views lie.

    Raises:
        DataError: if it holds nulls, is compressed, or has too few bytes for its length. Whether offsets
            ascend is not checked here.
    """
    if array.offset:
        raise DataError("is a part of a column", expected="all of it")
    # Each list has two buffers, validity and offsets; then come the validity of the values, and the values.
    buffers = array.buffers()
    num_lists = len(stored.levels) + stored.varies
    if any(
        validity is not None for validity in (*buffers[: 2 * num_lists : 2], *buffers[2 * num_lists : -1])
    ):
        raise DataError("holds nulls", expected="none")
    offsets: list[AnyArray] = []
    outer = count = len(array)
    for buffer in buffers[1 : 2 * num_lists : 2]:
        offsets.append(_view(buffer, _OFFSET, count + 1, file))
        outer, count = count, int(offsets[-1][-1])
        if not pa.types.is_large_binary(array.type):
            array = array.values
            if len(array) != count:
                raise DataError(f"has lists of {count} values", expected=f"{len(array)}")
    values = _view(buffers[-1], stored.dtype, count * math.prod(stored.fixed), file)
    if not stored.varies:
        return ArrayViews(values.reshape(-1, *stored.fixed), tuple(offsets))
    if count % max(outer, 1):
        raise DataError("has lists of different lengths", expected="equal lengths")
    return ArrayViews(values.reshape(outer, count // max(outer, 1)), tuple(offsets))


def _view(buffer: pa.Buffer | None, dtype: np.dtype[np.generic], count: int, file: pa.Buffer) -> AnyArray:
    if count == 0:
        return _EMPTY.view(dtype)
    if count < 0 or buffer is None or buffer.size < count * dtype.itemsize:
        raise DataError("is shorter than its length says", expected=f"{count} values of {dtype}")
    if not file.address <= buffer.address <= file.address + file.size - buffer.size:
        raise DataError("is compressed", expected="values as they are")
    return np.frombuffer(buffer, dtype, count)


_EMPTY = np.zeros(0, np.uint8)
_EMPTY.flags.writeable = False
_OFFSET = np.dtype("<i8")


def check_levels(stored: StoredColumn, views: ArrayViews, shared: Mapping[str, AnyArray]) -> None:
    """Checks that a column's own offsets are those that its record type says it shares.

    Args:
        stored: description of how the column is stored.
        views: views of the column.
        shared: offsets columns by key.

    Raises:
        DataError: if its lists differ in length from those of the columns that share the offsets.
    """
    shared_offsets = _all_offsets(stored, views.values, shared)
    for offsets, expected in zip(views.offsets, shared_offsets, strict=True):
        if not np.array_equal(offsets, expected):
            raise DataError(
                "has lists of other lengths", expected="as long as those of the columns beside it"
            )
