"""The iteration space of a kernel: the loops of its generated code, and the axis that each loop runs over.

A kernel computes one value element by element: the *anchor*, which is the convolution or dot that it holds,
or else its largest result (or what its largest result is reduced or scattered from). One loop runs over each
physical axis of the anchor, major to minor. A convolution or dot adds a loop over each axis that it sums.
The loops count native tiles: 8 x 128 elements of a matrix, 1,024 of a vector, and a shorter axis as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.lowering.access import (
    NO_LOOP,
    Access,
    AxisMap,
    access_loops,
    array_shape,
    identity,
    loop_of_axis,
    operand_access,
    whole,
)
from costbench.compiler.tiled_memory import native_units
from costbench.errors import UnsupportedKernelError
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

CONTRACTIONS = frozenset({Opcode.CONVOLUTION, Opcode.DOT})
MAX_LOOPS = 62
"""Loops that a kernel may have: sets of them are bits of a 64-bit integer."""


class Loop(NamedTuple):
    """One loop.

    Attributes:
        extent: elements that it runs over.
        unit: elements of one native tile along it.
        contraction: whether it sums (over a depth or a window) rather than runs over the result.
        fixed: whether it may not be cut (the sorted axis of a sort).
    """

    extent: int
    unit: int
    contraction: bool = False
    fixed: bool = False

    @property
    def units(self) -> int:
        """Returns native tiles along the loop: ceil(extent / unit), at least 1."""
        return max(1, -(-self.extent // self.unit))


class KernelAxis(NamedTuple):
    """One axis of a contraction's right-hand side: the loop over it, its native tiles, elements per tile."""

    loop: int
    units: int
    unit: int


@dataclass(frozen=True, eq=False)
class IterationSpace:
    """The loops over an anchor; kernels of a computation with the same anchor share it.

    Attributes:
        body: computation that holds the anchor.
        anchor: position of the value that the loops run over.
        contracts: whether the kernel itself computes the anchor, a convolution or dot.
        access: access of the anchor.
        loops: `num_output_loops` over the anchor's physical axes, major to minor, then those that sum. Empty
            for a kernel without tiles.
        units: native tiles along each loop, int64 [num_loops].
        num_output_loops: loops over the anchor.
        kernel_axes: axes of the right-hand side in physical order, empty without a contraction.
        operand_accesses: accesses of the contraction's left-hand and right-hand side.
        contraction_order: the loops of a contraction from outermost to innermost, else empty.
        derived: cache of what cost models derive from the contraction, by name of the model.
    """

    body: HloComputation
    anchor: int
    contracts: bool
    access: Access
    loops: tuple[Loop, ...] = ()
    units: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    num_output_loops: int = 0
    kernel_axes: tuple[KernelAxis, ...] = ()
    operand_accesses: tuple[Access, Access] = ((), ())
    contraction_order: tuple[int, ...] = ()
    derived: dict[str, F64] = field(default_factory=dict, repr=False)


def iteration_space(
    body: HloComputation, anchor: int, *, contracts: bool, tiled: bool, fixed: Set[int] = frozenset()
) -> IterationSpace:
    """Returns the loops over an anchor: one per physical axis, major to minor, and those of a contraction.

    Args:
        body: the computation.
        anchor: position of the value that the kernel runs over.
        contracts: whether the kernel itself computes the anchor, a convolution or dot.
        tiled: whether the kernel is cut in tiles at all; otherwise there are no loops.
        fixed: logical axes of the anchor that may not be cut.

    Raises:
        UnsupportedKernelError: for more than `MAX_LOOPS` loops.
    """
    shape = array_shape(body.instructions[anchor].shape)
    if not tiled:
        return IterationSpace(body, anchor, contracts, whole(shape))
    access, loop_of = identity(shape), loop_of_axis(shape)
    axes = shape.layout[::-1]
    loops = tuple(
        Loop(shape.dimensions[axis], unit, fixed=axis in fixed)
        for axis, unit in zip(axes, native_units(shape), strict=True)
    )
    sums = contraction_axes(body, anchor, loop_of, len(loops)) if contracts else None
    if len(loops) + (len(sums.loops) if sums else 0) > MAX_LOOPS:
        raise UnsupportedKernelError(
            f"a kernel over {len(loops)} axes", field=f"instruction {anchor}", expected=f"at most {MAX_LOOPS}"
        )
    if sums is None:
        return IterationSpace(body, anchor, contracts, access, loops, _units(loops), len(loops))
    all_loops = loops + tuple(Loop(extent, unit, contraction=True) for extent, unit in sums.loops)
    return IterationSpace(
        body=body,
        anchor=anchor,
        contracts=contracts,
        access=access,
        loops=all_loops,
        units=_units(all_loops),
        num_output_loops=len(loops),
        kernel_axes=sums.kernel_axes,
        operand_accesses=sums.operands,
        contraction_order=_contraction_order(sums.operands, len(loops), len(all_loops)),
    )


def _units(loops: Sequence[Loop]) -> I64:
    return np.array([loop.units for loop in loops], dtype=np.int64)


def _contraction_order(
    operands: tuple[Access, Access], num_output_loops: int, num_loops: int
) -> tuple[int, ...]:
    """Returns the loop order.

    Columns of the right-hand side are outermost, so that weights stay while rows pass; summing loops
    innermost.
    """
    left, right = operands
    columns = set(access_loops(right)).difference(access_loops(left))
    results = range(num_output_loops)
    return (
        *(loop for loop in results if loop in columns),
        *(loop for loop in results if loop not in columns),
        *range(num_output_loops, num_loops),
    )


# ---- convolutions and dots: which loop moves which axis of their operands --------------------------------


@dataclass(frozen=True)
class ContractionAxes:
    """The loops over which a contraction sums, and the accesses of its operands.

    Attributes:
        loops: (extent, unit) of each summing loop, in the order of the right-hand side's physical axes.
        operands: accesses of the left-hand and right-hand side.
        kernel_axes: axes of the right-hand side, physical order.
    """

    loops: tuple[tuple[int, int], ...]
    operands: tuple[Access, Access]
    kernel_axes: tuple[KernelAxis, ...]


def contraction_axes(
    body: HloComputation, position: int, output_loop: dict[int, int], first_loop: int
) -> ContractionAxes:
    """Returns the summing loops of a convolution or dot and the accesses of its operands.

    Args:
        body: computation that holds the convolution or dot.
        position: position of the convolution or dot.
        output_loop: loop that runs over each logical axis of the result.
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
        kernel_axes.append(KernelAxis(right[axis].loop, max(1, -(-rhs.dimensions[axis] // unit)), unit))
    return ContractionAxes(tuple(loops), (tuple(left), tuple(right)), tuple(kernel_axes))


def _units_by_axis(shape: Shape) -> dict[int, int]:
    """Returns elements of a native tile along each logical axis."""
    return dict(zip(reversed(shape.layout), native_units(shape), strict=True))


_Tied = tuple[list[AxisMap], list[AxisMap], dict[int, tuple[int, bool]]]


def _tie_convolution(inst: Instruction, lhs: Shape, rhs: Shape, output_loop: dict[int, int]) -> _Tied:
    """Returns left and right accesses without summing loops, and a map of summed axes.

    It has, for each summed right-hand axis, (left-hand axis, is window).
    """
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


def positions_fill_depth(body: HloComputation, position: int) -> bool:
    """Returns whether positions of a convolution's window fill the rows of a matrix unit with its depth.

    A matrix unit multiplies by blocks of 128 rows of weights. In the gradient of a filter the window is the
    image and the depth is the batch. For one element of the result, positions that follow one another are
    rows that follow one another in both operands, so that a block takes the next 128 of them, as it does of
    all axes that a dot sums. Where the lanes of an operand run over the depth, a row ends with it, and where
    the window is smaller than what it slides over, its positions are far apart: each is a pass then.
    """
    inst = body.instructions[position]
    c = inst.convolution
    if c is None:
        return False
    lhs, rhs = (body.instructions[operand].shape for operand in inst.operands[:2])
    if lhs.layout[0] == c.input_feature or rhs.layout[0] == c.kernel_input_feature:
        return False
    results = math.prod(inst.shape.dimensions[axis] for axis in c.output_spatial)
    return math.prod(w.size for w in inst.window) > results


def wanted_access(body: HloComputation, position: int, number: int, access: Access) -> Access:
    """Returns the access of operand `number` that an instruction with the given access needs.

    It comes from the rule of the opcode, except where the loops run over a convolution or dot itself, whose
    operand accesses are part of the iteration space.
    """
    inst = body.instructions[position]
    if inst.opcode in CONTRACTIONS and access and access == identity(inst.shape):
        return contraction_axes(body, position, loop_of_axis(inst.shape), len(access)).operands[number]
    operand = body.instructions[inst.operands[number]].shape
    shape = array_shape(operand)
    is_alike = shape.dimensions == array_shape(inst.shape).dimensions
    if is_alike and (inst.shape.is_tuple or operand.is_tuple):
        return access
    needed = operand_access(body, inst, number, access)
    return needed if len(needed) == shape.rank else whole(shape)
