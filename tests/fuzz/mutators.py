"""Seeded changes to messages, bytes and text: one small thing is wrong with what comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from costbench.hlo.opcode import Opcode

_INTEGERS = (-(1 << 63), -1, 0, 1, 2, 3, 7, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1)
_OPCODES = [opcode.xla_name for opcode in Opcode]
_SIZES = {FieldDescriptor.TYPE_INT32: 32, FieldDescriptor.TYPE_ENUM: 32, FieldDescriptor.TYPE_UINT32: 32}
_UNSIGNED = {FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64}
_WHOLE = {
    FieldDescriptor.TYPE_INT32,
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT32,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_ENUM,
}
Place = tuple[Any, FieldDescriptor]


def mutated_message(message: Message, rng: np.random.Generator, changes: int = 1) -> Message:
    """Returns a copy of a message with fields changed: ids, dimension numbers, shapes, opcodes, operands.

    A number becomes another of its kind in the message or an extreme; members of a repeated field are
    dropped, doubled, swapped or added; a message or flag is cleared or set.
    """
    copy = type(message)()
    copy.CopyFrom(message)
    for _ in range(changes):
        places = list(_places(copy))
        owner, field = places[int(rng.integers(len(places)))]
        _change(owner, field, rng, places)
    return copy


def _places(message: Any) -> Iterator[Place]:
    for field, value in message.ListFields():
        yield message, field
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for member in value if _repeated(field) else (value,):
                yield from _places(member)


def _repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _change(owner: Any, field: FieldDescriptor, rng: np.random.Generator, places: Sequence[Place]) -> None:
    value = getattr(owner, field.name)
    if _repeated(field):
        _change_members(value, field, rng, places)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        owner.ClearField(field.name)
    else:
        setattr(owner, field.name, _scalar(field, value, rng, places))


def _change_members(
    members: Any, field: FieldDescriptor, rng: np.random.Generator, places: Sequence[Place]
) -> None:
    kept = list(members)
    first, second = (int(i) for i in rng.integers(len(kept), size=2))
    match int(rng.integers(5)):
        case 0:
            kept.pop(first)
        case 1:
            kept.insert(first, kept[second])
        case 2:
            kept[first], kept[second] = kept[second], kept[first]
        case 3 if field.type != FieldDescriptor.TYPE_MESSAGE:
            kept[first] = _scalar(field, kept[first], rng, places)
        case _:
            kept = kept[: first + 1]
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        copies = [type(member).FromString(member.SerializeToString()) for member in kept]
        del members[:]
        members.extend(copies)
    else:
        members[:] = kept


def _scalar(field: FieldDescriptor, value: Any, rng: np.random.Generator, places: Sequence[Place]) -> Any:
    if field.type in _WHOLE:
        bits, unsigned = _SIZES.get(field.type, 64), field.type in _UNSIGNED
        low, high = (0, 1 << bits) if unsigned else (-(1 << (bits - 1)), 1 << (bits - 1))
        near = (value - 1, value + 1, value * 2, *_INTEGERS, *_values(field, places))
        chosen = near[int(rng.integers(len(near)))]
        return int(min(max(chosen, low), high - 1))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return not value
    if field.type == FieldDescriptor.TYPE_STRING:
        known = _OPCODES if field.name == "opcode" else ["", "x", value * 2]
        return known[int(rng.integers(len(known)))]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return mutated_bytes(value, rng) if value else b"\xff"
    return float(rng.choice([0.0, -1.0, np.inf, np.nan]))


def _values(field: FieldDescriptor, places: Sequence[Place]) -> list[int]:
    """Some numbers that the same field has elsewhere."""
    found = [
        getattr(owner, other.name) for owner, other in places if other is field or other.name == field.name
    ]
    flat = [n for value in found for n in (value if not isinstance(value, int) else [value])]
    return [n for n in flat if isinstance(n, int)][:64]


def mutated_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """Returns bytes with one of them changed, or a stretch dropped, doubled or cut off."""
    first, second = sorted(int(i) for i in rng.integers(len(data) + 1, size=2))
    match int(rng.integers(5)):
        case 0:
            return data[:first]
        case 1:
            return data[:first] + data[second:]
        case 2:
            return data[:second] + data[first:]
        case 3:
            return data[:first] + rng.bytes(min(8, max(1, second - first))) + data[second:]
        case _:
            place = min(first, len(data) - 1)
            return data[:place] + bytes([int(rng.integers(256))]) + data[place + 1 :]


_JSON_VALUES: tuple[object, ...] = (
    *(-1, 0, 1 << 20, 1 << 40, 10**39, 1e300, -0.5, True, None, "", "x", [], {}, [[]], {"": 0}),
)


def mutated_json(value: object, rng: np.random.Generator) -> object:
    """Returns a JSON value in which one value is dropped, doubled or another."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = sorted(value)[int(rng.integers(len(value)))]
        if rng.random() < 0.1:
            return {name: inner for name, inner in value.items() if name != key}
        return {**value, key: mutated_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        index = int(rng.integers(len(value)))
        match int(rng.integers(8)):
            case 0:
                return value[:index] + value[index + 1 :]
            case 1:
                return [*value, value[index]]
            case _:
                return [*value[:index], mutated_json(value[index], rng), *value[index + 1 :]]
    return _JSON_VALUES[int(rng.integers(len(_JSON_VALUES)))]


def mutated_text(text: str, rng: np.random.Generator, words: Sequence[str]) -> str:
    """Returns text with a line or a stretch dropped, doubled or moved, or a word put in."""
    lines = text.splitlines(keepends=True)
    first, second = (int(i) for i in rng.integers(len(lines), size=2))
    match int(rng.integers(6)):
        case 0:
            lines.pop(first)
        case 1:
            lines.insert(first, lines[second])
        case 2:
            lines[first], lines[second] = lines[second], lines[first]
        case 3:
            line = lines[first]
            place = int(rng.integers(len(line) + 1))
            lines[first] = line[:place] + words[int(rng.integers(len(words)))] + line[place:]
        case 4:
            start, end = sorted(int(i) for i in rng.integers(len(text) + 1, size=2))
            return text[:start] + text[min(end, start + 12) :]
        case _:
            return text[: int(rng.integers(len(text) + 1))]
    return "".join(lines)
