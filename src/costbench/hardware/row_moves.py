"""Data movement inside the scratchpad: rows of 128 lanes that change their place in a register.

Copies, transposes, slices and the like move whole registers for free as long as axes keep their place in
the 8 x 128 grid and starts are aligned to it. Everything else shifts rows between sublanes, which goes
through the cross-lane unit: a cost per row, and a latency per iteration.
"""

from __future__ import annotations

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import LANES, SUBLANES
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

LANE_MOVES = 4.0
"""Moves per row where lanes themselves change: a transpose in the cross-lane unit."""


def moved_rows(kernel: Kernel, inst: Instruction) -> float:
    """How often each row of 128 lanes of the result changes its place in a register; 0 if none does."""
    if inst.opcode in (Opcode.COPY, Opcode.TRANSPOSE, Opcode.RESHAPE):
        return _relayout_moves(inst, kernel.instruction(inst.operands[0]).shape)
    if inst.opcode is Opcode.REVERSE:
        minor = inst.shape.layout[:2]
        return 1.0 if any(axis in minor for axis in inst.dimensions) else 0.0
    if inst.opcode is Opcode.CONCATENATE:
        return _misaligned(inst.shape, inst.dimensions[0], _concatenate_starts(kernel, inst))
    if inst.opcode in (Opcode.SLICE, Opcode.PAD):
        return _resize_moves(inst)
    if inst.opcode in (Opcode.DYNAMIC_SLICE, Opcode.DYNAMIC_UPDATE_SLICE):
        return 1.0 if inst.shape.rank > 1 else 0.0
    return 1.0 if inst.opcode in (Opcode.GATHER, Opcode.SCATTER) else 0.0


def _relayout_moves(inst: Instruction, source: Shape) -> float:
    if source.rank == 0 or inst.shape.rank == 0:
        return 0.0
    if inst.opcode is Opcode.RESHAPE:
        same = source.physical_dimensions[-2:] == inst.shape.physical_dimensions[-2:]
        return 0.0 if same else 1.0
    order = list(source.layout)
    if inst.opcode is Opcode.TRANSPOSE:
        # The source's axes, fastest first, named as in the result.
        rename = {axis: out for out, axis in enumerate(inst.dimensions)}
        order = [rename[axis] for axis in order]
    target = list(inst.shape.layout)
    if order[0] != target[0]:
        return LANE_MOVES
    return 1.0 if order[1:2] != target[1:2] else 0.0


def _concatenate_starts(kernel: Kernel, inst: Instruction) -> list[int]:
    starts, start = [], 0
    for operand in inst.operands:
        starts.append(start)
        start += kernel.instruction(operand).shape.dimensions[inst.dimensions[0]]
    return starts


def _resize_moves(inst: Instruction) -> float:
    starts = [s.start for s in inst.slices] or [p.low for p in inst.padding]
    strides = [s.stride for s in inst.slices] or [p.interior + 1 for p in inst.padding]
    moves = [_misaligned(inst.shape, axis, [start]) for axis, start in enumerate(starts)]
    strided = [1.0 for axis, s in enumerate(strides) if s > 1 and axis in inst.shape.layout[:2]]
    return max([*moves, *strided, 0.0])


def _misaligned(shape: Shape, axis: int, starts: list[int]) -> float:
    order = shape.layout
    unit = LANES if order[0] == axis else SUBLANES if axis in order[1:2] else 1
    if all(start % unit == 0 for start in starts):
        return 0.0
    return LANE_MOVES / 2 if unit == LANES else 1.0
