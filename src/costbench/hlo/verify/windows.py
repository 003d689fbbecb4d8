"""Checks of reductions and of sliding-window instructions."""

from __future__ import annotations

from collections.abc import Sequence

from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape
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


def check_accumulator(called: Signature, count: int) -> Problem | None:
    """Checks a reducer: to combine `count` values with as many others, it takes 2 * `count` scalars and
    returns `count`.
    """
    if len(called.parameters) != 2 * count or not all(map(is_scalar, called.parameters)):
        found = ", ".join(map(str, called.parameters))
        return Problem(f"computation of parameters ({found})", f"{2 * count} scalars")
    result = called.result
    members = result.tuple_shapes if result.is_tuple else (result,)
    if len(members) == count and all(map(is_scalar, members)):
        return None
    return Problem(f"computation that returns {result}", "a scalar" if count == 1 else f"{count} scalars")


def check_comparator(called: Signature, count: int) -> Problem | None:
    """Checks a comparator: it takes two scalars for each of `count` arrays and returns `pred[]`."""
    if len(called.parameters) != 2 * count or not all(map(is_scalar, called.parameters)):
        found = ", ".join(map(str, called.parameters))
        return Problem(f"computation of parameters ({found})", f"{2 * count} scalars")
    if not is_predicate(called.result):
        return Problem(f"computation that returns {called.result}", "pred[]")
    return None


def check_window(inst: Instruction) -> Problem | None:
    """Checks that every dimension of a window has a size, stride and dilations of 1 or more."""
    for part in inst.window:
        if min(part.size, part.stride, part.base_dilation, part.window_dilation) < 1:
            return Problem(f"window {part}", "a size, a stride and dilations of 1 or more")
    return None


def _arrays(operands: Sequence[Shape]) -> Problem | None:
    """Checks that the first half are arrays of equal extents, the second their scalar start values."""
    if not operands or len(operands) % 2:
        return Problem(f"{len(operands)} operands", "a start value for each array")
    count = len(operands) // 2
    for number, operand in enumerate(operands[:count]):
        if operand.dimensions != operands[0].dimensions:
            return Problem(f"operand {number} {operand}", f"extents of operand 0 {operands[0]}")
    for number, start in enumerate(operands[count:], start=count):
        if not is_scalar(start):
            return Problem(f"operand {number} {start}", "a scalar to start from")
    return None


def _reduce(inst: Instruction, context: Context) -> Problem | None:
    operands = context.operands
    problem = _arrays(operands) or check_axes("dimensions", inst.dimensions, operands[0].rank)
    if problem:
        return problem
    count, dropped = len(operands) // 2, set(inst.dimensions)
    sizes = [extent for axis, extent in enumerate(operands[0].dimensions) if axis not in dropped]
    return check_members("shape", inst.shape, [sizes] * count) or check_accumulator(context.called[0], count)


def _slid(inst: Instruction, base: Shape) -> tuple[list[int], Problem | None]:
    """Extents that the window makes of an array, and what is wrong with it."""
    problem = check_count("window dimensions", len(inst.window), base.rank) or check_window(inst)
    if problem:
        return [], problem
    return [w.output_extent(n) for w, n in zip(inst.window, base.dimensions, strict=True)], None


def _reduce_window(inst: Instruction, context: Context) -> Problem | None:
    operands = context.operands
    problem = _arrays(operands)
    if problem:
        return problem
    sizes, problem = _slid(inst, operands[0])
    count = len(operands) // 2
    problem = problem or check_members("shape", inst.shape, [sizes] * count)
    return problem or check_accumulator(context.called[0], count)


def _select_and_scatter(inst: Instruction, context: Context) -> Problem | None:
    operand, source, start = context.operands
    sizes, problem = _slid(inst, operand)
    if problem:
        return problem
    if source.dimensions != tuple(sizes):
        return Problem(f"source {source}", f"extents {sizes}, one for each place of the window")
    if not is_scalar(start):
        return Problem(f"operand 2 {start}", "a scalar to start from")
    problem = check_comparator(context.called[0], 1) or check_accumulator(context.called[1], 1)
    return problem or check_compatible("shape", inst.shape, operand)


CHECKS: dict[Opcode, Check] = {
    Opcode.REDUCE: _reduce,
    Opcode.REDUCE_WINDOW: _reduce_window,
    Opcode.SELECT_AND_SCATTER: _select_and_scatter,
}
