"""The measuring device: a simulated chip that is noisy, sometimes fails, and charges for its time.

A measurement runs a kernel three times and keeps the minimum, as the papers do (lpm2021, section 4). Noise
and failures depend on what is measured and on the seed alone, never on the order of measuring.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from costbench.compiler.footprint import TileGrid, grid_scratchpad_bytes, scratchpad_bound
from costbench.compiler.kernel import Kernel
from costbench.compiler.loop_nest import LoopNest, loop_nest
from costbench.compiler.tile_sizes import TileSizes
from costbench.hardware.codegen import halves, mix, uniform
from costbench.hardware.simulator import simulate_grid
from costbench.rng import stream_key
from costbench.target import Target

NUM_RUNS = 3
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Measurement:
    """`n` measured tile sizes.

    Attributes:
        runtime_ns: int64 [n], minimum of three runs, at least 1; 0 where the compile failed.
        failed: bool [n], compiles that failed near the limit of the scratchpad.
        seconds: accelerator time charged for all runs.
        run_seconds: float64 [n], what of it each tile size took; 0 where the compile failed.
    """

    runtime_ns: npt.NDArray[np.int64]
    failed: npt.NDArray[np.bool_]
    seconds: float
    run_seconds: FloatArray


@dataclass(frozen=True)
class Device:
    """One simulated accelerator.

    Attributes:
        target: the chip.
        seed: of noise and failures.
    """

    target: Target
    seed: int = 0

    def measure(self, kernel: Kernel, tile_sizes: TileSizes) -> Measurement:
        """Compiles and runs every tile size."""
        nest = loop_nest(kernel)
        return self.measure_nest(nest, nest.extents(tile_sizes))

    def measure_nest(self, nest: LoopNest, extents: npt.NDArray[np.int64]) -> Measurement:
        """The same for a lowered kernel and loop extents [n, num_loops]."""
        grid = TileGrid(nest, extents)
        runtime = simulate_grid(grid, self.target).runtime_ns
        if not np.isfinite(runtime).all() or (runtime <= 0).any():
            raise FloatingPointError(
                f"{nest.kernel.module.name}: the machine priced a kernel at {runtime.min()} ns"
            )
        key = self._keys(nest, extents)
        failed = self._failures(grid, key)
        timed = self._noisy(runtime, key)
        measured = np.where(failed, 0, np.maximum(np.rint(timed.min(axis=0)), 1.0)).astype(np.int64)
        run_seconds = np.where(failed, 0.0, timed.sum(axis=0) * 1e-9)
        return Measurement(measured, failed, float(run_seconds.sum()), run_seconds)

    def predict(self, kernel: Kernel, decisions: TileSizes) -> FloatArray:
        """The device as a cost model: measured runtime in nanoseconds, infinite where the compile failed."""
        measurement = self.measure(kernel, decisions)
        return np.where(measurement.failed, np.inf, measurement.runtime_ns.astype(np.float64))

    def _keys(self, nest: LoopNest, extents: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """A mixed key for each tile size; different ones in all spaces of fewer than 2^64 tiles."""
        start = stream_key(self.seed, "device", self.target.name, nest.kernel.fingerprint)
        number = np.zeros(len(extents), dtype=np.uint64)
        for loop in range(extents.shape[1]):
            number = number * np.uint64(nest.loops[loop].units + 1) + extents[:, loop].astype(np.uint64)
        return mix(number ^ np.uint64(start & (2**64 - 1)))

    def _noisy(self, runtime: FloatArray, key: npt.NDArray[np.uint64]) -> FloatArray:
        """Every run of every tile size, [runs, n]."""
        timing = self.target.timing
        runs = np.arange(1, NUM_RUNS + 1, dtype=np.uint64)[:, None]
        relative, absolute = halves(mix(key + runs))
        noise = 1.0 + timing.noise_sd * ndtri(relative)
        result: FloatArray = runtime * noise + timing.noise_short_ns * np.abs(ndtri(absolute))
        return result

    def _failures(self, grid: TileGrid, key: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Failed compiles: from `failure_floor` of the scratchpad on, more and more, up to `failure_rate`.

        The smallest tile never fails, so that every kernel can run.
        """
        timing, size = self.target.timing, self.target.architecture.scratchpad_bytes
        unlikely = scratchpad_bound(grid.nest) <= timing.failure_floor * size
        if unlikely or not grid.nest.is_tiled or timing.failure_rate == 0.0:
            return np.zeros(grid.count, dtype=bool)
        share = grid_scratchpad_bytes(grid) / size
        above = np.clip((share - timing.failure_floor) / (1.0 - timing.failure_floor), 0.0, 1.0)
        smallest = (grid.extents == 1).all(axis=1)
        failed: npt.NDArray[np.bool_] = (uniform(mix(key)) < above * timing.failure_rate) & ~smallest
        return failed
