"""Counts how often each computation of a program runs in one run of the program.

The entry computation runs once; a loop's body trip-count times per run of the loop, its condition once more
than that; callees once per call, every branch of a conditional once per conditional (an upper bound: which
branch is taken is not known). Where a loop has no known trip count, its bound is read off its condition: the
integer that the loop's counter is compared with, in the condition or, passed along unchanged, in the loop's
initial state. Without such an integer `unknown_trip_count` is used.
"""

from __future__ import annotations

from costbench.compiler.layout.value_classes import WHILE_BODY, WHILE_CONDITION
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType

DEFAULT_UNKNOWN_TRIP_COUNT = 100
MAX_TRIP_COUNT_BOUND = 1 << 20
"""Larger constants in a condition are no bound on iterations (a sentinel such as the largest integer)."""

KNOWN_TRIP_COUNT = 'backend_config={"known_trip_count":{"n":"N"}}'
"""How a program states the iterations of a loop, as XLA does where it could prove them."""

_ORDERED = frozenset({"LT", "LE", "GT", "GE", "NE"})


def execution_counts(
    module: HloModule, *, unknown_trip_count: int = DEFAULT_UNKNOWN_TRIP_COUNT
) -> tuple[int, ...]:
    """Returns runs of every computation per run of the program; 0 for reducers and what is never called."""
    counts = [0] * len(module.computations)
    counts[module.entry] = 1
    for index in reversed(range(len(counts))):
        if not counts[index]:
            continue
        body = module.computations[index]
        for inst in body.instructions:
            if inst.opcode is Opcode.WHILE:
                trips = trip_count(module, body, inst, unknown_trip_count=unknown_trip_count)
                counts[inst.called[WHILE_BODY]] += counts[index] * trips
                counts[inst.called[WHILE_CONDITION]] += counts[index] * (trips + 1)
            elif inst.opcode in (Opcode.CALL, Opcode.CONDITIONAL):
                for callee in inst.called:
                    counts[callee] += counts[index]
    return tuple(counts)


def assumed_trip_counts(
    module: HloModule, *, unknown_trip_count: int = DEFAULT_UNKNOWN_TRIP_COUNT
) -> dict[str, tuple[int, bool]]:
    """Returns the loops whose trip count the program does not state, by name of the instruction.

    Returns:
        iterations that are used, and whether they are a bound read off the loop's condition; where they are
        not, they are `unknown_trip_count`. Loops that never run are not listed.
    """
    loops = {}
    for count, body in zip(
        execution_counts(module, unknown_trip_count=unknown_trip_count), module.computations, strict=True
    ):
        for inst in body.instructions if count else ():
            if inst.opcode is Opcode.WHILE and inst.trip_count is None:
                bound = trip_count(module, body, inst, unknown_trip_count=0)
                loops[inst.name] = (bound or unknown_trip_count, bool(bound))
    return loops


def trip_count(
    module: HloModule, caller: HloComputation, loop: Instruction, *, unknown_trip_count: int
) -> int:
    """Returns the iterations of a loop: known, bounded by its condition, or `unknown_trip_count`."""
    if loop.trip_count is not None:
        return loop.trip_count
    condition = module.computations[loop.called[WHILE_CONDITION]]
    bounds = [
        bound
        for inst in condition.instructions
        if inst.opcode is Opcode.COMPARE and inst.comparison_direction in _ORDERED
        for operand in inst.operands
        if (bound := _constant(condition, operand, module, caller, loop)) is not None
    ]
    usable = [bound for bound in bounds if 0 < bound <= MAX_TRIP_COUNT_BOUND]
    return max(usable, default=unknown_trip_count)


def _constant(
    body: HloComputation, position: int, module: HloModule, caller: HloComputation, loop: Instruction
) -> int | None:
    """Returns the integer that a value of the condition always has, or None if it cannot be derived."""
    inst = body.instructions[position]
    if inst.opcode is Opcode.CONSTANT:
        return scalar_value(inst)
    if inst.opcode is not Opcode.GET_TUPLE_ELEMENT or not _is_invariant(module, loop, inst.tuple_index):
        return None
    initial = caller.instructions[loop.operands[0]]
    if initial.opcode is not Opcode.TUPLE:
        return None
    source = caller.instructions[initial.operands[inst.tuple_index]]
    return scalar_value(source) if source.opcode is Opcode.CONSTANT else None


def _is_invariant(module: HloModule, loop: Instruction, index: int) -> bool:
    """Returns whether the loop's body passes a member of its state on unchanged."""
    body = module.computations[loop.called[WHILE_BODY]]
    root = body.root_instruction
    if root.opcode is not Opcode.TUPLE:
        return False
    member = body.instructions[root.operands[index]]
    return member.opcode is Opcode.GET_TUPLE_ELEMENT and member.tuple_index == index


# ---- integers inside literals ----------------------------------------------------------------------------

# Fields of XLA's LiteralProto that hold integers: as packed varints, or (16 bits wide) as bytes.
_VARINT_FIELDS = {
    ElementType.S32: 4,
    ElementType.S64: 5,
    ElementType.U32: 6,
    ElementType.U64: 7,
}
_BITS = 64


def scalar_value(inst: Instruction) -> int | None:
    """Returns the value of an integer scalar constant; None for other types or without a stored literal."""
    field = _VARINT_FIELDS.get(inst.shape.element_type)
    if field is None or inst.shape.rank or not inst.literal:
        return None
    payload = _packed_field(inst.literal, field)
    if payload is None:
        return None
    value, _ = _varint(payload, 0)
    signed = inst.shape.element_type in (ElementType.S32, ElementType.S64)
    return value - (1 << _BITS) if signed and value >> (_BITS - 1) else value


def _packed_field(message: bytes, field: int) -> bytes | None:
    """Returns the payload of a packed field of a serialised message."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        wire = tag & 7
        if wire == 2:
            length, position = _varint(message, position)
            if tag >> 3 == field:
                return message[position : position + length] or None
            position += length
        elif wire == 0:
            start = position
            _, position = _varint(message, position)
            if tag >> 3 == field:
                return message[start:position]
        else:
            position += 8 if wire == 1 else 4
    return None


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
