"""Measures a program under layout configs: sums runtime x executions of its kernels at the default tile.

Each kernel is priced once, whatever config it occurs in, and so are configs that give the same program. Where
the machine refuses a tile near the limit of the scratchpad, the compiler tries the next smaller one; after
`ATTEMPTS` tiles the config fails. A config also fails if it needs more main memory than there is, or has a
kernel of which no tile fits the scratchpad. For the default config there is no limit of attempts or memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.compiler.analytical.model import AnalyticalModel
from costbench.compiler.kernel import Kernel
from costbench.compiler.layout.compile import LaidOutComputation, LayoutCompiler
from costbench.compiler.layout.memory import peak_bytes
from costbench.compiler.layout.space import LayoutSpace
from costbench.compiler.lowering.loop_nest import Lowering
from costbench.compiler.spaces import ChoiceArray
from costbench.compiler.tiling.space import TileSpace, nest_tile_space
from costbench.errors import UnsupportedKernelError
from costbench.hardware.device import Device
from costbench.rng import stream

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

ATTEMPTS = 3
"""Tiles that the compiler tries for a kernel before the program fails to compile."""
PROGRAM_NOISE_SD = 0.0004
"""Relative noise of a whole program's runtime, as repeated runs of the real machine show."""
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class PricedProgram:
    """Costs of a program under one config.

    Attributes:
        total_ns: sum over kernels of runtime times executions, without the program's noise; infinite where it
            failed.
        num_bytes: main memory needed.
    """

    total_ns: float
    num_bytes: int


class ProgramPricer:
    """Measures one program under layout configs, the default first.

    Args:
        space: of the program.
        device: to measure on; kernels run at the tile sizes that the compiler chooses for its chip.
        memory_gib: main memory of the chip; the default config may need more.

    Attributes:
        default: the program under the default config.

    Raises:
        UnsupportedKernelError: if some kernel of the default program cannot be lowered or has no tile.
    """

    def __init__(self, space: LayoutSpace, device: Device, memory_gib: float) -> None:
        self._compiler = LayoutCompiler(space)
        self._device = device
        self._model = AnalyticalModel(device.target.architecture)
        self._kernel_ns: dict[int, float] = {}
        self._programs: dict[int, PricedProgram] = {}
        self.default = self.priced(space.default, attempts=None)
        self._limit = max(int(memory_gib * _GIB), self.default.num_bytes)

    @property
    def num_kernels(self) -> int:
        """Number of different kernels priced so far."""
        return len(self._kernel_ns)

    @property
    def num_programs(self) -> int:
        """Number of different programs compiled so far."""
        return len(self._programs)

    def measure(self, configs: ChoiceArray) -> FloatArray:
        """Returns runtimes of configs [n, m] in whole nanoseconds, float64 [n]; infinite where one failed."""
        priced = [self.priced(config) for config in configs]
        total = np.array([p.total_ns if p.num_bytes <= self._limit else np.inf for p in priced])
        noise = 1.0 + PROGRAM_NOISE_SD * np.array([self._deviation(config) for config in configs])
        return np.where(np.isfinite(total), np.maximum(np.rint(total * noise), 1.0), np.inf)

    def _deviation(self, config: ChoiceArray) -> float:
        """Draws the standard normal deviation of a config's run, independent of what was measured before."""
        name, chip = self._compiler.space.module.name, self._device.target.name
        choices = np.ascontiguousarray(config, dtype="<i2").tobytes().hex()
        return float(stream(self._device.seed, "layout", name, chip, choices).standard_normal())

    def priced(self, config: ChoiceArray, attempts: int | None = ATTEMPTS) -> PricedProgram:
        """Prices a config without noise, trying up to `attempts` tiles per kernel; None for no limit."""
        orders, choices = self._compiler.assign(config)
        key = hash(self._compiler.key(orders, choices))
        known = self._programs.get(key)
        if known is None:
            parts = self._compiler.compile_key(orders, choices)
            known = PricedProgram(self._total(parts, attempts), self._bytes(parts))
            self._programs[key] = known
        return known

    def _total(self, parts: Sequence[LaidOutComputation], attempts: int | None) -> float:
        total = 0.0
        for part in parts:
            keys = part.hashes.tolist()
            new: dict[int, int] = {}
            for number, key in enumerate(keys):
                if key not in self._kernel_ns:
                    new.setdefault(key, number)
            if new:
                # One lowering per computation: its kernels share parts that are lowered once.
                lowering = Lowering(part.program(self._compiler.space.module))
                for key, number in new.items():
                    kernel = part.kernel(number, lowering.module)
                    self._kernel_ns[key] = self._kernel(lowering, kernel, attempts)
            total += part.trip_count * sum(self._kernel_ns[key] for key in keys)
        return total

    def _bytes(self, parts: Sequence[LaidOutComputation]) -> int:
        """Returns the bytes of the entry computation plus those of the largest computation that it calls."""
        entry = self._compiler.space.module.entry
        callees = [peak_bytes(part) for part in parts if part.computation != entry]
        return sum(peak_bytes(part) for part in parts if part.computation == entry) + max(callees, default=0)

    def _kernel(self, lowering: Lowering, kernel: Kernel, attempts: int | None) -> float:
        """Returns the measured runtime at the first tile that compiles; infinite if no attempt does."""
        try:
            space = nest_tile_space(lowering.loop_nest(kernel), self._device.target.architecture)
            extents = self._model.choose(space)
        except UnsupportedKernelError:
            if attempts is None:
                raise
            return float("inf")
        tried = 0
        while attempts is None or tried < attempts:
            measured = self._device.measure_nest(space.nest, extents[None])
            if not measured.failed[0]:
                return float(measured.runtime_ns[0])
            extents = _smaller(space, extents)
            tried += 1
        return float("inf")


def _smaller(space: TileSpace, extents: IntArray) -> IntArray:
    """Returns the tile with the longest loop cut one step more; the smallest tile never fails."""
    loop = int(np.argmax(extents))
    shorter = space.candidates[loop][space.candidates[loop] < extents[loop]]
    result = extents.copy()
    result[loop] = shorter[-1] if len(shorter) else extents[loop]
    return result
