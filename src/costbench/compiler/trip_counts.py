"""Counts how often each computation of a program runs in one run of the program.

The entry computation runs once; a loop's body trip-count times per run of the loop, its condition once more
than that; callees once per call, every branch of a conditional once per conditional (an upper bound: which
branch is taken is not known). Where a loop has no known trip count, its bound is read off its condition: how
far the counter's first value, or 0 where that is not known, is from the integer that the counter is compared
with. Both may stand in the loop's initial state. Counters are taken to move by one; one that falls has a
bound only with a known first value. Without a bound `unknown_trip_count` is used.
"""

from __future__ import annotations

from costbench.compiler.layout.value_classes import WHILE_BODY, WHILE_CONDITION
from costbench.hlo.conversion import INTEGER_FIELDS
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2

DEFAULT_UNKNOWN_TRIP_COUNT = 100
MAX_TRIP_COUNT_BOUND = 1 << 20
"""Larger constants in a condition are no bound on iterations (a sentinel such as the largest integer)."""

KNOWN_TRIP_COUNT = 'backend_config={"known_trip_count":{"n":"N"}}'
"""How a program states the iterations of a loop, as XLA does where it could prove them."""

_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


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
        _distance(module, caller, loop, inst)
        for inst in condition.instructions
        if inst.opcode is Opcode.COMPARE
    ]
    usable = [bound for bound in bounds if 0 < bound <= MAX_TRIP_COUNT_BOUND]
    return max(usable, default=unknown_trip_count)


def _distance(module: HloModule, caller: HloComputation, loop: Instruction, compare: Instruction) -> int:
    """Returns the iterations, by steps of one, after which a comparison fails; 0 if they are not known."""
    condition, direction = module.computations[loop.called[WHILE_CONDITION]], compare.comparison_direction
    counter, limit = (condition.instructions[position] for position in compare.operands)
    known = [_constant(module, caller, loop, inst) for inst in (counter, limit)]
    if direction not in _MIRRORED or known.count(None) != 1:
        return 0
    if known[1] is None:
        counter, direction = limit, _MIRRORED[direction]
    last = next(value for value in known if value is not None)
    first = _initial(caller, loop, counter)
    if direction in ("GT", "GE"):
        return 0 if first is None else first - last + (direction == "GE")
    distance = last - (first or 0)
    return abs(distance) if direction == "NE" else distance + (direction == "LE")


def _constant(module: HloModule, caller: HloComputation, loop: Instruction, inst: Instruction) -> int | None:
    """Returns the integer that a value of the condition always has, or None if it cannot be derived."""
    if inst.opcode is Opcode.CONSTANT:
        return scalar_value(inst)
    if inst.opcode is Opcode.GET_TUPLE_ELEMENT and _is_invariant(module, loop, inst.tuple_index):
        return _initial(caller, loop, inst)
    return None


def _initial(caller: HloComputation, loop: Instruction, inst: Instruction) -> int | None:
    """Returns the integer that a member of the loop's state has first; None if it is no constant."""
    state = caller.instructions[loop.operands[0]]
    if inst.opcode is not Opcode.GET_TUPLE_ELEMENT or state.opcode is not Opcode.TUPLE:
        return None
    source = caller.instructions[state.operands[inst.tuple_index]]
    while source.opcode is Opcode.COPY:
        source = caller.instructions[source.operands[0]]
    return scalar_value(source) if source.opcode is Opcode.CONSTANT else None


def _is_invariant(module: HloModule, loop: Instruction, index: int) -> bool:
    """Returns whether the loop's body passes a member of its state on unchanged."""
    body = module.computations[loop.called[WHILE_BODY]]
    root = body.root_instruction
    if root.opcode is not Opcode.TUPLE:
        return False
    member = body.instructions[root.operands[index]]
    return member.opcode is Opcode.GET_TUPLE_ELEMENT and member.tuple_index == index


def scalar_value(inst: Instruction) -> int | None:
    """Returns the value of an integer scalar constant; None for other types or without a stored literal."""
    field = INTEGER_FIELDS.get(inst.shape.element_type)
    if field is None or inst.shape.rank or not inst.literal:
        return None
    values = getattr(hlo_pb2.LiteralProto.FromString(inst.literal), field)
    return int(values[0]) if values else None
