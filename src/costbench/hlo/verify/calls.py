"""Checks of tuples, control flow, collectives and asynchronous pairs.

An asynchronous start returns a tuple of its operands (themselves a tuple), the result and contexts; the
start of a collective the operand, the result and contexts, that of a copy the result first; the done returns
the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape
from costbench.hlo.verify.problems import (
    Check,
    Context,
    Problem,
    Signature,
    check_axes,
    check_compatible,
    check_count,
    check_members,
    check_type,
    check_unchanged,
    compatible,
    is_predicate,
    is_scalar,
)
from costbench.hlo.verify.windows import check_accumulator, check_comparator

_O = Opcode


def _tuple(inst: Instruction, context: Context) -> Problem | None:
    problem = check_count("members", len(inst.shape.tuple_shapes), len(context.operands))
    if problem:
        return problem
    for number, (member, operand) in enumerate(zip(inst.shape.tuple_shapes, context.operands, strict=True)):
        problem = check_compatible(f"member {number}", member, operand)
        if problem:
            return problem
    return None


def _get_tuple_element(inst: Instruction, context: Context) -> Problem | None:
    operand = context.operands[0]
    members = operand.tuple_shapes
    if not operand.is_tuple or not 0 <= inst.tuple_index < len(members):
        return Problem(f"member {inst.tuple_index} of {operand}", "one that the tuple has")
    return check_compatible("shape", inst.shape, members[inst.tuple_index])


def _check_arguments(called: Signature, arguments: Sequence[Shape]) -> Problem | None:
    """Checks that a computation takes these arguments."""
    problem = check_count("arguments", len(arguments), len(called.parameters))
    if problem:
        return problem
    for number, (argument, parameter) in enumerate(zip(arguments, called.parameters, strict=True)):
        problem = check_compatible(f"argument {number}", argument, parameter)
        if problem:
            return problem
    return None


def _call(inst: Instruction, context: Context) -> Problem | None:
    called = context.called[0]
    return _check_arguments(called, context.operands) or check_compatible("shape", inst.shape, called.result)


def _while(inst: Instruction, context: Context) -> Problem | None:
    body, condition = context.called
    problem = _check_arguments(body, context.operands) or _check_arguments(condition, context.operands)
    if problem:
        return problem
    if not is_predicate(condition.result):
        return Problem(f"condition that returns {condition.result}", "pred[]")
    state = context.operands[0]
    return check_compatible("body that returns", body.result, state) or check_compatible(
        "shape", inst.shape, state
    )


def _conditional(inst: Instruction, context: Context) -> Problem | None:
    if not context.operands:
        return Problem("0 operands", "an index, and an argument for each branch")
    index, *arguments = context.operands
    if not is_scalar(index) or index.element_type not in (ElementType.PRED, ElementType.S32):
        return Problem(f"operand 0 {index}", "pred[] or s32[]")
    if index.element_type is ElementType.PRED and len(context.called) != 2:
        return Problem(f"{len(context.called)} branches", "2 for pred[]")
    problem = check_count("branches", len(context.called), len(arguments))
    if problem or not arguments:
        return problem or Problem("0 branches", "1 or more")
    for called, argument in zip(context.called, arguments, strict=True):
        problem = _check_arguments(called, [argument]) or check_compatible("shape", inst.shape, called.result)
        if problem:
            return problem
    return None


def _sort(inst: Instruction, context: Context) -> Problem | None:
    first = context.operands[0]
    problem = check_count("dimensions", len(inst.dimensions), 1) or check_axes(
        "dimensions", inst.dimensions, first.rank
    )
    if problem:
        return problem
    for number, operand in enumerate(context.operands):
        if operand.dimensions != first.dimensions or operand.is_tuple:
            return Problem(f"operand {number} {operand}", f"extents of operand 0 {first}")
    problem = check_members("shape", inst.shape, [first.dimensions] * len(context.operands))
    return problem or check_comparator(context.called[0], len(context.operands))


def _all_reduce(inst: Instruction, context: Context) -> Problem | None:
    return _same_as_operands(inst, context) or (
        check_accumulator(context.called[0], 1) if context.called else None
    )


def _same_as_operands(inst: Instruction, context: Context) -> Problem | None:
    """Checks that the result has the operand's shape, or is a tuple of the operands' shapes."""
    if len(context.operands) == 1 and not inst.shape.is_tuple:
        return check_compatible("shape", inst.shape, context.operands[0])
    return _tuple(inst, context)


def _collective_permute(inst: Instruction, context: Context) -> Problem | None:
    """Checks the result as for other collectives; with offsets, data are permuted into the second operand."""
    if len(context.operands) == 4 and compatible(inst.shape, context.operands[1]):
        return None
    return _same_as_operands(inst, context)


def _get_dimension_size(inst: Instruction, context: Context) -> Problem | None:
    operand = context.operands[0]
    problem = check_count("dimensions", len(inst.dimensions), 1)
    return problem or check_axes("dimensions", inst.dimensions, operand.rank)


def _set_dimension_size(inst: Instruction, context: Context) -> Problem | None:
    return _get_dimension_size(inst, context) or check_unchanged(inst, context)


def _rng(_inst: Instruction, context: Context) -> Problem | None:
    for number, operand in enumerate(context.operands):
        if not is_scalar(operand):
            return Problem(f"operand {number} {operand}", "a scalar parameter of the distribution")
    return None


def _rng_bit_generator(inst: Instruction, context: Context) -> Problem | None:
    if not inst.shape.is_tuple:
        return None
    members = inst.shape.tuple_shapes
    return check_count("members", len(members), 2) or check_compatible(
        "state", members[0], context.operands[0]
    )


def _async_start(inst: Instruction, context: Context) -> Problem | None:
    called, members = context.called[0], inst.shape.tuple_shapes
    problem = _check_arguments(called, context.operands)
    if problem:
        return problem
    if len(members) < 2 or not members[0].is_tuple:
        return Problem(f"shape {inst.shape}", "a tuple of operands, result and contexts")
    operands = members[0].tuple_shapes
    if len(operands) != len(context.operands) or not all(map(compatible, operands, context.operands)):
        return Problem(f"member 0 {members[0]}", "a tuple of the operands")
    return check_compatible("member 1", members[1], called.result)


def _returns_member(number: int) -> Check:
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


def _collective_start(inst: Instruction, context: Context) -> Problem | None:
    """Checks that the start of a collective returns its operands and a result."""
    members, operands = inst.shape.tuple_shapes, context.operands
    if len(members) >= 2:
        # Permuted in place, a tuple is the first of four operands; other tuples list the operands.
        parts = members[0].tuple_shapes
        listed = 0 < len(parts) <= len(operands) and all(map(compatible, parts, operands))
        if listed or compatible(members[0], operands[0]):
            return None
    return Problem(f"shape {inst.shape}", "a tuple of operands, result and contexts")


def _gather_or_scatter(inst: Instruction, context: Context) -> Problem | None:
    """Checks an all-gather or reduce-scatter: along one axis one side is a multiple of the other.

    A scalar, which dumps for Neuron devices scatter along axis 0, must stay one.
    """
    problem = check_count("dimensions", len(inst.dimensions), 1)
    if problem:
        return problem
    members = inst.shape.tuple_shapes if inst.shape.is_tuple else (inst.shape,)
    problem = check_count("members", len(members), len(context.operands))
    if problem:
        return problem
    for member, operand in zip(members, context.operands, strict=True):
        if is_scalar(operand) and is_scalar(member):
            continue
        large, small = (member, operand) if inst.opcode is _O.ALL_GATHER else (operand, member)
        problem = check_axes("dimensions", inst.dimensions, operand.rank) or _check_multiple(
            large, small, inst.dimensions[0]
        )
        if problem:
            return problem
    return None


def _check_multiple(large: Shape, small: Shape, axis: int) -> Problem | None:
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
    _O.TUPLE: _tuple,
    _O.GET_TUPLE_ELEMENT: _get_tuple_element,
    _O.CALL: _call,
    _O.FUSION: _call,
    _O.WHILE: _while,
    _O.CONDITIONAL: _conditional,
    _O.SORT: _sort,
    _O.ALL_REDUCE: _all_reduce,
    _O.ALL_REDUCE_START: _all_reduce,
    _O.COLLECTIVE_PERMUTE: _collective_permute,
    _O.COLLECTIVE_BROADCAST: _same_as_operands,
    _O.GET_DIMENSION_SIZE: _get_dimension_size,
    _O.SET_DIMENSION_SIZE: _set_dimension_size,
    _O.RNG: _rng,
    _O.RNG_BIT_GENERATOR: _rng_bit_generator,
    _O.ASYNC_START: _async_start,
    _O.ASYNC_UPDATE: check_unchanged,
    _O.ASYNC_DONE: _returns_member(1),
    _O.COPY_START: _copy_start,
    _O.COPY_DONE: _returns_member(0),
    _O.ALL_REDUCE_DONE: check_unchanged,
    _O.ALL_GATHER_START: _collective_start,
    _O.ALL_GATHER_DONE: _returns_member(1),
    _O.COLLECTIVE_PERMUTE_START: _collective_start,
    _O.COLLECTIVE_PERMUTE_DONE: _returns_member(1),
    _O.ALL_GATHER: _gather_or_scatter,
    _O.REDUCE_SCATTER: _gather_or_scatter,
    _O.ALL_TO_ALL: _all_to_all,
    _O.RAGGED_ALL_TO_ALL: _ragged_all_to_all,
    _O.RAGGED_DOT: _ragged_dot,
}
