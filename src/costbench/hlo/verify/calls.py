"""Checks of tuples, control flow and other instructions that call computations, and of collectives."""

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


def check_parameters(called: Signature, arguments: Sequence[Shape]) -> Problem | None:
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
    return check_parameters(called, context.operands) or check_compatible("shape", inst.shape, called.result)


def _while(inst: Instruction, context: Context) -> Problem | None:
    body, condition = context.called
    problem = check_parameters(body, context.operands) or check_parameters(condition, context.operands)
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
        problem = check_parameters(called, [argument]) or check_compatible("shape", inst.shape, called.result)
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
    if len(context.operands) == 4:
        return check_compatible("shape", inst.shape, context.operands[1])
    return _same_as_operands(inst, context)


def _get_dimension_size(inst: Instruction, context: Context) -> Problem | None:
    operand = context.operands[0]
    problem = check_count("dimensions", len(inst.dimensions), 1)
    return problem or check_axes("dimensions", inst.dimensions, operand.rank)


def _set_dimension_size(inst: Instruction, context: Context) -> Problem | None:
    return _get_dimension_size(inst, context) or check_compatible("shape", inst.shape, context.operands[0])


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
}
