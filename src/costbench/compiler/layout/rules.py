"""Layout rules by opcode: how memory orders propagate through instructions, which orders each one prefers.

`forward` gives the order of a result that follows from an operand's, and `backward` the reverse, where an
instruction keeps an order for free; they return None where it does not relate the two. `preferred_layout` is
the order that an instruction would choose for its result, `required_layouts` gives the orders that its
operands must have once every value has one. Convolutions keep features in lanes and, for 8 images or more,
the batch in sublanes: {3,0,2,1} for NHWC, as in the recorded programs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costbench.compiler.tiled_memory import (
    MinorToMajor,
    bitcast_layout,
    compact_layout,
    is_row_major,
    packed_row_major,
    padded_size,
    reshape_is_free,
)
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode, opcodes
from costbench.hlo.shape import Shape

MIN_BATCH_IN_SUBLANES = 8
MIN_IN_LANES = 3
"""Elements of an axis that may be chosen for the lanes."""
LEAVE_LANES_GAIN = 4
"""Features leave the lanes where that makes an activation this many times smaller (3 channels, say)."""
ACCEPTED_WASTE = 4
"""A contraction takes an operand as it is unless that is padded this many times more than need be."""

Node = tuple[int, int]
"""Computation and position of an instruction, as in `HloModule`."""


@dataclass(frozen=True, slots=True)
class NodeLayouts:
    """Memory orders of one node, fastest axis first.

    Attributes:
        output: order of its result.
        operands: orders of its operands: input and kernel of a convolution or dot, input of a reshape.
    """

    output: MinorToMajor
    operands: tuple[MinorToMajor, ...]


@dataclass(frozen=True, slots=True)
class ConfigurableNode:
    """A node with several options.

    Attributes:
        computation: position of its computation in the program.
        position: position of the node inside that computation.
        opcode: convolution, dot or reshape.
        options: layouts that may be chosen, the compiler's default first.
    """

    computation: int
    position: int
    opcode: Opcode
    options: tuple[NodeLayouts, ...]


# ---- how orders propagate --------------------------------------------------------------------------------

_UNTIED = opcodes("convolution dot gather custom-call rng-bit-generator constant iota parameter")
_FIRST_OPERAND_TIED = frozenset({Opcode.SCATTER, Opcode.DYNAMIC_SLICE, Opcode.REDUCE_WINDOW, Opcode.PAD})


def ties(inst: Instruction, number: int, operand: Shape, result: Shape) -> bool:
    """Returns whether an operand and the result have corresponding axes, and so one memory order."""
    if inst.opcode in _UNTIED or operand.rank != result.rank or operand.rank < 2:
        return False
    if inst.opcode in _FIRST_OPERAND_TIED:
        return number == 0
    return inst.opcode not in (Opcode.BROADCAST, Opcode.REDUCE, Opcode.TRANSPOSE, Opcode.RESHAPE)


def fills_lanes(shape: Shape, order: MinorToMajor) -> bool:
    """Returns whether an order has more than two elements in the lanes."""
    return shape.rank < 2 or shape.dimensions[order[0]] >= MIN_IN_LANES


def forward(inst: Instruction, number: int, operand: Shape, result: Shape) -> MinorToMajor | None:
    """Returns the result's order if it follows from the operand's, else None."""
    if inst.opcode is Opcode.TRANSPOSE:
        inverse = {axis: index for index, axis in enumerate(inst.dimensions)}
        return tuple(inverse[axis] for axis in operand.layout)
    if inst.opcode is Opcode.RESHAPE:
        return bitcast_layout(operand, result.dimensions)
    if inst.opcode is Opcode.REDUCE:
        return reduced_layout(operand.layout, inst.dimensions) if operand.rank > 1 else None
    return operand.layout if ties(inst, number, operand, result) else None


def backward(inst: Instruction, number: int, operand: Shape, result: Shape) -> MinorToMajor | None:
    """Returns the operand's order if it follows from the result's, else None."""
    if inst.opcode is Opcode.TRANSPOSE:
        return tuple(inst.dimensions[axis] for axis in result.layout)
    if inst.opcode is Opcode.RESHAPE:
        return bitcast_layout(result, operand.dimensions)
    if inst.opcode is Opcode.BROADCAST:
        return broadcast_operand_layout(result.layout, inst.dimensions)
    return result.layout if ties(inst, number, operand, result) else None


def reduced_layout(layout: MinorToMajor, reduced: Sequence[int]) -> MinorToMajor:
    """Returns the order of the axes that remain after a reduction."""
    remaining = [axis for axis in range(len(layout)) if axis not in reduced]
    new_axis = {axis: index for index, axis in enumerate(remaining)}
    return tuple(new_axis[axis] for axis in layout if axis in new_axis)


def broadcast_operand_layout(layout: MinorToMajor, dimensions: Sequence[int]) -> MinorToMajor:
    """Returns the order of a broadcast's operand that has its axes in the same sequence as the result."""
    operand_axis = {out: axis for axis, out in enumerate(dimensions)}
    return tuple(operand_axis[axis] for axis in layout if axis in operand_axis)


# ---- what contractions want ------------------------------------------------------------------------------


def preferred_layout(inst: Instruction, operands: Sequence[Shape], result: Shape) -> MinorToMajor | None:
    """Returns the order that an instruction gives its result by default; None if it has no preference.

    Args:
        inst: the instruction.
        operands: first leaf of every operand, orders unknown.
        result: the result, or a member of it.
    """
    if inst.opcode is Opcode.CONVOLUTION and inst.convolution is not None:
        c = inst.convolution
        return _activation_layout(result, c.output_feature, c.output_batch, c.output_spatial)
    if inst.opcode is Opcode.RESHAPE:
        packed = [s.with_layout(packed_row_major(s.dimensions)) for s in (operands[0], result)]
        return None if reshape_is_free(packed[0], packed[1]) else packed[1].minor_to_major
    if inst.opcode is Opcode.GATHER:
        return _rows_in_lanes(result, indexed_window(inst, len(operands) - 1))
    if inst.opcode is Opcode.SCATTER:
        return _rows_in_lanes(result, indexed_window(inst, 0))
    if inst.opcode is Opcode.DOT:
        return _matrix_layout(result)
    if inst.opcode in (Opcode.CUSTOM_CALL, Opcode.RNG_BIT_GENERATOR, Opcode.SORT):
        return compact_layout(result)
    return None


def _matrix_layout(shape: Shape) -> MinorToMajor:
    """Returns row-major order, transposed only if the last axis is too small to fill the lanes."""
    order, compact = packed_row_major(shape.dimensions), compact_layout(shape)
    gain = padded_size(shape, order) / max(1, padded_size(shape, compact))
    return compact if gain >= LEAVE_LANES_GAIN else order


def indexed_window(inst: Instruction, number: int) -> tuple[int, ...]:
    """Returns the axes that a gather or scatter moves as a whole at each index.

    Args:
        inst: the gather or scatter.
        number: 0 for the array that is indexed, anything else for the slices that are moved.
    """
    if inst.gather is not None:
        g = inst.gather
        if number:
            return g.offset_dims
        return tuple(a for a in range(len(g.slice_sizes)) if a not in g.collapsed_slice_dims)
    assert inst.scatter is not None
    s = inst.scatter
    if number:
        return s.update_window_dims
    rank = len(s.update_window_dims) + len(s.inserted_window_dims)
    return tuple(a for a in range(rank) if a not in s.inserted_window_dims)


def _rows_in_lanes(shape: Shape, window: Sequence[int]) -> MinorToMajor:
    """Returns the least padded order with the last axis of a window in lanes; compact for point windows."""
    wide = [axis for axis in window if shape.dimensions[axis] > 1]
    if not wide:
        return compact_layout(shape)
    lanes = wide[-1]
    return (lanes, *(axis for axis in packed_row_major(shape.dimensions) if axis != lanes))


def _activation_layout(shape: Shape, feature: int, batch: int, spatial: Sequence[int]) -> MinorToMajor:
    """Returns the order with features in lanes and the batch in sublanes.

    The image's columns are in sublanes if these pad less than a batch below 8; if features are few, another
    axis is in the lanes.

    In the recorded runs a small axis in the lanes (3 channels, a batch of 32) is what makes layouts slow;
    other orders make next to no difference.
    """
    sizes, windows = shape.dimensions, tuple(reversed(spatial))
    if sizes[batch] >= MIN_BATCH_IN_SUBLANES or not windows:
        best: MinorToMajor = (feature, batch, *windows)
    else:
        # Few images have native tiles of few rows, which pad no more than the image's columns would.
        candidates = ((feature, batch, *windows), (feature, *windows, batch))
        best = min(candidates, key=lambda order: padded_size(shape, order))
    alternatives: list[MinorToMajor] = [(batch, feature, *windows)]
    if windows:
        alternatives.append((windows[0], batch, *windows[1:], feature))
    for order in alternatives:
        if padded_size(shape, best) >= LEAVE_LANES_GAIN * padded_size(shape, order):
            best = order
    return best


def _convolution_operand(inst: Instruction, number: int, operand: Shape) -> MinorToMajor:
    assert inst.convolution is not None
    c = inst.convolution
    if number == 0:
        lanes, windows = (c.input_feature, c.input_batch), c.input_spatial
    else:
        lanes, windows = (c.kernel_output_feature, c.kernel_input_feature), c.kernel_spatial
    if _is_weight_gradient(inst):
        # Both operands are activations; the first has its batch where others have their features.
        lanes = (lanes[1], lanes[0]) if number == 0 else lanes
        preferred = _activation_layout(operand, lanes[0], lanes[1], windows)
    elif number == 0:
        preferred = _activation_layout(operand, lanes[0], lanes[1], windows)
    else:
        preferred = (*lanes, *reversed(windows))
        # Weights with one input feature, as of a depthwise convolution, have another axis in the sublanes.
        lanes = lanes if operand.dimensions[lanes[1]] > 1 else (lanes[0], operand.layout[1])
    fits = set(operand.layout[:2]) == set(lanes) or operand.layout[0] == preferred[0] not in lanes
    return operand.layout if fits and _tight(operand, preferred) else preferred


def _is_weight_gradient(inst: Instruction) -> bool:
    """Returns whether a convolution computes a weight gradient.

    It convolves an activation with an activation's gradient, so that the window is the larger image.
    """
    assert inst.convolution is not None
    window = math.prod(w.size for w in inst.window)
    return window > math.prod(inst.shape.dimensions[axis] for axis in inst.convolution.output_spatial)


def dot_operand_layout(inst: Instruction, number: int, operand: Shape) -> MinorToMajor:
    """Returns the operand's order with its matrix axes in the two minor-most places.

    These are in either sequence, and batch axes and those of extent 1 outside.
    """
    assert inst.dot is not None
    batch = inst.dot.lhs_batch if number == 0 else inst.dot.rhs_batch
    long = [axis for axis in operand.layout if operand.dimensions[axis] > 1]
    matrix = [axis for axis in long if axis not in batch]
    if not batch or not any(axis in batch for axis in long[: min(2, len(matrix))]):
        return operand.layout
    outside = [axis for axis in long if axis in batch]
    return (*matrix, *outside, *(axis for axis in operand.layout if operand.dimensions[axis] == 1))


def preferred_dot_operand(inst: Instruction, number: int, operand: Shape) -> MinorToMajor:
    """Returns the order that pads an operand of a dot least, of those that the dot reads without a copy."""
    packed = operand.with_layout(packed_row_major(operand.dimensions))
    order = dot_operand_layout(inst, number, packed)
    exchanged = (order[1], order[0], *order[2:])
    takes_exchanged = dot_operand_layout(inst, number, operand.with_layout(exchanged)) == exchanged
    less = padded_size(operand, exchanged) < padded_size(operand, order)
    return exchanged if takes_exchanged and less else order


def _tight(operand: Shape, preferred: MinorToMajor) -> bool:
    has = padded_size(operand, operand.layout)
    return has <= ACCEPTED_WASTE * padded_size(operand, preferred)


# ---- what an instruction needs once every value has its order --------------------------------------------


def required_layouts(
    inst: Instruction, operands: Sequence[Shape], result: Shape, chosen: NodeLayouts | None = None
) -> tuple[list[MinorToMajor], MinorToMajor]:
    """Returns the order that each operand must have, and the order in which the result then is.

    Where the latter differs from the result's assigned order, a copy must follow. A reshape uses exactly the
    `chosen` orders. A convolution or dot computes its result in the chosen one, but reads an operand in the
    order it has if it can: on the real machine operands' orders make no difference.
    """
    if chosen is not None and inst.opcode is Opcode.RESHAPE:
        return list(chosen.operands), chosen.output
    if chosen is not None:
        needs, _ = required_layouts(inst, operands, result)
        orders = [
            chosen_order if operand.layout != need and fills_lanes(operand, chosen_order) else need
            for operand, need, chosen_order in zip(operands, needs, chosen.operands, strict=True)
        ]
        return orders, chosen.output
    if inst.opcode is Opcode.RESHAPE:
        return _reshape_layouts(operands[0], result)
    if inst.opcode is Opcode.TRANSPOSE:
        natural = forward(inst, 0, operands[0], result)
        assert natural is not None
        return [operands[0].layout], natural
    needs = [operand.layout for operand in operands]
    if inst.opcode is Opcode.CONVOLUTION:
        return [_convolution_operand(inst, k, operand) for k, operand in enumerate(operands)], result.layout
    if inst.opcode is Opcode.DOT:
        return [dot_operand_layout(inst, k, operand) for k, operand in enumerate(operands)], result.layout
    if inst.opcode in (Opcode.GATHER, Opcode.SCATTER):
        return _indexed_layouts(inst, operands, result)
    if inst.opcode is Opcode.BROADCAST:
        return [broadcast_operand_layout(result.layout, inst.dimensions)], result.layout
    if inst.opcode is Opcode.REDUCE:
        natural = reduced_layout(operands[0].layout, inst.dimensions)
        inputs = len(operands) // 2
        return [operands[0].layout if k < inputs else need for k, need in enumerate(needs)], natural
    for k, operand in enumerate(operands):
        if ties(inst, k, operand, result):
            needs[k] = result.layout
    return needs, result.layout


def _indexed_layouts(
    inst: Instruction, operands: Sequence[Shape], result: Shape
) -> tuple[list[MinorToMajor], MinorToMajor]:
    """Returns orders for gathers and scatters: rows move whole, so they must be in lanes on both sides."""
    needs = [operand.layout for operand in operands]
    needs[0] = _with_rows_in_lanes(operands[0], indexed_window(inst, 0))
    if inst.opcode is Opcode.GATHER:
        return needs, _with_rows_in_lanes(result, indexed_window(inst, 1))
    natural = _with_rows_in_lanes(result, indexed_window(inst, 0))
    needs[0] = natural
    if len(operands) == 3:
        needs[2] = _with_rows_in_lanes(operands[2], indexed_window(inst, 2))
    return needs, natural


def _with_rows_in_lanes(shape: Shape, window: Sequence[int]) -> MinorToMajor:
    wide = [axis for axis in window if shape.dimensions[axis] > 1]
    return shape.layout if not wide or shape.layout[0] in wide else _rows_in_lanes(shape, window)


def _reshape_layouts(operand: Shape, result: Shape) -> tuple[list[MinorToMajor], MinorToMajor]:
    """Returns orders that make the reshape free, with a copy before or after it; else row-major orders."""
    if reshape_is_free(operand, result):
        return [operand.layout], result.layout
    free = bitcast_layout(operand, result.dimensions)
    if free is not None:
        return [operand.layout], free
    operand_order = bitcast_layout(result, operand.dimensions)
    if operand_order is not None:
        return [operand_order], result.layout
    packed = [s.layout if is_row_major(s) else packed_row_major(s.dimensions) for s in (operand, result)]
    return [packed[0]], packed[1]
