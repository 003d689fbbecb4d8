"""Tiles in native units: how much of the scratchpad, and of main memory's grid, a tile takes.

Main memory and scratchpad hold an array as a grid of native tiles (8 x 128 elements, or 1,024 of a vector).
A tile of a value is a box in that grid. Where it starts inside a native tile, because the value's memory
order is not the one that the loops walk in, it touches one native tile more than its size says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from costbench.compiler.access import NO_LOOP, Access, AxisMap
from costbench.compiler.loop_nest import LoopNest, native_units
from costbench.hlo.shape import Shape

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Span = FloatArray | float
"""Native tiles along one axis: one number per tile size, [n], or a single one where all agree."""
_Axis = tuple[AxisMap, int, int]

ACCUMULATOR_BYTES = 4
_ROUNDING = 1e-9


class TileGrid:
    """`n` tile sizes of a loop nest, laid over the native tiles of any of its values.

    Args:
        nest: the lowered kernel.
        extents: int64 [n, num_loops], native tiles that each loop advances.
    """

    def __init__(self, nest: LoopNest, extents: IntArray) -> None:
        self.nest = nest
        self.extents = extents
        self.count = len(extents)
        self.trips = nest.trips(extents)
        self._covered: dict[_Axis, Span] = {}
        self._copied: dict[_Axis, Span] = {}

    @cached_property
    def full(self) -> list[FloatArray]:
        """Elements of a full tile along each loop, each [n]."""
        return self.nest.full_elements(self.extents)

    @cached_property
    def _mean(self) -> list[FloatArray]:
        return [loop.extent / self.trips[:, i] for i, loop in enumerate(self.nest.loops)]

    def covered(self, shape: Shape, access: Access) -> list[Span]:
        """Whole native tiles that the scratchpad holds and the compute runs over, per physical axis."""
        return _spans(shape, access, self._covered, self._covered_axis)

    def copied(self, shape: Shape, access: Access) -> list[Span]:
        """Native tiles that copies move, averaged over the tiles of the nest: those at the edge are cut."""
        return _spans(shape, access, self._copied, self._copied_axis)

    def registers(self, shape: Shape, access: Access) -> FloatArray:
        """Vector registers of 8 x 128 elements that a full tile fills, [n]; 0 for a scalar."""
        return self.product(self.covered(shape, access)) if shape.rank else np.zeros(self.count)

    def product(self, spans: Sequence[Span]) -> FloatArray:
        """Native tiles of a box, [n]."""
        scale = 1.0
        result: FloatArray | None = None
        for span in spans:
            if isinstance(span, float):
                scale *= span
            else:
                result = span if result is None else result * span
        return np.full(self.count, scale) if result is None else result * scale

    def moves(self, loops: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Whether any of the loops takes more than one step, bool [n]."""
        moving = np.zeros(self.count, dtype=bool)
        for loop in loops:
            moving |= self.trips[:, loop] > 1
        return moving

    def _covered_axis(self, axis: AxisMap, size: int, unit: int) -> Span:
        limit = _whole_units(size, unit)
        if not axis.loops:
            return limit
        step = self._aligned_step(axis, unit)
        if step is not None and not axis.is_window:
            tiles: FloatArray = np.minimum(self.extents[:, axis.loop] * float(step), limit)
            return tiles
        elements = axis.extent(size, self.full) + self._offsets(axis, unit)[1]
        result: FloatArray = np.clip(np.ceil(elements / unit - _ROUNDING), 1.0, limit)
        return result

    def _copied_axis(self, axis: AxisMap, size: int, unit: int) -> Span:
        limit = _whole_units(size, unit)
        if not axis.loops:
            return limit
        if not axis.is_window and axis.loop != NO_LOOP:
            # Tiles part the axis among them; a cut inside a native tile makes both sides copy it.
            trips = self.trips[:, axis.loop]
            touched: FloatArray | float = limit
            if self._aligned_step(axis, unit) is None:
                touched = limit + (trips - 1) - (trips - 1) * self._grain(axis, unit) // unit
            return np.maximum(touched / trips, 1.0)
        elements = self._mean_window(axis, size)
        if unit == 1:
            return np.maximum(elements, 1.0)
        first, last = self._offsets(axis, unit)
        grain = unit - (last - first)
        mean = (np.ceil((first + elements) / grain - _ROUNDING) * grain + last - first) / unit
        result: FloatArray = np.clip(mean, 1.0, limit)
        return result

    def _mean_window(self, axis: AxisMap, size: int) -> FloatArray:
        """Elements under the windows of a tile, without the padding: only what is in memory is copied."""
        elements = np.asarray(axis.extent(2**62, self._mean))
        if axis.padding > 0 and axis.loop != NO_LOOP:
            # Padding is met once per pass over the axis; a window that is cut meets it in some passes.
            passes = self.trips[:, axis.loop].astype(np.float64)
            if axis.window_loop != NO_LOOP:
                passes = passes * self.trips[:, axis.window_loop]
            elements = elements - axis.padding / axis.base_dilation / passes
        result: FloatArray = np.minimum(elements, float(size))
        return result

    def _step(self, axis: AxisMap) -> float:
        """Elements between the starts of two tiles, for each native tile that the loop advances."""
        return self.nest.loops[axis.loop].unit * axis.scale * axis.stride / axis.base_dilation

    def _aligned_step(self, axis: AxisMap, unit: int) -> int | None:
        """Native tiles between the starts of two tiles, likewise; None where they may start inside one."""
        if axis.loop == NO_LOOP:
            return None
        step = self._step(axis) / unit
        return int(step) if step >= 1.0 and step.is_integer() else None

    def _grain(self, axis: AxisMap, unit: int) -> IntArray:
        """Greatest common divisor of a native tile and the distance between the starts of two tiles."""
        step = self.extents[:, axis.loop] * self._step(axis)
        whole = np.rint(step).astype(np.int64)
        return np.where(np.abs(step - whole) < _ROUNDING * unit, np.gcd(whole, unit), 1)

    def _offsets(self, axis: AxisMap, unit: int) -> tuple[FloatArray | float, FloatArray | float]:
        """How far into a native tile tiles start: least and most, in elements."""
        if unit == 1 or axis.loop == NO_LOOP:
            return 0.0, 0.0
        if self._aligned_step(axis, unit) is not None and axis.padding == 0:
            return 0.0, 0.0
        grain = self._grain(axis, unit)
        several = self.trips[:, axis.loop] > 1
        first = np.where(several, (-(axis.padding // 2)) % grain, 0).astype(np.float64)
        return first, first + np.where(several, unit - grain, 0)


def _spans(
    shape: Shape, access: Access, known: dict[_Axis, Span], work_out: Callable[[AxisMap, int, int], Span]
) -> list[Span]:
    """Spans of all axes, physical order from major to minor; each distinct axis is worked out once."""
    spans = []
    for axis, unit in zip(reversed(shape.layout), native_units(shape), strict=True):
        key = (access[axis], shape.dimensions[axis], unit)
        span = known.get(key)
        if span is None:
            span = known[key] = work_out(*key)
        spans.append(span)
    return spans


def _whole_units(size: int, unit: int) -> float:
    return float(max(1, -(-size // unit)))


def native_tile_bytes(shape: Shape) -> float:
    """Bytes of one native tile: 8 x 128 (or 1,024) elements; of the value itself for a scalar."""
    if shape.rank == 0:
        return shape.element_type.bits / 8
    return 1024 * shape.element_type.bits / 8


def scratchpad_bytes(nest: LoopNest, extents: IntArray) -> FloatArray:
    """Scratchpad that a tile size needs, bytes [n].

    Each moving operand is double-buffered (2x), one whose tile never changes is not (1x); a contraction
    that is cut needs its result tile once more as float32 accumulator. Operands addressed by indices stay
    in main memory but for the rows in flight.
    """
    return grid_scratchpad_bytes(TileGrid(nest, extents))


def grid_scratchpad_bytes(grid: TileGrid) -> FloatArray:
    """The same for tile sizes that are laid out already."""
    nest = grid.nest
    total = np.zeros(grid.count)
    for transfer in nest.transfers:
        if transfer.shape.rank == 0:
            continue
        size = grid.product(grid.covered(transfer.shape, transfer.access))
        buffers = np.where(grid.moves(transfer.loops), 2.0, 1.0)
        total += buffers * size * native_tile_bytes(transfer.shape)
    if nest.contraction is not None and nest.is_tiled:
        cut = grid.moves(range(nest.num_output_loops, len(nest.loops)))
        sums = grid.registers(nest.anchor_shape, nest.accesses[nest.contraction])
        total += cut * sums * (1024 * ACCUMULATOR_BYTES)
    return total


def scratchpad_bound(nest: LoopNest) -> float:
    """Scratchpad that no tile size exceeds, bytes: everything whole, twice, and the sums."""
    total = 0.0
    for transfer in nest.transfers:
        if transfer.shape.rank:
            total += 2.0 * _whole_tiles(transfer.shape) * native_tile_bytes(transfer.shape)
    if nest.contraction is not None and nest.is_tiled:
        total += _whole_tiles(nest.anchor_shape) * 1024 * ACCUMULATOR_BYTES
    return total


def _whole_tiles(shape: Shape) -> float:
    pairs = zip(shape.physical_dimensions, native_units(shape), strict=True)
    return math.prod(_whole_units(size, unit) for size, unit in pairs)
