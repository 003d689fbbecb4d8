"""Runs one program under fusion configs, as searches ask for it: compiled, checked, timed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from costbench.arrays import I16
from costbench.errors import CostbenchError, DataError, HloError
from costbench.hardware.xla_cpu.acceptance import MAX_RUN_S, LeftOutError, tolerance_of
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
        runtime_ns = math.inf
        try:
            runtime_ns = self._time(self._runner.compile(config).executable.loaded)
        except (HloError, LeftOutError):
            self.num_refused += 1
        except DataError:
            self.num_different += 1
        return ConfigRun(runtime_ns, time.process_time() - start)

    def own_ns(self) -> float:
        """Returns the time with XLA's own fusions.

        Raises:
            LeftOutError: if it takes too long.
            DataError: if it has other results than the unfused program.
        """
        try:
            return self._time(self._runner.own_default.executable.loaded)
        except CostbenchError as error:
            name = self._runner.program.name
            raise error.recast(type(error), where=name, field="XLA's own fusions") from error

    def _time(self, loaded: Any) -> float:
        backend, inputs = self._runner.backend, self._runner.inputs
        [first] = backend.time(loaded, inputs, 1)
        if first.cpu_ns > 1e9 * MAX_RUN_S:
            raise LeftOutError(
                f"a run takes {1e-9 * first.cpu_ns:.1f} s", expected=f"at most {MAX_RUN_S:g} s"
            )
        difference = self._runner.difference(backend.run(loaded, inputs))
        if difference > self._tolerance:
            problem = f"results differ by {difference:.2g} of their norm from those without fusions"
            raise DataError(problem, expected=f"at most {self._tolerance:g}")
        return float(max(1, min(run.cpu_ns for run in backend.time(loaded, inputs, _RUNS))))
