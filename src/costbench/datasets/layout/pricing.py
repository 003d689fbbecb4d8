"""Measures a program under layout configs on several chips: sums runtime x executions of its kernels.

Each kernel is priced once, whatever config it occurs in (`kernel_prices`), and only what a config changes is
compiled (`costbench.compiler.layout.packed`). A config fails if one of its kernels does, or if it needs more
main memory than there is. The default config has as many attempts and as much memory of either kind as it
needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64, I16, I64
from costbench.compiler.layout.compile import CompiledPart, PackedCompiler
from costbench.compiler.layout.space import LayoutSpace
from costbench.datasets.layout.kernel_prices import ATTEMPTS, KernelPrices
from costbench.hardware.device import Device
from costbench.rng import stream

PROGRAM_NOISE_SD = 0.0004
"""Relative noise of a whole program's runtime, as repeated runs of the real machine show."""
_GIB = 1 << 30


@dataclass(frozen=True, eq=False)
class PricedPrograms:
    """Costs of a program under n configs on d chips.

    Attributes:
        total_ns: float64 [n, d], sum over kernels of runtime times executions, without the program's noise;
            infinite where it failed.
        num_bytes: int64 [n], main memory needed.
        programs: n keys, equal for configs that give the same program.
        kernels: numbers of the kernels of all programs, each once.
    """

    total_ns: F64
    num_bytes: I64
    programs: tuple[tuple[int, ...], ...]
    kernels: I64


class ProgramPricer:
    """Measures one program under layout configs, the default first.

    Args:
        space: of the program.
        devices: to measure on.
        memory_gib: main memory of a chip; the default config may need more.

    Attributes:
        default: the program under the default config.

    Raises:
        UnsupportedKernelError: if some kernel of the default program cannot be lowered.
    """

    def __init__(self, space: LayoutSpace, devices: Sequence[Device], memory_gib: float) -> None:
        self._space, self._devices = space, tuple(devices)
        self._compiler = PackedCompiler(space)
        self._kernels = KernelPrices(self._compiler, self._devices)
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
            configs: the configs.
            runs: how often each has been measured before, [n]: every run has noise of its own.
            device: number of the device.
        """
        priced = self.priced(configs)
        self._programs[device].update(priced.programs)
        self._met[device].update(priced.kernels.tolist())
        total = np.where(priced.num_bytes <= self._limit, priced.total_ns[:, device], np.inf)
        pairs = zip(configs, runs.tolist(), strict=True)
        noise = np.array([self._deviation(config, run, device) for config, run in pairs])
        return np.maximum(np.rint(total * (1.0 + PROGRAM_NOISE_SD * noise)), 1.0)

    def _deviation(self, config: I16, run: int, device: int) -> float:
        """Draws the standard normal deviation of a run, independent of what was measured before."""
        name, on = self._space.module.name, self._devices[device]
        choices = np.ascontiguousarray(config, dtype="<i2").tobytes().hex()
        return float(stream(on.seed, "layout", name, on.target.name, choices, run).standard_normal())

    def priced(self, configs: I16, attempts: int | None = ATTEMPTS) -> PricedPrograms:
        """Prices configs [n, m] without noise.

        Args:
            configs: the configs.
            attempts: tiles tried for each kernel that is new; None for no limit.
        """
        compiled = [self._compiled(config) for config in configs]
        runtimes = self._kernels.runtimes(attempts)
        total = np.zeros((len(configs), len(self._devices)))
        num_bytes = np.zeros(len(configs), dtype=np.int64)
        for row, (parts, numbers) in enumerate(compiled):
            for part, own in zip(parts, numbers, strict=True):
                total[row] += part.trip_count * runtimes[own].sum(axis=0)
            num_bytes[row] = self._bytes(parts)
        programs = tuple(tuple(part.key for part in parts) for parts, _ in compiled)
        numbers = [own for _, several in compiled for own in several]
        kernels = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *numbers]))
        return PricedPrograms(total, num_bytes, programs, kernels)

    def _compiled(self, config: I16) -> tuple[list[CompiledPart], list[I64]]:
        """Returns the computations of a program under a config, and the numbers of each one's kernels."""
        parts = self._compiler.compile(config)
        return parts, [self._kernels.number(part) for part in parts]

    def _bytes(self, parts: Sequence[CompiledPart]) -> int:
        """Returns the bytes of the entry computation plus those of the largest computation that it calls."""
        entry = self._space.module.entry
        callees = [part.peak_bytes for part in parts if part.computation != entry]
        return sum(part.peak_bytes for part in parts if part.computation == entry) + max(callees, default=0)
