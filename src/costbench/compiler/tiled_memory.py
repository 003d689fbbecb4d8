"""Arrays in tiled TPU memory: their padding, and which reshapes and transposes move no bytes.

A TPU keeps an array of rank two or more in tiles of 8 sublanes by 128 lanes over its two minor-most axes, an
array of rank one in tiles of 1,024 elements (the real machine's tile units). Axes are padded to whole tiles,
so the memory order decides how much an array occupies, and a reshape is free only if the padded, tiled image
of its operand and of its result are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

SUBLANES = 8
LANES = 128
LINEAR_TILE = SUBLANES * LANES

MinorToMajor = tuple[int, ...]


def native_tile(shape: Shape) -> tuple[int, ...]:
    """Returns extents of a native tile, major to minor: (8, 128), (1024,) for rank one, () for a scalar."""
    if shape.rank == 0:
        return ()
    return (LINEAR_TILE,) if shape.rank == 1 else (SUBLANES, LANES)


def native_units(shape: Shape) -> tuple[int, ...]:
    """Returns elements of a native tile by physical axis, major to minor: ..., 1, 1, 8, 128; or 1,024."""
    return (1,) * (shape.rank - 2) + native_tile(shape)


def native_bytes(shape: Shape) -> float:
    """Returns bytes of a native tile, or of the value itself for a scalar."""
    return math.prod(native_tile(shape)) * shape.element_type.bits / 8


def row_major(rank: int) -> MinorToMajor:
    """Returns the memory order in which the last axis varies fastest."""
    return tuple(range(rank - 1, -1, -1))


def packed_row_major(dimensions: Sequence[int]) -> MinorToMajor:
    """Returns row-major order with axes of extent 1 outermost, where they cause no padding."""
    order = row_major(len(dimensions))
    long = [axis for axis in order if dimensions[axis] != 1]
    return tuple(long + [axis for axis in order if dimensions[axis] == 1])


def is_row_major(shape: Shape) -> bool:
    """Returns whether the axes are in row-major order, those of extent 1 ignored."""
    long = [axis for axis in shape.layout if shape.dimensions[axis] != 1]
    return long == sorted(long, reverse=True)


def padded_elements(shape: Shape) -> int:
    """Returns elements that an array occupies in its layout, in whole tiles; summed over tuple members."""
    if shape.is_tuple:
        return sum(padded_elements(member) for member in shape.tuple_shapes)
    return _padded(shape.physical_dimensions)


def padded_bytes(shape: Shape) -> int:
    """Returns `padded_elements` in bytes."""
    if shape.is_tuple:
        return sum(padded_bytes(member) for member in shape.tuple_shapes)
    return (padded_elements(shape) * shape.element_type.bits + 7) // 8


def _padded(physical: Sequence[int]) -> int:
    if not physical:
        return 1
    if len(physical) == 1:
        return _round_up(physical[0], LINEAR_TILE)
    padded = _round_up(physical[-2], SUBLANES) * _round_up(physical[-1], LANES)
    return padded * math.prod(physical[:-2])


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def padded_size(dimensions: Sequence[int], minor_to_major: MinorToMajor) -> int:
    """Returns `padded_elements` of an array of these dimensions in this order."""
    return _padded([dimensions[axis] for axis in reversed(minor_to_major)])


def compact_layout(dimensions: Sequence[int]) -> MinorToMajor:
    """Returns the order that a TPU gives a value without other constraints, such as a program's argument.

    It is row-major, the two minor-most axes exchanged if that pads less, axes of extent 1 outermost if that
    pads less still. The recorded real programs follow it: f32[2,96,96,96,4]{3,4,2,1,0}, f32[4096,1000]{0,1}.
    """
    rank = len(dimensions)
    plain = row_major(rank)
    if rank < 2:
        return plain
    packed = packed_row_major(dimensions)
    candidates = [plain, _exchanged(plain), packed, _exchanged(packed)]
    return min(candidates, key=lambda order: padded_size(dimensions, order))


def _exchanged(order: MinorToMajor) -> MinorToMajor:
    return (order[1], order[0], *order[2:])


def is_bitcast(instruction: Instruction, operand_shape: Shape) -> bool:
    """Returns whether a reshape, transpose, copy or bitcast moves no data: its result is its operand's bytes.

    Both shapes carry layouts. Any other opcode computes something and gives False.
    """
    if instruction.opcode is Opcode.BITCAST:
        return True
    if instruction.opcode is Opcode.RESHAPE:
        return reshape_is_free(operand_shape, instruction.shape)
    if instruction.opcode is Opcode.TRANSPOSE:
        moved = tuple(instruction.dimensions[axis] for axis in instruction.shape.layout)
        return _permuted_keeps_bytes(operand_shape, moved)
    if instruction.opcode is Opcode.COPY:
        return _permuted_keeps_bytes(operand_shape, instruction.shape.layout)
    return False


def _permuted_keeps_bytes(shape: Shape, layout: MinorToMajor) -> bool:
    """Returns whether the array has the same bytes in the order `layout` as in its own."""
    sizes = shape.dimensions
    before = [axis for axis in shape.layout if sizes[axis] != 1]
    after = [axis for axis in layout if sizes[axis] != 1]
    physical = tuple(sizes[axis] for axis in reversed(layout))
    return before == after and _same_image(shape.physical_dimensions, physical)


def reshape_is_free(source: Shape, target: Shape) -> bool:
    """Returns whether a reshape between two arrays with layouts leaves all bytes in place."""
    groups = matching_axes(source.dimensions, target.dimensions)
    source_order = _group_order(source.layout, source.dimensions, [g[0] for g in groups])
    target_order = _group_order(target.layout, target.dimensions, [g[1] for g in groups])
    if source_order is None or source_order != target_order:
        return False
    return _same_image(source.physical_dimensions, target.physical_dimensions)


def bitcast_layout(source: Shape, dimensions: tuple[int, ...]) -> MinorToMajor | None:
    """Returns the order of the result of a free reshape of `source`; None if no order makes it free."""
    groups = matching_axes(source.dimensions, dimensions)
    order = _group_order(source.layout, source.dimensions, [g[0] for g in groups])
    if order is None:
        return None
    ones = [axis for axis, size in enumerate(dimensions) if size == 1]
    long = [axis for g in order for axis in groups[g][1]]
    for major_to_minor in (ones + long, list(range(len(dimensions)))):
        target = Shape(source.element_type, dimensions, tuple(reversed(major_to_minor)))
        if reshape_is_free(source, target):
            return target.minor_to_major
    return None


def matching_axes(
    source: Sequence[int], target: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Returns the shortest runs of axes with equal products on both sides of a reshape, without axes of
    extent 1.
    """
    left = [axis for axis, size in enumerate(source) if size != 1]
    right = [axis for axis, size in enumerate(target) if size != 1]
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start_i, start_j = i, j
        a, b = source[left[i]], target[right[j]]
        i, j = i + 1, j + 1
        while a != b and (i < len(left) if a < b else j < len(right)):
            if a < b:
                a, i = a * source[left[i]], i + 1
            else:
                b, j = b * target[right[j]], j + 1
        groups.append((tuple(left[start_i:i]), tuple(right[start_j:j])))
    return groups


def _group_order(
    layout: MinorToMajor, dimensions: tuple[int, ...], groups: list[tuple[int, ...]]
) -> list[int] | None:
    """Returns the memory order of groups of axes, major first; None if one is split or permuted."""
    physical = [axis for axis in reversed(layout) if dimensions[axis] != 1]
    group_of = {axis: index for index, group in enumerate(groups) for axis in group}
    order = list(dict.fromkeys(group_of[axis] for axis in physical if axis in group_of))
    return order if physical == [axis for index in order for axis in groups[index]] else None


def _same_image(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Returns whether two arrays with equal elements in the same linear order have the same tiled image.

    Args:
        first: physical dimensions, major to minor.
        second: likewise.
    """
    if math.prod(first) <= 1:
        return True
    if min(len(first), len(second)) < 2:
        return len(first) == len(second) or (_linear(first) and _linear(second))
    if first[-1] != second[-1]:
        return False
    rows = (first[-2], second[-2])
    return rows[0] == rows[1] or all(size % SUBLANES == 0 for size in rows)


def _linear(physical: tuple[int, ...]) -> bool:
    """Returns whether the tiled image is the linear one: one row, or rows of just 128 lanes in full tiles."""
    if len(physical) < 2:
        return True
    # One row is kept in tiles of 1 x 128, that is linearly.
    if math.prod(physical[:-1]) == 1:
        return True
    return physical[-1] == LANES and physical[-2] % SUBLANES == 0
