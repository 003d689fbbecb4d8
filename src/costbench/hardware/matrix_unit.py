"""Computes the time of the matrix units for one tile of a convolution or dot.

A contraction runs as passes that stream rows through 128 x 128 weights. Each loop of the nest has a role in
that product: rows (M), columns (N), depth (K), taps of a window, or batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64
from costbench.compiler.lowering.iteration_space import IterationSpace, positions_fill_depth
from costbench.compiler.lowering.packed import PackedNest
from costbench.compiler.tile_footprint import Tile, registers
from costbench.compiler.tiled_memory import LANES, SUBLANES
from costbench.execution.compiled import compiled_step
from costbench.hardware.machine import (
    ACCUMULATE_CYCLES,
    CONVOLUTION_DRAIN_NS,
    CYCLE_NS,
    DOT_DRAIN_NS,
    EDGES,
    EDGES_FULL,
    MXU_SIZE,
    NUM_MXUS,
    ROW_MOVE_CYCLES,
    VECTOR_CYCLES,
    WEIGHT_LOAD_CYCLES,
)
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode

# Bits of a loop's roles, and entries of a packed contraction.
_ROWS, _COLUMNS, _DEPTH, _TAPS, _BATCH = range(5)
(
    _NUM_GROUPS,
    _GROUP_DEPTH,
    _GROUP_COLUMNS,
    _SKIPPED,
    _WINDOW_IN_SUBLANES,
    _CUTS_DEPTH,
    _IS_SPATIAL,
    _TAPS_FILL_DEPTH,
    _FIRST_ROLES,
) = range(9)
_SHIFT_SHARE = 0.25
"""Moves of a row per tap of a window in the sublanes: four of five taps reuse what was shifted before."""


@dataclass(frozen=True)
class ContractionRoles:
    """Loops of a contraction by the role they play in the matrix product.

    Attributes:
        rows: loops over rows of the left-hand side, M.
        columns: loops over columns of the right-hand side, N.
        depth: loops that are summed over, K; empty for grouped convolutions, whose groups are never cut.
        taps: loops over positions of the window.
        batch: loops over independent products.
        num_groups: number of feature or batch groups.
        group_depth: K inside a group.
        group_columns: N inside a group.
        skipped: base dilation, of which only one of this many taps meets an element that is not padding.
        window_in_sublanes: whether moving the window moves rows between sublanes.
        taps_fill_depth: whether taps and depth fill the rows of a matrix unit together.
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
    taps_fill_depth: bool = False


def contraction_roles(space: IterationSpace) -> ContractionRoles:
    """Returns the roles of the loops over a contraction; all are empty for a kernel without tiles."""
    inst = space.body.instructions[space.anchor]
    loop_of = {axis: loop for loop, axis in enumerate(reversed(inst.shape.layout))} if space.loops else {}
    summing = tuple(range(space.num_output_loops, len(space.loops)))
    if inst.opcode is Opcode.DOT:
        return _dot_roles(space, inst, loop_of, summing)
    return _convolution_roles(space, inst, loop_of, summing)


def _dot_roles(
    space: IterationSpace, inst: Instruction, loop_of: dict[int, int], summing: tuple[int, ...]
) -> ContractionRoles:
    assert inst.dot is not None
    lhs = space.body.instructions[inst.operands[0]].shape
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
    space: IterationSpace, inst: Instruction, loop_of: dict[int, int], summing: tuple[int, ...]
) -> ContractionRoles:
    c = inst.convolution
    assert c is not None
    lhs, rhs = (space.body.instructions[operand].shape for operand in inst.operands[:2])
    num_groups = max(1, inst.feature_group_count) * max(1, inst.batch_group_count)
    right = space.operand_accesses[1]
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
        taps_fill_depth=positions_fill_depth(space.body, space.anchor),
    )


class MatrixTime(NamedTuple):
    """Time of one tile of a contraction, nanoseconds.

    Attributes:
        matrix_ns: passes through the matrix units and draining them; 0 where the vector unit does the work.
        vector_ns: shifting rows under a window, adding partial sums, or products on the vector unit.
    """

    matrix_ns: float
    vector_ns: float


MATRIX_UNIT = "matrix unit"
"""Under this name an iteration space keeps its packed contraction."""


def pack_contraction(space: IterationSpace) -> F64:
    """Returns a contraction as an array: the entries named above, then the bit set of each loop's roles."""
    roles = contraction_roles(space)
    played = [0] * len(space.loops)
    for role, loops in enumerate((roles.rows, roles.columns, roles.depth, roles.taps, roles.batch)):
        for loop in loops:
            played[loop] |= 1 << role
    inst = space.body.instructions[space.anchor]
    spatial = inst.convolution is not None and bool(inst.convolution.output_spatial)
    numbers = (
        roles.num_groups,
        roles.group_depth,
        roles.group_columns,
        roles.skipped,
        roles.window_in_sublanes,
        bool(roles.depth),
        spatial,
        roles.taps_fill_depth,
    )
    return np.array([*numbers, *played], dtype=np.float64)


@compiled_step
def matrix_time(
    nest: PackedNest, contraction: F64, size: ProductSize, tile: Tile, moving: int, machine: F64
) -> MatrixTime:
    """Prices one tile of the nest's contraction: on the matrix units or, with groups, on the faster unit.

    passes = groups * taps * ceil(K/128) * ceil(N/128), each the larger of streaming M rows and loading 128
    weights, shared by the matrix units; ceil(taps * K / 128) where taps fill the depth. `size` is that of the
    tile in full; the tile's sizes must have been set.
    """
    if len(contraction) == 0:
        return MatrixTime(0.0, 0.0)
    cycle = machine[CYCLE_NS]
    cycles, shifts = _matrix_cycles(contraction, size, machine)
    sums = 0.0
    if moving >> nest.num_output_loops:
        added = registers(nest, tile, nest.result_box, machine[EDGES] != EDGES_FULL)
        sums = added * machine[ACCUMULATE_CYCLES]
    if contraction[_NUM_GROUPS] > 1.0:
        # A multiply and an add per product, features in lanes; rows (or, where they are summed, batches) fill
        # the sublanes: how depthwise convolutions run.
        products = np.ceil(size.rows * size.taps * size.depth / SUBLANES) * np.ceil(size.columns / LANES)
        direct = 2.0 * products * machine[VECTOR_CYCLES]
        if direct < cycles:
            return MatrixTime(0.0, (direct + sums) * cycle)
    drain = machine[CONVOLUTION_DRAIN_NS if contraction[_IS_SPATIAL] else DOT_DRAIN_NS]
    return MatrixTime(cycles * cycle + drain, (shifts + sums) * cycle)


class ProductSize(NamedTuple):
    """Elements of a full tile along the loops of each role, see `ContractionRoles`."""

    rows: float
    columns: float
    depth: float
    taps: float
    batch: float


@compiled_step
def product_size(contraction: F64, tile: Tile) -> ProductSize:
    """Returns the elements of the product of one tile in full; 1 everywhere without a contraction."""
    rows, columns, depth, taps, batch = 1.0, 1.0, 1.0, 1.0, 1.0
    if len(contraction) == 0:
        return ProductSize(rows, columns, depth, taps, batch)
    for loop in range(len(tile.full)):
        roles, elements = int(contraction[_FIRST_ROLES + loop]), tile.full[loop]
        rows *= elements if roles >> _ROWS & 1 else 1.0
        columns *= elements if roles >> _COLUMNS & 1 else 1.0
        depth *= elements if roles >> _DEPTH & 1 else 1.0
        taps *= elements if roles >> _TAPS & 1 else 1.0
        batch *= elements if roles >> _BATCH & 1 else 1.0
    if not contraction[_CUTS_DEPTH]:
        depth = contraction[_GROUP_DEPTH]
    return ProductSize(rows, columns, depth, max(taps / contraction[_SKIPPED], 1.0), batch)


@compiled_step
def _matrix_cycles(contraction: F64, product: ProductSize, machine: F64) -> tuple[float, float]:
    """Returns cycles of the matrix units, and of shifting rows under a window."""
    size = machine[MXU_SIZE]
    rows = np.ceil(product.rows / SUBLANES) * SUBLANES
    columns = min(product.columns, contraction[_GROUP_COLUMNS])
    groups = 1.0
    if contraction[_NUM_GROUPS] > 1.0:
        groups = max(product.columns / contraction[_GROUP_COLUMNS], 1.0)
    positions, depth = product.taps, product.depth
    if contraction[_TAPS_FILL_DEPTH]:
        positions, depth = 1.0, product.taps * product.depth
    blocks = np.ceil(depth / size) * np.ceil(columns / size)
    passes = groups * positions * blocks * product.batch
    cycles = passes * max(rows, machine[WEIGHT_LOAD_CYCLES]) / machine[NUM_MXUS]
    shifts = 0.0
    if contraction[_WINDOW_IN_SUBLANES]:
        moved = (product.taps - 1.0) * rows * np.ceil(product.depth / size)
        if contraction[_TAPS_FILL_DEPTH]:
            moved = (np.ceil(depth / size) - 1.0) * rows
        shifts = moved * _SHIFT_SHARE * machine[ROW_MOVE_CYCLES]
    return cycles, shifts
