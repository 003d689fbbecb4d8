"""Reads Arrow files of one record batch, whose size is known before memory is taken.

An Arrow IPC file is a stream of messages between two magic words: the schema, then record batches. A message
may hold compressed buffers, each of which begins with its length when it is not, and Arrow takes that much
memory before it looks at a byte. So the messages are read one by one, as they come in the file, and the
lengths of a batch are added up first. The header of a message is a flatbuffer, whose form Arrow has checked
when it hands it out (https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from costbench.errors import DataError
from costbench.limits import max_expanded_bytes

MAGIC = b"ARROW1\0\0"
UNREADABLE = (
    *(pa.ArrowException, OSError, ValueError, MemoryError, KeyError, TypeError, RecursionError),
    *(StopIteration, struct.error),
)
"""Exceptions of damaged files, and of files that are no Arrow."""
_HEADER, _BUFFERS, _COMPRESSION = 2, 2, 3
"""Numbers of fields in the tables `Message` and `RecordBatch` of Arrow's format."""
_NOT_COMPRESSED = -1


class ArrowFile(NamedTuple):
    """The messages of a file.

    Attributes:
        schema: schema with its metadata.
        batch: message of the record batch.
        size: bytes of the file.
    """

    schema: pa.Schema
    batch: pa.Message
    size: int

    def read(self, max_bytes: int | None = None) -> pa.RecordBatch:
        """Returns the record batch; what is not compressed is not copied.

        Args:
            max_bytes: bytes that compressed buffers may have when they are not, all together; None for
                `limits.max_expanded_bytes` of the file's.

        Raises:
            DataError: if that is more.
            Exception: one of `UNREADABLE` for a damaged message.
        """
        expanded, limit = _expanded_bytes(self.batch), max_bytes
        limit = max_expanded_bytes(self.size) if limit is None else limit
        if expanded > limit:
            problem = f"{expanded} bytes in {self.size} compressed ones"
            raise DataError(
                problem, expected=f"at most {limit}" if limit else "values that are not compressed"
            )
        batch = pa.ipc.read_record_batch(self.batch, self.schema)
        batch.validate()
        return batch


def open_arrow(file: pa.Buffer) -> ArrowFile:
    """Returns schema and record batch of a file with no other messages, and reads neither.

    Args:
        file: bytes of the file.

    Raises:
        DataError: for several record batches, or dictionaries.
        Exception: one of `UNREADABLE` for a damaged file, or one that is no Arrow.
    """
    count = pa.ipc.open_file(file).num_record_batches  # as the end of the file says, which may be cut off
    if count != 1:
        raise DataError(f"{count} record batches", expected="one")
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(file.slice(len(MAGIC))))
    schema = pa.ipc.read_schema(messages.read_next_message())
    batch = messages.read_next_message()
    if batch.type != "record batch":
        raise DataError(f"a message of the kind {batch.type}", expected="a record batch")
    return ArrowFile(schema, batch, file.size)


def _expanded_bytes(batch: pa.Message) -> int:
    """Returns the bytes of the compressed buffers of a record batch, when they are not."""
    header = bytes(batch.metadata)
    field = _table(header, _target(header, _table(header, _target(header, 0))(_HEADER)))
    if not field(_COMPRESSION):
        return 0
    vector = _target(header, field(_BUFFERS))
    (count,) = struct.unpack_from("<I", header, vector)
    buffers = struct.iter_unpack("<qq", header[vector + 4 : vector + 4 + 16 * count])
    lengths = [struct.unpack_from("<q", batch.body, offset)[0] for offset, length in buffers if length]
    if any(length < _NOT_COMPRESSED for length in lengths):
        raise ValueError("negative lengths of buffers")
    return sum(length for length in lengths if length != _NOT_COMPRESSED)


def _table(data: bytes, position: int) -> Callable[[int], int]:
    """Returns a function from the number of a field to its position in a flatbuffer, 0 if it is absent."""
    (back,) = struct.unpack_from("<i", data, position)
    vtable = position - back
    (size,) = struct.unpack_from("<H", data, vtable)

    def field(number: int) -> int:
        entry = 4 + 2 * number
        offset = struct.unpack_from("<H", data, vtable + entry)[0] if entry < size else 0
        return position + int(offset) if offset else 0

    return field


def _target(data: bytes, position: int) -> int:
    """Returns the position that an offset at a position leads to."""
    return position + int(struct.unpack_from("<I", data, position)[0])
