"""Runs one program under fusion configs, as searches ask for it: compiled, checked, timed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from costbench.arrays import I16
from costbench.errors import DataError, HloError
from costbench.hardware.xla_cpu.backend import Backend, Executable, Run, largest_difference
from costbench.hardware.xla_cpu.program import CHIP, MachineProgram
from costbench.hlo.module import HloModule
from costbench.hlo.shape import ElementType

MAX_RUN_S = 2.0
"""A program whose run takes longer is not measured."""
_RUNS = 3
_NARROW = frozenset({ElementType.BF16, ElementType.F16})
_TOLERANCE, _NARROW_TOLERANCE = 1e-3, 5e-2


def tolerance_of(module: HloModule) -> float:
    """Returns how far results of a fusion config may be from those of the unfused program.

    Relative to the norm of each result: 0.001, and 0.05 for programs with 16-bit floats, which
    fusions keep in 32 bits between instructions.
    """
    types = {inst.shape.element_type for body in module.computations for inst in body.instructions}
    return _NARROW_TOLERANCE if types & _NARROW else _TOLERANCE


@dataclass(frozen=True)
class ConfigRun:
    """A config that was compiled and run.

    Attributes:
        runtime_ns: processor time of the fastest run; infinite for a config that XLA refuses, whose run takes
            too long, or whose results differ from the unfused program's.
        seconds: processor time of compiling and of all runs.
    """

    runtime_ns: float
    seconds: float


class FusionMachine:
    """One program on this processor.

    Args:
        program: the program.
        backend: backend of this process.
        library: reductions that a library computes alone (`MachineProgram.own_fusions`).
        seed: seed of the inputs.

    Attributes:
        name: name of the machine.
        num_refused: number of configs that XLA refused, or whose runs took too long.
        num_different: number of configs whose results differed from the unfused program's.

    Raises:
        HloError: if XLA refuses the unfused program.
        DataError: if its runs take too long.
    """

    name = CHIP

    def __init__(
        self, program: MachineProgram, backend: Backend, library: frozenset[str] = frozenset(), seed: int = 0
    ) -> None:
        self.program, self._backend, self._library = program, backend, library
        self.num_refused = self.num_different = 0
        self._data = program.to_bytes()
        self._tolerance = tolerance_of(program.module)
        self._inputs = backend.inputs(program.module, seed)
        unfused = self.compile(np.zeros_like(program.space.default)).loaded
        start = time.perf_counter()
        self._reference = backend.run(unfused, self._inputs)
        if (seconds := time.perf_counter() - start) > 10 * MAX_RUN_S:
            raise DataError(
                f"a run takes {seconds:.1f} s", where=program.name, expected=f"{MAX_RUN_S:g} s with fusions"
            )

    def compile(self, config: I16) -> Executable:
        """Returns the program under a config [m]. Raises: HloError, if XLA refuses it."""
        membership = self.program.membership(self.program.kernels(config).kernels, self._library)
        return self._backend.compile(self._data, membership)

    def run(self, config: I16) -> ConfigRun:
        """Compiles the program under a config [m], compares its results and times it."""
        start = time.process_time()
        try:
            runtime_ns = self._time(self.compile(config).loaded)
        except HloError:
            self.num_refused += 1
            runtime_ns = math.inf
        return ConfigRun(runtime_ns, time.process_time() - start)

    def time_loaded(self, loaded: Any) -> float:
        """Returns the time of an executable that was compiled elsewhere, such as XLA's own default.

        Raises:
            DataError: if it takes too long, or has other results than the unfused program.
        """
        runtime_ns = self._time(loaded)
        if math.isinf(runtime_ns):
            expected = f"results as without fusions, within {MAX_RUN_S:g} s"
            raise DataError("cannot be measured", where=self.program.name, expected=expected)
        return runtime_ns

    def _time(self, loaded: Any) -> float:
        [first] = self._backend.time(loaded, self._inputs, 1)
        if first.wall_ns > 1e9 * MAX_RUN_S:
            self.num_refused += 1
            return math.inf
        results = self._backend.run(loaded, self._inputs)
        if largest_difference(results, self._reference) > self._tolerance:
            self.num_different += 1
            return math.inf
        runs: list[Run] = self._backend.time(loaded, self._inputs, _RUNS)
        return float(max(1, min(run.cpu_ns for run in runs)))
