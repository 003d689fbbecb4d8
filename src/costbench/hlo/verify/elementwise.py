"""Checks of elementwise instructions: operands and result must have equal extents."""

from __future__ import annotations

from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape
from costbench.hlo.verify.problems import Check, Context, Problem, is_scalar, same_type

_O = Opcode


def _extents(inst: Instruction, operands: tuple[Shape, ...] | list[Shape]) -> Problem | None:
    wanted = inst.shape.dimensions
    for number, operand in enumerate(operands):
        if operand.dimensions != wanted:
            return Problem(f"operand {number} {operand}", f"extents of the result {inst.shape}")
    return None


def _same(inst: Instruction, context: Context) -> Problem | None:
    """Checks that all operands and the result have the same extents and element type."""
    shape = inst.shape
    for number, operand in enumerate(context.operands):
        if operand.dimensions != shape.dimensions or not same_type(operand, shape):
            return Problem(f"operand {number} {operand}", f"extents and type of the result {shape}")
    return None


def _any_type(inst: Instruction, context: Context) -> Problem | None:
    return _extents(inst, list(context.operands))


def _predicate(inst: Instruction, context: Context) -> Problem | None:
    if inst.shape.element_type is not ElementType.PRED:
        return Problem(f"shape {inst.shape}", "elements of type pred")
    first = context.operands[0]
    for number, operand in enumerate(context.operands):
        if not same_type(operand, first):
            return Problem(f"operand {number} {operand}", f"the type of operand 0 {first}")
    return _extents(inst, list(context.operands))


def _select(inst: Instruction, context: Context) -> Problem | None:
    predicate, *values = context.operands
    if predicate.element_type is not ElementType.PRED:
        return Problem(f"operand 0 {predicate}", "elements of type pred")
    if not is_scalar(predicate) and predicate.dimensions != inst.shape.dimensions:
        return Problem(f"operand 0 {predicate}", f"a scalar or extents of the result {inst.shape}")
    return _same(inst, Context(values, ()))


def _clamp(inst: Instruction, context: Context) -> Problem | None:
    low, value, high = context.operands
    for number, bound in ((0, low), (2, high)):
        if not is_scalar(bound) and bound.dimensions != inst.shape.dimensions:
            return Problem(f"operand {number} {bound}", f"a scalar or extents of the result {inst.shape}")
        if not same_type(bound, inst.shape):
            return Problem(f"operand {number} {bound}", f"the type of the result {inst.shape}")
    return _same(inst, Context([value], ()))


def _bitcast_convert(inst: Instruction, context: Context) -> Problem | None:
    """Elements of another width split into, or are joined from, a further last axis."""
    operand = context.operands[0]
    wide, narrow = (operand, inst.shape)
    if wide.element_type.bits < narrow.element_type.bits:
        wide, narrow = narrow, wide
    bits = narrow.element_type.bits
    ratio = wide.element_type.bits // bits if bits else 0
    wanted = wide.dimensions if ratio == 1 else (*wide.dimensions, ratio)
    if narrow.dimensions == wanted and wide.element_type.bits == ratio * bits:
        return None
    return Problem(f"shape {inst.shape}", f"the bits of the operand {operand}, element by element")


def _map(inst: Instruction, context: Context) -> Problem | None:
    called = context.called[0]
    if len(called.parameters) != len(context.operands) or not all(map(is_scalar, called.parameters)):
        return Problem(f"computation of {len(called.parameters)} parameters", "a scalar for each operand")
    if not is_scalar(called.result):
        return Problem(f"computation that returns {called.result}", "a scalar")
    return _any_type(inst, context)


UNARY = frozenset(
    {_O.ABS, _O.ACOS, _O.ACOSH, _O.ASIN, _O.ASINH, _O.ATANH, _O.CBRT, _O.CEIL, _O.COSH, _O.COSINE}
    | {_O.COUNT_LEADING_ZEROS, _O.ERF, _O.EXPONENTIAL, _O.EXPONENTIAL_MINUS_ONE, _O.FLOOR, _O.LOG}
    | {_O.LOG_PLUS_ONE, _O.LOGISTIC, _O.NEGATE, _O.NOT, _O.POPCNT, _O.REDUCE_PRECISION, _O.SINH}
    | {_O.ROUND_NEAREST_AFZ, _O.ROUND_NEAREST_EVEN, _O.RSQRT, _O.SIGN, _O.SINE, _O.SQRT, _O.TAN, _O.TANH}
    | {_O.REAL, _O.IMAG}
)
BINARY = frozenset(
    {_O.ADD, _O.AND, _O.ATAN2, _O.COMPLEX, _O.DIVIDE, _O.MAXIMUM, _O.MINIMUM, _O.MULTIPLY, _O.OR, _O.POWER}
    | {_O.REMAINDER, _O.SHIFT_LEFT, _O.SHIFT_RIGHT_ARITHMETIC, _O.SHIFT_RIGHT_LOGICAL, _O.SUBTRACT, _O.XOR}
)
CHECKS: dict[Opcode, Check] = {
    **dict.fromkeys(UNARY | BINARY, _same),
    _O.CONVERT: _any_type,
    _O.STOCHASTIC_CONVERT: _any_type,
    _O.BITCAST_CONVERT: _bitcast_convert,
    _O.COMPARE: _predicate,
    _O.IS_FINITE: _predicate,
    _O.SELECT: _select,
    _O.CLAMP: _clamp,
    _O.MAP: _map,
}
