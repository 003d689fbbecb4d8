"""Describes the columns of a shard by record types, and checks columns before they are stored or used.

The columns themselves are in `record_types.csv`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costbench.arrays import F32, I16, I64, U8, AnyArray
from costbench.errors import DataError


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        key: name of the column.
        dtype: type of the values in NumPy's notation, little-endian.
        shape: sizes by letter: equal letters are equal sizes, `k+1` is one more, digits are themselves.
        unit: unit of the values; empty for numbers without one.
        meaning: description of a value.
        minimum: smallest valid value; None for no limit.
        offsets_into: key of the column that an offsets column divides into parts; None for other columns.
    """

    key: str
    dtype: str
    shape: tuple[str, ...]
    unit: str
    meaning: str
    minimum: int | None = None
    offsets_into: str | None = None


@dataclass(frozen=True, eq=False, slots=True)
class RecordType:
    """A kind of shard; instances are equal only by identity.

    Attributes:
        name: name of the task whose samples it holds, or of the kind of inputs of models.
        version: version of the columns, raised when they change; shards of another one are refused.
        columns: columns in the order in which they are stored.
        runtime: key of the column that has one entry for each measured decision; empty without decisions.
        row: shape letter of what a row of the table is (`arrow_tables`); empty if the shard is one row.
    """

    name: str
    version: int
    columns: tuple[Column, ...]
    runtime: str
    row: str

    def column(self, key: str) -> Column:
        """Returns the column called `key`.

        Raises:
            DataError: naming the columns, if it does not exist.
        """
        for column in self.columns:
            if column.key == key:
                return column
        keys = ", ".join(column.key for column in self.columns)
        raise DataError(f"{self.name} records have no column {key!r}", expected=f"one of {keys}")


def check_columns(record: RecordType, columns: Mapping[str, AnyArray], where: Path | str) -> None:
    """Checks that columns are complete and valid before they are stored.

    Raises:
        DataError: naming the column, if one is missing, unknown, of another type or shape, holds NaN, an
            infinity or a value below its minimum, or if offsets do not delimit their column.
    """
    for key in columns:
        record.column(key)
    for column in record.columns:
        if column.key not in columns:
            raise DataError("missing", where=where, field=column.key, expected=column.meaning)
        check_dtype(column, columns[column.key], where)
    sizes: dict[str, int] = {}
    for column in record.columns:
        check_shape(column, columns[column.key].shape, sizes, where)
    for column in record.columns:
        check_values(column, columns[column.key], where)
        if column.offsets_into is not None:
            check_offsets(column, columns[column.key], len(columns[column.offsets_into]), where)


def check_dtype(column: Column, array: AnyArray, where: Path | str) -> None:
    """Raises DataError unless the array has exactly the column's type."""
    if array.dtype == np.dtype(column.dtype):
        return
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array.astype(np.float64)).all():
        raise DataError("holds NaN or infinity", where=where, field=column.key, expected="whole numbers")
    raise DataError(
        f"has type {array.dtype}", where=where, field=column.key, expected=str(np.dtype(column.dtype))
    )


def check_shape(column: Column, shape: tuple[int, ...], sizes: dict[str, int], where: Path | str) -> None:
    """Checks the shape of a column against the known sizes, and adds new sizes to them.

    Args:
        column: description of the column.
        shape: shape of its array.
        sizes: sizes of the columns before, by letter; changed.
        where: file that errors name.

    Raises:
        DataError: unless equal letters have equal sizes.
    """
    if len(shape) != len(column.shape):
        raise DataError(
            f"has {len(shape)} dimensions",
            where=where,
            field=column.key,
            expected=f"[{', '.join(column.shape)}]",
        )
    for size, text in zip(shape, column.shape, strict=True):
        letter, plus = text.removesuffix("+1"), int(text.endswith("+1"))
        expected = int(letter) if letter.isdigit() else sizes.setdefault(letter, size - plus)
        if size != expected + plus:
            raise DataError(
                f"has {size} entries", where=where, field=column.key, expected=f"{expected + plus}"
            )


def check_values(column: Column, array: AnyArray, where: Path | str) -> None:
    """Raises DataError if a value is NaN, infinite or below the column's minimum, such as a zero runtime."""
    if array.size == 0:
        return
    # NaN is the least and the greatest value of an array that holds one; nothing of its size is made.
    if array.dtype.kind == "f" and not np.isfinite([array.min(), array.max()]).all():
        index = int(np.flatnonzero(~np.isfinite(array))[0])
        raise _bad_value(column, array, index, where, "a finite number")
    if column.minimum is not None and array.min() < column.minimum:
        expected = f"{column.minimum} or more{' ' * bool(column.unit)}{column.unit}"
        raise _bad_value(column, array, int(array.argmin()), where, expected)


def _bad_value(column: Column, array: AnyArray, index: int, where: Path | str, expected: str) -> DataError:
    """Returns the error of a value, by its index in the flattened array."""
    entry = ", ".join(str(int(i)) for i in np.unravel_index(index, array.shape))
    return DataError(
        f"entry {entry} is {array.flat[index]}", where=where, field=column.key, expected=expected
    )


def check_offsets(column: Column, array: AnyArray, length: int, where: Path | str) -> None:
    """Raises DataError unless offsets run from 0 to the length of their column and never decrease."""
    if array.size == 0 or int(array[0]) != 0 or int(array[-1]) != length or (array[1:] < array[:-1]).any():
        raise DataError(
            "do not delimit their column",
            where=where,
            field=column.key,
            expected=f"ascending from 0 to {length}, the length of {column.offsets_into}",
        )


def digests_of(fingerprints: Sequence[str]) -> U8:
    """Returns fingerprints of 32 hexadecimal digits as bytes, uint8 [k, 16]."""
    return np.frombuffer(bytes.fromhex("".join(fingerprints)), dtype=np.uint8).reshape(-1, 16)


def offsets_of(lengths: Iterable[int]) -> I64:
    """Returns where lists of these lengths begin, laid end to end, and where the last ends, int64 [k + 1]."""
    return np.concatenate([[0], np.cumsum(list(lengths), dtype=np.int64)]).astype(np.int64)


def equal_rows(opcodes: I16, features: F32) -> tuple[I64, I64]:
    """Returns the indices of distinct rows, and for each row which of these it equals."""
    rows = np.concatenate([opcodes.view(np.uint8).reshape(-1, 2), features.view(np.uint8)], axis=1)
    _, first, inverse = np.unique(
        rows.view(f"V{rows.shape[1]}").ravel(), return_index=True, return_inverse=True
    )
    return first, inverse


def number_by_first_use(node_row: I64, node_offsets: I64) -> tuple[I64, I64, I64]:
    """Renumbers feature rows, each of which some node has, by the first node that has them.

    Args:
        node_row: row of each node, int64 [n].
        node_offsets: where each kernel's nodes begin and end, int64 [k + 1].

    Returns:
        Old numbers of the rows in their new order, int64 [r]; where the rows begin and end that each kernel
        is the first to have, int64 [k + 1]; new row of each node, int64 [n].
    """
    _, first_node = np.unique(node_row, return_index=True)
    order = np.argsort(first_node)
    new_number = np.argsort(order)
    return order, np.searchsorted(first_node[order], node_offsets).astype(np.int64), new_number[node_row]
