"""The formula of the compiler's hand-written (analytical) cost model: nanoseconds of a tile size of a kernel.

Each iteration of the loop nest takes the larger of its transfer time and its compute time, and some 100 ns of
control; `costbench.compiler.estimate_quality` says what a model leaves out that knows less.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.estimate_quality import RULES
from costbench.compiler.lowering.access import NO_LOOP
from costbench.compiler.lowering.iteration_space import IterationSpace, positions_fill_depth
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.lowering.packed import PackedNest, unpacked
from costbench.compiler.lowering.work import (
    EVERY_ITERATION,
    EVERY_RESULT,
    WorkModel,
    contraction_numbers,
)
from costbench.compiler.tile_footprint import (
    Axis,
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


_MOVES = frozenset(
    {
        Opcode.COPY,
        Opcode.TRANSPOSE,
        Opcode.REVERSE,
        Opcode.SLICE,
        Opcode.PAD,
        Opcode.CONCATENATE,
        Opcode.GATHER,
        Opcode.SCATTER,
        Opcode.DYNAMIC_SLICE,
        Opcode.DYNAMIC_UPDATE_SLICE,
    }
)
"""Instructions that only move data."""
_PLAIN, _EXTRA, _MOVED = range(3)
"""Kinds of operations: one for each element of an instruction that computes, what expensive ones take beyond
that, one for each element that is only moved."""

_BANDWIDTH, _CYCLE_NS, _MXU_SIZE, _NUM_MXUS = range(4)
(
    _REFETCH,
    _LOOP_ORDER,
    _BOX_PADDING,
    _HALO,
    _MATRIX_PADDING,
    _OVERLAP,
    _DIRECTIONS,
    _TRANSFER_SIZE,
    _CONTROL,
    _UNITS,
    _OPERATION_COSTS,
    _COUNTS_MOVES,
    _EPILOGUE,
) = range(len(RULES))
_IN_ORDER, _ONCE_EACH, _EVERY_TIME = range(3)
_PHYSICAL = 1
_NATIVE, _LANES, _UNPADDED = range(3)
_SUM, _SEPARATE, _IN_TURN = 1, 1, 1
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
        rules: what the model knows, see `estimate_quality.rule_numbers`.
    """

    words: F64
    weights: F64
    contraction: F64
    chip: F64
    rules: F64


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


def estimate_of(nest: LoopNest, chip: F64, rules: F64) -> Estimate:
    """Returns the inputs of the formula; `chip` comes from `chip_numbers`, `rules` from `rule_numbers`.

    The kernel's operation counts depend neither on the chip nor on the rules and are computed once.
    """
    operations = nest.derived.get(OPERATIONS.name)
    if operations is None:
        operations = nest.tables.table(OPERATIONS).per_box(nest.words, nest.kernel.instructions)
        nest.derived[OPERATIONS.name] = operations
    contraction = contraction_numbers(nest.space, OPERATIONS.name, describe_contraction)
    return Estimate(nest.words, weights_of(operations, rules), contraction, chip, rules)


@compiled
def weights_of(operations: F64, rules: F64) -> F64:
    """Returns `Estimate.weights` of operations by kind, [2, num_boxes, 3]."""
    weights = operations[:, :, _PLAIN].copy()
    if rules[_OPERATION_COSTS]:
        weights += operations[:, :, _EXTRA]
    if rules[_COUNTS_MOVES]:
        weights += operations[:, :, _MOVED]
    return weights


def _describe(_: HloModule, body: HloComputation, position: int) -> list[tuple[int, tuple[float, ...]]]:
    """Returns the position of the value that an instruction works on, with its operations per element."""
    inst = body.instructions[position]
    if inst.opcode in _WITHOUT_WORK:
        return []
    # A reduction works on what it reads, an update in place on what it writes.
    operand = _WORKS_ON_OPERAND.get(inst.opcode)
    subject = position if operand is None else inst.operands[operand]
    if inst.opcode in _MOVES:
        return [(subject, (0.0, 0.0, 1.0))]
    window = math.prod(w.size for w in inst.window)
    return [(subject, (float(window), window * (_EXPENSIVE.get(inst.opcode, 1.0) - 1.0), 0.0))]


OPERATIONS = WorkModel("analytical", 3, _describe)
"""Operations per element of instructions, by kind: whole numbers, so that sums are exact in any order."""


def describe_contraction(space: IterationSpace) -> F64:
    """Returns `Estimate.contraction`; an empty array where the kernel is not tiled."""
    if not space.loops:
        return _NO_CONTRACTION
    left, right = space.operand_accesses
    inst = space.body.instructions[space.anchor]
    in_left = {loop for axis in left for loop in axis.loops}
    in_right = {loop for axis in right for loop in axis.loops}
    fills_depth = positions_fill_depth(space.body, space.anchor)
    windows: set[int] = set() if fills_depth else {axis.window_loop for axis in left}
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
    nest, trips, chip, rules = workspace.nest, workspace.tile.trips, estimate.chip, estimate.rules
    iterations, results = 1.0, 1.0
    for loop in range(len(trips)):
        workspace.elements[loop] = nest.loops[loop].units * nest.loops[loop].unit / trips[loop]
        iterations *= trips[loop]
        if loop < nest.num_output_loops:
            results *= trips[loop]
    if not rules[_EPILOGUE]:
        results = iterations
    vector = 0.0
    for box in range(len(workspace.padded)):
        every, after = estimate.weights[EVERY_ITERATION, box], estimate.weights[EVERY_RESULT, box]
        works = (every > 0.0 or after > 0.0) and not nest.boxes[box].is_unmapped
        if works or box < nest.num_copied_boxes:
            workspace.padded[box] = _padded(nest, box, workspace.elements, rules)
        if works:
            vector += (every * iterations + after * results) * workspace.padded[box] / 1024.0
    compute = _compute_cycles(estimate, workspace, vector / OPERATIONS_PER_CYCLE, iterations)
    compute *= chip[_CYCLE_NS]
    transfer = _transfer_ns(estimate, workspace, iterations)
    time = transfer + compute if rules[_OVERLAP] == _SUM else max(transfer, compute)
    if rules[_CONTROL]:
        time += iterations * ITERATION_NS
    return float(time)


@compiled_step
def _compute_cycles(estimate: Estimate, workspace: CostWorkspace, vector: float, iterations: float) -> float:
    """Returns cycles of the matrix and vector work of the whole kernel, given those of the latter."""
    matrix = iterations * _matrix_cycles(estimate, workspace)
    return float(vector + matrix if estimate.rules[_UNITS] == _IN_TURN else max(vector, matrix))


@compiled_step
def _transfer_ns(estimate: Estimate, workspace: CostWorkspace, iterations: float) -> float:
    """Returns nanoseconds of all copies of the whole kernel."""
    nest, chip, rules = workspace.nest, estimate.chip, estimate.rules
    half = HALF_EFFICIENCY_BYTES if rules[_TRANSFER_SIZE] else 0
    copied, written = 0.0, 0.0
    for item in range(len(nest.transfers)):
        box = nest.transfers[item].box
        num_bytes = workspace.padded[box] * nest.transfers[item].element_bytes
        # bytes / (bandwidth * bytes / (bytes + half)) = (bytes + half) / bandwidth
        fetches = _fetches(nest, nest.boxes[box].mask, workspace.tile.trips, rules, iterations)
        time = fetches * (num_bytes + half) / chip[_BANDWIDTH]
        if rules[_DIRECTIONS] == _SEPARATE and nest.transfers[item].is_output:
            written += time
        else:
            copied += time
    return max(copied, written)


@compiled_step
def _padded(nest: PackedNest, box: int, elements: F64, rules: F64) -> float:
    """Returns the elements of a tile, padded to native tiles; those of a vector are not."""
    first, end = nest.boxes[box].first_axis, nest.boxes[box + 1].first_axis
    total = 1.0
    for axis in range(first, end):
        length = mean_extent(nest.axes[axis], elements)
        if not rules[_HALO]:
            length = _extent_without_halo(nest.axes[axis], elements)
        if rules[_BOX_PADDING] != _UNPADDED:
            is_padded = end > first + 1 and (rules[_BOX_PADDING] == _NATIVE or axis == end - 1)
            unit = nest.axes[axis].native if is_padded else 1.0
            length = np.ceil(length / unit) * unit
        total *= length
    return total


@compiled_step
def _extent_without_halo(axis: Axis, elements: F64) -> float:
    """Returns the elements of an axis that tiles share out among them, whatever the windows over it."""
    if axis.loop == NO_LOOP:
        return float(axis.size)
    shared = elements[axis.loop] * axis.scale * axis.stride / axis.base_dilation
    return float(min(shared, axis.size))


@compiled_step
def _fetches(nest: PackedNest, mask: int, trips: F64, rules: F64, iterations: float) -> float:
    """Returns how often a tile is copied.

    It is the product of the trips of all loops from the outermost one to the innermost one that moves the
    tile, or what a model takes for it that does not know the order of loops.
    """
    fetches, so_far = 1.0, 1.0
    for index in range(len(nest.order)):
        loop = nest.order[index]
        if rules[_LOOP_ORDER] == _PHYSICAL:
            loop = _physical(nest, index)
        moves = mask >> loop & 1 and trips[loop] > 1.0
        if rules[_REFETCH] == _ONCE_EACH:
            fetches *= trips[loop] if moves else 1.0
            continue
        so_far *= trips[loop]
        if moves:
            fetches = so_far
    if rules[_REFETCH] == _EVERY_TIME and fetches > 1.0:
        return iterations
    return fetches


@compiled_step
def _physical(nest: PackedNest, index: int) -> int:
    """Returns a loop of more than one native tile by its place in memory order, those that sum last."""
    number = 0
    for loop in range(len(nest.loops)):
        if nest.loops[loop].units > 1.0:
            if number == index:
                return loop
            number += 1
    return number


@compiled_step
def _matrix_cycles(estimate: Estimate, workspace: CostWorkspace) -> float:
    """Returns matrix-unit cycles of one tile.

    They are its multiply-adds, both sides padded to the unit's size, over the peak rate.
    """
    contraction, size = estimate.contraction, estimate.chip[_MXU_SIZE]
    if len(contraction) == 0:
        return 0.0
    is_padded = estimate.rules[_MATRIX_PADDING] != 0.0
    work, depth = 1.0, 1.0
    for loop in range(len(workspace.elements)):
        role = contraction[_FIRST_ROLE + loop]
        if role == _COLUMNS and is_padded:
            work *= np.ceil(workspace.elements[loop] / size) * size
        elif role == _DEPTH:
            depth *= workspace.elements[loop]
        else:
            work *= workspace.elements[loop]
    if contraction[_HAS_GROUPS]:
        # Groups leave the matrix unit nearly empty, so their products run on the vector unit.
        return float(work * depth / contraction[_DILATION] * 2.0 / 1024.0 / OPERATIONS_PER_CYCLE)
    if is_padded:
        depth = np.ceil(depth / size) * size
    peak = estimate.chip[_NUM_MXUS] * size * size
    return float(work * depth / contraction[_DILATION] / peak)
