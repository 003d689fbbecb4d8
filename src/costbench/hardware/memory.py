"""Copies between main memory and the scratchpad: bytes, pieces, descriptors and banks.

Main memory holds an array as a row-major grid of native tiles. A tile of it is a box in that grid: axes
that it covers completely merge with the next one into contiguous pieces, the others cost a piece each and,
past the first stride, a descriptor each. Pieces one lane-unit wide whose pitch is a power of two of 64 KiB
or more hit the same memory banks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.compiler.footprint import native_tile_bytes, tile_units
from costbench.compiler.loop_nest import LoopNest, native_units
from costbench.compiler.transfers import Transfer
from costbench.target import Timing

FloatArray = npt.NDArray[np.float64]
_BANK_PITCH_BYTES = 64 * 1024
_PIECE_BYTES = 4096
_MIN_ROW_BYTES = 512
_WHOLE = 1e-6


@dataclass(frozen=True, eq=False)
class CopyShape:
    """What one copy of a tile looks like, every array [n], averaged over the tiles of the kernel.

    Attributes:
        num_bytes: bytes moved.
        pieces: contiguous pieces beyond the first.
        descriptors: strided descriptors beyond the first.
        conflicts: pieces of 4 KiB in the same banks.
        rows: rows addressed one by one.
    """

    num_bytes: FloatArray
    pieces: FloatArray
    descriptors: FloatArray
    conflicts: FloatArray
    rows: FloatArray

    def time_ns(self, timing: Timing, *, is_output: bool) -> FloatArray:
        """bytes / bandwidth + pieces, descriptors, conflicts and rows at their price + a fixed latency."""
        bandwidth = timing.write_gb_per_s if is_output else timing.read_gb_per_s
        return (
            self.num_bytes / bandwidth
            + self.pieces * timing.chunk_ns
            + self.descriptors * timing.descriptor_ns
            + self.conflicts * timing.bank_ns
            + self.rows * timing.row_address_ns
            + timing.transfer_ns
        )


def copy_shape(nest: LoopNest, transfer: Transfer, mean_elements: list[FloatArray], count: int) -> CopyShape:
    """The copy of one transfer for each of `count` tile sizes."""
    zero = np.zeros(count)
    shape = transfer.shape
    if shape.rank == 0:
        return CopyShape(np.full(count, native_tile_bytes(shape)), zero, zero, zero, zero)
    units = tile_units(shape, transfer.access, mean_elements, count, whole_units=False)
    if transfer.row_elements:
        elements = np.full(count, float(shape.num_elements))
        for loop in transfer.loops:
            elements = elements * (mean_elements[loop] / (nest.loops[loop].units * nest.loops[loop].unit))
        rows = np.maximum(elements / transfer.row_elements, 1.0)
        row_bytes = max(transfer.row_elements * shape.element_type.bits / 8, _MIN_ROW_BYTES)
        return CopyShape(rows * row_bytes, zero, zero, zero, rows)
    num_bytes = units.prod(axis=0) * native_tile_bytes(shape)
    limits = np.array(
        [max(1, -(-d // u)) for d, u in zip(shape.physical_dimensions, native_units(shape), strict=True)]
    )
    pieces, descriptors = _pieces(units, limits)
    conflicts = _conflicts(shape.rank, units, limits, num_bytes, native_tile_bytes(shape))
    return CopyShape(num_bytes, pieces - 1.0, descriptors - 1.0, conflicts, zero)


def _pieces(units: FloatArray, limits: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Contiguous pieces of a box in a row-major grid, and descriptors of one stride each, both [n] >= 1."""
    rank, count = units.shape
    pieces = np.ones(count)
    descriptors = np.ones(count)
    # 0: axes so far are complete; 1: the next axis strides over pieces; 2: further axes repeat descriptors.
    state = np.zeros(count, dtype=np.int64)
    for axis in range(rank - 1, -1, -1):
        extent = units[axis]
        pieces = np.where(state >= 1, pieces * extent, pieces)
        descriptors = np.where(state >= 2, descriptors * extent, descriptors)
        partial = extent < limits[axis] - _WHOLE
        strided = (state >= 1) & (extent > 1.0 + _WHOLE)
        state = np.where(state == 0, np.where(partial, 1, 0), np.where(strided, 2, state))
    return pieces, descriptors


def _conflicts(
    rank: int,
    units: FloatArray,
    limits: npt.NDArray[np.int64],
    num_bytes: FloatArray,
    tile_bytes: float,
) -> FloatArray:
    pitch = int(limits[-1] * tile_bytes)
    power_of_two = pitch & (pitch - 1) == 0
    if rank < 2 or not power_of_two or pitch < _BANK_PITCH_BYTES:
        return np.zeros(units.shape[1])
    narrow = units[-1] < 1.0 + _WHOLE
    return np.where(narrow, num_bytes / _PIECE_BYTES, 0.0)
