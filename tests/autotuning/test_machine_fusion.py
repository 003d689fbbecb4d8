"""Searches on a machine that exists: whole programs are measured, equal kernels once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from costbench.arrays import I16
from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.fusion import fusion_problem
from costbench.autotuning.machine_fusion import MachineFusionEvaluator
from costbench.autotuning.search import Plan, tune
from costbench.compiler.fusion.space import FusionSpace, fusion_space
from tests.hlo.builder import ModuleBuilder


@dataclass(frozen=True)
class Run:
    runtime_ns: float
    seconds: float


@dataclass
class Machine:
    """Takes 10 us for every edge that is not fused, and cannot compile a program with none."""

    compiled: list[tuple[int, ...]] = field(default_factory=list)
    name: str = "made up"

    def run(self, config: I16) -> Run:
        self.compiled.append(tuple(config.tolist()))
        apart = int((config == 0).sum())
        return Run(math.inf if apart == len(config) else 1e4 * (apart + 1), 2.0)


def chain() -> FusionSpace:
    b = ModuleBuilder("chain")
    value = b.parameter("f32[256,256]")
    for opcode in ("tanh", "negate", "exponential", "tanh"):
        value = b.op(opcode, value)
    return fusion_space(b.build(value), "chain")


def test_configs_of_equal_kernels_are_compiled_once() -> None:
    space, machine = chain(), Machine()
    device = MachineFusionEvaluator(space, machine)
    all_apart = np.zeros_like(space.default)
    evaluation = device.evaluate(np.array([space.default, all_apart, space.default]))
    assert evaluation.scores.tolist() == [1e4, math.inf, 1e4]
    assert len(machine.compiled) == 2
    assert evaluation.seconds[:2].tolist() == [2.0, 2.0]
    # The third was only cut, which takes some time but not that of a compilation.
    assert 0.0 < evaluation.seconds[2] < 2.0
    # A new search has compiled nothing.
    MachineFusionEvaluator(space, machine).evaluate(space.default[None])
    assert len(machine.compiled) == 3


def test_a_search_ends_with_its_seconds_and_with_the_best_that_ran() -> None:
    space, machine = chain(), Machine()
    problem = fusion_problem(space, "made_up")
    # Number 0 fuses nothing, which this machine cannot compile.
    plan = Plan("annealing-1", MeasurementBudget(seconds=41.0), 3, (0,))
    trace = tune(problem, MachineFusionEvaluator(space, machine), plan)
    assert trace.decisions[0] == 0
    assert math.isinf(trace.scores[0])
    assert sum(trace.seconds) <= 41.0
    assert len(machine.compiled) <= 21
    best = problem.decode(trace.best_decision)[0]
    assert trace.best_score == 1e4 * (int((best == 0).sum()) + 1)
