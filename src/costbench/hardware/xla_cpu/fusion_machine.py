"""Runs one program under fusion configs, as searches ask for it: compiled, checked, timed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from costbench.arrays import I16
from costbench.errors import DataError, HloError
from costbench.hardware.xla_cpu.acceptance import MAX_RUN_S, tolerance_of
from costbench.hardware.xla_cpu.device import ProgramRunner
from costbench.hardware.xla_cpu.program import CHIP

_RUNS = 3


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
        runner: the program.

    Attributes:
        name: name of the machine.
        num_refused: number of configs that XLA refused, or whose runs took too long.
        num_different: number of configs whose results differed from the unfused program's.
    """

    name = CHIP

    def __init__(self, runner: ProgramRunner) -> None:
        self._runner = runner
        self._tolerance = tolerance_of(runner.program.module)
        self.num_refused = self.num_different = 0

    def run(self, config: I16) -> ConfigRun:
        """Compiles the program under a config [m], compares its results and times it."""
        start = time.process_time()
        try:
            runtime_ns = self._time(self._runner.compile(config).executable.loaded)
        except HloError:
            self.num_refused += 1
            runtime_ns = math.inf
        return ConfigRun(runtime_ns, time.process_time() - start)

    def own_ns(self) -> float:
        """Returns the time with XLA's own fusions.

        Raises:
            DataError: if it takes too long, or has other results than the unfused program.
        """
        runtime_ns = self._time(self._runner.own_default.executable.loaded)
        if math.isinf(runtime_ns):
            expected = f"results as without fusions, within {MAX_RUN_S:g} s"
            raise DataError("cannot be measured", where=self._runner.program.name, expected=expected)
        return runtime_ns

    def _time(self, loaded: Any) -> float:
        backend, inputs = self._runner.backend, self._runner.inputs
        [first] = backend.time(loaded, inputs, 1)
        if first.wall_ns > 1e9 * MAX_RUN_S:
            self.num_refused += 1
            return math.inf
        if self._runner.difference(backend.run(loaded, inputs)) > self._tolerance:
            self.num_different += 1
            return math.inf
        return float(max(1, min(run.cpu_ns for run in backend.time(loaded, inputs, _RUNS))))
