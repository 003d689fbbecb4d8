"""Copies between main memory and the scratchpad: bytes, pieces, descriptors and banks.

Main memory holds an array as a row-major grid of native tiles. A tile of it is a box in that grid: axes that
it covers completely merge with the next one into contiguous pieces. Pieces at equal distances take one
strided descriptor; where the distance changes, a descriptor is needed for each run of pieces. Pieces one
lane-unit wide whose pitch is a power of two of 64 KiB or more hit the same memory banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.compiler.footprint import Span, TileGrid, native_tile_bytes
from costbench.compiler.loop_nest import native_units
from costbench.compiler.transfers import Transfer
from costbench.hlo.shape import Shape
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
        """bytes / bandwidth + pieces, descriptors, conflicts and rows at their price, [n].

        Issuing the copy is the core's work and no part of it.
        """
        bandwidth = timing.write_gb_per_s if is_output else timing.read_gb_per_s
        return (
            self.num_bytes / bandwidth
            + self.pieces * timing.chunk_ns
            + self.descriptors * timing.descriptor_ns
            + self.conflicts * timing.bank_ns
            + self.rows * timing.row_address_ns
        )


def copy_shape(grid: TileGrid, transfer: Transfer) -> CopyShape:
    """The copy of one transfer for each tile size."""
    zero = np.zeros(grid.count)
    shape = transfer.shape
    if shape.rank == 0:
        return CopyShape(np.full(grid.count, native_tile_bytes(shape)), zero, zero, zero, zero)
    if transfer.row_elements:
        return _rows(grid, transfer)
    spans = grid.copied(shape, transfer.access)
    limits = [max(1, -(-d // u)) for d, u in zip(shape.physical_dimensions, native_units(shape), strict=True)]
    num_bytes = grid.product(spans) * native_tile_bytes(shape)
    pieces, descriptors = _pieces(spans, limits, grid.count)
    return CopyShape(
        num_bytes, pieces - 1.0, descriptors - 1.0, _conflicts(shape, spans, limits, num_bytes), zero
    )


def _rows(grid: TileGrid, transfer: Transfer) -> CopyShape:
    """Rows that indices select, each of 512 bytes at least."""
    zero = np.zeros(grid.count)
    moved = np.full(grid.count, float(transfer.shape.num_elements))
    for loop in transfer.loops:
        moved = moved / grid.trips[:, loop]
    rows = np.maximum(moved / transfer.row_elements, 1.0)
    row_bytes = max(transfer.row_elements * transfer.shape.element_type.bits / 8, _MIN_ROW_BYTES)
    return CopyShape(rows * row_bytes, zero, zero, zero, rows)


def _pieces(spans: Sequence[Span], limits: Sequence[int], count: int) -> tuple[FloatArray, FloatArray]:
    """Contiguous pieces of a box in a row-major grid, and strided descriptors for them, both [n] >= 1."""
    pieces = np.ones(count)
    descriptors = np.ones(count)
    apart = np.zeros(count, dtype=bool)
    """Whether an axis so far was covered in part, so that what follows comes in pieces."""
    uneven = np.zeros(count, dtype=bool)
    """Whether pieces so far have a second distance, so that what follows needs descriptors of its own."""
    for span, limit in zip(reversed(spans), reversed(limits), strict=True):
        if limit == 1:
            continue
        pieces = np.where(apart, pieces * span, pieces)
        descriptors = np.where(uneven, descriptors * span, descriptors)
        if not isinstance(span, float):
            partial = span < limit - _WHOLE
            uneven |= apart & partial & (pieces > 1.0 + _WHOLE)
            apart |= partial
    return pieces, descriptors


def _conflicts(
    shape: Shape, spans: Sequence[Span], limits: Sequence[int], num_bytes: FloatArray
) -> FloatArray:
    pitch = int(limits[-1] * native_tile_bytes(shape))
    power_of_two = pitch & (pitch - 1) == 0
    if shape.rank < 2 or not power_of_two or pitch < _BANK_PITCH_BYTES:
        return np.zeros_like(num_bytes)
    return np.where(np.asarray(spans[-1]) < 1.0 + _WHOLE, num_bytes / _PIECE_BYTES, 0.0)
