"""Compute time of one iteration: matrix passes, vector work, data movement inside the scratchpad.

Every tile is computed in full, edge tiles included. Work that needs the finished sums of a contraction (its
epilogue) runs once per result tile, everything else in every iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.compiler.access import array_shape
from costbench.compiler.footprint import registers
from costbench.compiler.loop_nest import LANES, SUBLANES, LoopNest
from costbench.hardware.vector_work import vector_cost
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape
from costbench.target import Target

FloatArray = npt.NDArray[np.float64]
_SORT_OPS = 6.0
_WINDOW_OPS = 1.5
_LANE_MOVE_FACTOR = 4.0
_FLAT_OPS_PER_ELEMENT = 64.0


@dataclass(frozen=True, eq=False)
class ComputeTime:
    """Nanoseconds, each [n].

    Attributes:
        matrix_ns: matrix unit, per iteration.
        vector_ns: vector unit, per iteration.
        epilogue_ns: vector unit, per result tile of a contraction.
    """

    matrix_ns: FloatArray
    vector_ns: FloatArray
    epilogue_ns: FloatArray


class _Tiles:
    """Registers of each value's tile, worked out once per distinct shape and access."""

    def __init__(self, nest: LoopNest, full: list[FloatArray], count: int) -> None:
        self.nest, self.full, self.count = nest, full, count
        self._known: dict[tuple[object, ...], FloatArray] = {}

    def of(self, position: int) -> FloatArray:
        shape = array_shape(self.nest.kernel.instruction(position).shape)
        access = self.nest.accesses.get(position, ())
        if len(access) != shape.rank:
            return np.full(self.count, math.ceil(shape.num_elements / 1024.0))
        key = (shape.dimensions, shape.layout, access)
        if key not in self._known:
            self._known[key] = registers(shape, access, self.full, self.count)
        return self._known[key]


def compute_time(nest: LoopNest, extents: npt.NDArray[np.int64], target: Target) -> ComputeTime:
    """Prices the work of one full tile.

    Raises:
        UnsupportedKernelError: if the kernel holds an operation that the machine cannot run.
    """
    count = len(extents)
    full = nest.full_elements(extents)
    tiles = _Tiles(nest, full, count)
    cycle = target.architecture.cycle_ns
    matrix = np.zeros(count)
    inner = np.zeros(count)
    epilogue = np.zeros(count)
    for position in nest.kernel.instructions:
        inst = nest.kernel.instruction(position)
        cycles = _vector_cycles(nest, tiles, position, inst, target)
        if position == nest.contraction:
            passes, shifts = _matrix_cycles(nest, inst, full, target)
            direct = _direct_cycles(nest, inst, tiles, full, target)
            better = passes <= direct
            matrix = np.where(better, passes, 0.0) * cycle + _drain_ns(inst, target) * better
            inner += np.where(better, shifts, direct)
            inner += _accumulate_cycles(nest, tiles, extents, target)
        elif position in nest.after_contraction:
            epilogue += cycles
        else:
            inner += cycles
    lanes = np.full(count, _cross_lane_ns(nest, target, after=False))
    lanes_after = np.full(count, _cross_lane_ns(nest, target, after=True))
    return ComputeTime(matrix, inner * cycle + lanes, epilogue * cycle + lanes_after)


def _vector_cycles(
    nest: LoopNest, tiles: _Tiles, position: int, inst: Instruction, target: Target
) -> FloatArray:
    timing = target.timing
    special = _special_operations(nest, tiles, position, inst)
    cost = vector_cost(inst.opcode)
    if special is not None:
        return special * timing.vector_cycles
    count = np.zeros(tiles.count)
    if cost.simple or cost.transcendental or cost.random:
        filled = tiles.of(position)
        if inst.shape.rank or inst.shape.is_tuple:
            count = count + cost.simple * (filled + timing.unroll_registers) * timing.vector_cycles
            count = count + cost.transcendental * filled * timing.transcendental_cycles
            count = count + cost.random * filled * timing.random_cycles
    moved = _moved_rows(nest, inst)
    if moved:
        count = count + moved * SUBLANES * tiles.of(position) * timing.row_move_cycles * _packing(
            inst.shape, target
        )
    return count


def _packing(shape: Shape, target: Target) -> float:
    return target.timing.packed_move_factor if 0 < array_shape(shape).element_type.bits <= 16 else 1.0


def _special_operations(nest: LoopNest, tiles: _Tiles, position: int, inst: Instruction) -> FloatArray | None:
    """Simple operations of instructions whose work is not one pass over their result."""
    if inst.opcode is Opcode.REDUCE:
        return tiles.of(inst.operands[0]) * max(1, len(inst.operands) // 2)
    if inst.opcode is Opcode.REDUCE_WINDOW:
        window = math.prod(w.size for w in inst.window)
        return tiles.of(position) * window * _WINDOW_OPS
    if inst.opcode is Opcode.SELECT_AND_SCATTER:
        window = math.prod(w.size for w in inst.window)
        return tiles.of(inst.operands[1]) * window * 3.0 + tiles.of(position)
    if inst.opcode in (Opcode.SORT, Opcode.TOPK):
        source = array_shape(nest.kernel.instruction(inst.operands[0]).shape)
        axis = inst.dimensions[0] if inst.dimensions else source.rank - 1
        steps = math.log2(max(2, source.dimensions[axis] if source.rank else 2))
        exchanges = steps * (steps + 1) / 2 if inst.opcode is Opcode.SORT else steps
        return tiles.of(inst.operands[0]) * exchanges * _SORT_OPS * max(1, len(inst.operands))
    if inst.opcode in (Opcode.FFT, Opcode.CHOLESKY, Opcode.TRIANGULAR_SOLVE):
        shape = array_shape(inst.shape)
        size = shape.dimensions[-1] if shape.rank else 1
        depth = math.log2(max(2, size)) if inst.opcode is Opcode.FFT else size / SUBLANES
        return tiles.of(position) * depth * _SORT_OPS
    if inst.opcode is Opcode.MAP:
        body = nest.kernel.module.computations[inst.called[0]]
        return tiles.of(position) * len(body.instructions)
    return None


def _moved_rows(nest: LoopNest, inst: Instruction) -> float:
    """How often each row of 128 lanes of the result changes its place in a register; 0 if none does."""
    if inst.opcode in (Opcode.COPY, Opcode.TRANSPOSE, Opcode.RESHAPE):
        source = nest.kernel.instruction(inst.operands[0]).shape
        return _relayout_moves(inst, source)
    if inst.opcode is Opcode.REVERSE:
        minor = inst.shape.layout[:2]
        return 1.0 if any(axis in minor for axis in inst.dimensions) else 0.0
    if inst.opcode is Opcode.CONCATENATE:
        return _misaligned(inst.shape, inst.dimensions[0], _concatenate_starts(nest, inst))
    if inst.opcode in (Opcode.SLICE, Opcode.PAD):
        starts = [s.start for s in inst.slices] or [p.low for p in inst.padding]
        strides = [s.stride for s in inst.slices] or [p.interior + 1 for p in inst.padding]
        moves = [_misaligned(inst.shape, axis, [start]) for axis, start in enumerate(starts)]
        strided = [1.0 for axis, s in enumerate(strides) if s > 1 and axis in inst.shape.layout[:2]]
        return max([*moves, *strided, 0.0])
    if inst.opcode in (Opcode.DYNAMIC_SLICE, Opcode.DYNAMIC_UPDATE_SLICE):
        return 1.0 if inst.shape.rank > 1 else 0.0
    if inst.opcode in (Opcode.GATHER, Opcode.SCATTER):
        return 1.0
    return 0.0


def _relayout_moves(inst: Instruction, source: Shape) -> float:
    if source.rank == 0 or inst.shape.rank == 0:
        return 0.0
    if inst.opcode is Opcode.RESHAPE:
        same = source.physical_dimensions[-2:] == inst.shape.physical_dimensions[-2:]
        return 0.0 if same else 1.0
    # Axes of the source, named as in the result, fastest first.
    rename = (
        {axis: out for out, axis in enumerate(inst.dimensions)} if inst.opcode is Opcode.TRANSPOSE else {}
    )
    order = [rename.get(axis, axis) for axis in source.layout]
    target = inst.shape.layout
    if order[0] != target[0]:
        return _LANE_MOVE_FACTOR
    return 1.0 if order[1:2] != list(target[1:2]) else 0.0


def _concatenate_starts(nest: LoopNest, inst: Instruction) -> list[int]:
    starts, start = [], 0
    for operand in inst.operands:
        starts.append(start)
        start += nest.kernel.instruction(operand).shape.dimensions[inst.dimensions[0]]
    return starts


def _misaligned(shape: Shape, axis: int, starts: list[int]) -> float:
    order = shape.layout
    unit = LANES if order[0] == axis else SUBLANES if axis in order[1:2] else 1
    if all(start % unit == 0 for start in starts):
        return 0.0
    return _LANE_MOVE_FACTOR / 2 if unit == LANES else 1.0


def _product(nest: LoopNest, full: list[FloatArray], loops: list[int]) -> FloatArray:
    result = np.ones(len(full[0]) if full else 1)
    for loop in loops:
        result = result * full[loop]
    return result


def _matrix_cycles(
    nest: LoopNest, inst: Instruction, full: list[FloatArray], target: Target
) -> tuple[FloatArray, FloatArray]:
    """Cycles of the matrix units, and of the vector unit for shifting rows under a window.

    passes = taps * ceil(K/128) * ceil(N/128), each the larger of streaming M rows and loading 128 weights,
    shared by the matrix units. Taps that fall between the elements of a dilated base are not run.
    """
    size, mxus = target.architecture.mxu_size, target.architecture.num_mxus
    roles = contraction_roles(nest, inst)
    rows = _product(nest, full, roles.rows)
    rows = np.ceil(rows / SUBLANES) * SUBLANES
    taps = np.maximum(_product(nest, full, roles.taps) / roles.skipped, 1.0)
    depth = _product(nest, full, roles.depth) if roles.depth else np.full_like(rows, roles.group_depth)
    columns = _product(nest, full, roles.columns)
    groups = np.maximum(columns / roles.group_columns, 1.0) if roles.num_groups > 1 else np.ones_like(rows)
    columns = np.minimum(columns, roles.group_columns)
    passes = (
        groups * taps * np.ceil(depth / size) * np.ceil(columns / size) * _product(nest, full, roles.batch)
    )
    cycles = passes * np.maximum(rows, target.timing.weight_load_cycles) / mxus
    shifts = np.zeros_like(rows)
    if roles.window_in_sublanes:
        shifts = (taps - 1) * rows * np.ceil(depth / size) * 0.25 * target.timing.row_move_cycles
    return cycles, shifts


@dataclass(frozen=True)
class ContractionRoles:
    """Which loops make up M (rows), N (columns), K (depth), the window's taps and the batch of a contraction.

    `group_depth` and `group_columns` are K and N inside one of `num_groups` feature groups; `skipped` is the
    share of taps that hit a real element of a dilated base, inverted.
    """

    rows: list[int]
    columns: list[int]
    depth: list[int]
    taps: list[int]
    batch: list[int]
    num_groups: int
    group_depth: int
    group_columns: float
    skipped: float
    window_in_sublanes: bool


def contraction_roles(nest: LoopNest, inst: Instruction) -> ContractionRoles:
    """Sorts the loops of a convolution or dot by the role they play in the matrix product."""
    order = list(reversed(inst.shape.layout))
    loop_of = {axis: loop for loop, axis in enumerate(order)} if nest.is_tiled else {}
    summing = list(range(nest.num_output_loops, len(nest.loops)))
    lhs = nest.kernel.instruction(inst.operands[0]).shape
    if inst.opcode is Opcode.DOT:
        assert inst.dot is not None
        num_batch = len(inst.dot.lhs_batch)
        num_left = lhs.rank - num_batch - len(inst.dot.lhs_contracting)
        axes = range(inst.shape.rank)
        return ContractionRoles(
            rows=[loop_of[a] for a in axes if num_batch <= a < num_batch + num_left and loop_of],
            columns=[loop_of[a] for a in axes if a >= num_batch + num_left and loop_of],
            depth=summing,
            taps=[],
            batch=[loop_of[a] for a in axes if a < num_batch and loop_of],
            num_groups=1,
            group_depth=max(1, math.prod(lhs.dimensions[a] for a in inst.dot.lhs_contracting)),
            group_columns=float("inf"),
            skipped=1.0,
            window_in_sublanes=False,
        )
    c = inst.convolution
    assert c is not None
    rhs = nest.kernel.instruction(inst.operands[1]).shape
    num_groups = max(1, inst.feature_group_count) * max(1, inst.batch_group_count)
    taps = [a.loop for axis, a in enumerate(nest.operand_accesses[1]) if axis in c.kernel_spatial]
    depth = [loop for loop in summing if loop not in taps]
    columns = [loop_of[c.output_feature]] if loop_of else []
    sublane_axis = lhs.layout[1:2]
    return ContractionRoles(
        rows=[loop for axis, loop in loop_of.items() if axis != c.output_feature],
        columns=columns,
        depth=depth,
        taps=[loop for loop in taps if loop >= 0],
        batch=[],
        num_groups=num_groups,
        group_depth=rhs.dimensions[c.kernel_input_feature],
        group_columns=inst.shape.dimensions[c.output_feature] / num_groups
        if num_groups > 1
        else float("inf"),
        skipped=float(math.prod(w.base_dilation for w in inst.window)),
        window_in_sublanes=any(
            axis in sublane_axis and w.size > 1 for axis, w in zip(c.input_spatial, inst.window, strict=True)
        ),
    )


def _direct_cycles(
    nest: LoopNest, inst: Instruction, tiles: _Tiles, full: list[FloatArray], target: Target
) -> FloatArray:
    """Multiply-adds on the vector unit: what a depthwise convolution runs as; infinite for other products.

    Features lie in lanes; rows (or, where they are summed, batches) fill the sublanes.
    """
    if inst.opcode is not Opcode.CONVOLUTION or max(inst.feature_group_count, inst.batch_group_count) <= 1:
        return np.full(tiles.count, np.inf)
    roles = contraction_roles(nest, inst)
    taps = np.maximum(_product(nest, full, roles.taps) / roles.skipped, 1.0)
    depth = _product(nest, full, roles.depth) if roles.depth else np.full_like(taps, roles.group_depth)
    positions = _product(nest, full, roles.rows) * taps * depth
    lanes = np.ceil(_product(nest, full, roles.columns) / LANES)
    return np.ceil(positions / SUBLANES) * lanes * 2.0 * target.timing.vector_cycles


def _drain_ns(inst: Instruction, target: Target) -> float:
    spatial = inst.convolution is not None and bool(inst.convolution.output_spatial)
    return target.timing.convolution_drain_ns if spatial else target.timing.dot_drain_ns


def _accumulate_cycles(
    nest: LoopNest, tiles: _Tiles, extents: npt.NDArray[np.int64], target: Target
) -> FloatArray:
    """Reading and adding partial sums, where the contraction is cut."""
    assert nest.contraction is not None
    cut = (nest.trips(extents)[:, nest.num_output_loops :] > 1).any(axis=1)
    return cut * tiles.of(nest.contraction) * target.timing.accumulate_cycles


def _cross_lane_ns(nest: LoopNest, target: Target, *, after: bool) -> float:
    """Fixed time of reductions over the lanes, per iteration (before) or result tile (after a
    contraction).
    """
    total = 0.0
    for position in nest.kernel.instructions:
        inst = nest.kernel.instruction(position)
        if inst.opcode is not Opcode.REDUCE or (position in nest.after_contraction) is not after:
            continue
        source = nest.kernel.instruction(inst.operands[0]).shape
        if source.rank > 1 and source.layout[0] in inst.dimensions:
            total += target.timing.cross_lane_ns
    return total
