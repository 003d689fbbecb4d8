"""Convolutions and dots as loops: which loop moves which axis of their operands."""

from __future__ import annotations

from dataclasses import dataclass

from costbench.compiler.lowering.access import NO_LOOP, Access, AxisMap
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

CONTRACTIONS = frozenset({Opcode.CONVOLUTION, Opcode.DOT})


@dataclass(frozen=True)
class ContractionAxes:
    """The contraction's own loops and the accesses of its operands.

    Attributes:
        loops: (extent, unit) of each summing loop, in the order of the right-hand side's physical axes.
        operands: accesses of the left-hand and right-hand side.
        kernel_axes: (loop, native tiles, elements per native tile) of the right-hand side, physical order.
    """

    loops: tuple[tuple[int, int], ...]
    operands: tuple[Access, Access]
    kernel_axes: tuple[tuple[int, int, int], ...]


def contraction_axes(
    body: HloComputation, position: int, output_loop: dict[int, int], first_loop: int
) -> ContractionAxes:
    """Derives the loops of a convolution or dot.

    Args:
        body: the computation that holds it.
        position: the convolution or dot.
        output_loop: logical axis of the result -> loop that walks it.
        first_loop: number that the first summing loop gets.
    """
    inst = body.instructions[position]
    lhs = body.instructions[inst.operands[0]].shape
    rhs = body.instructions[inst.operands[1]].shape
    tie = _tie_convolution if inst.opcode is Opcode.CONVOLUTION else _tie_dot
    left, right, summed = tie(inst, lhs, rhs, output_loop)
    loops: list[tuple[int, int]] = []
    lhs_units, rhs_units = _units_by_axis(lhs), _units_by_axis(rhs)
    for axis in reversed(rhs.layout):
        if axis not in summed:
            continue
        lhs_axis, window = summed[axis]
        loop = first_loop + len(loops)
        # A window is cut in whole native tiles of the right-hand side, a depth also in those of the left.
        unit = rhs_units[axis] if window else max(lhs_units[lhs_axis], rhs_units[axis])
        loops.append((rhs.dimensions[axis], unit))
        right[axis] = AxisMap(loop=loop)
        if window:
            left[lhs_axis] = left[lhs_axis]._replace(window_loop=loop)
        else:
            left[lhs_axis] = AxisMap(loop=loop)
    kernel_axes = []
    for axis in reversed(rhs.layout):
        unit = rhs_units[axis]
        kernel_axes.append((right[axis].loop, max(1, -(-rhs.dimensions[axis] // unit)), unit))
    return ContractionAxes(tuple(loops), (tuple(left), tuple(right)), tuple(kernel_axes))


def _units_by_axis(shape: Shape) -> dict[int, int]:
    """Elements of a native tile along each logical axis: 128 lanes, 8 sublanes, else 1."""
    order = shape.layout
    if shape.rank == 1:
        return {0: 1024}
    return {axis: (128, 8)[place] if place < 2 else 1 for place, axis in enumerate(order)}


_Tied = tuple[list[AxisMap], list[AxisMap], dict[int, tuple[int, bool]]]


def _tie_convolution(inst: Instruction, lhs: Shape, rhs: Shape, output_loop: dict[int, int]) -> _Tied:
    """Left and right accesses without summing loops, and right-hand axis -> (left-hand axis, is window)."""
    c = inst.convolution
    assert c is not None
    left = [AxisMap()] * lhs.rank
    right = [AxisMap()] * rhs.rank
    groups, batch_groups = max(1, inst.feature_group_count), max(1, inst.batch_group_count)
    feature_loop = output_loop.get(c.output_feature, NO_LOOP)
    num_features = max(1, inst.shape.dimensions[c.output_feature])
    right[c.kernel_output_feature] = AxisMap(loop=feature_loop)
    if batch_groups == 1:
        left[c.input_batch] = AxisMap(loop=output_loop.get(c.output_batch, NO_LOOP))
    else:
        ratio = lhs.dimensions[c.input_batch] / num_features
        left[c.input_batch] = AxisMap(loop=feature_loop, scale=ratio)
    summed: dict[int, tuple[int, bool]] = {}
    if groups == 1:
        summed[c.kernel_input_feature] = (c.input_feature, False)
    else:
        # A group's inputs feed a group's outputs: the input features follow the output features.
        left[c.input_feature] = AxisMap(
            loop=feature_loop, scale=lhs.dimensions[c.input_feature] / num_features
        )
    spatial = zip(c.input_spatial, c.kernel_spatial, c.output_spatial, inst.window, strict=True)
    for lhs_axis, rhs_axis, out_axis, window in spatial:
        left[lhs_axis] = AxisMap(
            loop=output_loop.get(out_axis, NO_LOOP),
            window=window.size,
            stride=window.stride,
            dilation=window.window_dilation,
            base_dilation=window.base_dilation,
            padding=window.padding_low + window.padding_high,
        )
        summed[rhs_axis] = (lhs_axis, True)
    return left, right, summed


def _tie_dot(inst: Instruction, lhs: Shape, rhs: Shape, output_loop: dict[int, int]) -> _Tied:
    d = inst.dot
    assert d is not None
    left = [AxisMap()] * lhs.rank
    right = [AxisMap()] * rhs.rank
    out = 0
    for lhs_axis, rhs_axis in zip(d.lhs_batch, d.rhs_batch, strict=True):
        left[lhs_axis] = right[rhs_axis] = AxisMap(loop=output_loop.get(out, NO_LOOP))
        out += 1
    for axis in range(lhs.rank):
        if axis not in d.lhs_batch and axis not in d.lhs_contracting:
            left[axis] = AxisMap(loop=output_loop.get(out, NO_LOOP))
            out += 1
    for axis in range(rhs.rank):
        if axis not in d.rhs_batch and axis not in d.rhs_contracting:
            right[axis] = AxisMap(loop=output_loop.get(out, NO_LOOP))
            out += 1
    pairs = zip(d.lhs_contracting, d.rhs_contracting, strict=True)
    return left, right, {rhs_axis: (lhs_axis, False) for lhs_axis, rhs_axis in pairs}
