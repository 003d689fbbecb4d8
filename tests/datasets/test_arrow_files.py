"""Arrow files: their sizes are known before memory is taken, whatever a file says of itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from costbench.datasets.arrow_files import UNREADABLE, open_arrow
from costbench.errors import DataError
from costbench.limits import MIN_EXPANDED_BYTES

TABLE = pa.table({"a": pa.array(range(1000)), "b": pa.array(["x", "yz"] * 500)})


def arrow_bytes(table: pa.Table, compression: str | None, *batches: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        for batch in batches or table.combine_chunks().to_batches():
            writer.write_batch(batch)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_it_is_what_was_written(compression: str | None) -> None:
    file = pa.py_buffer(arrow_bytes(TABLE, compression))
    assert pa.Table.from_batches([open_arrow(file).read()]).equals(TABLE)


def test_what_is_not_compressed_is_not_copied() -> None:
    file = pa.py_buffer(arrow_bytes(TABLE, None))
    values = open_arrow(file).read(max_bytes=0).column("a").buffers()[1]
    assert file.address <= values.address < file.address + file.size


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_much_in_few_bytes_is_refused_before_it_is_unpacked(compression: str) -> None:
    zeros = pa.table({"a": np.zeros(1 << 24, np.int64)})
    data = arrow_bytes(zeros, compression)
    assert len(data) < MIN_EXPANDED_BYTES // 100
    before = pa.total_allocated_bytes()
    with pytest.raises(
        DataError, match=rf"{zeros.nbytes} bytes in {len(data)} compressed ones \(expected at"
    ):
        open_arrow(pa.py_buffer(data)).read()
    assert pa.total_allocated_bytes() == before


def test_other_messages_are_refused() -> None:
    (batch,) = TABLE.combine_chunks().to_batches()
    with pytest.raises(DataError, match="2 record batches"):
        open_arrow(pa.py_buffer(arrow_bytes(TABLE, None, batch, batch)))
    words = pa.table({"a": TABLE["b"].combine_chunks().dictionary_encode()})
    with pytest.raises(DataError, match="a message of the kind dictionary"):
        open_arrow(pa.py_buffer(arrow_bytes(words, None)))


def test_any_changed_byte_ends_in_an_error_or_a_batch() -> None:
    whole = arrow_bytes(TABLE.slice(0, 4), "zstd")
    outcomes = set()
    for position in range(len(whole)):
        for value in (0, 0x7F, 0xFF):
            data = whole[:position] + bytes([value]) + whole[position + 1 :]
            try:
                outcomes.add(type(open_arrow(pa.py_buffer(data)).read()).__name__)
            except (DataError, *UNREADABLE):
                outcomes.add("refused")
    assert outcomes == {"RecordBatch", "refused"}
