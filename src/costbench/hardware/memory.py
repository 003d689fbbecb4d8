"""Computes the time of a copy between main memory and scratchpad: bytes, chunks, descriptors and banks.

Main memory holds an array as a row-major grid of native tiles. A tile of it is a box in that grid: axes that
it covers completely merge with the next one into contiguous chunks. Chunks at equal distances take one
strided descriptor; where the distance changes, a descriptor is needed for each run of chunks. Chunks one
lane-unit wide whose pitch is a power of two of 64 KiB or more hit the same memory banks. Chunks have other
forms on machines of other formulas (`costbench.target.Formulas`).
"""

from __future__ import annotations

from typing import NamedTuple

from costbench.arrays import F64
from costbench.compiler.lowering.packed import PackedNest
from costbench.compiler.tile_footprint import Tile, copied
from costbench.execution.compiled import compiled_step
from costbench.hardware.machine import (
    BANK_NS,
    CHUNK_NS,
    CHUNKS,
    CHUNKS_BURSTS,
    CHUNKS_ROWS,
    DESCRIPTOR_NS,
    READ_GB_PER_S,
    ROW_ADDRESS_NS,
    WRITE_GB_PER_S,
)

_BANK_PITCH_BYTES = 64 * 1024
_BANK_BYTES = 4096.0
_BURST_BYTES = 4096.0
_MIN_ROW_BYTES = 512.0
_WHOLE = 1e-6


class BoxShape(NamedTuple):
    """Quantities of one copy of a box, averaged over the tiles of the kernel.

    Attributes:
        native_tiles: native tiles moved.
        chunks: contiguous chunks, at least 1.
        descriptors: strided descriptors, at least 1.
        is_narrow: whether chunks are one native tile wide.
    """

    native_tiles: float
    chunks: float
    descriptors: float
    is_narrow: bool


class CopyShape(NamedTuple):
    """Quantities of one copy of a transfer's tile.

    Attributes:
        num_bytes: bytes moved.
        chunks: contiguous chunks beyond the first.
        descriptors: strided descriptors beyond the first.
        conflicts: number of 4 KiB blocks that lie in the same banks.
        rows: rows addressed one by one.
    """

    num_bytes: float
    chunks: float
    descriptors: float
    conflicts: float
    rows: float


@compiled_step
def box_shape(nest: PackedNest, tile: Tile, box: int, machine: F64) -> BoxShape:
    """Returns the quantities of a copy of a box with at least one axis for one tile size."""
    never_merges = machine[CHUNKS] == CHUNKS_ROWS
    native_tiles, chunks, descriptors, narrow = 1.0, 1.0, 1.0, 0.0
    apart = False  # an axis so far was covered in part, so that what follows comes in chunks
    uneven = False  # chunks so far have a second distance, so that what follows needs descriptors of its own
    first, end = nest.boxes[box].first_axis, nest.boxes[box + 1].first_axis
    for axis in range(end - 1, first - 1, -1):
        limit = nest.axes[axis].limit
        span = copied(nest.axes[axis], tile)
        native_tiles *= span
        if axis == end - 1:
            narrow = span
        if limit == 1.0:
            continue
        if apart or (never_merges and axis < end - 1):
            chunks *= span
        if uneven:
            descriptors *= span
        if span < limit - _WHOLE:
            uneven |= apart and chunks > 1.0 + _WHOLE
            apart = True
    return BoxShape(native_tiles, chunks, descriptors, narrow < 1.0 + _WHOLE)


@compiled_step
def copy_shape(nest: PackedNest, tile: Tile, transfer: int, box: BoxShape, machine: F64) -> CopyShape:
    """Returns the quantities of a transfer's copy, given those of its box."""
    item = nest.transfers[transfer]
    number = item.box
    last = nest.boxes[number + 1].first_axis - 1
    if last < nest.boxes[number].first_axis:
        return CopyShape(item.native_bytes, 0.0, 0.0, 0.0, 0.0)
    if item.row_elements > 0.0:
        rows = max(_moved_elements(nest, tile, transfer) / item.row_elements, 1.0)
        row_bytes = max(item.row_elements * item.element_bytes, _MIN_ROW_BYTES)
        return CopyShape(rows * row_bytes, 0.0, 0.0, 0.0, rows)
    num_bytes = box.native_tiles * item.native_bytes
    conflicts = 0.0
    if box.is_narrow and last > nest.boxes[number].first_axis:
        pitch = int(nest.axes[last].limit * item.native_bytes)
        if pitch >= _BANK_PITCH_BYTES and pitch & (pitch - 1) == 0:
            conflicts = num_bytes / _BANK_BYTES
    if machine[CHUNKS] == CHUNKS_BURSTS:
        # A chunk that starts at any native tile of a burst touches this much more on average.
        num_bytes += box.chunks * max(_BURST_BYTES - item.native_bytes, 0.0)
    return CopyShape(num_bytes, box.chunks - 1.0, box.descriptors - 1.0, conflicts, 0.0)


@compiled_step
def _moved_elements(nest: PackedNest, tile: Tile, transfer: int) -> float:
    """Returns the elements of a value in one tile, where rows are picked one by one."""
    moved = nest.transfers[transfer].num_elements
    mask = nest.boxes[nest.transfers[transfer].box].mask
    for loop in range(len(nest.loops)):
        if mask >> loop & 1:
            moved /= tile.trips[loop]
    return float(moved)


@compiled_step
def copy_ns(copy: CopyShape, machine: F64, is_output: bool) -> float:
    """Returns nanoseconds of a copy: bytes / bandwidth + chunks, descriptors, conflicts, rows at their price.

    Issuing the copy is work of the core and not included.
    """
    return float(
        copy.num_bytes / machine[WRITE_GB_PER_S if is_output else READ_GB_PER_S]
        + copy.chunks * machine[CHUNK_NS]
        + copy.descriptors * machine[DESCRIPTOR_NS]
        + copy.conflicts * machine[BANK_NS]
        + copy.rows * machine[ROW_ADDRESS_NS]
    )


@compiled_step
def set_copy_times(nest: PackedNest, tile: Tile, machine: F64, factor: float, times: F64) -> None:
    """Writes nanoseconds of each transfer's copy into `times` [num_transfers]; each box is computed once."""
    shape_box = -1
    shape = BoxShape(0.0, 1.0, 1.0, False)
    for transfer in range(len(nest.transfers)):
        box = nest.transfers[transfer].box
        if box != shape_box:
            shape, shape_box = box_shape(nest, tile, box, machine), box
        copy = copy_shape(nest, tile, transfer, shape, machine)
        times[transfer] = factor * copy_ns(copy, machine, nest.transfers[transfer].is_output != 0)
