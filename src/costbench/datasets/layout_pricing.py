"""Measures a program under layout configs on several chips: sums runtime x executions of its kernels.

Each kernel is priced once, whatever config it occurs in (`KernelPrices`), and only what a config changes is
compiled (`costbench.compiler.layout.compile`). A config fails if one of its kernels does, or if it needs more
main memory than there is. The default config has as many attempts and as much memory of either kind as it
needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from costbench.arrays import F64, I16, I64, U64
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel_hashes import UNKNOWN, HashNumbers
from costbench.compiler.layout.compile import CompiledPart, KernelPool, NewPart, PackedCompiler
from costbench.compiler.layout.space import LayoutSpace
from costbench.compiler.lowering.loop_nest import LoopNest, LoweredKernels
from costbench.compiler.tile_space import KernelBatch, nest_tile_space
from costbench.errors import SpaceTooLargeError, UnsupportedKernelError
from costbench.hardware.device import Device, measure_batch
from costbench.rng import stream

ATTEMPTS = 3
"""Tiles that the compiler tries for a kernel before the program fails to compile."""


class KernelPrices:
    """Runtimes of a program's kernels, numbered in the order in which they are met.

    Args:
        compiler: compiler of the program.
        devices: devices to measure on; kernels run at the tile sizes that the compiler chooses for each.
    """

    def __init__(self, compiler: PackedCompiler, devices: Sequence[Device]) -> None:
        self._devices = tuple(devices)
        self._models = [AnalyticalModel(device.target.architecture) for device in devices]
        self._pool = KernelPool(compiler.space.module, compiler.facts)
        self._numbers = HashNumbers()
        self._count = 0
        self._runtime_ns = np.zeros((0, len(self._devices)))

    def __len__(self) -> int:
        """Returns the number of kernels met so far."""
        return self._count

    def number(self, part: CompiledPart) -> I64:
        """Returns the numbers of a computation's kernels, int64 [k]; new ones wait to be measured."""
        numbers = self._numbers.find(part.hashes)
        if (numbers == UNKNOWN).any():
            assert isinstance(part, NewPart), "the kernels of a known computation are known"
            self._add(part, numbers)
            numbers = self._numbers.find(part.hashes)
        return numbers

    def runtimes(self, attempts: int | None = ATTEMPTS) -> F64:
        """Returns the runtimes of all kernels met so far in ns, [kernels, chips]; infinite where one failed.

        Args:
            attempts: tiles tried for each of the kernels that wait; None for no limit.

        Raises:
            UnsupportedKernelError: without a limit, for a kernel that cannot be lowered.
        """
        if len(self._pool):
            self._runtime_ns = np.concatenate([self._runtime_ns, self._priced(self._pool, attempts)])
        return self._runtime_ns

    def _priced(self, pool: KernelPool, attempts: int | None) -> F64:
        """Returns the runtimes of the kernels of a pool, [kernels, chips], and empties it."""
        try:
            lowered, names = pool.lower()
        except UnsupportedKernelError:
            if attempts is None:
                raise
            if len(pool) == 1:
                pool.take()
                return np.full((1, len(self._devices)), np.inf)
            return np.concatenate([self._priced(alone, attempts) for alone in pool.take()])
        runtimes = [self._measured(number, lowered, names, attempts) for number in range(len(self._devices))]
        return np.stack(runtimes, axis=1)

    def _add(self, part: NewPart, numbers: I64) -> None:
        hashes: U64
        hashes, indices = np.unique(part.hashes[numbers == UNKNOWN], return_index=True)
        indices = np.flatnonzero(numbers == UNKNOWN)[indices]
        in_turn = np.argsort(indices)
        for index in indices[in_turn].tolist():
            self._pool.add(part, index)
        self._numbers.add(hashes[in_turn], np.arange(self._count, self._count + len(indices)))
        self._count += len(indices)

    def _measured(
        self, number: int, lowered: LoweredKernels, names: Sequence[str], attempts: int | None
    ) -> F64:
        """Returns the runtimes of kernels on one of the chips, [kernels]."""
        device, model = self._devices[number], self._models[number]
        batch = KernelBatch(lowered)
        runtime_ns = np.zeros(len(batch))
        fits = np.flatnonzero(batch.smallest_fits(device.target.architecture.scratchpad_bytes))
        if len(fits):
            extents = model.choose_each(batch, fits)
            measured = measure_batch(
                device, lowered, fits, extents, [names[kernel] for kernel in fits.tolist()]
            )
            runtime_ns[fits] = measured.runtime_ns
        for kernel in np.flatnonzero(runtime_ns == 0.0).tolist():
            runtime_ns[kernel] = measured_alone(lowered.nest(kernel), device, model, attempts)
        return runtime_ns


def measured_alone(nest: LoopNest, device: Device, model: AnalyticalModel, attempts: int | None) -> float:
    """Returns the runtime in ns at the first tile that compiles; infinite if no attempt does.

    Without a limit of attempts a kernel that fits in no tile gets as much scratchpad as it needs.

    Raises:
        SpaceTooLargeError: without a limit, for a kernel with more tile sizes than can be numbered.
    """
    try:
        space = nest_tile_space(nest, device.target.architecture)
        extents = model.choose(space)
    except SpaceTooLargeError:
        if attempts is None:
            raise
        return float("inf")
    except UnsupportedKernelError:
        return _measured_with_room(nest, device) if attempts is None else float("inf")
    tried = 0
    while attempts is None or tried < attempts:
        measured = device.measure_nest(space.nest, extents[None])
        if not measured.failed[0]:
            return float(measured.runtime_ns[0])
        smaller = space.smaller(extents)
        if smaller is None:
            return _measured_with_room(nest, device) if attempts is None else float("inf")
        extents = smaller
        tried += 1
    return float("inf")


def _measured_with_room(nest: LoopNest, device: Device) -> float:
    """Returns the runtime in ns on the chip with twice the scratchpad, or as many times as are needed.

    Raises:
        SpaceTooLargeError: for a kernel with more tile sizes than can be numbered.
    """
    target = device.target
    larger = replace(target.architecture, scratchpad_bytes=2 * target.architecture.scratchpad_bytes)
    roomy = Device(replace(target, architecture=larger), device.seed)
    return measured_alone(nest, roomy, AnalyticalModel(larger), None)


PROGRAM_NOISE_SD = 0.0004
"""Relative noise of a whole program's runtime, as repeated runs of the real machine show."""


def run_factors(device: Device, program: str, configs: I16, runs: I64) -> F64:
    """Returns what the noise of whole runs multiplies their runtimes by, float64 [n].

    A factor depends on its arguments alone, not on what else was measured.

    Args:
        device: device that the program runs on.
        program: name of the program's module.
        configs: layout configs, [n, m].
        runs: number of times that each was measured before, [n].
    """
    deviations = []
    for config, run in zip(configs, runs.tolist(), strict=True):
        choices = np.ascontiguousarray(config, dtype="<i2").tobytes().hex()
        draws = stream(device.seed, "layout", program, device.target.name, choices, run)
        deviations.append(float(draws.standard_normal()))
    return 1.0 + PROGRAM_NOISE_SD * np.array(deviations)


def measured_runs(total_ns: F64, factors: F64) -> F64:
    """Returns runtimes as they are measured: with noise, in whole nanoseconds, one at least."""
    return np.maximum(np.rint(total_ns * factors), 1.0)


_GIB = 1 << 30


@dataclass(frozen=True, eq=False)
class PricedPrograms:
    """Costs of a program under n configs on d chips.

    Attributes:
        total_ns: sum over kernels of runtime times executions, without the program's noise, float64 [n, d];
            infinite where it failed.
        num_bytes: main memory needed, int64 [n].
        programs: keys of the n programs, equal for configs that give the same one.
        kernels: numbers of the kernels of all programs, each once.
    """

    total_ns: F64
    num_bytes: I64
    programs: tuple[tuple[int, ...], ...]
    kernels: I64


class ProgramPricer:
    """Measures one program under layout configs, the default first.

    Args:
        space: layout configs of the program.
        devices: devices to measure on.
        memory_gib: main memory of a chip; the default config may need more.
        kernels: class that prices the kernels.

    Attributes:
        default: costs of the program under the default config.

    Raises:
        UnsupportedKernelError: if some kernel of the default program cannot be lowered.
    """

    def __init__(
        self,
        space: LayoutSpace,
        devices: Sequence[Device],
        memory_gib: float,
        kernels: type[KernelPrices] = KernelPrices,
    ) -> None:
        self._space, self._devices = space, tuple(devices)
        self._compiler = PackedCompiler(space)
        self._kernels = kernels(self._compiler, self._devices)
        self.default = self.priced(space.default[None], attempts=None)
        self._programs: list[set[tuple[int, ...]]] = [set() for _ in devices]
        self._met: list[set[int]] = [set() for _ in devices]
        self._limit = max(int(memory_gib * _GIB), int(self.default.num_bytes[0]))

    def num_kernels(self, device: int = 0) -> int:
        """Returns the number of different kernels in the programs measured on a device."""
        return len(self._met[device])

    def num_programs(self, device: int = 0) -> int:
        """Returns the number of different programs measured on a device."""
        return len(self._programs[device])

    def measure(self, configs: I16, runs: I64, device: int = 0) -> F64:
        """Returns runtimes of configs [n, m] in whole nanoseconds, float64 [n]; infinite where one failed.

        Args:
            configs: configs to measure, [n, m].
            runs: number of times that each was measured before, [n]: every run has noise of its own.
            device: number of the device to measure on.
        """
        priced = self.priced(configs)
        self._programs[device].update(priced.programs)
        self._met[device].update(priced.kernels.tolist())
        return measured_runs(
            self._within_memory(priced, device),
            run_factors(self._devices[device], self._space.module.name, configs, runs),
        )

    def total_ns(self, configs: I16, device: int = 0) -> F64:
        """Returns costs of configs [n, m] without noise, float64 [n]; infinite where one fails."""
        return self._within_memory(self.priced(configs), device)

    def _within_memory(self, priced: PricedPrograms, device: int) -> F64:
        total: F64 = np.where(priced.num_bytes <= self._limit, priced.total_ns[:, device], np.inf)
        return total

    def priced(self, configs: I16, attempts: int | None = ATTEMPTS) -> PricedPrograms:
        """Prices configs [n, m] without noise.

        Args:
            configs: configs to measure, [n, m].
            attempts: tiles tried for each kernel that is new; None for no limit.
        """
        programs: list[list[CompiledPart]] = []
        numbers: list[list[I64]] = []
        for config in configs:
            # Kernels are numbered before the next config, which may have the same computations.
            programs.append(self._compiler.compile(config))
            numbers.append([self._kernels.number(part) for part in programs[-1]])
        runtimes = self._kernels.runtimes(attempts)
        total = np.zeros((len(configs), len(self._devices)))
        for row, parts in enumerate(programs):
            for part, kernels in zip(parts, numbers[row], strict=True):
                total[row] += part.trip_count * runtimes[kernels].sum(axis=0)
        return PricedPrograms(
            total_ns=total,
            num_bytes=np.array([self._bytes(parts) for parts in programs], dtype=np.int64),
            programs=tuple(tuple(part.key for part in parts) for parts in programs),
            kernels=np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *chain.from_iterable(numbers)])),
        )

    def _bytes(self, parts: Sequence[CompiledPart]) -> int:
        """Returns the bytes of the entry computation plus those of the largest computation that it calls."""
        entry = self._space.module.entry
        callees = [part.peak_bytes for part in parts if part.computation != entry]
        return sum(part.peak_bytes for part in parts if part.computation == entry) + max(callees, default=0)
