"""Reads Parquet files of anyone, whose size in memory is bounded while they are read.

A text that is stored once may stand in a million rows, pages of zeros shrink a thousandfold, and runs of
equal values take no bytes at all. So what the file says of itself is compared first; then rows are read in
batches, in which texts stay numbers of their values, and the bytes that they will have are counted.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from costbench.errors import DataError, one_line
from costbench.limits import max_expanded_bytes

_BATCH = 1 << 12


def read_parquet(data: bytes) -> pa.Table:
    """Returns a Parquet file as a table of flat columns, or lists of numbers or of bytes of equal length.

    Args:
        data: bytes of the file.

    Raises:
        DataError: if it is no Parquet, has other columns, or more than `limits.max_expanded_bytes`.
    """
    try:
        return _read(data)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise DataError(f"no Parquet: {one_line(error)}", expected="a table in Parquet") from error


def _read(data: bytes) -> pa.Table:
    schema = pq.ParquetFile(pa.BufferReader(data)).schema_arrow
    for field in schema:
        if not _is_bounded(field.type):
            raise DataError(f"has type {field.type}", field=field.name, expected="numbers, texts, flat lists")
    texts = [field.name for field in schema if _is_text(field.type)]
    file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts)
    groups, limit = range(file.metadata.num_row_groups), max_expanded_bytes(len(data))
    expanded = sum(file.metadata.row_group(group).total_byte_size for group in groups)
    batches, total = [], 0
    for batch in file.iter_batches(_BATCH) if expanded <= limit else ():
        total += sum(map(_plain_bytes, batch.columns))
        if total > limit:
            break
        batches.append(batch)
    if max(expanded, total) > limit:
        raise DataError(f"{max(expanded, total)} bytes in {len(data)}", expected=f"at most {limit}")
    return pa.Table.from_batches(batches, file.schema_arrow).cast(schema)


def _is_bounded(kind: pa.DataType) -> bool:
    """Returns whether a value of a type has a few bytes, or is a text, which is counted."""
    is_list = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)
    inner = kind.value_type if is_list else kind
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_fixed_size_binary)
    return any(test(inner) for test in tests) or _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def _plain_bytes(column: pa.Array) -> int:
    """Returns the bytes of a column whose values each stand for themselves."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary).cast(pa.int64())
    return 4 * len(column) + int(pc.sum(lengths.take(column.indices)).as_py() or 0)
