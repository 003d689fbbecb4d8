"""The vector unit: counts the operations of each instruction, and prices those of a kernel for one tile.

A table gives operations per register of 8 x 128 elements; cycles per operation are parameters of the chip.
The counts are those of the usual expansions (a division is a reciprocal and two refinements, a power is a
logarithm and an exponential, ...); data movement counts the rows or registers moved.

Copies, transposes, slices and the like move whole registers for free as long as axes keep their place in the
8 x 128 grid and starts are aligned to it. Everything else shifts rows of 128 lanes between sublanes, which
goes through the cross-lane unit: a cost per row, and a latency per iteration.

All vector work is linear in the registers of some value's tile, so the work of all instructions of a kernel
is summed once into one coefficient per distinct tile.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64
from costbench.compiler.lowering.access import array_shape
from costbench.compiler.lowering.packed import PackedNest
from costbench.compiler.lowering.work import EVERY_ITERATION, EVERY_RESULT, WorkModel
from costbench.compiler.tile_footprint import Tile, registers
from costbench.compiler.tiled_memory import LANES, SUBLANES
from costbench.errors import UnsupportedKernelError
from costbench.execution.compiled import compiled, compiled_step
from costbench.hardware.machine import (
    CROSS_LANE_NS,
    CROSS_SUBLANE_NS,
    CYCLE_NS,
    EDGES,
    EDGES_FULL,
    PACKED_MOVE_FACTOR,
    RANDOM_CYCLES,
    ROW_MOVE_CYCLES,
    TRANSCENDENTAL_CYCLES,
    UNROLL_REGISTERS,
    VECTOR_CYCLES,
)
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode, opcodes
from costbench.hlo.shape import Shape

_SORT_OPS = 6.0
_WINDOW_OPS = 1.5
_SCATTER_OPS = 3.0


class VectorAmounts(NamedTuple):
    """Vector-unit work of one instruction on the tile of one value.

    Attributes:
        simple: operations per register.
        transcendental: operations of the transcendental unit per register.
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


# Indices of the fields of `VectorAmounts`, for compiled code.
_SIMPLE, _TRANSCENDENTAL, _RANDOM, _ROWS, _PACKED_ROWS, _PROLOGUE, _LANES, _SUBLANES = range(8)


_FREE = VectorAmounts()
_ONE = VectorAmounts(simple=1.0)

_ONE_OPERATION = opcodes(
    "abs add and ceil clamp compare convert copy floor imag iota is-finite maximum minimum multiply "
    "negate not or popcnt real reduce-precision round-nearest-afz round-nearest-even select "
    "shift-left shift-right-arithmetic shift-right-logical sign subtract xor bitcast-convert "
    "count-leading-zeros complex reverse slice pad concatenate dynamic-slice dynamic-update-slice "
    "gather scatter transpose set-dimension-size"
)
"""Opcodes of which a register takes one simple operation."""

VECTOR_COSTS: dict[Opcode, VectorAmounts] = {
    **dict.fromkeys(_ONE_OPERATION, _ONE),
    **dict.fromkeys(
        opcodes(
            "parameter constant tuple get-tuple-element bitcast reshape broadcast opt-barrier after-all "
            "get-dimension-size partition-id replica-id convolution dot"
        ),
        _FREE,
    ),
    Opcode.DIVIDE: VectorAmounts(simple=3.0, transcendental=1.0),
    Opcode.REMAINDER: VectorAmounts(simple=5.0, transcendental=1.0),
    Opcode.EXPONENTIAL: VectorAmounts(simple=2.0, transcendental=1.0),
    Opcode.EXPONENTIAL_MINUS_ONE: VectorAmounts(simple=6.0, transcendental=1.0),
    Opcode.LOG: VectorAmounts(simple=2.0, transcendental=1.0),
    Opcode.LOG_PLUS_ONE: VectorAmounts(simple=6.0, transcendental=1.0),
    Opcode.LOGISTIC: VectorAmounts(simple=3.0, transcendental=2.0),
    Opcode.TANH: VectorAmounts(simple=2.0, transcendental=1.0),
    Opcode.TAN: VectorAmounts(simple=20.0, transcendental=1.0),
    Opcode.SINE: VectorAmounts(simple=16.0),
    Opcode.COSINE: VectorAmounts(simple=16.0),
    Opcode.ATAN2: VectorAmounts(simple=24.0, transcendental=1.0),
    Opcode.SQRT: VectorAmounts(simple=2.0, transcendental=1.0),
    Opcode.RSQRT: VectorAmounts(simple=2.0, transcendental=1.0),
    Opcode.CBRT: VectorAmounts(simple=8.0, transcendental=2.0),
    Opcode.POWER: VectorAmounts(simple=6.0, transcendental=2.0),
    Opcode.ERF: VectorAmounts(simple=18.0),
    Opcode.RNG: VectorAmounts(simple=3.0, random=1.0),
    Opcode.RNG_BIT_GENERATOR: VectorAmounts(random=1.0),
    Opcode.STOCHASTIC_CONVERT: VectorAmounts(simple=3.0),
    # Described by `_special_operations`; listed here so that the table covers all that can be lowered.
    Opcode.REDUCE: _FREE,
    Opcode.REDUCE_WINDOW: _FREE,
    Opcode.SELECT_AND_SCATTER: _FREE,
    Opcode.SORT: _FREE,
    Opcode.TOPK: _FREE,
    Opcode.FFT: _FREE,
    Opcode.CHOLESKY: _FREE,
    Opcode.TRIANGULAR_SOLVE: _FREE,
    Opcode.MAP: _ONE,
}
"""Operations on each register of an instruction's result."""


def _describe(module: HloModule, body: HloComputation, position: int) -> list[tuple[int, VectorAmounts]]:
    """Returns the values whose tiles an instruction works on, and the work on each.

    Raises:
        UnsupportedKernelError: for an operation the machine cannot run; never a silent zero.
    """
    inst = body.instructions[position]
    if inst.opcode not in VECTOR_COSTS:
        target = f" to {inst.custom_call_target!r}" if inst.custom_call_target else ""
        raise UnsupportedKernelError(
            f"the machine has no routine for {inst.opcode.xla_name!r}{target}",
            field=f"instruction {inst.name}",
            expected="an operation of XLA itself that runs on one core",
        )
    special = _special_operations(module, body, position)
    if special is not None:
        lanes, sublanes = _crossings(body, inst)
        return [
            (subject, VectorAmounts(simple=count, crosses_lanes=lanes, crosses_sublanes=sublanes))
            for subject, count in special
        ]
    moves = moved_rows(body, inst)
    is_array = bool(inst.shape.rank) or inst.shape.is_tuple
    cost = VECTOR_COSTS[inst.opcode] if is_array else _FREE
    packed = 0 < array_shape(inst.shape).element_type.bits <= 16
    amounts = cost._replace(
        rows=0.0 if packed else moves * SUBLANES,
        packed_rows=moves * SUBLANES if packed else 0.0,
        prologue=cost.simple,
        crosses_sublanes=moves,
    )
    # An in-place update works on the tile of the update that it writes.
    subject = position
    if inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
        subject = inst.operands[1]
    elif inst.opcode is Opcode.SCATTER:
        subject = inst.operands[-1]
    return [(subject, amounts)] if any(amounts) else []


def _crossings(body: HloComputation, inst: Instruction) -> tuple[float, float]:
    """Returns whether a reduction runs over lanes, and whether over sublanes, as 0 or 1."""
    if inst.opcode is not Opcode.REDUCE:
        return 0.0, 0.0
    source = array_shape(body.instructions[inst.operands[0]].shape)
    if source.rank < 2:
        return 0.0, 0.0
    return float(source.layout[0] in inst.dimensions), float(source.layout[1] in inst.dimensions)


def _special_operations(
    module: HloModule, body: HloComputation, position: int
) -> list[tuple[int, float]] | None:
    """Returns (value, simple operations per register of it) if the work is not one pass over the result."""
    inst = body.instructions[position]
    window = float(math.prod(w.size for w in inst.window))
    if inst.opcode is Opcode.REDUCE:
        return [(inst.operands[0], float(max(1, len(inst.operands) // 2)))]
    if inst.opcode is Opcode.REDUCE_WINDOW:
        return [(position, window * _WINDOW_OPS)]
    if inst.opcode is Opcode.SELECT_AND_SCATTER:
        return [(inst.operands[1], window * _SCATTER_OPS), (position, 1.0)]
    if inst.opcode in (Opcode.SORT, Opcode.TOPK):
        source = array_shape(body.instructions[inst.operands[0]].shape)
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
        return [(position, float(len(module.computations[inst.called[0]].instructions)))]
    return None


VECTOR_WORK = WorkModel("vector unit", len(VectorAmounts._fields), _describe)
"""`VectorAmounts` of instructions."""


LANE_MOVES = 4.0
"""Moves per row where lanes themselves change: a transpose in the cross-lane unit."""


def moved_rows(body: HloComputation, inst: Instruction) -> float:
    """Returns how often each row of 128 lanes of the result changes its place in a register; 0 if never."""
    if inst.opcode in (Opcode.COPY, Opcode.TRANSPOSE, Opcode.RESHAPE):
        return _relayout_moves(inst, body.instructions[inst.operands[0]].shape)
    if inst.opcode is Opcode.REVERSE:
        minor = inst.shape.layout[:2]
        return 1.0 if any(axis in minor for axis in inst.dimensions) else 0.0
    if inst.opcode is Opcode.CONCATENATE:
        axis = inst.dimensions[0]
        sizes = [body.instructions[operand].shape.dimensions[axis] for operand in inst.operands]
        return _misaligned(inst.shape, axis, [0, *accumulate(sizes[:-1])])
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


class VectorRates(NamedTuple):
    """Vector work of a kernel on a machine; row 0 runs in every iteration, row 1 once per result tile.

    Attributes:
        register_ns: [2, num_boxes], nanoseconds for each register of a box.
        fixed_ns: [2], prologues, and latencies of the cross-lane unit, which overlap: each kind counts once.
    """

    register_ns: F64
    fixed_ns: F64


@compiled
def vector_rates(amounts: F64, machine: F64) -> VectorRates:
    """Prices the vector work of a kernel on a machine."""
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
def vector_ns(nest: PackedNest, rates: VectorRates, tile: Tile, machine: F64) -> tuple[float, float]:
    """Returns nanoseconds of the vector unit for one tile: per iteration, and per result tile."""
    mean = machine[EDGES] != EDGES_FULL
    every, after = rates.fixed_ns[EVERY_ITERATION], rates.fixed_ns[EVERY_RESULT]
    for box in range(len(tile.sizes)):
        touched = registers(nest, tile, box, mean)
        every += rates.register_ns[EVERY_ITERATION, box] * touched
        after += rates.register_ns[EVERY_RESULT, box] * touched
    return every, after
