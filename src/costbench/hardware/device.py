"""The measuring device: a simulated chip with noise, occasional compile failures and accounted device time.

A measurement runs a kernel three times and keeps the minimum, as the papers do (lpm2021, section 4). Noise
and failures depend on what is measured and on the seed alone, never on the order of measuring. `Device`
measures many tile sizes of one kernel; `measure_batch` one tile size of each of many kernels, with equal
results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64, U64, AnyArray, Bool
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import LoopNest, LoweredKernels, loop_nest
from costbench.compiler.lowering.lower import Nests
from costbench.compiler.lowering.packed import bound_bytes, unpacked
from costbench.compiler.lowering.work import Ragged, add_up, contraction_rows, row_of
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_footprint import new_tile, row_bytes, scratchpad_bytes
from costbench.compiler.tile_space import words_of
from costbench.execution.compiled import compiled, compiled_step
from costbench.hardware.machine import (
    FAILURE_FLOOR,
    FAILURE_RATE,
    NOISE_SD,
    NOISE_SHORT_NS,
    SCRATCHPAD_BYTES,
    machine_numbers,
)
from costbench.hardware.matrix_unit import MATRIX_UNIT, pack_contraction
from costbench.hardware.noise import (
    NUM_STRUCTURES,
    halves,
    normal_quantile,
    set_factors,
    structure_key,
    structure_of,
    uniform,
)
from costbench.hardware.simulator import NUM_PARTS, PreparedKernel, prepare, price
from costbench.hardware.vector_unit import VECTOR_WORK
from costbench.hashing import mix
from costbench.rng import stream_key, stream_words
from costbench.target import Target

NUM_RUNS = 3
_FASTEST, _TOTAL = NUM_PARTS, NUM_PARTS + 1
_NOTHING = np.zeros(0)
_BITS = np.uint64(64)


@dataclass(frozen=True, eq=False)
class Measurement:
    """Measurements of `n` tile sizes.

    Attributes:
        runtime_ns: minimum of three runs, at least 1; 0 where the compile failed; int64 [n].
        failed: whether the compile failed near the limit of the scratchpad, bool [n].
        seconds: accelerator time charged for all runs.
        run_seconds: the part of `seconds` that each tile size took; 0 where the compile failed; float64 [n].
    """

    runtime_ns: I64
    failed: Bool
    seconds: float
    run_seconds: F64


@dataclass(frozen=True)
class Device:
    """One simulated accelerator.

    Attributes:
        target: description of the chip.
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
        return _measurement(self._run(nest, extents, nest.kernel.fingerprint))

    def measure_kernels(
        self, nests: Sequence[LoopNest], extents: Sequence[I64], fingerprints: Sequence[str]
    ) -> Measurement:
        """Measures one tile size, given as loop extents [num_loops], of each of n kernels."""
        times = np.empty((2, len(nests)))
        for index, (nest, tile, fingerprint) in enumerate(zip(nests, extents, fingerprints, strict=True)):
            times[:, index] = self._run(nest, tile.reshape(1, -1), fingerprint)[:, 0]
        return _measurement(times)

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Returns measured nanoseconds as a cost model's prediction, infinite where the compile failed."""
        measurement = self.measure(kernel, decisions)
        return np.where(measurement.failed, np.inf, measurement.runtime_ns.astype(np.float64))

    def _run(self, nest: LoopNest, extents: I64, fingerprint: str) -> F64:
        """Returns [2, n]: nanoseconds of the fastest run and of all runs together; 0 for failed compiles."""
        extents = np.ascontiguousarray(extents)
        columns = np.empty((NUM_PARTS + 2, len(extents)))
        prepared, needed = prepare(nest, self.target), _NOTHING
        price(prepared, extents, columns)
        limit = self.target.timing.failure_floor * self.target.architecture.scratchpad_bytes
        if nest.is_tiled and bound_bytes(nest.words) > limit:
            needed = scratchpad_bytes(nest, extents)
        start = np.uint64(stream_key(self.seed, "device", self.target.name, fingerprint) & (2**64 - 1))
        invalid = _run_priced(columns, nest.words, extents, needed, start, prepared.machine)
        if invalid >= 0:
            raise FloatingPointError(
                f"{nest.kernel.module.name}: the machine priced a kernel at {columns[_FASTEST, invalid]} ns"
            )
        return columns[_FASTEST:]


def _measurement(times: F64) -> Measurement:
    """Makes a measurement of times [2, n]: fastest run, and all runs together; 0 for failed compiles."""
    runtime_ns = times[0].astype(np.int64)
    run_seconds = times[1] * 1e-9
    return Measurement(runtime_ns, runtime_ns == 0, float(run_seconds.sum()), run_seconds)


@compiled
def _run_priced(
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
        columns[_FASTEST, i], columns[_TOTAL, i] = runtime, 0.0
        if not 0.0 < runtime < np.inf:
            return i
        key = _key(loops, extents[i], start)
        if len(needed) and _fails(extents[i], needed[i], key, machine):
            columns[_FASTEST, i] = 0.0
        else:
            columns[_FASTEST, i], columns[_TOTAL, i] = _noisy(runtime, key, machine)
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
    """Returns whether a compile fails.

    The probability rises from 0 at `failure_floor` of the scratchpad to `failure_rate` at all of it.

    The smallest tile never fails, so that every kernel can run.
    """
    share = needed / machine[SCRATCHPAD_BYTES]
    above = min(max((share - machine[FAILURE_FLOOR]) / (1.0 - machine[FAILURE_FLOOR]), 0.0), 1.0)
    largest = 1
    for loop in range(len(extents)):
        largest = max(largest, extents[loop])
    return largest > 1 and uniform(mix(key)) < above * machine[FAILURE_RATE]


class _Inputs(NamedTuple):
    """Inputs of the measured times besides loop nests and tile sizes.

    Attributes:
        subjects: `WorkTable.subjects` of the vector work.
        amounts: `WorkTable.amounts` of the vector work.
        contractions: packed contractions, see `pack_contraction`.
        structures: `structure_key` of each kernel, [m].
        starts: keys of the kernels' noise, [m].
        machine: numbers of the chip, see `machine_numbers`.
        compute_sd: standard deviation of the generated-code factors of compute.
        transfer_sd: standard deviation of those of transfers.
    """

    subjects: I64
    amounts: F64
    contractions: Ragged
    structures: U64
    starts: U64
    machine: F64
    compute_sd: float
    transfer_sd: float


def measure_batch(
    device: Device, lowered: LoweredKernels, chosen: I64, extents: I64, fingerprints: Sequence[str]
) -> Measurement:
    """Measures one tile size of each of m of the lowered kernels of a computation.

    Args:
        device: the measuring device.
        lowered: the kernels.
        chosen: numbers of the measured kernels, [m].
        extents: extents of their loops, [m, max_loops].
        fingerprints: fingerprints of the m kernels.

    Raises:
        UnsupportedKernelError: if a kernel holds an operation that the machine cannot run.
    """
    target = device.target
    table = lowered.tables.table(VECTOR_WORK)
    table.complete(lowered.kernels.instructions)
    inputs = _Inputs(
        table.subjects,
        table.amounts,
        contraction_rows(lowered.spaces, MATRIX_UNIT, pack_contraction),
        structure_keys(lowered, target.name)[chosen],
        stream_words(device.seed, "device", target.name, ends=fingerprints),
        machine_numbers(target),
        target.timing.codegen_compute_sd,
        target.timing.codegen_transfer_sd,
    )
    times = np.empty((2, len(chosen)))
    invalid = _run_each(lowered.nests, chosen, extents, inputs, times)
    if invalid >= 0:
        raise FloatingPointError(
            f"{lowered.module.name}: the machine priced a kernel at {times[0, invalid]} ns"
        )
    return _measurement(times)


def structure_keys(lowered: LoweredKernels, chip: str) -> U64:
    """Returns `structure_key` of every kernel, [k]."""
    kernels, body = lowered.kernels, lowered.module.computations[lowered.computation]
    opcodes = np.array(body.opcodes, dtype=np.int64)
    mixes = _operation_mixes(kernels.instructions_offsets, opcodes[kernels.instructions])
    _, first, inverse = np.unique(mixes, return_index=True, return_inverse=True)
    keys = []
    for kernel in first.tolist():
        start, stop = kernels.instructions_offsets[kernel : kernel + 2]
        keys.append(structure_key(tuple(opcodes[kernels.instructions[start:stop]].tolist()), chip))
    result: U64 = np.array(keys, dtype=np.uint64)[inverse.reshape(-1)]
    return result


@compiled
def _operation_mixes(offsets: I64, opcodes: I64) -> U64:
    """Returns hashes [k], equal for kernels of equal `structure_key`, else different except by chance."""
    counts = np.zeros(opcodes.max() + 1, dtype=np.int64)
    result = np.zeros(len(offsets) - 1, dtype=np.uint64)
    for k in range(len(result)):
        for i in range(offsets[k], offsets[k + 1]):
            counts[opcodes[i]] += 1
        for i in range(offsets[k], offsets[k + 1]):
            opcode, bits = opcodes[i], 0
            while counts[opcode] >> bits:
                bits += 1
            if bits:
                result[k] += mix(np.uint64(opcode) * _BITS + np.uint64(bits))
            counts[opcode] = 0
    return result


@compiled
def _run_each(nests: Nests, chosen: I64, extents: I64, inputs: _Inputs, times: F64) -> int:
    """Fills in [2, m] times of the fastest run and of all runs.

    Returns the first kernel whose price is no valid time, or -1.
    """
    machine = inputs.machine
    limit = machine[FAILURE_FLOOR] * machine[SCRATCHPAD_BYTES]
    columns, factors = np.empty((NUM_PARTS + 2, 1)), np.ones((2, NUM_STRUCTURES))
    is_regular = inputs.compute_sd == 0.0 and inputs.transfer_sd == 0.0
    for i in range(len(chosen)):
        words = words_of(nests, chosen[i])
        nest = unpacked(words)
        tile = np.empty((1, len(nest.loops)), dtype=np.int64)
        for loop in range(len(nest.loops)):
            tile[0, loop] = extents[i, loop]
        amounts = np.zeros((2, len(nest.boxes) - 1, inputs.amounts.shape[2]))
        add_up(nest, inputs.subjects, inputs.amounts, amounts)
        structure = structure_of(nest, tile[0])
        factors[:, structure] = 1.0
        if len(nest.loops) and not is_regular:
            set_factors(factors, structure, inputs.structures[i], inputs.compute_sd, inputs.transfer_sd)
        contraction = row_of(inputs.contractions, nests.spaces[chosen[i]])
        price(PreparedKernel(words, contraction, amounts, factors, machine), tile, columns)
        needed = np.zeros(1 if len(nest.loops) and bound_bytes(words) > limit else 0)
        if len(needed):
            needed[0] = row_bytes(nest, tile[0], new_tile(nest))
        invalid = _run_priced(columns, words, tile, needed, inputs.starts[i], machine)
        times[0, i], times[1, i] = columns[_FASTEST, 0], columns[_TOTAL, 0]
        if invalid >= 0:
            return i
    return -1
