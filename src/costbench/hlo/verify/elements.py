"""Checks of instructions that compute, copy, gather or rearrange elements of arrays.

Names of dimension numbers are those of XLA's operation semantics; batching dimensions of gather and scatter
are those that operand and indices share.
"""

from __future__ import annotations

from collections.abc import Sequence

from costbench.hlo.instruction import GatherDimensions, Instruction, ScatterDimensions
from costbench.hlo.opcode import Opcode, opcodes
from costbench.hlo.shape import ElementType, Shape
from costbench.hlo.verify.problems import (
    INTEGERS,
    Check,
    Context,
    Problem,
    check_ascending,
    check_axes,
    check_compatible,
    check_count,
    check_members,
    check_result,
    check_type,
    check_unchanged,
    is_scalar,
    same_type,
)
from costbench.hlo.verify.windows import check_accumulator

_O = Opcode
UNARY = opcodes(
    "abs acos acosh asin asinh atanh cbrt ceil cosh cosine count-leading-zeros erf exponential "
    "exponential-minus-one floor log log-plus-one logistic negate not popcnt reduce-precision sinh "
    "round-nearest-afz round-nearest-even rsqrt sign sine sqrt tan tanh real imag"
)
BINARY = opcodes(
    "add and atan2 complex divide maximum minimum multiply or power remainder shift-left "
    "shift-right-arithmetic shift-right-logical subtract xor"
)


def _extents(inst: Instruction, context: Context) -> Problem | None:
    for number, operand in enumerate(context.operands):
        if operand.dimensions != inst.shape.dimensions:
            return Problem(f"operand {number} {operand}", f"extents of the result {inst.shape}")
    return None


def _same(inst: Instruction, context: Context) -> Problem | None:
    """Checks that all operands and the result have the same extents and element type."""
    shape = inst.shape
    for number, operand in enumerate(context.operands):
        if operand.dimensions != shape.dimensions or not same_type(operand, shape):
            return Problem(f"operand {number} {operand}", f"extents and type of the result {shape}")
    return None


def _predicate(inst: Instruction, context: Context) -> Problem | None:
    if inst.shape.element_type is not ElementType.PRED:
        return Problem(f"shape {inst.shape}", "elements of type pred")
    first = context.operands[0]
    for number, operand in enumerate(context.operands):
        if not same_type(operand, first):
            return Problem(f"operand {number} {operand}", f"the type of operand 0 {first}")
    return _extents(inst, context)


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
    expected = wide.dimensions if ratio == 1 else (*wide.dimensions, ratio)
    if narrow.dimensions == expected and wide.element_type.bits == ratio * bits:
        return None
    return Problem(f"shape {inst.shape}", f"the bits of the operand {operand}, element by element")


def _map(inst: Instruction, context: Context) -> Problem | None:
    called = context.called[0]
    if len(called.parameters) != len(context.operands) or not all(map(is_scalar, called.parameters)):
        return Problem(f"computation of {len(called.parameters)} parameters", "a scalar for each operand")
    if not is_scalar(called.result):
        return Problem(f"computation that returns {called.result}", "a scalar")
    return _extents(inst, context)


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


def _reverse(inst: Instruction, context: Context) -> Problem | None:
    operand = context.operands[0]
    return check_axes("dimensions", inst.dimensions, operand.rank) or check_unchanged(inst, context)


def _slice(inst: Instruction, context: Context) -> Problem | None:
    operand = context.operands[0]
    problem = check_count("slice dimensions", len(inst.slices), operand.rank)
    if problem:
        return problem
    for part, extent in zip(inst.slices, operand.dimensions, strict=True):
        if part.stride < 1 or not 0 <= part.start <= part.limit <= extent:
            actual = f"slice [{part.start}:{part.limit}:{part.stride}]"
            return Problem(actual, f"0 <= start <= limit <= {extent} and a stride of 1 or more")
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
    return check_unchanged(inst, context)


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
            actual = f"padding {part.low}_{part.high}_{part.interior} of {extent} elements"
            return Problem(actual, "an interior and a result of 0 or more")
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


def _indices(shape: Shape, vector_dim: int, mapped: int) -> Problem | None:
    """Indices are integers; the axis `index_vector_dim`, or one of extent 1 added last, holds each vector."""
    if shape.element_type not in INTEGERS:
        return Problem(f"indices {shape}", "integers")
    if not 0 <= vector_dim <= shape.rank:
        return Problem(f"index_vector_dim {vector_dim}", f"0 to {shape.rank}")
    length = 1 if vector_dim == shape.rank else shape.dimensions[vector_dim]
    return check_count("length of an index vector", length, mapped)


def _batch_extents(shape: Shape, vector_dim: int) -> list[int]:
    """Returns the extents of the axes of the indices that do not hold the vectors."""
    return [extent for axis, extent in enumerate(shape.dimensions) if axis != vector_dim]


def _batching(
    operand: Shape, operand_dims: Sequence[int], indices: Shape, indices_dims: Sequence[int], vector_dim: int
) -> Problem | None:
    problem = check_count("batching dimensions of the indices", len(indices_dims), len(operand_dims))
    problem = problem or check_axes("batching dimensions of the indices", indices_dims, indices.rank)
    if problem:
        return problem
    for axis, index_axis in zip(operand_dims, indices_dims, strict=True):
        if index_axis == vector_dim or operand.dimensions[axis] != indices.dimensions[index_axis]:
            return Problem(
                f"batching dimension {index_axis} of the indices {indices}",
                f"extent of axis {axis} of {operand}",
            )
    return None


def _gather(inst: Instruction, context: Context) -> Problem | None:
    numbers = inst.gather
    if numbers is None:
        return Problem("no gather_dimension_numbers", "those of a gather")
    operand, indices = context.operands
    problem = _gather_numbers(numbers, operand, indices, inst.shape.rank)
    problem = problem or _gather_sizes(numbers, operand)
    if problem:
        return problem
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [size for axis, size in enumerate(numbers.slice_sizes) if axis not in dropped]
    batch = _batch_extents(indices, numbers.index_vector_dim)
    rank = len(batch) + len(window)
    problem = check_count("offset_dims", len(numbers.offset_dims), len(window)) or check_axes(
        "offset_dims", numbers.offset_dims, rank
    )
    if problem:
        return problem
    windows, batches, offsets = iter(window), iter(batch), set(numbers.offset_dims)
    expected = [next(windows) if axis in offsets else next(batches) for axis in range(rank)]
    return check_result(inst.shape, expected) or check_type(inst, operand)


def _gather_numbers(numbers: GatherDimensions, operand: Shape, indices: Shape, rank: int) -> Problem | None:
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    return (
        _indices(indices, numbers.index_vector_dim, len(numbers.start_index_map))
        or check_ascending("offset_dims", numbers.offset_dims, rank)
        or check_ascending("collapsed_slice_dims", numbers.collapsed_slice_dims, operand.rank)
        or check_ascending("operand_batching_dims", numbers.operand_batching_dims, operand.rank)
        or check_axes("collapsed and batching dimensions", dropped, operand.rank)
        or check_axes("start_index_map", numbers.start_index_map, operand.rank)
        or _batching(
            operand,
            numbers.operand_batching_dims,
            indices,
            numbers.start_indices_batching_dims,
            numbers.index_vector_dim,
        )
    )


def _gather_sizes(numbers: GatherDimensions, operand: Shape) -> Problem | None:
    sizes = numbers.slice_sizes
    problem = check_count("slice_sizes", len(sizes), operand.rank)
    if problem:
        return problem
    if not all(0 <= size <= extent for size, extent in zip(sizes, operand.dimensions, strict=True)):
        return Problem(f"slice_sizes {sizes}", f"at most the extents of the operand {operand}")
    for axis in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims):
        if sizes[axis] > 1:
            return Problem(f"slice size {sizes[axis]} of axis {axis}", "at most 1, as the axis is dropped")
    return None


def _scatter(inst: Instruction, context: Context) -> Problem | None:
    numbers = inst.scatter
    if numbers is None:
        return Problem("no scatter_dimension_numbers", "those of a scatter")
    if len(context.operands) % 2 == 0:
        return Problem(f"{len(context.operands)} operands", "an update for each array, and the indices")
    count = len(context.operands) // 2
    arrays, indices, updates = (
        context.operands[:count],
        context.operands[count],
        context.operands[count + 1 :],
    )
    for operand, update in zip(arrays, updates, strict=True):
        if operand.dimensions != arrays[0].dimensions or update.dimensions != updates[0].dimensions:
            return Problem(f"operands {operand}, {update}", "equal extents of all arrays and of all updates")
    problem = _scatter_numbers(numbers, arrays[0], indices, updates[0].rank)
    problem = problem or _scatter_update(numbers, arrays[0], indices, updates[0])
    problem = problem or check_members("shape", inst.shape, [array.dimensions for array in arrays])
    return problem or check_accumulator(context.called[0], count)


def _scatter_numbers(numbers: ScatterDimensions, operand: Shape, indices: Shape, rank: int) -> Problem | None:
    dropped = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
    return (
        _indices(indices, numbers.index_vector_dim, len(numbers.scatter_dims_to_operand_dims))
        or check_ascending("update_window_dims", numbers.update_window_dims, rank)
        or check_ascending("inserted_window_dims", numbers.inserted_window_dims, operand.rank)
        or check_ascending("input_batching_dims", numbers.input_batching_dims, operand.rank)
        or check_axes("inserted and batching dimensions", dropped, operand.rank)
        or check_axes("scatter_dims_to_operand_dims", numbers.scatter_dims_to_operand_dims, operand.rank)
        or check_count("update_window_dims", len(numbers.update_window_dims), operand.rank - len(dropped))
        or _batching(
            operand,
            numbers.input_batching_dims,
            indices,
            numbers.scatter_indices_batching_dims,
            numbers.index_vector_dim,
        )
    )


def _scatter_update(
    numbers: ScatterDimensions, operand: Shape, indices: Shape, update: Shape
) -> Problem | None:
    windows = set(numbers.update_window_dims)
    dropped = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    limits = [extent for axis, extent in enumerate(operand.dimensions) if axis not in dropped]
    sizes = [update.dimensions[axis] for axis in numbers.update_window_dims]
    if any(size > limit for size, limit in zip(sizes, limits, strict=True)):
        return Problem(f"window {sizes} of the update", f"at most {limits}")
    actual = [extent for axis, extent in enumerate(update.dimensions) if axis not in windows]
    expected = _batch_extents(indices, numbers.index_vector_dim)
    return (
        None if actual == expected else Problem(f"update {update}", f"extents {expected} outside its window")
    )


CHECKS: dict[Opcode, Check] = {
    **dict.fromkeys(UNARY | BINARY, _same),
    _O.CONVERT: _extents,
    _O.STOCHASTIC_CONVERT: _extents,
    _O.BITCAST_CONVERT: _bitcast_convert,
    _O.COMPARE: _predicate,
    _O.IS_FINITE: _predicate,
    _O.SELECT: _select,
    _O.CLAMP: _clamp,
    _O.MAP: _map,
    _O.BROADCAST: _broadcast,
    _O.RESHAPE: _reshape,
    _O.BITCAST: _bitcast,
    _O.TRANSPOSE: _transpose,
    _O.COPY: check_unchanged,
    _O.REVERSE: _reverse,
    _O.SLICE: _slice,
    _O.DYNAMIC_SLICE: _dynamic_slice,
    _O.DYNAMIC_UPDATE_SLICE: _dynamic_update_slice,
    _O.PAD: _pad,
    _O.CONCATENATE: _concatenate,
    _O.IOTA: _iota,
    _O.OPT_BARRIER: check_unchanged,
    _O.DOMAIN: check_unchanged,
    _O.ADD_DEPENDENCY: check_unchanged,
    _O.GATHER: _gather,
    _O.SCATTER: _scatter,
}
