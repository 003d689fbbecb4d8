"""Tiles in native units: how much of the scratchpad, and of main memory's grid, a tile takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from costbench.compiler.access import Access, tile_elements
from costbench.compiler.contraction import CONTRACTIONS
from costbench.compiler.loop_nest import LoopNest, native_units
from costbench.hlo.shape import Shape

FloatArray = npt.NDArray[np.float64]
ACCUMULATOR_BYTES = 4
_ROUNDING = 1e-9


def tile_units(
    shape: Shape, access: Access, elements: Sequence[FloatArray], count: int, *, whole_units: bool
) -> FloatArray:
    """Native tiles that a tile spans along each physical axis, float64 [rank, n], major to minor.

    Args:
        shape: the value.
        access: how its axes follow the loops.
        elements: elements per tile of each loop, each [n].
        count: n.
        whole_units: round up to what the scratchpad holds and the compute runs; otherwise keep the mean
            over all tiles (never less than one native tile), which is what the copies move.
    """
    logical = tile_elements(shape, access, elements)
    order = tuple(reversed(shape.layout))
    units = native_units(shape)
    result = np.empty((shape.rank, count))
    for place, axis in enumerate(order):
        extent = np.asarray(logical[axis]) / units[place]
        result[place] = np.ceil(extent - _ROUNDING) if whole_units else extent
    return np.maximum(result, 1.0)


def native_tile_bytes(shape: Shape) -> float:
    """Bytes of one native tile: 8 x 128 (or 1,024) elements; of the value itself for a scalar."""
    if shape.rank == 0:
        return shape.element_type.bits / 8
    return 1024 * shape.element_type.bits / 8


def registers(shape: Shape, access: Access, elements: Sequence[FloatArray], count: int) -> FloatArray:
    """Vector registers of 8 x 128 elements that a full tile fills, [n]; 0 for a scalar."""
    if shape.rank == 0:
        return np.zeros(count)
    units = tile_units(shape, access, elements, count, whole_units=True)
    result: FloatArray = units.prod(axis=0)
    return result


def scratchpad_bytes(nest: LoopNest, extents: npt.NDArray[np.int64]) -> FloatArray:
    """Scratchpad that a tile size needs, bytes [n].

    Each moving operand is double-buffered (2x), one whose tile never changes is not (1x); a contraction
    that is cut needs its result tile once more as float32 accumulator. Operands addressed by indices stay
    in main memory but for the rows in flight.
    """
    count = len(extents)
    full = nest.full_elements(extents)
    trips = nest.trips(extents)
    total = np.zeros(count)
    for transfer in nest.transfers:
        if transfer.shape.rank == 0:
            continue
        units = tile_units(transfer.shape, transfer.access, full, count, whole_units=True)
        size = units.prod(axis=0) * native_tile_bytes(transfer.shape)
        moving = np.zeros(count, dtype=bool)
        for loop in transfer.loops:
            moving |= trips[:, loop] > 1
        total += np.where(moving, 2.0, 1.0) * size
    if nest.contraction is not None and nest.is_tiled:
        assert nest.kernel.instruction(nest.contraction).opcode in CONTRACTIONS
        shape = nest.anchor_shape
        cut = (trips[:, nest.num_output_loops :] > 1).any(axis=1)
        total += (
            cut * registers(shape, nest.accesses[nest.contraction], full, count) * 1024 * ACCUMULATOR_BYTES
        )
    return total
