"""How many native tiles a tile of each value takes, in the scratchpad and in copies from main memory.

Main memory and scratchpad hold an array as a grid of native tiles: 8 x 128 elements, or 1,024 of a vector,
fewer where the array has few rows (`tiled_memory.native_tile`). A tile of a value is a box in that grid.
Where it starts inside a native tile, because the value's memory order is not the one that the loops run in,
it touches one native tile more than its size says.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.lowering.access import NO_LOOP
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.lowering.packed import SUM_BYTES, PackedNest, unpacked
from costbench.compiler.tiled_memory import REGISTER_ELEMENTS
from costbench.execution.compiled import compiled, compiled_step

Axis = Any
"""A record `packed.AXIS`."""

_ROUNDING = 1e-9
_ENDLESS = 2.0**62


class Tile(NamedTuple):
    """Buffers for one tile size, overwritten for the next.

    Attributes:
        extents: [num_loops], native tiles that each loop advances.
        trips: [num_loops], iterations of each loop.
        full: [num_loops], elements that the compute runs over, whole native tiles.
        mean: [num_loops], elements averaged over the tiles of the loop: those at the edge are cut.
        sizes: [num_boxes], native tiles that the scratchpad holds of each box; 0 for a scalar.
    """

    extents: F64
    trips: F64
    full: F64
    mean: F64
    sizes: F64


@compiled
def new_tile(nest: PackedNest) -> Tile:
    """Allocates the buffers for a tile size of a nest."""
    loops = len(nest.loops)
    return Tile(
        np.empty(loops), np.empty(loops), np.empty(loops), np.empty(loops), np.zeros(len(nest.boxes) - 1)
    )


@compiled_step
def set_tile(nest: PackedNest, extents: I64, tile: Tile) -> int:
    """Fills in all fields but `sizes` for loop extents [num_loops].

    Returns the bit set of loops that take more than one iteration.
    """
    moving = 0
    for loop in range(len(nest.loops)):
        units, unit = nest.loops[loop].units, nest.loops[loop].unit
        extent = float(extents[loop])
        trips = np.ceil(units / extent)
        tile.extents[loop] = extent
        tile.trips[loop] = trips
        tile.full[loop] = min(extent, units) * unit
        tile.mean[loop] = nest.loops[loop].extent / trips
        if trips > 1.0:
            moving |= 1 << loop
    return moving


@compiled_step
def set_sizes(nest: PackedNest, tile: Tile, num_boxes: int) -> None:
    """Fills in the sizes of the first `num_boxes` boxes."""
    for box in range(num_boxes):
        first, end = nest.boxes[box].first_axis, nest.boxes[box + 1].first_axis
        size = 1.0 if end > first else 0.0
        for axis in range(first, end):
            size *= covered(nest.axes[axis], tile)
        tile.sizes[box] = size


@compiled_step
def registers(nest: PackedNest, tile: Tile, box: int, mean: bool) -> float:
    """Returns the registers of 8 x 128 elements that a pass over a box touches, once its size is set.

    Native tiles of few rows lie side by side in memory, so that one register holds several of them. `mean` is
    whether the size is a mean over tiles of different sizes, which need not be whole registers.
    """
    touched = tile.sizes[box] * nest.boxes[box].native_elements / REGISTER_ELEMENTS
    if mean and touched > 1.0:
        return float(touched)
    return float(np.ceil(touched))


@compiled_step
def covered(axis: Axis, tile: Tile) -> float:
    """Returns whole native tiles along an axis that the scratchpad holds and the compute runs over."""
    limit = axis.limit
    loop = axis.loop
    if axis.aligned_advance > 0.0 and axis.is_window == 0:
        return float(min(tile.extents[loop] * axis.aligned_advance, limit))
    if loop == NO_LOOP and axis.window_loop == NO_LOOP:
        return float(limit)
    elements = _extent(axis, tile.full, axis.size) + _offsets(axis, tile)[1]
    return float(min(max(np.ceil(elements / axis.native - _ROUNDING), 1.0), limit))


@compiled_step
def copied(axis: Axis, tile: Tile) -> float:
    """Returns native tiles along an axis that copies move, averaged over the tiles of the nest."""
    limit = axis.limit
    loop = axis.loop
    if loop == NO_LOOP and axis.window_loop == NO_LOOP:
        return float(limit)
    native = axis.native
    if axis.is_window == 0:
        # Tiles partition the axis; where a cut falls inside a native tile, both tiles copy that native tile.
        cuts = tile.trips[loop] - 1.0
        touched = limit
        if axis.aligned_advance == 0.0:
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
def _extent(axis: Axis, elements: F64, size: float) -> float:
    """Returns the elements of an axis of `size` in a tile, given those of each loop, [num_loops].

    With e elements of its loop, ((scale e - 1) stride + (window - 1) dilation + 1) / base_dilation of them.
    """
    loop, window_loop = axis.loop, axis.window_loop
    length = elements[loop] * axis.scale if loop != NO_LOOP else 1.0
    if axis.is_window != 0:
        window = elements[window_loop] if window_loop != NO_LOOP else axis.window
        reach = (length - 1.0) * axis.stride + (window - 1.0) * axis.dilation + 1.0
        length = max(reach, 1.0) / axis.base_dilation
    return min(length, size)


@compiled_step
def mean_extent(axis: Axis, elements: F64) -> float:
    """Returns elements of an axis in a tile, given those of each loop; all of them if no loop moves it."""
    if axis.loop == NO_LOOP and axis.window_loop == NO_LOOP:
        return float(axis.size)
    return _extent(axis, elements, axis.size)


@compiled_step
def _mean_window(axis: Axis, tile: Tile) -> float:
    """Returns elements under the windows of a tile without padding, which is not in memory nor copied."""
    elements = _extent(axis, tile.mean, _ENDLESS)
    loop, window_loop = axis.loop, axis.window_loop
    if axis.padding > 0.0 and loop != NO_LOOP:
        # Each pass over the axis covers the padding once; with a cut window only some passes do.
        passes = tile.trips[loop]
        if window_loop != NO_LOOP:
            passes *= tile.trips[window_loop]
        elements -= axis.padding / axis.base_dilation / passes
    return float(min(elements, axis.size))


@compiled_step
def _grain(axis: Axis, tile: Tile) -> float:
    """Returns the greatest common divisor of a native tile and the distance between starts of two tiles."""
    step = tile.extents[axis.loop] * axis.advance
    whole = np.rint(step)
    if abs(step - whole) >= _ROUNDING * axis.native:
        return 1.0
    # Native tiles are powers of two, so the lowest bit that is set divides both.
    number = int(whole)
    lowest = number & -number
    return float(min(lowest, axis.native)) if lowest > 0 else float(axis.native)


@compiled_step
def _offsets(axis: Axis, tile: Tile) -> tuple[float, float]:
    """Returns the least and the largest offset into a native tile at which tiles start, in elements."""
    loop = axis.loop
    aligned = axis.aligned_advance > 0.0 and axis.padding == 0.0
    if axis.native == 1.0 or loop == NO_LOOP or aligned or tile.trips[loop] == 1.0:
        return 0.0, 0.0
    grain = _grain(axis, tile)
    before = np.floor(axis.padding / 2.0)
    first = np.ceil(before / grain) * grain - before
    return first, first + axis.native - grain


@compiled_step
def needed_bytes(nest: PackedNest, tile: Tile, moving: int) -> float:
    """Returns the scratchpad that a tile size needs, once its sizes are set; see `scratchpad_bytes`."""
    total = 0.0
    for t in range(len(nest.transfers)):
        box = nest.transfers[t].box
        buffers = 2.0 if nest.boxes[box].mask & moving else 1.0
        total += buffers * tile.sizes[box] * nest.transfers[t].native_bytes
    if nest.result_box >= 0 and moving >> nest.num_output_loops:
        total += tile.sizes[nest.result_box] * nest.boxes[nest.result_box].native_elements * SUM_BYTES
    return total


@compiled_step
def row_bytes(nest: PackedNest, extents: I64, tile: Tile) -> float:
    """Does the same for loop extents [num_loops]."""
    moving = set_tile(nest, extents, tile)
    set_sizes(nest, tile, nest.num_copied_boxes)
    return needed_bytes(nest, tile, moving)


@compiled
def _all_bytes(words: F64, extents: I64) -> F64:
    nest = unpacked(words)
    result = np.empty(len(extents))
    tile = new_tile(nest)
    for row in range(len(extents)):
        result[row] = row_bytes(nest, extents[row], tile)
    return result


def scratchpad_bytes(nest: LoopNest, extents: I64) -> F64:
    """Returns the scratchpad that each tile size needs, bytes [n].

    Each moving operand is double-buffered (2x), one whose tile never changes is not (1x); a contraction
    that is cut needs its result tile once more as float32 accumulator. Operands addressed by indices stay
    in main memory except for the rows in flight.
    """
    return _all_bytes(nest.words, np.ascontiguousarray(extents))
