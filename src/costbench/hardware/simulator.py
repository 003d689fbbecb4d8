"""Runtime of a kernel on the simulated TPU, for many tile sizes at once, with a breakdown that adds up.

The nest runs prod(n_l) iterations. Between two iterations the values whose tile index changes are copied;
copying, computing and writing back overlap, softly: (transfer^q + compute^q)^(1/q). Issuing the copies is
work of the core, so it hides behind large transfers as computing does. With count_l transitions at loop
level l,

    T = launch + fill + sum_l count_l * (soft maximum(transfer_l, compute_l + issue_l) + iteration)
        + last + drain

where fill is the first copy-in, last the final iteration's compute and control, drain the final copy-out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.compiler.footprint import TileGrid
from costbench.compiler.kernel import Kernel
from costbench.compiler.loop_nest import LoopNest, loop_nest
from costbench.compiler.tile_sizes import TileSizes
from costbench.compiler.transfers import Transfer
from costbench.hardware.codegen import codegen_factors
from costbench.hardware.compute import compute_time
from costbench.hardware.memory import copy_shape
from costbench.target import Target, Timing

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Breakdown:
    """Where the time of a kernel goes, nanoseconds, each [n]; the parts sum to `runtime_ns`.

    Attributes:
        launch_ns: start of the kernel.
        fill_ns: first copy-in, before anything can run.
        matrix_ns: matrix unit.
        vector_ns: vector unit.
        exposed_transfer_ns: copying that compute does not hide.
        iteration_ns: control of the loops, and issue of the copies between two iterations.
        drain_ns: last copy-out.
    """

    launch_ns: FloatArray
    fill_ns: FloatArray
    matrix_ns: FloatArray
    vector_ns: FloatArray
    exposed_transfer_ns: FloatArray
    iteration_ns: FloatArray
    drain_ns: FloatArray

    @property
    def runtime_ns(self) -> FloatArray:
        """Sum of all parts."""
        return (
            self.launch_ns
            + self.fill_ns
            + self.matrix_ns
            + self.vector_ns
            + self.exposed_transfer_ns
            + self.iteration_ns
            + self.drain_ns
        )


def simulate(kernel: Kernel, tile_sizes: TileSizes, target: Target) -> Breakdown:
    """Prices tile sizes of a kernel.

    Raises:
        UnsupportedKernelError: if the kernel cannot be lowered or the tile sizes are not its own.
    """
    nest = loop_nest(kernel)
    return simulate_nest(nest, nest.extents(tile_sizes), target)


def simulate_nest(nest: LoopNest, extents: npt.NDArray[np.int64], target: Target) -> Breakdown:
    """The same for a lowered kernel and loop extents [n, num_loops]."""
    return simulate_grid(TileGrid(nest, extents), target)


def simulate_grid(grid: TileGrid, target: Target) -> Breakdown:
    """The same for tile sizes that are laid out already."""
    timing, nest = target.timing, grid.nest
    factor, transfer_factor = codegen_factors(nest, grid.extents, target)
    copies = [
        (t, transfer_factor * copy_shape(grid, t).time_ns(timing, is_output=t.is_output))
        for t in nest.transfers
    ]
    compute = compute_time(grid, target)
    matrix, vector = compute.matrix_ns * factor, compute.vector_ns * factor
    epilogue = compute.epilogue_ns * factor

    exposed, issue = np.zeros(grid.count), np.zeros(grid.count)
    for level in _levels(grid, copies):
        busy = matrix + vector + level.copies * timing.transfer_ns
        if level.loop < nest.num_output_loops:
            busy = busy + epilogue
        hidden = soft_maximum(level.transfer_ns, busy, timing.overlap_exponent) - busy
        exposed += level.count * hidden
        issue += level.count * level.copies * timing.transfer_ns
    iterations = grid.trips.prod(axis=1)
    results = grid.trips[:, : nest.num_output_loops].prod(axis=1)
    return Breakdown(
        launch_ns=np.full(grid.count, timing.launch_ns),
        fill_ns=_together(copies, timing, grid.count, is_output=False),
        matrix_ns=matrix * iterations,
        vector_ns=vector * iterations + epilogue * results,
        exposed_transfer_ns=exposed,
        iteration_ns=timing.iteration_ns * iterations + issue,
        drain_ns=_together(copies, timing, grid.count, is_output=True),
    )


_Copies = list[tuple[Transfer, FloatArray]]


def _together(copies: _Copies, timing: Timing, count: int, *, is_output: bool) -> FloatArray:
    """All first copies in, or all last copies out, one after the other."""
    total = np.zeros(count)
    for transfer, time in copies:
        if transfer.is_output is is_output:
            total += time + timing.transfer_ns
    return total


@dataclass(frozen=True, eq=False)
class _Level:
    """Transitions at which one loop advances and all loops inside it start over.

    Attributes:
        loop: the loop.
        count: how many there are, [n].
        transfer_ns: copies that each of them needs, [n].
        copies: number of these copies, [n].
    """

    loop: int
    count: FloatArray
    transfer_ns: FloatArray
    copies: FloatArray


def _levels(grid: TileGrid, copies: _Copies) -> Iterator[_Level]:
    """The levels at which anything happens, innermost first.

    A value's tile changes where a loop that moves it advances, or starts over after more than one step.
    """
    nest = grid.nest
    order = [loop for loop in nest.order if nest.loops[loop].units > 1]
    outer = np.ones(grid.count)
    counts: list[FloatArray] = []
    for loop in order:
        counts.append((grid.trips[:, loop] - 1.0) * outer)
        outer = outer * grid.trips[:, loop]
    starts_over: list[npt.NDArray[np.bool_] | None] = [None] * len(copies)
    for loop, count in zip(reversed(order), reversed(counts), strict=True):
        transfer_ns, number = np.zeros(grid.count), np.zeros(grid.count)
        steps = grid.trips[:, loop] > 1
        for place, (transfer, time) in enumerate(copies):
            again = starts_over[place]
            if loop in transfer.loops:
                transfer_ns += time
                number += 1.0
                starts_over[place] = steps if again is None else again | steps
            elif again is not None:
                transfer_ns += time * again
                number += again
        yield _Level(loop, count, transfer_ns, number)


def soft_maximum(a: FloatArray, b: FloatArray, exponent: float) -> FloatArray:
    """(a^q + b^q)^(1/q): the larger of the two, and up to 2^(1/q) of it when they are equal."""
    larger = np.maximum(a, b)
    smaller = np.minimum(a, b)
    ratio = np.divide(smaller, larger, out=np.zeros_like(larger), where=larger > 0.0)
    result: FloatArray = larger * (1.0 + ratio**exponent) ** (1.0 / exponent)
    return result
