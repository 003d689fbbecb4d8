"""Access maps: which part of each value of a kernel one tile of the loop nest touches, with rules by opcode.

The *access* of a value has one `AxisMap` per axis: which loop moves the tile along the axis, and how many
elements of the axis one tile needs. A kernel's loops run over one value, its anchor. The accesses of all
other values are derived from the anchor's, forwards through users and backwards through operands: an
elementwise operation keeps the maps, a broadcast or transpose renames them, a window widens them, a
reduction drops them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from costbench.hlo.instruction import Instruction, WindowDimension
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape

NO_LOOP = -1


class AxisMap(NamedTuple):
    """The part of an axis that one tile touches.

    With e the elements that `loop` covers in a tile, the part has
    `((scale*e - 1)*stride + (w - 1)*dilation + 1) / base_dilation` elements, w being `window` or, where the
    window itself is cut by `window_loop`, the elements of that loop. Without any loop it is the whole axis.
    """

    loop: int = NO_LOOP
    scale: float = 1.0
    window_loop: int = NO_LOOP
    window: int = 1
    stride: int = 1
    dilation: int = 1
    base_dilation: int = 1
    padding: int = 0

    @property
    def loops(self) -> tuple[int, ...]:
        """Returns the loops that move the tile along this axis."""
        return tuple(loop for loop in (self.loop, self.window_loop) if loop != NO_LOOP)

    @property
    def is_window(self) -> bool:
        """Returns whether neighbouring tiles overlap or leave gaps: windows, strides and dilation."""
        return self.window != 1 or self.window_loop != NO_LOOP or self.stride != 1 or self.base_dilation != 1


WHOLE = AxisMap()
_TOKEN = Shape(ElementType.TOKEN)
Access = tuple[AxisMap, ...]
"""One map per axis of a value, in logical order."""


def whole(shape: Shape) -> Access:
    """Returns the access of a value that every tile needs completely."""
    return (WHOLE,) * shape.rank


def loop_of_axis(shape: Shape) -> dict[int, int]:
    """Returns the loop over each logical axis of an anchor, numbered in memory order, major first."""
    return {axis: loop for loop, axis in enumerate(reversed(shape.layout))}


def identity(shape: Shape) -> Access:
    """Returns the access of an anchor: each loop moves its own axis."""
    loops = loop_of_axis(shape)
    return tuple(AxisMap(loop=loops[axis]) for axis in range(shape.rank))


def array_shape(shape: Shape) -> Shape:
    """Returns the shape itself, the largest member of a tuple, or of an empty one a token."""
    if not shape.is_tuple:
        return shape
    return max(shape.leaves(), key=lambda leaf: leaf.num_elements, default=_TOKEN)


def access_loops(access: Access) -> tuple[int, ...]:
    """Returns all loops that move a tile of the value, ascending."""
    return tuple(sorted({loop for axis in access for loop in axis.loops}))


def through_window(axis: AxisMap, window: WindowDimension) -> AxisMap:
    """Returns the map of a window's base axis, given the map of the result's axis."""
    if not axis.loops:
        return WHOLE
    wider = axis._replace(
        stride=axis.stride * window.stride,
        base_dilation=axis.base_dilation * window.base_dilation,
        padding=axis.padding * window.stride + window.padding_low + window.padding_high,
    )
    if axis.window_loop != NO_LOOP:
        # Only one of the two windows can be cut by a loop: it stays, and the few elements that the other one
        # adds are ignored.
        return wider._replace(dilation=axis.dilation * window.stride)
    reach = (axis.window - 1) * axis.dilation * window.stride + window.dilated_size
    return wider._replace(window=reach, dilation=1)


def _scaled(axis: AxisMap, ratio: float) -> AxisMap:
    return axis if ratio == 1.0 or not axis.loops else axis._replace(scale=axis.scale * ratio)


def reshaped(source: Access, source_shape: Shape, target_shape: Shape) -> Access:
    """Returns the access of a reshape's other side.

    Groups of axes with equal products correspond; inside a group the loop moves the major axis. The last
    groups of a bitcast to another width have other products: an element there is a part of one here.
    """
    result = [WHOLE] * target_shape.rank
    groups = _reshape_groups(source_shape.dimensions, target_shape.dimensions)
    for source_axes, target_axes in groups:
        moving = [a for a in source_axes if source[a].loops]
        if not moving or not target_axes:
            continue
        lead = moving[0]
        # The major axis of a merged group moves; its minor axes are taken whole.
        target = next((t for t in target_axes if target_shape.dimensions[t] > 1), target_axes[0])
        size = max(1, target_shape.dimensions[target])
        result[target] = _scaled(source[lead], size / max(1, source_shape.dimensions[lead]))
    return tuple(result)


def _reshape_groups(source: tuple[int, ...], target: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Returns the shortest runs of axes with equal products; axes of extent 1 join the run before them."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        left, right = [], []
        product_left = product_right = 1
        if i < len(source):
            left, product_left, i = [i], source[i], i + 1
        if j < len(target):
            right, product_right, j = [j], target[j], j + 1
        while product_left != product_right:
            if product_left < product_right and i < len(source):
                product_left, left, i = product_left * source[i], [*left, i], i + 1
            elif j < len(target):
                product_right, right, j = product_right * target[j], [*right, j], j + 1
            elif i < len(source):
                product_left, left, i = product_left * source[i], [*left, i], i + 1
            else:
                break
        groups.append((left, right))
    return groups


# ---- backwards: what an operand must provide -------------------------------------------------------------


def operand_access(body: HloComputation, inst: Instruction, number: int, access: Access) -> Access:
    """Returns the access of operand `number` that a tile of the instruction's value needs."""
    shape = body.instructions[inst.operands[number]].shape
    if shape.is_tuple or (inst.shape.is_tuple and inst.opcode not in _ALIKE_MEMBERS):
        return whole(shape)
    rule = _BACKWARD.get(inst.opcode)
    if rule is not None:
        return rule(inst, number, access, shape)
    if shape.dimensions == inst.shape.dimensions:
        return access
    return whole(shape)


def _broadcast_operand(inst: Instruction, number: int, access: Access, shape: Shape) -> Access:
    return tuple(
        access[out] if size == inst.shape.dimensions[out] else WHOLE
        for out, size in zip(inst.dimensions, shape.dimensions, strict=True)
    )


def _transpose_operand(inst: Instruction, number: int, access: Access, shape: Shape) -> Access:
    result = [WHOLE] * shape.rank
    for out, axis in enumerate(inst.dimensions):
        result[axis] = access[out]
    return tuple(result)


def _reshape_operand(inst: Instruction, number: int, access: Access, shape: Shape) -> Access:
    return reshaped(access, inst.shape, shape)


def _reduce_operand(inst: Instruction, number: int, access: Access, shape: Shape) -> Access:
    if shape.rank == 0:
        return ()
    remaining = iter(access)
    return tuple(WHOLE if axis in inst.dimensions else next(remaining) for axis in range(shape.rank))


def _window_operand(inst: Instruction, number: int, access: Access, shape: Shape) -> Access:
    if shape.rank == 0:
        return ()
    return tuple(through_window(axis, window) for axis, window in zip(access, inst.window, strict=True))


def _concatenate_operand(inst: Instruction, number: int, access: Access, shape: Shape) -> Access:
    axis = inst.dimensions[0]
    ratio = shape.dimensions[axis] / max(1, inst.shape.dimensions[axis])
    return tuple(_scaled(m, ratio) if a == axis else m for a, m in enumerate(access))


def _resized_operand(inst: Instruction, number: int, access: Access, shape: Shape) -> Access:
    """Handles slices, pads, dynamic slices: axes correspond; a strided slice reads skipped elements, too."""
    if shape.rank != inst.shape.rank:
        return whole(shape)
    result = []
    for axis, (size, out) in enumerate(zip(shape.dimensions, inst.shape.dimensions, strict=True)):
        stride = inst.slices[axis].stride if inst.slices else 1
        ratio = (
            min(size, out * stride) / max(1, out)
            if inst.opcode is not Opcode.PAD
            else min(1.0, size / max(1, out))
        )
        result.append(_scaled(access[axis], ratio))
    return tuple(result)


def _updated_operand(inst: Instruction, number: int, access: Access, shape: Shape) -> Access:
    """Handles what changes its first operand: the others correspond to it axis by axis, in other sizes."""
    if shape.rank != inst.shape.rank:
        return whole(shape)
    if number == 0:
        return access
    return tuple(
        _scaled(axis, size / max(1, out))
        for axis, size, out in zip(access, shape.dimensions, inst.shape.dimensions, strict=True)
    )


def _gather_operand(inst: Instruction, number: int, access: Access, shape: Shape) -> Access:
    """Handles gathers: the table is addressed at random and has no tile; indices follow the batch axes."""
    assert inst.gather is not None
    if number == 0:
        return whole(shape)
    batch = [a for a in range(inst.shape.rank) if a not in inst.gather.offset_dims]
    maps = [access[a] for a in batch]
    if inst.gather.index_vector_dim < shape.rank:
        maps.insert(inst.gather.index_vector_dim, WHOLE)
    return tuple(maps) if len(maps) == shape.rank else whole(shape)


def scatter_index_access(inst: Instruction, updates: Access, shape: Shape) -> Access:
    """Returns the access of a scatter's indices, which follows the axes of its updates outside windows."""
    assert inst.scatter is not None
    maps = [m for axis, m in enumerate(updates) if axis not in inst.scatter.update_window_dims]
    if inst.scatter.index_vector_dim < shape.rank:
        maps.insert(inst.scatter.index_vector_dim, WHOLE)
    return tuple(maps) if len(maps) == shape.rank else whole(shape)


def _unmapped_operand(inst: Instruction, number: int, access: Access, shape: Shape) -> Access:
    return whole(shape)


def _top_k_operand(inst: Instruction, number: int, access: Access, shape: Shape) -> Access:
    """Handles top-k: the searched (last) axis is needed as a whole."""
    return (*access[: shape.rank - 1], WHOLE)


_ALIKE_MEMBERS = frozenset({Opcode.REDUCE, Opcode.TOPK})
"""Operations on several arrays at once, whose results all have one shape."""

_Rule = Callable[[Instruction, int, Access, Shape], Access]
_BACKWARD: Mapping[Opcode, _Rule] = {
    Opcode.BROADCAST: _broadcast_operand,
    Opcode.TRANSPOSE: _transpose_operand,
    Opcode.RESHAPE: _reshape_operand,
    Opcode.BITCAST: _reshape_operand,
    Opcode.REDUCE: _reduce_operand,
    Opcode.REDUCE_WINDOW: _window_operand,
    Opcode.CONCATENATE: _concatenate_operand,
    Opcode.SLICE: _resized_operand,
    Opcode.PAD: _resized_operand,
    Opcode.DYNAMIC_SLICE: _resized_operand,
    Opcode.DYNAMIC_UPDATE_SLICE: _updated_operand,
    Opcode.GATHER: _gather_operand,
    Opcode.TOPK: _top_k_operand,
    Opcode.SCATTER: _unmapped_operand,
    Opcode.SELECT_AND_SCATTER: _updated_operand,
    Opcode.DOT: _unmapped_operand,
    Opcode.CONVOLUTION: _unmapped_operand,
}


def is_elementwise(inst: Instruction, shape: Shape) -> bool:
    """Returns whether each element of the value depends on the operand's element in the same place only."""
    alike = inst.opcode not in _BACKWARD and shape.dimensions == inst.shape.dimensions
    return alike and not (shape.is_tuple or inst.shape.is_tuple)


# ---- forwards: where a user's value follows from its operand's -------------------------------------------


def result_access(body: HloComputation, inst: Instruction, number: int, access: Access) -> Access | None:
    """Returns the access of a user's value, given that of operand `number`; None if it is undetermined."""
    source = body.instructions[inst.operands[number]].shape
    if source.is_tuple or (inst.shape.is_tuple and inst.opcode is not Opcode.REDUCE):
        return None
    if inst.opcode is Opcode.BROADCAST:
        result = [WHOLE] * inst.shape.rank
        for axis, out in enumerate(inst.dimensions):
            result[out] = access[axis]
        return tuple(result)
    if inst.opcode is Opcode.TRANSPOSE:
        return tuple(access[axis] for axis in inst.dimensions)
    if inst.opcode in (Opcode.RESHAPE, Opcode.BITCAST):
        return reshaped(access, source, inst.shape)
    if inst.opcode is Opcode.REDUCE:
        return (
            tuple(m for axis, m in enumerate(access) if axis not in inst.dimensions) if source.rank else None
        )
    if inst.opcode in (
        Opcode.REDUCE_WINDOW,
        Opcode.SELECT_AND_SCATTER,
        Opcode.SLICE,
        Opcode.PAD,
        Opcode.CONCATENATE,
    ):
        if source.rank != inst.shape.rank:
            return None
        return tuple(
            _scaled(m, out / max(1, size))
            for m, size, out in zip(access, source.dimensions, inst.shape.dimensions, strict=True)
        )
    if inst.opcode in (Opcode.DOT, Opcode.CONVOLUTION, Opcode.GATHER, Opcode.SCATTER):
        return None
    return access if source.dimensions == inst.shape.dimensions else None


def wider(first: Access | None, second: Access) -> Access:
    """Returns an access that covers both uses of a value: axes on which they differ are taken whole."""
    if first is None or first == second:
        return second
    return tuple(a if a == b else _wider_axis(a, b) for a, b in zip(first, second, strict=True))


def _wider_axis(a: AxisMap, b: AxisMap) -> AxisMap:
    if a.loops != b.loops or not a.loops:
        return WHOLE
    reach = [m.scale * m.stride + m.window * m.dilation for m in (a, b)]
    return a if reach[0] >= reach[1] else b
