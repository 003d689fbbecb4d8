"""Time of the vector unit for one tile: cycles proportional to registers, and latencies per iteration.

All vector work is linear in the registers of some value's tile, so the work of all instructions of a kernel
is summed once into one coefficient per distinct tile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import F64
from costbench.compiler.lowering.packed import PackedNest
from costbench.compiler.lowering.work import EVERY_ITERATION, EVERY_RESULT
from costbench.compiler.tile_footprint import Tile, registers
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

_SIMPLE, _TRANSCENDENTAL, _RANDOM, _ROWS, _PACKED_ROWS, _PROLOGUE, _LANES, _SUBLANES = range(8)


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
def vector_ns(nest: PackedNest, rates: VectorRates, tile: Tile) -> tuple[float, float]:
    """Returns nanoseconds of the vector unit for one tile: per iteration, and per result tile."""
    every, after = rates.fixed_ns[EVERY_ITERATION], rates.fixed_ns[EVERY_RESULT]
    for box in range(len(tile.sizes)):
        touched = registers(nest, tile, box)
        every += rates.register_ns[EVERY_ITERATION, box] * touched
        after += rates.register_ns[EVERY_RESULT, box] * touched
    return every, after
