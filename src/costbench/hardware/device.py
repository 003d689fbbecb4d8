"""The measuring device: a simulated chip that is noisy, sometimes fails, and charges for its time.

A measurement runs a kernel three times and keeps the minimum, as the papers do (lpm2021, section 4). Noise
and failures depend on what is measured and on the seed alone, never on the order of measuring.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from costbench.compiler.footprint import scratchpad_bytes
from costbench.compiler.kernel import Kernel
from costbench.compiler.loop_nest import LoopNest, loop_nest
from costbench.compiler.tile_sizes import TileSizes
from costbench.hardware.codegen import mix, uniform
from costbench.hardware.simulator import simulate_nest
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
        runtime = simulate_nest(nest, extents, self.target).runtime_ns
        if not np.isfinite(runtime).all() or (runtime <= 0).any():
            raise FloatingPointError(
                f"{nest.kernel.module.name}: the machine priced a kernel at {runtime.min()} ns"
            )
        key = self._keys(nest, extents)
        failed = self._failures(nest, extents, key)
        total = np.zeros(len(extents))
        best = np.full(len(extents), np.inf)
        for run in range(NUM_RUNS):
            timed = self._noisy(runtime, mix(key + np.uint64(run + 1)))
            total += timed
            best = np.minimum(best, timed)
        measured = np.where(failed, 0, np.maximum(np.rint(best), 1.0)).astype(np.int64)
        seconds = float(total[~failed].sum()) * 1e-9
        return Measurement(measured, failed, seconds, np.where(failed, 0.0, total * 1e-9))

    def predict(self, kernel: Kernel, decisions: TileSizes) -> FloatArray:
        """The device as a cost model: measured runtime in nanoseconds, infinite where the compile failed."""
        measurement = self.measure(kernel, decisions)
        return np.where(measurement.failed, np.inf, measurement.runtime_ns.astype(np.float64))

    def _keys(self, nest: LoopNest, extents: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        start = stream_key(self.seed, "device", self.target.name, nest.kernel.fingerprint)
        key = np.full(len(extents), start & (2**64 - 1), dtype=np.uint64)
        for loop in range(extents.shape[1]):
            key = mix(key ^ extents[:, loop].astype(np.uint64))
        return mix(key)

    def _noisy(self, runtime: FloatArray, key: npt.NDArray[np.uint64]) -> FloatArray:
        timing = self.target.timing
        relative = ndtri(uniform(mix(key)))
        absolute = np.abs(ndtri(uniform(mix(key + np.uint64(7)))))
        return runtime * (1.0 + timing.noise_sd * relative) + timing.noise_short_ns * absolute

    def _failures(
        self, nest: LoopNest, extents: npt.NDArray[np.int64], key: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.bool_]:
        """Failed compiles: probability rises from 0 at `failure_floor` of the scratchpad to
        `failure_rate`.
        """
        timing = self.target.timing
        if not nest.is_tiled or timing.failure_rate == 0.0:
            return np.zeros(len(extents), dtype=bool)
        share = scratchpad_bytes(nest, extents) / self.target.architecture.scratchpad_bytes
        above = np.clip((share - timing.failure_floor) / (1.0 - timing.failure_floor), 0.0, 1.0)
        smallest = (extents == 1).all(axis=1)
        failed: npt.NDArray[np.bool_] = (
            uniform(mix(key + np.uint64(99))) < above * timing.failure_rate
        ) & ~smallest
        return failed
