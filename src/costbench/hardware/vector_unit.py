"""What the vector unit does for one tile: cycles in proportion to registers, and latencies per iteration.

All vector work is linear in the registers of some value's tile, so it is summed once per kernel into one
coefficient per distinct tile, whatever the number of instructions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.access import array_shape
from costbench.compiler.lowering.loop_nest import SUBLANES
from costbench.compiler.lowering.packed import Packed
from costbench.compiler.lowering.work import (
    EVERY_ITERATION,
    EVERY_RESULT,
    WorkTable,
    work_per_box,
    work_table,
)
from costbench.compiler.tiling.footprint import Tile
from costbench.execution.compiled import compiled, compiled_step
from costbench.hardware.machine import (
    CROSS_LANE_NS,
    CROSS_SUBLANE_NS,
    CYCLE_NS,
    PACKED_MOVE_FACTOR,
    RANDOM_CYCLES,
    ROW_MOVE_CYCLES,
    TRANSCENDENTAL_CYCLES,
    UNROLL_REGISTERS,
    VECTOR_CYCLES,
)
from costbench.hardware.row_moves import moved_rows
from costbench.hardware.vector_work import vector_cost
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode

FloatArray = npt.NDArray[np.float64]
_SORT_OPS = 6.0
_WINDOW_OPS = 1.5
_SCATTER_OPS = 3.0


class VectorAmounts(NamedTuple):
    """What one instruction asks of the vector unit, on the tile of one value.

    Attributes:
        simple: operations per register.
        transcendental: the same, on the transcendental unit.
        random: registers of random bits, per register.
        rows: rows moved between sublanes, per register.
        packed_rows: the same of 16-bit values or smaller.
        prologue: operations lost at the ends of its loop, per run and register of the unrolled loop.
        crosses_lanes: above 0 where anything is reduced over lanes.
        crosses_sublanes: above 0 where anything is reduced over sublanes or moved between them.
    """

    simple: float = 0.0
    transcendental: float = 0.0
    random: float = 0.0
    rows: float = 0.0
    packed_rows: float = 0.0
    prologue: float = 0.0
    crosses_lanes: float = 0.0
    crosses_sublanes: float = 0.0


_SIMPLE, _TRANSCENDENTAL, _RANDOM, _ROWS, _PACKED_ROWS, _PROLOGUE, _LANES, _SUBLANES = range(8)


class VectorRates(NamedTuple):
    """Vector work of a kernel on a machine; first what runs every iteration, then once per result tile.

    Attributes:
        register_ns: [2, num_boxes], nanoseconds for each register of a box.
        fixed_ns: [2], prologues, and latencies of the cross-lane unit, which overlap: each kind counts once.
    """

    register_ns: FloatArray
    fixed_ns: FloatArray


def vector_work(packed: Packed, kernel: Kernel) -> FloatArray:
    """`VectorAmounts` per box, [2, num_boxes, 8]; see `work_per_box`.

    Raises:
        UnsupportedKernelError: if the kernel holds an operation that the machine cannot run.
    """
    return work_per_box(packed, kernel, vector_table(kernel))


def vector_table(kernel: Kernel) -> WorkTable:
    """`VectorAmounts` of the instructions of a kernel's computation, as far as they are known."""
    return work_table(kernel, "vector unit", len(VectorAmounts._fields), _describe)


@compiled
def vector_rates(amounts: FloatArray, machine: FloatArray) -> VectorRates:
    """Prices the work of a kernel."""
    num_boxes = amounts.shape[1]
    rates = VectorRates(np.zeros((2, num_boxes)), np.zeros(2))
    for when in range(2):
        prologue, lanes, sublanes = 0.0, 0.0, 0.0
        for box in range(num_boxes):
            work = amounts[when, box]
            cycles = (
                work[_SIMPLE] * machine[VECTOR_CYCLES]
                + work[_TRANSCENDENTAL] * machine[TRANSCENDENTAL_CYCLES]
                + work[_RANDOM] * machine[RANDOM_CYCLES]
                + work[_ROWS] * machine[ROW_MOVE_CYCLES]
                + work[_PACKED_ROWS] * machine[ROW_MOVE_CYCLES] * machine[PACKED_MOVE_FACTOR]
            )
            rates.register_ns[when, box] = cycles * machine[CYCLE_NS]
            prologue += work[_PROLOGUE]
            lanes += work[_LANES]
            sublanes += work[_SUBLANES]
        fixed = prologue * machine[UNROLL_REGISTERS] * machine[VECTOR_CYCLES] * machine[CYCLE_NS]
        fixed += machine[CROSS_LANE_NS] if lanes > 0.0 else 0.0
        fixed += machine[CROSS_SUBLANE_NS] if sublanes > 0.0 else 0.0
        rates.fixed_ns[when] = fixed
    return rates


@compiled_step
def vector_ns(rates: VectorRates, tile: Tile) -> tuple[float, float]:
    """Nanoseconds that the vector unit works on one tile: every iteration, and every result."""
    every, after = rates.fixed_ns[EVERY_ITERATION], rates.fixed_ns[EVERY_RESULT]
    for box in range(len(tile.sizes)):
        every += rates.register_ns[EVERY_ITERATION, box] * tile.sizes[box]
        after += rates.register_ns[EVERY_RESULT, box] * tile.sizes[box]
    return every, after


def _describe(kernel: Kernel, position: int) -> list[tuple[int, VectorAmounts]]:
    inst = kernel.instruction(position)
    cost = vector_cost(inst.opcode)
    special = _special_operations(kernel, position, inst)
    if special is not None:
        lanes, sublanes = _crossings(kernel, inst)
        return [
            (subject, VectorAmounts(simple=count, crosses_lanes=lanes, crosses_sublanes=sublanes))
            for subject, count in special
        ]
    moves = moved_rows(kernel, inst)
    is_array = bool(inst.shape.rank) or inst.shape.is_tuple
    works = cost if is_array else vector_cost(Opcode.PARAMETER)
    packed = 0 < array_shape(inst.shape).element_type.bits <= 16
    amounts = VectorAmounts(
        simple=works.simple,
        transcendental=works.transcendental,
        random=works.random,
        rows=0.0 if packed else moves * SUBLANES,
        packed_rows=moves * SUBLANES if packed else 0.0,
        prologue=works.simple,
        crosses_sublanes=moves,
    )
    return [(_worked_on(inst, position), amounts)] if any(amounts) else []


def _crossings(kernel: Kernel, inst: Instruction) -> tuple[float, float]:
    """Whether a reduction runs over lanes, and over sublanes."""
    if inst.opcode is not Opcode.REDUCE:
        return 0.0, 0.0
    source = array_shape(kernel.instruction(inst.operands[0]).shape)
    if source.rank < 2:
        return 0.0, 0.0
    return float(source.layout[0] in inst.dimensions), float(source.layout[1] in inst.dimensions)


def _worked_on(inst: Instruction, position: int) -> int:
    """An update in place works on what it writes, not on all that it leaves alone."""
    if inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
        return inst.operands[1]
    return inst.operands[-1] if inst.opcode is Opcode.SCATTER else position


def _special_operations(kernel: Kernel, position: int, inst: Instruction) -> list[tuple[int, float]] | None:
    """(value, simple operations per register of it) where the work is not one pass over the result."""
    window = float(math.prod(w.size for w in inst.window))
    if inst.opcode is Opcode.REDUCE:
        return [(inst.operands[0], float(max(1, len(inst.operands) // 2)))]
    if inst.opcode is Opcode.REDUCE_WINDOW:
        return [(position, window * _WINDOW_OPS)]
    if inst.opcode is Opcode.SELECT_AND_SCATTER:
        return [(inst.operands[1], window * _SCATTER_OPS), (position, 1.0)]
    if inst.opcode in (Opcode.SORT, Opcode.TOPK):
        source = array_shape(kernel.instruction(inst.operands[0]).shape)
        axis = inst.dimensions[0] if inst.dimensions else source.rank - 1
        steps = math.log2(max(2, source.dimensions[axis] if source.rank else 2))
        exchanges = steps * (steps + 1) / 2 if inst.opcode is Opcode.SORT else steps
        return [(inst.operands[0], exchanges * _SORT_OPS * max(1, len(inst.operands)))]
    if inst.opcode in (Opcode.FFT, Opcode.CHOLESKY, Opcode.TRIANGULAR_SOLVE):
        shape = array_shape(inst.shape)
        size = shape.dimensions[-1] if shape.rank else 1
        depth = math.log2(max(2, size)) if inst.opcode is Opcode.FFT else size / SUBLANES
        return [(position, depth * _SORT_OPS)]
    if inst.opcode is Opcode.MAP:
        return [(position, float(len(kernel.module.computations[inst.called[0]].instructions)))]
    return None
