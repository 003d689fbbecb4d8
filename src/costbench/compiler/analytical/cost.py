"""Formula of the compiler's hand-written (analytical) cost model for tile sizes: each iteration of the loop
nest takes the larger of its transfer time and its compute time.

The model is the baseline of lpm2021 (section 2.3 and appendix A), rebuilt from what such a model may know
before code is generated: how often a tile is fetched again, window halos, nominal bandwidth and peak with
padding to the matrix unit, some 100 ns of control per iteration, and that small transfers reach less of the
bandwidth. It takes only a chip's public `Architecture`; the rest of the machine is for learned models to
find out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.lowering.iteration_space import IterationSpace
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.lowering.packed import PackedNest, unpacked
from costbench.compiler.lowering.work import (
    EVERY_ITERATION,
    EVERY_RESULT,
    WorkModel,
    contraction_numbers,
)
from costbench.compiler.tiling.footprint import (
    Tile,
    mean_extent,
    new_tile,
    set_tile,
)
from costbench.execution.compiled import compiled, compiled_step
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.target import Architecture

ITERATION_NS = 100.0
"""Control and latency of one iteration."""
HALF_EFFICIENCY_BYTES = 16 * 1024
"""Size at which a transfer reaches half of the nominal bandwidth."""
OPERATIONS_PER_CYCLE = 2.0
"""Vector registers that the vector unit is taken to process per cycle."""

_WITHOUT_WORK = frozenset(
    {
        Opcode.PARAMETER,
        Opcode.CONSTANT,
        Opcode.TUPLE,
        Opcode.GET_TUPLE_ELEMENT,
        Opcode.BITCAST,
        Opcode.RESHAPE,
        Opcode.BROADCAST,
        Opcode.CONVOLUTION,
        Opcode.DOT,
    }
)
_WORKS_ON_OPERAND = {Opcode.REDUCE: 0, Opcode.DYNAMIC_UPDATE_SLICE: 1, Opcode.SCATTER: -1}
_EXPENSIVE = {
    Opcode.EXPONENTIAL: 6.0,
    Opcode.LOG: 6.0,
    Opcode.TANH: 6.0,
    Opcode.LOGISTIC: 8.0,
    Opcode.RSQRT: 6.0,
    Opcode.SQRT: 6.0,
    Opcode.DIVIDE: 6.0,
    Opcode.POWER: 12.0,
    Opcode.SINE: 12.0,
    Opcode.COSINE: 12.0,
    Opcode.ERF: 12.0,
    Opcode.SORT: 64.0,
}


_BANDWIDTH, _CYCLE_NS, _MXU_SIZE, _NUM_MXUS = range(4)
_DILATION, _HAS_GROUPS, _FIRST_ROLE = range(3)
_OTHER, _COLUMNS, _DEPTH = range(3)
_NO_CONTRACTION = np.zeros(0)


class Estimate(NamedTuple):
    """Inputs of the formula that are the same for all tile sizes of a kernel.

    Attributes:
        words: the packed loop nest.
        weights: operations per 1,024 elements of each box, [2, num_boxes]: row 0 runs in every iteration, row
            1 once per result tile.
        contraction: dilation, whether it has groups, then the role of each loop; empty for a kernel without
            a contraction.
        chip: bandwidth, cycle, size and number of matrix units.
    """

    words: F64
    weights: F64
    contraction: F64
    chip: F64


class CostWorkspace(NamedTuple):
    """Buffers that are overwritten for each tile size.

    Attributes:
        nest: the lowered kernel; the same for all tile sizes.
        tile: the tile size.
        elements: [num_loops], elements along each loop, averaged over the tiles, in whole native tiles.
        padded: [num_boxes], elements of a tile padded to native tiles.
    """

    nest: PackedNest
    tile: Tile
    elements: F64
    padded: F64


def chip_numbers(chip: Architecture) -> F64:
    """Returns the figures of a chip that the cost depends on, as `Estimate.chip`."""
    return np.array((chip.hbm_gb_per_s, chip.cycle_ns, chip.mxu_size, chip.num_mxus), dtype=np.float64)


def estimate_of(nest: LoopNest, chip: F64) -> Estimate:
    """Returns the inputs of the formula; `chip` comes from `chip_numbers`.

    The kernel's operation counts do not depend on the chip and are computed once.
    """
    weights = nest.described.get(OPERATIONS.name)
    if weights is None:
        weights = nest.tables.table(OPERATIONS).per_box(nest.words, nest.kernel.instructions).reshape(2, -1)
        nest.described[OPERATIONS.name] = weights
    contraction = contraction_numbers(nest.space, OPERATIONS.name, describe_contraction)
    return Estimate(nest.words, weights, contraction, chip)


def _describe(_: HloModule, body: HloComputation, position: int) -> list[tuple[int, tuple[float]]]:
    """Returns the position of the value that an instruction works on, with its operations per element."""
    inst = body.instructions[position]
    if inst.opcode in _WITHOUT_WORK:
        return []
    # A reduction works on what it reads, an update in place on what it writes.
    place = _WORKS_ON_OPERAND.get(inst.opcode)
    subject = position if place is None else inst.operands[place]
    window = math.prod(w.size for w in inst.window)
    return [(subject, (window * _EXPENSIVE.get(inst.opcode, 1.0),))]


OPERATIONS = WorkModel("analytical", 1, _describe)
"""Operations per element of instructions."""


def describe_contraction(space: IterationSpace) -> F64:
    """Returns `Estimate.contraction`; an empty array where the kernel is not tiled."""
    if not space.loops:
        return _NO_CONTRACTION
    left, right = space.operand_accesses
    inst = space.body.instructions[space.anchor]
    in_left = {loop for axis in left for loop in axis.loops}
    in_right = {loop for axis in right for loop in axis.loops}
    windows = {axis.window_loop for axis in left}
    roles = []
    for loop in range(len(space.loops)):
        if loop in in_right and loop not in in_left:
            roles.append(_COLUMNS)
        elif loop in in_left and loop in in_right and loop >= space.num_output_loops and loop not in windows:
            roles.append(_DEPTH)
        else:
            roles.append(_OTHER)
    dilation = math.prod(w.base_dilation for w in inst.window)
    groups = max(inst.feature_group_count, inst.batch_group_count)
    return np.array([dilation, groups > 1, *roles], dtype=np.float64)


@compiled
def new_cost_workspace(estimate: Estimate) -> CostWorkspace:
    """Allocates the buffers for pricing the tile sizes of one kernel."""
    nest = unpacked(estimate.words)
    return CostWorkspace(nest, new_tile(nest), np.empty(len(nest.loops)), np.zeros(len(nest.boxes) - 1))


@compiled
def tile_costs(estimate: Estimate, extents: I64) -> F64:
    """Returns estimated nanoseconds [n] for loop extents [n, num_loops]."""
    result = np.empty(len(extents))
    workspace = new_cost_workspace(estimate)
    for i in range(len(extents)):
        set_tile(workspace.nest, extents[i], workspace.tile)
        result[i] = tile_cost(estimate, workspace)
    return result


@compiled_step
def tile_cost(estimate: Estimate, workspace: CostWorkspace) -> float:
    """Returns estimated nanoseconds of the tile size that the workspace holds."""
    nest, trips, chip = workspace.nest, workspace.tile.trips, estimate.chip
    iterations, results = 1.0, 1.0
    for loop in range(len(trips)):
        workspace.elements[loop] = nest.loops[loop].units * nest.loops[loop].unit / trips[loop]
        iterations *= trips[loop]
        if loop < nest.num_output_loops:
            results *= trips[loop]
    vector = 0.0
    for box in range(len(workspace.padded)):
        every, after = estimate.weights[EVERY_ITERATION, box], estimate.weights[EVERY_RESULT, box]
        works = (every > 0.0 or after > 0.0) and not nest.boxes[box].is_unmapped
        if works or box < nest.num_copied_boxes:
            workspace.padded[box] = _padded(nest, box, workspace.elements)
        if works:
            vector += (every * iterations + after * results) * workspace.padded[box] / 1024.0
    transfer = 0.0
    for item in range(len(nest.transfers)):
        box = nest.transfers[item].box
        num_bytes = workspace.padded[box] * nest.transfers[item].element_bytes
        # bytes / (bandwidth * bytes / (bytes + half)) = (bytes + half) / bandwidth
        fetches = _fetches(nest, nest.boxes[box].mask, trips)
        transfer += fetches * (num_bytes + HALF_EFFICIENCY_BYTES) / chip[_BANDWIDTH]
    # Matrix and vector work of the whole kernel, perfectly scheduled side by side.
    matrix = iterations * _matrix_cycles(estimate, workspace)
    compute = max(vector / OPERATIONS_PER_CYCLE, matrix) * chip[_CYCLE_NS]
    return float(max(transfer, compute) + iterations * ITERATION_NS)


@compiled_step
def _padded(nest: PackedNest, box: int, elements: F64) -> float:
    """Returns the elements of a tile, padded to native tiles; those of a vector are not."""
    first, end = nest.boxes[box].first_axis, nest.boxes[box + 1].first_axis
    total = 1.0
    for axis in range(first, end):
        unit = nest.axes[axis].native if end > first + 1 else 1.0
        total *= np.ceil(mean_extent(nest.axes[axis], elements) / unit) * unit
    return total


@compiled_step
def _fetches(nest: PackedNest, mask: int, trips: F64) -> float:
    """Returns how often a tile is copied: the product of the trips of all loops from the outermost one to the
    innermost one that moves the tile.
    """
    fetches, so_far = 1.0, 1.0
    for place in range(len(nest.order)):
        loop = nest.order[place]
        so_far *= trips[loop]
        if mask >> loop & 1 and trips[loop] > 1.0:
            fetches = so_far
    return fetches


@compiled_step
def _matrix_cycles(estimate: Estimate, workspace: CostWorkspace) -> float:
    """Returns matrix-unit cycles of one tile: multiply-adds, both sides padded to the unit's size, over the
    peak rate.
    """
    contraction, size = estimate.contraction, estimate.chip[_MXU_SIZE]
    if len(contraction) == 0:
        return 0.0
    work, depth = 1.0, 1.0
    for loop in range(len(workspace.elements)):
        role = contraction[_FIRST_ROLE + loop]
        if role == _COLUMNS:
            work *= np.ceil(workspace.elements[loop] / size) * size
        elif role == _DEPTH:
            depth *= workspace.elements[loop]
        else:
            work *= workspace.elements[loop]
    if contraction[_HAS_GROUPS]:
        # Groups leave the matrix unit nearly empty, so their products run on the vector unit.
        return float(work * depth / contraction[_DILATION] * 2.0 / 1024.0 / OPERATIONS_PER_CYCLE)
    peak = estimate.chip[_NUM_MXUS] * size * size
    return float(work * np.ceil(depth / size) * size / contraction[_DILATION] / peak)
