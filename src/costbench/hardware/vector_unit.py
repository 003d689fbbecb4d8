"""What the vector unit does for one tile: cycles in proportion to registers, and latencies per iteration.

All vector work is linear in the registers of some value's tile, so it is summed once per kernel into one
coefficient per distinct tile, whatever the number of instructions, and priced for all tile sizes at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from costbench.compiler.access import Access, array_shape, whole
from costbench.compiler.footprint import TileGrid
from costbench.compiler.loop_nest import SUBLANES, LoopNest
from costbench.hardware.row_moves import moved_rows
from costbench.hardware.vector_work import vector_cost
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape
from costbench.target import Target, Timing

FloatArray = npt.NDArray[np.float64]
_SORT_OPS = 6.0
_WINDOW_OPS = 1.5
_SCATTER_OPS = 3.0


@dataclass(eq=False)
class VectorWork:
    """Work that runs together: in every iteration, or once per result tile.

    Attributes:
        per_register: (shape, access) of a value -> cycles for each register of its tile.
        fixed_cycles: independent of the tile.
        crosses_lanes: whether anything is reduced over lanes.
        crosses_sublanes: whether anything is reduced over sublanes or moved between them.
    """

    per_register: dict[tuple[Shape, Access], float] = field(default_factory=dict)
    fixed_cycles: float = 0.0
    crosses_lanes: bool = False
    crosses_sublanes: bool = False

    def time_ns(self, grid: TileGrid, target: Target) -> FloatArray:
        """Nanoseconds for each tile size, [n].

        The cross-lane unit's latencies overlap where it has several things to do, so each kind counts once.
        """
        timing = target.timing
        cycles = np.full(grid.count, self.fixed_cycles)
        for (shape, access), cost in self.per_register.items():
            cycles += cost * grid.registers(shape, access)
        latency = self.crosses_lanes * timing.cross_lane_ns + self.crosses_sublanes * timing.cross_sublane_ns
        return cycles * target.architecture.cycle_ns + latency


def vector_work(nest: LoopNest, timing: Timing) -> tuple[VectorWork, VectorWork]:
    """Work of every iteration, and work that needs the finished sums of a contraction.

    Raises:
        UnsupportedKernelError: if the kernel holds an operation that the machine cannot run.
    """
    works = (VectorWork(), VectorWork())
    for position in nest.kernel.instructions:
        inst = nest.kernel.instruction(position)
        work = works[position in nest.after_contraction]
        moves = moved_rows(nest.kernel, inst)
        for subject, per_register, fixed in _instruction_work(nest, position, moves, timing):
            key = _tile_of(nest, subject)
            work.per_register[key] = work.per_register.get(key, 0.0) + per_register
            work.fixed_cycles += fixed
        work.crosses_sublanes |= moves > 0.0
        if inst.opcode is Opcode.REDUCE:
            source = array_shape(nest.kernel.instruction(inst.operands[0]).shape)
            if source.rank > 1:
                work.crosses_lanes |= source.layout[0] in inst.dimensions
                work.crosses_sublanes |= source.layout[1] in inst.dimensions
    return works


def _tile_of(nest: LoopNest, position: int) -> tuple[Shape, Access]:
    shape = array_shape(nest.kernel.instruction(position).shape)
    access = nest.accesses.get(position, ())
    if len(access) != shape.rank:
        # Without maps that fit, everything is worked on in one go, as a vector.
        flat = Shape(ElementType.F32, (max(1, shape.num_elements),))
        return flat, whole(flat)
    # Registers do not depend on the element type, so values that differ in nothing else are one.
    return Shape(ElementType.F32, shape.dimensions, shape.layout), access


_Item = tuple[int, float, float]
"""Value whose tile is worked on, cycles per register of it, cycles per run."""


def _instruction_work(nest: LoopNest, position: int, moves: float, timing: Timing) -> list[_Item]:
    inst = nest.kernel.instruction(position)
    cost = vector_cost(inst.opcode)
    special = _special_operations(nest, position, inst)
    if special is not None:
        return [(subject, count * timing.vector_cycles, 0.0) for subject, count in special]
    items: list[_Item] = []
    subject = _worked_on(inst, position)
    is_array = bool(inst.shape.rank) or inst.shape.is_tuple
    if is_array and (cost.simple or cost.transcendental or cost.random):
        per_register = (
            cost.simple * timing.vector_cycles
            + cost.transcendental * timing.transcendental_cycles
            + cost.random * timing.random_cycles
        )
        prologue = cost.simple * timing.unroll_registers * timing.vector_cycles
        items.append((subject, per_register, prologue))
    if moves:
        packed = 0 < array_shape(inst.shape).element_type.bits <= 16
        per_row = timing.row_move_cycles * (timing.packed_move_factor if packed else 1.0)
        items.append((subject, moves * SUBLANES * per_row, 0.0))
    return items


def _worked_on(inst: Instruction, position: int) -> int:
    """An update in place works on what it writes, not on all that it leaves alone."""
    if inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
        return inst.operands[1]
    return inst.operands[-1] if inst.opcode is Opcode.SCATTER else position


def _special_operations(nest: LoopNest, position: int, inst: Instruction) -> list[tuple[int, float]] | None:
    """(value, simple operations per register of it) where the work is not one pass over the result."""
    window = float(math.prod(w.size for w in inst.window))
    if inst.opcode is Opcode.REDUCE:
        return [(inst.operands[0], float(max(1, len(inst.operands) // 2)))]
    if inst.opcode is Opcode.REDUCE_WINDOW:
        return [(position, window * _WINDOW_OPS)]
    if inst.opcode is Opcode.SELECT_AND_SCATTER:
        return [(inst.operands[1], window * _SCATTER_OPS), (position, 1.0)]
    if inst.opcode in (Opcode.SORT, Opcode.TOPK):
        source = array_shape(nest.kernel.instruction(inst.operands[0]).shape)
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
        return [(position, float(len(nest.kernel.module.computations[inst.called[0]].instructions)))]
    return None
