"""Checks of asynchronous pairs and transfers, and of collectives: what starts and what is done fit together.

An asynchronous start returns a tuple of its operands (themselves a tuple), the result and contexts; the
start of a collective the operand, the result and contexts, that of a copy the result first; the done returns
the result.
"""

from __future__ import annotations

from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape
from costbench.hlo.verify.calls import check_parameters
from costbench.hlo.verify.problems import (
    Check,
    Context,
    Problem,
    check_axes,
    check_compatible,
    check_count,
    check_type,
    compatible,
)

_O = Opcode


def _async_start(inst: Instruction, context: Context) -> Problem | None:
    called, members = context.called[0], inst.shape.tuple_shapes
    problem = check_parameters(called, context.operands)
    if problem:
        return problem
    if len(members) < 2 or not members[0].is_tuple:
        return Problem(f"shape {inst.shape}", "a tuple of operands, result and contexts")
    given = members[0].tuple_shapes
    if len(given) != len(context.operands) or not all(map(compatible, given, context.operands)):
        return Problem(f"member 0 {members[0]}", "a tuple of the operands")
    return check_compatible("member 1", members[1], called.result)


def _async_update(inst: Instruction, context: Context) -> Problem | None:
    return check_compatible("shape", inst.shape, context.operands[0])


def _member(number: int) -> Check:
    """Returns the check that a done returns this member of its start."""

    def check(inst: Instruction, context: Context) -> Problem | None:
        members = context.operands[0].tuple_shapes
        if number >= len(members):
            return Problem(f"operand 0 {context.operands[0]}", "the tuple that a start returns")
        return check_compatible("shape", inst.shape, members[number])

    return check


def _copy_start(inst: Instruction, context: Context) -> Problem | None:
    members, operand = inst.shape.tuple_shapes, context.operands[0]
    if len(members) >= 2 and compatible(members[0], operand) and compatible(members[1], operand):
        return None
    return Problem(f"shape {inst.shape}", f"a tuple of target, source and context, both like {operand}")


def _begun_with(inst: Instruction, context: Context) -> Problem | None:
    """Checks that the start of a collective returns its operands and a result."""
    members, operands = inst.shape.tuple_shapes, context.operands
    if len(members) >= 2:
        # Permuted in place, a tuple is the first of four operands; other tuples list the operands.
        parts = members[0].tuple_shapes
        listed = 0 < len(parts) <= len(operands) and all(map(compatible, parts, operands))
        if listed or compatible(members[0], operands[0]):
            return None
    return Problem(f"shape {inst.shape}", "a tuple of operands, result and contexts")


def _scaled(inst: Instruction, context: Context) -> Problem | None:
    """Checks an all-gather or reduce-scatter: along one axis one side is a multiple of the other."""
    problem = check_count("dimensions", len(inst.dimensions), 1)
    if problem:
        return problem
    members = inst.shape.tuple_shapes if inst.shape.is_tuple else (inst.shape,)
    problem = check_count("members", len(members), len(context.operands))
    if problem:
        return problem
    for member, operand in zip(members, context.operands, strict=True):
        large, small = (member, operand) if inst.opcode is _O.ALL_GATHER else (operand, member)
        problem = check_axes("dimensions", inst.dimensions, operand.rank) or _multiple(
            large, small, inst.dimensions[0]
        )
        if problem:
            return problem
    return None


def _multiple(large: Shape, small: Shape, axis: int) -> Problem | None:
    if len(large.dimensions) == len(small.dimensions):
        pairs = list(zip(large.dimensions, small.dimensions, strict=True))
        first, second = pairs.pop(axis)
        if all(a == b for a, b in pairs) and (first % second == 0 if second else first == 0):
            return None
    return Problem(f"{large} and {small}", f"the same extents, but for a multiple along axis {axis}")


def _all_to_all(inst: Instruction, context: Context) -> Problem | None:
    shape, operands = inst.shape, context.operands
    if shape.is_tuple:
        problem = check_count("members", len(shape.tuple_shapes), len(operands))
        pairs = zip(shape.tuple_shapes, operands, strict=False)
        return problem or next((p for a, b in pairs if (p := check_compatible("member", a, b))), None)
    return check_count("operands", len(operands), 1) or check_compatible("shape", shape, operands[0])


def _ragged_all_to_all(inst: Instruction, context: Context) -> Problem | None:
    return check_compatible("shape", inst.shape, context.operands[1])


def _ragged_dot(inst: Instruction, context: Context) -> Problem | None:
    left, right, _sizes = context.operands
    numbers = inst.dot
    if numbers is None:
        return Problem("no ragged_dot_dimension_numbers", "those of a ragged dot")
    problem = (
        check_count("rhs contracting dimensions", len(numbers.rhs_contracting), len(numbers.lhs_contracting))
        or check_count("rhs batch dimensions", len(numbers.rhs_batch), len(numbers.lhs_batch))
        or check_axes("lhs dimensions", (*numbers.lhs_contracting, *numbers.lhs_batch), left.rank)
        or check_axes("rhs dimensions", (*numbers.rhs_contracting, *numbers.rhs_batch), right.rank)
        or check_axes("rhs group dimensions", inst.dimensions, right.rank)
    )
    return problem or check_type(inst, left)


CHECKS: dict[Opcode, Check] = {
    _O.ASYNC_START: _async_start,
    _O.ASYNC_UPDATE: _async_update,
    _O.ASYNC_DONE: _member(1),
    _O.COPY_START: _copy_start,
    _O.COPY_DONE: _member(0),
    _O.ALL_REDUCE_DONE: _async_update,
    _O.ALL_GATHER_START: _begun_with,
    _O.ALL_GATHER_DONE: _member(1),
    _O.COLLECTIVE_PERMUTE_START: _begun_with,
    _O.COLLECTIVE_PERMUTE_DONE: _member(1),
    _O.ALL_GATHER: _scaled,
    _O.REDUCE_SCATTER: _scaled,
    _O.ALL_TO_ALL: _all_to_all,
    _O.RAGGED_ALL_TO_ALL: _ragged_all_to_all,
    _O.RAGGED_DOT: _ragged_dot,
}
