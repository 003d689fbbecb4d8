"""Checks of instructions that copy, pick or rearrange elements, except gather and scatter."""

from __future__ import annotations

from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape
from costbench.hlo.verify.problems import (
    INTEGERS,
    Check,
    Context,
    Problem,
    check_axes,
    check_compatible,
    check_count,
    check_result,
    check_type,
    is_scalar,
)

_O = Opcode


def _broadcast(inst: Instruction, context: Context) -> Problem | None:
    operand, axes = context.operands[0], inst.dimensions
    problem = check_count("dimensions", len(axes), operand.rank) or check_axes(
        "dimensions", axes, inst.shape.rank
    )
    if problem:
        return problem
    # An axis of one element may be repeated in place, as StableHLO's broadcast_in_dim does.
    pairs = zip(axes, operand.dimensions, strict=True)
    if not all(size in (1, inst.shape.dimensions[axis]) for axis, size in pairs):
        return Problem(f"shape {inst.shape}", f"extents of the operand {operand} along dimensions {axes}")
    return check_type(inst, operand)


def _reshape(inst: Instruction, context: Context) -> Problem | None:
    operand = context.operands[0]
    return check_count("elements", inst.shape.num_elements, operand.num_elements) or check_type(inst, operand)


def _bitcast(inst: Instruction, context: Context) -> Problem | None:
    """Checks that a bitcast keeps the number of bits."""
    operand, shape = context.operands[0], inst.shape
    if operand.is_tuple or shape.is_tuple:
        return check_compatible("shape", shape, operand)
    bits = operand.num_elements * operand.element_type.bits
    return check_count("bits", shape.num_elements * shape.element_type.bits, bits)


def _transpose(inst: Instruction, context: Context) -> Problem | None:
    operand, axes = context.operands[0], inst.dimensions
    problem = check_count("dimensions", len(axes), operand.rank) or check_axes(
        "dimensions", axes, operand.rank
    )
    problem = problem or check_result(inst.shape, [operand.dimensions[axis] for axis in axes])
    return problem or check_type(inst, operand)


def _identity(inst: Instruction, context: Context) -> Problem | None:
    return check_compatible("shape", inst.shape, context.operands[0])


def _reverse(inst: Instruction, context: Context) -> Problem | None:
    operand = context.operands[0]
    return check_axes("dimensions", inst.dimensions, operand.rank) or _identity(inst, context)


def _slice(inst: Instruction, context: Context) -> Problem | None:
    operand = context.operands[0]
    problem = check_count("slice dimensions", len(inst.slices), operand.rank)
    if problem:
        return problem
    for part, extent in zip(inst.slices, operand.dimensions, strict=True):
        if part.stride < 1 or not 0 <= part.start <= part.limit <= extent:
            found = f"slice [{part.start}:{part.limit}:{part.stride}]"
            return Problem(found, f"0 <= start <= limit <= {extent} and a stride of 1 or more")
    sizes = [-((part.start - part.limit) // part.stride) for part in inst.slices]
    return check_result(inst.shape, sizes) or check_type(inst, operand)


def _starts(starts: list[Shape], rank: int) -> Problem | None:
    """Checks start indices of a dynamic slice: a scalar for each axis, or one vector as in older dumps."""
    if any(start.element_type not in INTEGERS for start in starts):
        return Problem(f"start indices {', '.join(map(str, starts))}", "integers")
    if len(starts) == 1 and starts[0].dimensions == (rank,):
        return None
    if len(starts) == rank and all(map(is_scalar, starts)):
        return None
    return Problem(f"start indices {', '.join(map(str, starts))}", f"{rank} scalars, one for each axis")


def _dynamic_slice(inst: Instruction, context: Context) -> Problem | None:
    operand, *starts = context.operands
    sizes = inst.dynamic_slice_sizes
    problem = check_count("dynamic_slice_sizes", len(sizes), operand.rank) or _starts(starts, operand.rank)
    if problem:
        return problem
    if not all(0 <= size <= extent for size, extent in zip(sizes, operand.dimensions, strict=True)):
        return Problem(f"dynamic_slice_sizes {sizes}", f"at most the extents of the operand {operand}")
    return check_result(inst.shape, sizes) or check_type(inst, operand)


def _dynamic_update_slice(inst: Instruction, context: Context) -> Problem | None:
    operand, update, *starts = context.operands
    problem = check_count("rank of the update", update.rank, operand.rank) or _starts(starts, operand.rank)
    if problem:
        return problem
    if any(size > extent for size, extent in zip(update.dimensions, operand.dimensions, strict=True)):
        return Problem(f"update {update}", f"at most the extents of the operand {operand}")
    return _identity(inst, context)


def _pad(inst: Instruction, context: Context) -> Problem | None:
    operand, value = context.operands
    problem = check_count("padding dimensions", len(inst.padding), operand.rank)
    if problem:
        return problem
    if not is_scalar(value):
        return Problem(f"padding value {value}", "a scalar")
    sizes = []
    for part, extent in zip(inst.padding, operand.dimensions, strict=True):
        size = extent + part.low + part.high + max(0, extent - 1) * part.interior
        if part.interior < 0 or size < 0:
            found = f"padding {part.low}_{part.high}_{part.interior} of {extent} elements"
            return Problem(found, "an interior and a result of 0 or more")
        sizes.append(size)
    return check_result(inst.shape, sizes) or check_type(inst, operand)


def _concatenate(inst: Instruction, context: Context) -> Problem | None:
    first, rank = context.operands[0], context.operands[0].rank
    problem = check_count("dimensions", len(inst.dimensions), 1) or check_axes(
        "dimensions", inst.dimensions, rank
    )
    if problem:
        return problem
    axis = inst.dimensions[0]
    for number, operand in enumerate(context.operands):
        others = operand.rank == rank and all(
            operand.dimensions[a] == first.dimensions[a] for a in range(rank) if a != axis
        )
        if not others:
            return Problem(f"operand {number} {operand}", f"extents of operand 0 {first} but along {axis}")
    total = sum(operand.dimensions[axis] for operand in context.operands)
    sizes = [total if a == axis else first.dimensions[a] for a in range(rank)]
    return check_result(inst.shape, sizes) or check_type(inst, first)


def _iota(inst: Instruction, _context: Context) -> Problem | None:
    return check_count("dimensions", len(inst.dimensions), 1) or check_axes(
        "dimensions", inst.dimensions, inst.shape.rank
    )


CHECKS: dict[Opcode, Check] = {
    _O.BROADCAST: _broadcast,
    _O.RESHAPE: _reshape,
    _O.BITCAST: _bitcast,
    _O.TRANSPOSE: _transpose,
    _O.COPY: _identity,
    _O.REVERSE: _reverse,
    _O.SLICE: _slice,
    _O.DYNAMIC_SLICE: _dynamic_slice,
    _O.DYNAMIC_UPDATE_SLICE: _dynamic_update_slice,
    _O.PAD: _pad,
    _O.CONCATENATE: _concatenate,
    _O.IOTA: _iota,
    _O.OPT_BARRIER: _identity,
    _O.DOMAIN: _identity,
    _O.ADD_DEPENDENCY: _identity,
}
ARRAYS_ONLY = frozenset(CHECKS) - {_O.BITCAST, _O.COPY, _O.OPT_BARRIER, _O.DOMAIN, _O.ADD_DEPENDENCY}
