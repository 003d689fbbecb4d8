"""Parses protocol buffers that somebody else wrote, in which two bytes may stand for 400 bytes of memory.

An empty message within a message is a tag and a length of 0 in the file, and has all its fields in memory. So
messages are counted before they are parsed (https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from google.protobuf.message import Message

from costbench.errors import HloError
from costbench.limits import MAX_MESSAGES

_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5
_BLOCK_BYTES = 1 << 20


def parse_message(message: Message, data: bytes, *, where: str, max_messages: int = MAX_MESSAGES) -> None:
    """Parses `data` into an empty message.

    Args:
        message: message that the fields are read into.
        data: the bytes.
        where: file that they are from, for errors.
        max_messages: number of messages within it that are accepted.

    Raises:
        HloError: if there are more.
        DecodeError: if the bytes are truncated or no such message.
    """
    if _may_exceed(data, max_messages) and count_messages(message, data, max_messages) > max_messages:
        problem = f"{len(data)} bytes of more than {max_messages} messages"
        raise HloError(problem, where=where, expected=f"at most {max_messages}")
    message.ParseFromString(data)


def _may_exceed(data: bytes, max_messages: int) -> bool:
    """Returns whether enough bytes could be tags of messages: those whose last three bits say so."""
    total = 0
    for start in range(0, len(data), _BLOCK_BYTES):
        block = np.frombuffer(data, np.uint8, min(_BLOCK_BYTES, len(data) - start), start)
        total += int(np.count_nonzero((block & 7) == _LENGTH))
    return total > max_messages


@cache
def _messages_of(kind: Any) -> Mapping[int, Any]:
    """Returns the descriptors of the messages in a message by the numbers of their fields."""
    return {field.number: field.message_type for field in kind.fields if field.message_type is not None}


def count_messages(message: Message, data: bytes, limit: int) -> int:
    """Returns how many messages are within a message, at any depth; `limit` + 1 for any more than `limit`.

    Bytes that are no message end the one that they are in: the parser refuses them.

    Args:
        message: message of the kind that the bytes are.
        data: the bytes.
        limit: number beyond which nothing more is read.
    """
    count, position, end, fields = 0, 0, len(data), _messages_of(message.DESCRIPTOR)
    outer: list[tuple[int, Mapping[int, Any]]] = []
    while count <= limit:
        if position >= end:
            if not outer:
                break
            # Back to the message around, behind this one.
            position = end
            end, fields = outer.pop()
            continue
        tag, position = _read_varint(data, position, end)
        wire = tag & 7
        if wire == _VARINT:
            _, position = _read_varint(data, position, end)
        elif wire == _LENGTH:
            length, position = _read_varint(data, position, end)
            inner = fields.get(tag >> 3)
            if inner is None:
                position += length
            else:
                count += 1
                outer.append((end, fields))
                end, fields = min(position + length, end), _messages_of(inner)
        elif wire == _FIXED_64:
            position += 8
        elif wire == _FIXED_32:
            position += 4
    return count


def _read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Returns a number of seven bits a byte, and the position behind it."""
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128 or shift > 63:
            break
        shift += 7
    return value, position
