"""Checks of gather and scatter: dimension numbers, window sizes and the shapes that follow from them.

Names as in XLA's operation semantics; batching dimensions are those that operand and indices share.
"""

from __future__ import annotations

from collections.abc import Sequence

from costbench.hlo.instruction import GatherDimensions, Instruction, ScatterDimensions
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape
from costbench.hlo.verify.problems import (
    INTEGERS,
    Check,
    Context,
    Problem,
    check_ascending,
    check_axes,
    check_count,
    check_members,
    check_result,
    check_type,
)
from costbench.hlo.verify.windows import check_accumulator


def _indices(shape: Shape, vector_dim: int, mapped: int) -> Problem | None:
    """Indices are integers; the axis `index_vector_dim`, or one of extent 1 added last, holds each vector."""
    if shape.element_type not in INTEGERS:
        return Problem(f"indices {shape}", "integers")
    if not 0 <= vector_dim <= shape.rank:
        return Problem(f"index_vector_dim {vector_dim}", f"0 to {shape.rank}")
    length = 1 if vector_dim == shape.rank else shape.dimensions[vector_dim]
    return check_count("length of an index vector", length, mapped)


def _batch_extents(shape: Shape, vector_dim: int) -> list[int]:
    """Extents of the axes of the indices that do not hold the vectors."""
    return [extent for axis, extent in enumerate(shape.dimensions) if axis != vector_dim]


def _batching(
    operand: Shape, indices: Shape, axes: tuple[Sequence[int], Sequence[int]], vector_dim: int
) -> Problem | None:
    own, others = axes
    problem = check_count("batching dimensions of the indices", len(others), len(own))
    problem = problem or check_axes("batching dimensions of the indices", others, indices.rank)
    if problem:
        return problem
    for axis, other in zip(own, others, strict=True):
        if other == vector_dim or operand.dimensions[axis] != indices.dimensions[other]:
            return Problem(
                f"batching dimension {other} of the indices {indices}", f"extent of axis {axis} of {operand}"
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
    wanted = [next(windows) if axis in offsets else next(batches) for axis in range(rank)]
    return check_result(inst.shape, wanted) or check_type(inst, operand)


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
            indices,
            (numbers.operand_batching_dims, numbers.start_indices_batching_dims),
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
            indices,
            (numbers.input_batching_dims, numbers.scatter_indices_batching_dims),
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
    found = [extent for axis, extent in enumerate(update.dimensions) if axis not in windows]
    wanted = _batch_extents(indices, numbers.index_vector_dim)
    return None if found == wanted else Problem(f"update {update}", f"extents {wanted} outside its window")


CHECKS: dict[Opcode, Check] = {Opcode.GATHER: _gather, Opcode.SCATTER: _scatter}
