"""What the matrix units do for one tile of a convolution or dot.

A contraction runs as passes of rows through 128 x 128 weights. What plays the part of rows (M), columns (N),
depth (K), taps of a window and batch is read off the loops of the nest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.compiler.footprint import TileGrid
from costbench.compiler.loop_nest import LANES, SUBLANES, LoopNest
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.target import Target, Timing

FloatArray = npt.NDArray[np.float64]
_SHIFT_SHARE = 0.25
"""Moves of a row per tap of a window in the sublanes: four of five taps reuse what was shifted before."""


@dataclass(frozen=True)
class ContractionRoles:
    """Loops of a contraction by the role they play in the matrix product.

    Attributes:
        rows: M.
        columns: N.
        depth: K; empty for grouped convolutions, whose groups are never cut.
        taps: positions of the window.
        batch: independent products.
        num_groups: feature or batch groups.
        group_depth: K inside a group.
        group_columns: N inside a group.
        skipped: base dilation: of so many taps, one meets an element that is not padding.
        window_in_sublanes: whether moving the window moves rows between sublanes.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    depth: tuple[int, ...]
    taps: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    num_groups: int = 1
    group_depth: int = 1
    group_columns: float = math.inf
    skipped: float = 1.0
    window_in_sublanes: bool = False


def contraction_roles(nest: LoopNest) -> ContractionRoles:
    """The roles of a contraction's loops."""
    assert nest.contraction is not None
    inst = nest.kernel.instruction(nest.contraction)
    loop_of = {axis: loop for loop, axis in enumerate(reversed(inst.shape.layout))} if nest.is_tiled else {}
    summing = tuple(range(nest.num_output_loops, len(nest.loops)))
    if inst.opcode is Opcode.DOT:
        return _dot_roles(nest, inst, loop_of, summing)
    return _convolution_roles(nest, inst, loop_of, summing)


def _dot_roles(
    nest: LoopNest, inst: Instruction, loop_of: dict[int, int], summing: tuple[int, ...]
) -> ContractionRoles:
    assert inst.dot is not None
    lhs = nest.kernel.instruction(inst.operands[0]).shape
    num_batch = len(inst.dot.lhs_batch)
    first_column = lhs.rank - len(inst.dot.lhs_contracting)
    axes = sorted(loop_of)
    return ContractionRoles(
        rows=tuple(loop_of[a] for a in axes if num_batch <= a < first_column),
        columns=tuple(loop_of[a] for a in axes if a >= first_column),
        depth=summing,
        batch=tuple(loop_of[a] for a in axes if a < num_batch),
        group_depth=max(1, math.prod(lhs.dimensions[a] for a in inst.dot.lhs_contracting)),
    )


def _convolution_roles(
    nest: LoopNest, inst: Instruction, loop_of: dict[int, int], summing: tuple[int, ...]
) -> ContractionRoles:
    c = inst.convolution
    assert c is not None
    lhs, rhs = (nest.kernel.instruction(operand).shape for operand in inst.operands[:2])
    num_groups = max(1, inst.feature_group_count) * max(1, inst.batch_group_count)
    right = nest.operand_accesses[1]
    taps = tuple(right[axis].loop for axis in c.kernel_spatial if right and right[axis].loop >= 0)
    features = inst.shape.dimensions[c.output_feature]
    return ContractionRoles(
        rows=tuple(loop for axis, loop in loop_of.items() if axis != c.output_feature),
        columns=(loop_of[c.output_feature],) if loop_of else (),
        depth=tuple(loop for loop in summing if loop not in taps),
        taps=taps,
        num_groups=num_groups,
        group_depth=rhs.dimensions[c.kernel_input_feature],
        group_columns=features / num_groups if num_groups > 1 else math.inf,
        skipped=float(math.prod(w.base_dilation for w in inst.window)),
        window_in_sublanes=any(
            axis in lhs.layout[1:2] and w.size > 1
            for axis, w in zip(c.input_spatial, inst.window, strict=True)
        ),
    )


@dataclass(frozen=True, eq=False)
class MatrixTime:
    """One tile of a contraction, nanoseconds, each [n].

    Attributes:
        matrix_ns: passes through the matrix units and draining them; 0 where the vector unit does the work.
        vector_ns: rows shifted under a window, partial sums added, or products made on the vector unit.
    """

    matrix_ns: FloatArray
    vector_ns: FloatArray


def matrix_time(grid: TileGrid, target: Target) -> MatrixTime:
    """Prices one tile of the nest's contraction: on the matrix units or, for groups, the faster way.

    passes = groups * taps * ceil(K/128) * ceil(N/128), each the larger of streaming M rows and loading 128
    weights, shared by the matrix units.
    """
    nest, timing = grid.nest, target.timing
    assert nest.contraction is not None
    inst = nest.kernel.instruction(nest.contraction)
    roles = contraction_roles(nest)
    cycle = target.architecture.cycle_ns
    taps = np.maximum(_product(grid, roles.taps) / roles.skipped, 1.0)
    registers = grid.registers(nest.anchor_shape, nest.accesses[nest.contraction])
    passes, shifts = _matrix_cycles(grid, roles, taps, target)
    cut = grid.moves(range(nest.num_output_loops, len(nest.loops)))
    sums = cut * registers * timing.accumulate_cycles
    matrix = passes * cycle + _drain_ns(inst, timing)
    vector = (shifts + sums) * cycle
    if roles.num_groups == 1:
        return MatrixTime(matrix, vector)
    direct = _direct_cycles(grid, roles, taps) * timing.vector_cycles * cycle
    slower = direct < passes * cycle
    return MatrixTime(np.where(slower, 0.0, matrix), np.where(slower, direct + sums * cycle, vector))


def _matrix_cycles(
    grid: TileGrid, roles: ContractionRoles, taps: FloatArray, target: Target
) -> tuple[FloatArray, FloatArray]:
    size, timing = target.architecture.mxu_size, target.timing
    rows = np.ceil(_product(grid, roles.rows) / SUBLANES) * SUBLANES
    depth = _product(grid, roles.depth) if roles.depth else np.full(grid.count, float(roles.group_depth))
    columns = _product(grid, roles.columns)
    groups = np.maximum(columns / roles.group_columns, 1.0) if roles.num_groups > 1 else 1.0
    blocks = np.ceil(depth / size) * np.ceil(np.minimum(columns, roles.group_columns) / size)
    passes = groups * taps * blocks * _product(grid, roles.batch)
    cycles = passes * np.maximum(rows, timing.weight_load_cycles) / target.architecture.num_mxus
    shifts = np.zeros(grid.count)
    if roles.window_in_sublanes:
        shifts = (taps - 1.0) * rows * np.ceil(depth / size) * _SHIFT_SHARE * timing.row_move_cycles
    return cycles, shifts


def _direct_cycles(grid: TileGrid, roles: ContractionRoles, taps: FloatArray) -> FloatArray:
    """Operations on the vector unit, a multiply and an add per product: how depthwise convolutions run.

    Features lie in lanes; rows (or, where they are summed, batches) fill the sublanes.
    """
    depth = _product(grid, roles.depth) if roles.depth else float(roles.group_depth)
    positions = _product(grid, roles.rows) * taps * depth
    return 2.0 * np.ceil(positions / SUBLANES) * np.ceil(_product(grid, roles.columns) / LANES)


def _product(grid: TileGrid, loops: Sequence[int]) -> FloatArray:
    """Elements that some loops cover together in a full tile, [n]."""
    result = np.ones(grid.count)
    for loop in loops:
        result = result * grid.full[loop]
    return result


def _drain_ns(inst: Instruction, timing: Timing) -> float:
    spatial = inst.convolution is not None and bool(inst.convolution.output_spatial)
    return timing.convolution_drain_ns if spatial else timing.dot_drain_ns
