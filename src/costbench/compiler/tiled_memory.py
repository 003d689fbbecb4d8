"""Arrays in tiled TPU memory: their padding, and which reshapes and transposes move no bytes.

A TPU keeps an array of rank two or more in native tiles over its two minor-most axes: 128 lanes wide, and as
many rows high as a second-minor extent of up to four asks for (XLA prints them as T(1,128), T(2,128) and
T(4,128)), else 8. Types narrower than 32 bits are packed: two rows of bfloat16 share a sublane, so that the
smallest tile has two, T(2,128)(2,1). An array of rank one lies in tiles of 256, 512 or 1,024 elements. Axes
are padded to whole tiles, so the memory order decides how much an array occupies, and a reshape is free only
if the padded, tiled image of its operand and of its result are the same.

Tile bounds count units of 8 x 128 elements, or of 1,024 of a vector, for all arrays. An axis has smaller
native tiles only where it fits into one of them, and then it is one unit as well: both counts agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

SUBLANES = 8
LANES = 128
REGISTER_ELEMENTS = SUBLANES * LANES
"""Elements of a register, of a full native tile, and of the largest tile of a vector."""
_MIN_VECTOR_TILE = 2 * LANES
_SUBLANE_BITS = 32

MinorToMajor = tuple[int, ...]


def native_tile(shape: Shape) -> tuple[int, ...]:
    """Returns extents of a native tile: (rows, 128), (elements,) for a vector, () for a scalar.

    The rows are the second-minor extent rounded up to a power of two, at least the rows that share a sublane
    (32 bits / bits of an element) and at most 8: f32 has 1, 2, 4 or 8, bf16 2, 4 or 8, s8 4 or 8. A vector
    has tiles of 256, 512 or 1,024 elements by the same rule for rows of 128.
    """
    rank = len(shape.dimensions)
    extent = shape.dimensions[shape.layout[min(1, rank - 1)]] if rank else 0
    return _tile_of(rank, extent, shape.element_type.bits)


def _native_tile(physical: Sequence[int], bits: int) -> tuple[int, ...]:
    return _tile_of(len(physical), physical[-2:][0] if physical else 0, bits)


@lru_cache(maxsize=1 << 16)
def _tile_of(rank: int, extent: int, bits: int) -> tuple[int, ...]:
    """Returns the native tile given the second-minor extent, or the length of a vector."""
    if rank == 0:
        return ()
    packed = min(SUBLANES, max(1, _SUBLANE_BITS // max(1, bits)))
    if rank == 1:
        smallest = max(_MIN_VECTOR_TILE, packed * LANES)
        return (min(REGISTER_ELEMENTS, max(smallest, _power_of_two(extent))),)
    return (min(SUBLANES, max(packed, _power_of_two(extent))), LANES)


def _power_of_two(size: int) -> int:
    """Returns the least power of two that is not below `size`, at least 1."""
    return 1 << max(0, size - 1).bit_length()


def native_units(shape: Shape) -> tuple[int, ...]:
    """Returns elements of a native tile by physical axis, major to minor: ..., 1, 1, rows, 128.

    Every axis has as many native tiles as units that tile bounds count.
    """
    return (1,) * (shape.rank - 2) + native_tile(shape)


def native_elements(shape: Shape) -> int:
    """Returns elements of a native tile; 1 for a scalar."""
    return math.prod(native_tile(shape))


def native_bytes(shape: Shape) -> float:
    """Returns bytes of a native tile, or of the value itself for a scalar."""
    return native_elements(shape) * shape.element_type.bits / 8


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
    return padded_size(shape, shape.layout)


def padded_bytes(shape: Shape) -> int:
    """Returns `padded_elements` in bytes."""
    if shape.is_tuple:
        return sum(padded_bytes(member) for member in shape.tuple_shapes)
    return (padded_elements(shape) * shape.element_type.bits + 7) // 8


def padded_size(shape: Shape, minor_to_major: MinorToMajor) -> int:
    """Returns `padded_elements` of an array of this type and these dimensions in another order."""
    physical = [shape.dimensions[axis] for axis in reversed(minor_to_major)]
    tile = _native_tile(physical, shape.element_type.bits)
    padded = math.prod(physical[: len(physical) - len(tile)])
    for size, unit in zip(physical[len(physical) - len(tile) :], tile, strict=True):
        padded *= -(-size // unit) * unit
    return padded


def compact_layout(shape: Shape) -> MinorToMajor:
    """Returns the order that a TPU gives a value without other constraints, such as a program's argument.

    It is row-major, the two minor-most axes exchanged if that pads less, axes of extent 1 outermost if that
    pads less still. The recorded real programs follow it: f32[2,96,96,96,4]{3,4,2,1,0}, f32[4096,1000]{0,1}.
    """
    plain = row_major(shape.rank)
    if shape.rank < 2:
        return plain
    packed = packed_row_major(shape.dimensions)
    candidates = [plain, _exchanged(plain), packed, _exchanged(packed)]
    return min(candidates, key=lambda order: (padded_size(shape, order), -_rows(shape, order)))


def _rows(shape: Shape, minor_to_major: MinorToMajor) -> int:
    """Returns the rows of a native tile in another order.

    Of equal orders the one with more is preferred, as it leaves fewer axes to loop over.
    """
    physical = [shape.dimensions[axis] for axis in reversed(minor_to_major)]
    return _native_tile(physical, shape.element_type.bits)[0]


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
    bits = shape.element_type.bits
    return before == after and _same_image(shape.physical_dimensions, physical, bits)


def reshape_is_free(source: Shape, target: Shape) -> bool:
    """Returns whether a reshape between two arrays with layouts leaves all bytes in place."""
    groups = matching_axes(source.dimensions, target.dimensions)
    source_order = _group_order(source.layout, source.dimensions, [g[0] for g in groups])
    target_order = _group_order(target.layout, target.dimensions, [g[1] for g in groups])
    if source_order is None or source_order != target_order:
        return False
    bits = target.element_type.bits
    return _same_image(source.physical_dimensions, target.physical_dimensions, bits)


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
    """Returns the shortest runs of axes with equal products on both sides of a reshape.

    They are without axes of extent 1.
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
    if i < len(left) or j < len(right):  # of arrays without elements, or of a bitcast to another width
        first, second = groups.pop() if groups else ((), ())
        groups.append(((*first, *left[i:]), (*second, *right[j:])))
    return groups


def _group_order(
    layout: MinorToMajor, dimensions: tuple[int, ...], groups: list[tuple[int, ...]]
) -> list[int] | None:
    """Returns the memory order of groups of axes, major first; None if one is split or permuted."""
    physical = [axis for axis in reversed(layout) if dimensions[axis] != 1]
    group_of = {axis: index for index, group in enumerate(groups) for axis in group}
    order = list(dict.fromkeys(group_of[axis] for axis in physical if axis in group_of))
    return order if physical == [axis for index in order for axis in groups[index]] else None


def _same_image(first: tuple[int, ...], second: tuple[int, ...], bits: int) -> bool:
    """Returns whether two arrays with equal elements in the same linear order have the same tiled image.

    Args:
        first: physical dimensions of one array, major to minor.
        second: physical dimensions of the other.
        bits: number of bits of an element.
    """
    if math.prod(first) <= 1:
        return True
    if _is_linear(first, bits) and _is_linear(second, bits):
        return True
    if min(len(first), len(second)) < 2 or first[-1] != second[-1]:
        return len(first) == len(second) == 1
    rows = (first[-2], second[-2])
    tiles = (_native_tile(first, bits)[0], _native_tile(second, bits)[0])
    whole = all(size % tile == 0 for size, tile in zip(rows, tiles, strict=True))
    # Tiles below one another hold consecutive rows, however many each has; tiles side by side do not.
    return rows[0] == rows[1] or (whole and (tiles[0] == tiles[1] or first[-1] <= LANES))


def _is_linear(physical: tuple[int, ...], bits: int) -> bool:
    """Returns whether the tiled image is that of a vector.

    It is a single row, or whole tiles whose rows follow one another without padding.
    """
    # The sublanes of a single row of packed values are part empty, unlike a vector's; code that reads one
    # reads the other as easily, so that such a reshape is no kernel of its own.
    if len(physical) < 2 or math.prod(physical[:-1]) == 1:
        return True
    tile = _native_tile(physical, bits)[0]
    in_rows = physical[-1] == LANES or (tile == 1 and physical[-1] % LANES == 0)
    return in_rows and physical[-2] % tile == 0
