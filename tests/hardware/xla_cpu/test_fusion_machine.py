"""What a search is told of a config: its fastest run, or that it cannot be chosen and why."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from costbench.errors import DataError, HloError
from costbench.hardware.xla_cpu.acceptance import LeftOutError, tolerance_of
from costbench.hardware.xla_cpu.backend import Run
from costbench.hardware.xla_cpu.device import ProgramRunner
from costbench.hardware.xla_cpu.fusion_machine import FusionMachine
from costbench.hlo.module import HloModule
from tests.hlo.builder import ModuleBuilder

REFUSED, SLOW, WRONG, GOOD = range(4)


def tanh(shape: str) -> HloModule:
    b = ModuleBuilder()
    return b.build(b.op("tanh", b.parameter(shape)))


@dataclass
class Loaded:
    kind: int


@dataclass
class Runner:
    """A program whose configs [m] begin with what becomes of them; stands for `ProgramRunner`."""

    own: int = GOOD
    inputs: tuple[()] = ()
    timed: list[int] = field(default_factory=list)

    @property
    def program(self) -> Any:
        return type("Program", (), {"module": tanh("f32[8]"), "name": "made_up"})

    @property
    def backend(self) -> Runner:
        return self

    @property
    def own_default(self) -> Any:
        return self._compiled(self.own)

    def compile(self, config: Any) -> Any:
        if config[0] == REFUSED:
            raise HloError("XLA refuses the module")
        return self._compiled(int(config[0]))

    def _compiled(self, kind: int) -> Any:
        return type("Config", (), {"executable": type("Executable", (), {"loaded": Loaded(kind)})})

    def time(self, loaded: Loaded, _inputs: object, count: int) -> list[Run]:
        self.timed.append(loaded.kind)
        # Only the processor's time counts: other work may make any run take long by the clock.
        cpu_ns = 3_000_000_000 if loaded.kind == SLOW else 8_000
        return [Run(9_000_000_000, cpu_ns - number) for number in range(count)]

    def run(self, loaded: Loaded, _inputs: object) -> int:
        return loaded.kind

    def difference(self, results: int) -> float:
        return 0.01 if results == WRONG else 1e-7


def machine(runner: Runner) -> FusionMachine:
    return FusionMachine(cast("ProgramRunner", runner))


def test_only_configs_with_equal_results_have_a_runtime() -> None:
    runner = Runner()
    tried = machine(runner)
    runs = [tried.run(np.array([kind], np.int16)) for kind in (REFUSED, SLOW, WRONG, GOOD)]
    assert [run.runtime_ns for run in runs[:3]] == [math.inf] * 3
    # The fastest of three runs, in time of the processor.
    assert runs[3].runtime_ns == 7_998
    assert (tried.num_refused, tried.num_different) == (2, 1)
    # A program that is too slow is not run again, one with other results not timed.
    assert runner.timed == [SLOW, WRONG, GOOD, GOOD]


def test_xlas_own_fusions_must_be_measurable() -> None:
    assert machine(Runner()).own_ns() == 7_998
    own = "made_up: XLA's own fusions: "
    problem = f"{own}results differ by 0.01 of their norm from those without fusions (expected at most 0.001)"
    with pytest.raises(DataError, match=f"^{re.escape(problem)}$"):
        machine(Runner(own=WRONG)).own_ns()
    problem = f"{own}a run takes 3.0 s (expected at most 2 s)"
    with pytest.raises(LeftOutError, match=f"^{re.escape(problem)}$"):
        machine(Runner(own=SLOW)).own_ns()


@pytest.mark.parametrize(("shape", "expected"), [("f32[8]", 0.001), ("bf16[8]", 0.05), ("s32[8]", 0.001)])
def test_narrow_floats_may_differ_more(shape: str, expected: float) -> None:
    b = ModuleBuilder()
    assert tolerance_of(b.build(b.op("negate", b.parameter(shape)))) == expected
