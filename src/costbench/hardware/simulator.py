"""Runtime of a kernel on the simulated TPU, for many tile sizes at once, with a breakdown that adds up.

The nest runs prod(n_l) iterations. Between two iterations the operands whose tile index changes are copied;
copying, computing and writing back overlap, softly: (transfer^q + compute^q)^(1/q). With count_l
transitions at loop level l,

    T = launch + fill + sum_l count_l * (soft maximum(transfer_l, compute_l) + iteration) + last + drain

where fill is the first copy-in, last the final iteration's compute and drain the final copy-out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.compiler.kernel import Kernel
from costbench.compiler.loop_nest import LoopNest, loop_nest
from costbench.compiler.tile_sizes import TileSizes
from costbench.compiler.transfers import Transfer
from costbench.hardware.codegen import codegen_factor
from costbench.hardware.compute import compute_time
from costbench.hardware.memory import copy_shape
from costbench.target import Target

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
        iteration_ns: control of the loops.
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
    timing = target.timing
    count = len(extents)
    trips = nest.trips(extents).astype(np.float64)
    copies = _copy_times(nest, extents, target)
    compute = compute_time(nest, extents, target)
    factor = codegen_factor(nest, extents, timing.codegen_compute_sd, f"{target.name}/compute")
    matrix, vector = compute.matrix_ns * factor, compute.vector_ns * factor
    epilogue = compute.epilogue_ns * factor
    fill = _total([time for transfer, time in copies if not transfer.is_output], count)
    drain = _total([time for transfer, time in copies if transfer.is_output], count)

    exposed = np.zeros(count)
    matrix_sum, vector_sum = matrix.copy(), vector + epilogue
    transitions = np.zeros(count)
    outer = np.ones(count)
    for level, loop in enumerate(nest.order):
        level_count = (trips[:, loop] - 1.0) * outer
        outer = outer * trips[:, loop]
        inner = nest.order[level + 1 :]
        transfer = _total(
            [np.where(_changes(t, loop, inner, trips), time, 0.0) for t, time in copies if t.loops], count
        )
        busy = matrix + vector + (epilogue if loop < nest.num_output_loops else 0.0)
        exposed += level_count * (soft_maximum(transfer, busy, timing.overlap_exponent) - busy)
        matrix_sum += level_count * matrix
        vector_sum += level_count * (busy - matrix)
        transitions += level_count
    return Breakdown(
        launch_ns=np.full(count, timing.launch_ns),
        fill_ns=fill,
        matrix_ns=matrix_sum,
        vector_ns=vector_sum,
        exposed_transfer_ns=exposed,
        iteration_ns=(transitions + 1.0) * timing.iteration_ns,
        drain_ns=drain,
    )


def _copy_times(
    nest: LoopNest, extents: npt.NDArray[np.int64], target: Target
) -> list[tuple[Transfer, FloatArray]]:
    count = len(extents)
    mean = nest.mean_elements(extents)
    factor = codegen_factor(nest, extents, target.timing.codegen_transfer_sd, f"{target.name}/transfer")
    return [
        (t, factor * copy_shape(nest, t, mean, count).time_ns(target.timing, is_output=t.is_output))
        for t in nest.transfers
    ]


def _changes(
    transfer: Transfer, loop: int, inner: tuple[int, ...], trips: FloatArray
) -> npt.NDArray[np.bool_]:
    """Whether the tile index moves when `loop` advances and all loops inside it start over."""
    changes = np.full(len(trips), loop in transfer.loops)
    for other in inner:
        if other in transfer.loops:
            changes |= trips[:, other] > 1
    return changes


def _total(times: list[FloatArray], count: int) -> FloatArray:
    return np.sum(times, axis=0) if times else np.zeros(count)


def soft_maximum(a: FloatArray, b: FloatArray, exponent: float) -> FloatArray:
    """(a^q + b^q)^(1/q): the larger of the two, and up to 2^(1/q) of it when they are equal."""
    larger = np.maximum(a, b)
    smaller = np.minimum(a, b)
    ratio = np.divide(smaller, larger, out=np.zeros_like(larger), where=larger > 0.0)
    result: FloatArray = larger * (1.0 + ratio**exponent) ** (1.0 / exponent)
    return result
