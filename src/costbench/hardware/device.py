"""The measuring device: a simulated chip with noise, occasional compile failures and accounted device time.

A measurement runs a kernel three times and keeps the minimum, as the papers do (lpm2021, section 4). Noise
and failures depend on what is measured and on the seed alone, never on the order of measuring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64, I64, AnyArray, Bool
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import LoopNest, loop_nest
from costbench.compiler.lowering.packed import bound_bytes, unpacked
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_footprint import scratchpad_bytes
from costbench.execution.compiled import compiled, compiled_step
from costbench.hardware.codegen import halves, uniform
from costbench.hardware.machine import (
    FAILURE_FLOOR,
    FAILURE_RATE,
    NOISE_SD,
    NOISE_SHORT_NS,
    SCRATCHPAD_BYTES,
)
from costbench.hardware.normal import normal_quantile
from costbench.hardware.simulator import NUM_PARTS, prepare, price
from costbench.hashing import mix
from costbench.rng import stream_key
from costbench.target import Target

NUM_RUNS = 3


@dataclass(frozen=True, eq=False)
class Measurement:
    """Measurements of `n` tile sizes.

    Attributes:
        runtime_ns: int64 [n], minimum of three runs, at least 1; 0 where the compile failed.
        failed: bool [n], compiles that failed near the limit of the scratchpad.
        seconds: accelerator time charged for all runs.
        run_seconds: float64 [n], the part of `seconds` that each tile size took; 0 where the compile failed.
    """

    runtime_ns: I64
    failed: Bool
    seconds: float
    run_seconds: F64


@dataclass(frozen=True)
class Device:
    """One simulated accelerator.

    Attributes:
        target: the chip.
        seed: seed of noise and failures.
    """

    target: Target
    seed: int = 0

    def measure(self, kernel: Kernel, tile_sizes: TileSizes) -> Measurement:
        """Compiles and runs every tile size."""
        nest = loop_nest(kernel)
        return self.measure_nest(nest, nest.extents(tile_sizes))

    def measure_nest(self, nest: LoopNest, extents: I64) -> Measurement:
        """Does the same for a lowered kernel and loop extents [n, num_loops]."""
        return measurement_of(self._timed(nest, extents, nest.kernel.fingerprint))

    def measure_kernels(
        self, nests: Sequence[LoopNest], extents: Sequence[I64], fingerprints: Sequence[str]
    ) -> Measurement:
        """Measures one tile size, given as loop extents [num_loops], of each of n kernels."""
        timed = np.empty((2, len(nests)))
        for place, (nest, one, fingerprint) in enumerate(zip(nests, extents, fingerprints, strict=True)):
            timed[:, place] = self._timed(nest, one.reshape(1, -1), fingerprint)[:, 0]
        return measurement_of(timed)

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Returns measured nanoseconds as a cost model's prediction, infinite where the compile failed."""
        measurement = self.measure(kernel, decisions)
        return np.where(measurement.failed, np.inf, measurement.runtime_ns.astype(np.float64))

    def _timed(self, nest: LoopNest, extents: I64, fingerprint: str) -> F64:
        """Returns [2, n]: nanoseconds of the fastest run and of all runs together; 0 for failed compiles."""
        extents = np.ascontiguousarray(extents)
        columns = np.empty((NUM_PARTS + 2, len(extents)))
        prepared, needed = prepare(nest, self.target), _NOTHING
        price(prepared, extents, columns)
        limit = self.target.timing.failure_floor * self.target.architecture.scratchpad_bytes
        if nest.is_tiled and bound_bytes(nest.words) > limit:
            needed = scratchpad_bytes(nest, extents)
        start = np.uint64(stream_key(self.seed, "device", self.target.name, fingerprint) & (2**64 - 1))
        wrong = run_priced(columns, nest.words, extents, needed, start, prepared.machine)
        if wrong >= 0:
            raise FloatingPointError(
                f"{nest.kernel.module.name}: the machine priced a kernel at {columns[FASTEST, wrong]} ns"
            )
        return columns[FASTEST:]


FASTEST, _TOTAL = NUM_PARTS, NUM_PARTS + 1
_NOTHING = np.zeros(0)


def measurement_of(timed: F64) -> Measurement:
    """Makes a measurement of times [2, n]: fastest run, and all runs together; 0 for failed compiles."""
    runtime_ns = timed[0].astype(np.int64)
    run_seconds = timed[1] * 1e-9
    return Measurement(runtime_ns, runtime_ns == 0, float(run_seconds.sum()), run_seconds)


@compiled
def run_priced(
    columns: F64,
    words: F64,
    extents: I64,
    needed: F64,
    start: np.uint64,
    machine: F64,
) -> int:
    """Adds noise and failures to priced tile sizes and fills in the times of the fastest and of all runs.

    Args:
        columns: [9, n]; the first rows hold the parts of the runtime, the last two take the result.
        words: the packed nest.
        extents: loop extents, [n, num_loops].
        needed: bytes of scratchpad, [n]; [0] where no compile can fail.
        start: key of the kernel.
        machine: see `machine_numbers`.

    Returns:
        the first tile size whose price is no valid time, or -1.
    """
    loops = unpacked(words).loops
    for i in range(len(extents)):
        runtime = 0.0
        for part in range(NUM_PARTS):
            runtime += columns[part, i]
        columns[FASTEST, i], columns[_TOTAL, i] = runtime, 0.0
        if not 0.0 < runtime < np.inf:
            return i
        key = _key(loops, extents[i], start)
        if len(needed) and _fails(extents[i], needed[i], key, machine):
            columns[FASTEST, i] = 0.0
        else:
            columns[FASTEST, i], columns[_TOTAL, i] = _noisy(runtime, key, machine)
    return -1


@compiled_step
def _key(loops: AnyArray, extents: I64, start: np.uint64) -> np.uint64:
    """Returns a mixed key of a tile size; keys within a space of fewer than 2^64 tiles are distinct."""
    number = np.uint64(0)
    for loop in range(len(extents)):
        number = number * np.uint64(loops[loop].units + 1.0) + np.uint64(extents[loop])
    return mix(number ^ start)


@compiled_step
def _noisy(runtime: float, key: np.uint64, machine: F64) -> tuple[float, float]:
    """Returns the fastest run in whole nanoseconds, at least 1, and the sum of all runs."""
    fastest, total = np.inf, 0.0
    for number in range(1, NUM_RUNS + 1):
        relative, absolute = halves(mix(key + np.uint64(number)))
        noise = 1.0 + machine[NOISE_SD] * normal_quantile(relative)
        timed = runtime * noise + machine[NOISE_SHORT_NS] * abs(normal_quantile(absolute))
        fastest = min(fastest, timed)
        total += timed
    return max(np.rint(fastest), 1.0), total


@compiled_step
def _fails(extents: I64, needed: float, key: np.uint64, machine: F64) -> bool:
    """Returns whether a compile fails. The probability rises from 0 at `failure_floor` of the scratchpad to
    `failure_rate` at all of it.

    The smallest tile never fails, so that every kernel can run.
    """
    share = needed / machine[SCRATCHPAD_BYTES]
    above = min(max((share - machine[FAILURE_FLOOR]) / (1.0 - machine[FAILURE_FLOOR]), 0.0), 1.0)
    largest = 1
    for loop in range(len(extents)):
        largest = max(largest, extents[loop])
    return largest > 1 and uniform(mix(key)) < above * machine[FAILURE_RATE]
