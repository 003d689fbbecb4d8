"""Tiles in native units: how much of the scratchpad, and of main memory's grid, a tile takes.

Main memory and scratchpad hold an array as a grid of native tiles (8 x 128 elements, or 1,024 of a vector).
A tile of a value is a box in that grid. Where it starts inside a native tile, because the value's memory
order is not the one that the loops walk in, it touches one native tile more than its size says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiler.lowering.access import NO_LOOP
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.lowering.packed import (
    ALIGNED_STEP,
    BASE_DILATION,
    BOX,
    DILATION,
    EXTENT,
    FIRST_AXIS,
    IS_WINDOW,
    LIMIT,
    LOOP,
    MASK,
    NATIVE,
    NATIVE_BYTES,
    NUM_COPIED_BOXES,
    NUM_OUTPUT_LOOPS,
    PADDING,
    RESULT_BOX,
    RESULT_TILE_BYTES,
    SCALE,
    SIZE,
    STEP,
    STRIDE,
    UNIT,
    UNITS,
    WINDOW,
    WINDOW_LOOP,
    PackedNest,
    pack,
    unpacked,
)
from costbench.execution.compiled import compiled, compiled_step

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_ROUNDING = 1e-9
_ENDLESS = 2.0**62


@dataclass(frozen=True, eq=False)
class TileGrid:
    """`n` tile sizes of a loop nest.

    Attributes:
        nest: the lowered kernel.
        extents: int64 [n, num_loops], native tiles that each loop advances.
    """

    nest: LoopNest
    extents: IntArray

    @property
    def count(self) -> int:
        """n."""
        return len(self.extents)


class Tile(NamedTuple):
    """One tile size: room that is filled anew for each row.

    Attributes:
        extents: [num_loops], native tiles that each loop advances.
        trips: [num_loops], iterations of each loop.
        full: [num_loops], elements that the compute runs over, whole native tiles.
        mean: [num_loops], elements averaged over the tiles of the loop: those at the edge are cut.
        sizes: [num_boxes], native tiles that the scratchpad holds of each box; 0 for a scalar.
    """

    extents: FloatArray
    trips: FloatArray
    full: FloatArray
    mean: FloatArray
    sizes: FloatArray


@compiled
def new_tile(nest: PackedNest) -> Tile:
    """Room for a tile size of a nest."""
    loops = len(nest.loops)
    return Tile(
        np.empty(loops), np.empty(loops), np.empty(loops), np.empty(loops), np.zeros(len(nest.boxes) - 1)
    )


@compiled_step
def set_tile(nest: PackedNest, extents: IntArray, tile: Tile) -> int:
    """Fills in all but the sizes, for loop extents [num_loops]; the bit set of loops that take steps."""
    moving = 0
    for loop in range(len(nest.loops)):
        units, unit = nest.loops[loop, UNITS], nest.loops[loop, UNIT]
        extent = float(extents[loop])
        trips = np.ceil(units / extent)
        tile.extents[loop] = extent
        tile.trips[loop] = trips
        tile.full[loop] = min(extent, units) * unit
        tile.mean[loop] = nest.loops[loop, EXTENT] / trips
        if trips > 1.0:
            moving |= 1 << loop
    return moving


@compiled_step
def set_sizes(nest: PackedNest, tile: Tile, num_boxes: int) -> None:
    """Fills in the sizes of the first boxes."""
    for box in range(num_boxes):
        first, end = nest.boxes[box, FIRST_AXIS], nest.boxes[box + 1, FIRST_AXIS]
        size = 1.0 if end > first else 0.0
        for axis in range(first, end):
            size *= covered(nest.axes[axis], tile)
        tile.sizes[box] = size


@compiled_step
def covered(axis: FloatArray, tile: Tile) -> float:
    """Whole native tiles along an axis that the scratchpad holds and the compute runs over."""
    limit = axis[LIMIT]
    loop = int(axis[LOOP])
    if axis[ALIGNED_STEP] > 0.0 and axis[IS_WINDOW] == 0.0:
        return float(min(tile.extents[loop] * axis[ALIGNED_STEP], limit))
    if loop == NO_LOOP and int(axis[WINDOW_LOOP]) == NO_LOOP:
        return float(limit)
    elements = _extent(axis, tile.full, axis[SIZE]) + _offsets(axis, tile)[1]
    return float(min(max(np.ceil(elements / axis[NATIVE] - _ROUNDING), 1.0), limit))


@compiled_step
def copied(axis: FloatArray, tile: Tile) -> float:
    """Native tiles along an axis that copies move, averaged over the tiles of the nest."""
    limit = axis[LIMIT]
    loop = int(axis[LOOP])
    if loop == NO_LOOP and int(axis[WINDOW_LOOP]) == NO_LOOP:
        return float(limit)
    native = axis[NATIVE]
    if axis[IS_WINDOW] == 0.0:
        # Tiles part the axis among them; a cut inside a native tile makes both sides copy it.
        cuts = tile.trips[loop] - 1.0
        touched = limit
        if axis[ALIGNED_STEP] == 0.0:
            touched = limit + cuts - np.floor(cuts * _grain(axis, tile) / native)
        return float(max(touched / tile.trips[loop], 1.0))
    elements = _mean_window(axis, tile)
    if native == 1.0:
        return max(elements, 1.0)
    first, last = _offsets(axis, tile)
    grain = native - (last - first)
    mean = (np.ceil((first + elements) / grain - _ROUNDING) * grain + last - first) / native
    return float(min(max(mean, 1.0), limit))


@compiled_step
def _extent(axis: FloatArray, elements: FloatArray, size: float) -> float:
    """`AxisMap.extent` for one tile size: elements of an axis of `size`, given those of each loop."""
    loop, window_loop = int(axis[LOOP]), int(axis[WINDOW_LOOP])
    length = elements[loop] * axis[SCALE] if loop != NO_LOOP else 1.0
    if axis[IS_WINDOW] != 0.0:
        window = elements[window_loop] if window_loop != NO_LOOP else axis[WINDOW]
        reach = (length - 1.0) * axis[STRIDE] + (window - 1.0) * axis[DILATION] + 1.0
        length = max(reach, 1.0) / axis[BASE_DILATION]
    return min(length, size)


@compiled_step
def mean_extent(axis: FloatArray, elements: FloatArray) -> float:
    """Elements of an axis in a tile, given those of each loop: all of them where no loop moves it."""
    if int(axis[LOOP]) == NO_LOOP and int(axis[WINDOW_LOOP]) == NO_LOOP:
        return float(axis[SIZE])
    return _extent(axis, elements, axis[SIZE])


@compiled_step
def _mean_window(axis: FloatArray, tile: Tile) -> float:
    """Elements under the windows of a tile, without the padding: only what is in memory is copied."""
    elements = _extent(axis, tile.mean, _ENDLESS)
    loop, window_loop = int(axis[LOOP]), int(axis[WINDOW_LOOP])
    if axis[PADDING] > 0.0 and loop != NO_LOOP:
        # Padding is met once per pass over the axis; a window that is cut meets it in some passes.
        passes = tile.trips[loop]
        if window_loop != NO_LOOP:
            passes *= tile.trips[window_loop]
        elements -= axis[PADDING] / axis[BASE_DILATION] / passes
    return float(min(elements, axis[SIZE]))


@compiled_step
def _grain(axis: FloatArray, tile: Tile) -> float:
    """Greatest common divisor of a native tile and the distance between the starts of two tiles."""
    step = tile.extents[int(axis[LOOP])] * axis[STEP]
    whole = np.rint(step)
    if abs(step - whole) >= _ROUNDING * axis[NATIVE]:
        return 1.0
    # Native tiles are powers of two, so the lowest bit that is set divides both.
    number = int(whole)
    lowest = number & -number
    return float(min(lowest, axis[NATIVE])) if lowest > 0 else float(axis[NATIVE])


@compiled_step
def _offsets(axis: FloatArray, tile: Tile) -> tuple[float, float]:
    """How far into a native tile tiles start: least and most, in elements."""
    loop = int(axis[LOOP])
    aligned = axis[ALIGNED_STEP] > 0.0 and axis[PADDING] == 0.0
    if axis[NATIVE] == 1.0 or loop == NO_LOOP or aligned or tile.trips[loop] == 1.0:
        return 0.0, 0.0
    grain = _grain(axis, tile)
    before = np.floor(axis[PADDING] / 2.0)
    first = np.ceil(before / grain) * grain - before
    return first, first + axis[NATIVE] - grain


@compiled_step
def needed_bytes(nest: PackedNest, tile: Tile, moving: int) -> float:
    """Scratchpad that a tile size needs, once its sizes are known; see `scratchpad_bytes`."""
    total = 0.0
    for t in range(len(nest.transfers)):
        box = int(nest.transfers[t, BOX])
        buffers = 2.0 if nest.boxes[box, MASK] & moving else 1.0
        total += buffers * tile.sizes[box] * nest.transfers[t, NATIVE_BYTES]
    if nest.head[RESULT_BOX] >= 0 and moving >> nest.head[NUM_OUTPUT_LOOPS]:
        total += tile.sizes[nest.head[RESULT_BOX]] * RESULT_TILE_BYTES
    return total


@compiled_step
def row_bytes(nest: PackedNest, extents: IntArray, tile: Tile) -> float:
    """The same from loop extents [num_loops]."""
    moving = set_tile(nest, extents, tile)
    set_sizes(nest, tile, nest.head[NUM_COPIED_BOXES])
    return needed_bytes(nest, tile, moving)


@compiled
def _all_bytes(ints: IntArray, floats: FloatArray, extents: IntArray) -> FloatArray:
    nest = unpacked(ints, floats)
    result = np.empty(len(extents))
    tile = new_tile(nest)
    for row in range(len(extents)):
        result[row] = row_bytes(nest, extents[row], tile)
    return result


def scratchpad_bytes(nest: LoopNest, extents: IntArray) -> FloatArray:
    """Scratchpad that a tile size needs, bytes [n].

    Each moving operand is double-buffered (2x), one whose tile never changes is not (1x); a contraction
    that is cut needs its result tile once more as float32 accumulator. Operands addressed by indices stay
    in main memory but for the rows in flight.
    """
    packed = pack(nest)
    return _all_bytes(packed.ints, packed.floats, np.ascontiguousarray(extents))


def scratchpad_bound(nest: LoopNest) -> float:
    """Scratchpad that no tile size exceeds, bytes: everything whole, twice, and the sums."""
    return pack(nest).bound_bytes
