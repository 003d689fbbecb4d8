from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from costbench.arrays import F64, I16
from costbench.autotuning.budget import MeasurementBudget, ProgramCharge
from costbench.autotuning.evaluators import Evaluation
from costbench.autotuning.fusion import (
    NUM_RUNS,
    FusionDeviceEvaluator,
    FusionModelEvaluator,
    ProgramPricer,
    SharedCuts,
    default_number,
    fusion_problem,
)
from costbench.autotuning.kernel_costs import KernelCosts, MeasuredKernels, TiledKernels
from costbench.autotuning.search import (
    Plan,
    Progress,
    SearchInterrupted,
    Shortlist,
    measure_best,
    tune,
    tune_by_model,
)
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.fusion.space import FusionSpace, fusion_space
from costbench.compiler.kernel import Kernel
from costbench.compiler.program import PreparedProgram
from costbench.hardware.device import Device
from costbench.hlo.reader import read_module
from costbench.search.strategies import STRATEGIES
from costbench.target import load_target
from tests.hlo.builder import ModuleBuilder

PROGRAMS = Path(__file__).resolve().parents[2] / "data" / "programs"
TARGET = load_target("tpu_v3")
APART, TOGETHER = np.zeros(6, dtype=np.int16), np.ones(6, dtype=np.int16)


def diamond() -> FusionSpace:
    """exponential -> (tanh, negate) -> add -> reduce: five kernels apart, one together."""
    b = ModuleBuilder("diamond")
    e = b.op("exponential", b.parameter("f32[256,1024]"))
    return fusion_space(b.build(b.reduce(b.op("add", b.op("tanh", e), b.op("negate", e)), (1,))), "diamond")


@dataclass
class PerKernel:
    """A kernel costs 1 s, and as many more as it holds instructions besides constants."""

    broken: int = 99
    asked: list[int] = field(default_factory=list)

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        sizes = [sum(k.instruction(p).opcode.xla_name != "constant" for p in k.instructions) for k in kernels]
        self.asked += sizes
        return np.array([math.inf if size >= self.broken else (1 + size) * 1e9 for size in sizes])


def on_machine(program: PreparedProgram) -> MeasuredKernels:
    tiled = TiledKernels(program.lowering, TARGET.architecture, AnalyticalModel(TARGET.architecture))
    return MeasuredKernels(tiled, Device(TARGET), program.fingerprints)


def fully(space: FusionSpace, config: I16, kernels: KernelCosts) -> float:
    """Every kernel of the compiled program, times its runs."""
    compiled = space.compile(config).kernels
    return float(sum(k.trip_count * kernels.costs([k])[0] for k in compiled))


def test_a_program_costs_what_its_kernels_cost() -> None:
    pricer = ProgramPricer(diamond(), PerKernel())
    # Five kernels of one instruction, one of five.
    assert pricer.total_ns(pricer.cut(np.array([APART, TOGETHER]))).tolist() == [10e9, 6e9]


def test_kernels_of_loops_count_once_per_iteration() -> None:
    name = "rnn_char_b64_infer_f32"
    space = fusion_space(read_module(PROGRAMS / f"{name}.hlo.pb.zst"), name)
    assert max(k.trip_count for k in space.compile(space.default).kernels) > 1
    pricer = ProgramPricer(space, PerKernel())
    assert pricer.total_ns(pricer.cut(space.default[None]))[0] == fully(space, space.default, PerKernel())


@pytest.mark.parametrize("name", ["rnn_char_b64_infer_f32", "alexnet_b128_train_f32"])
def test_pricing_what_is_new_equals_pricing_everything(name: str) -> None:
    program = PreparedProgram(read_module(PROGRAMS / f"{name}.hlo.pb.zst"), name)
    space, machine = FusionSpace(program), on_machine(program)
    pricer, rng = ProgramPricer(space, machine), np.random.default_rng(0)
    config = space.default
    for _ in range(10):
        assert pricer.total_ns(pricer.cut(config[None]))[0] == fully(space, config, machine)
        config = space.neighbours(config, rng, 1)[0]
    far = space.sample(rng, 3)
    assert pricer.total_ns(pricer.cut(far)).tolist() == [fully(space, one, machine) for one in far]


def test_a_kernel_is_priced_once() -> None:
    costs = PerKernel()
    pricer = ProgramPricer(diamond(), costs)
    configs = np.array([APART, TOGETHER, APART])
    pricer.total_ns(pricer.cut(configs))
    pricer.total_ns(pricer.cut(configs))
    assert sorted(costs.asked) == [1, 1, 1, 1, 1, 5]
    assert pricer.num_priced == 6


def test_pricers_with_shared_cuts_price_the_same_kernels_each_on_its_own() -> None:
    cuts, first, second = SharedCuts(diamond()), PerKernel(), PerKernel()
    pricers = [ProgramPricer(cuts.space, costs, cuts=cuts) for costs in (first, second)]
    alone = ProgramPricer(diamond(), PerKernel())
    for configs in (np.array([APART]), np.array([TOGETHER, APART])):
        expected = alone.total_ns(alone.cut(configs)).tolist()
        assert [one.total_ns(one.cut(configs)).tolist() for one in pricers] == [expected, expected]
    assert first.asked == second.asked
    assert sorted(first.asked) == [1, 1, 1, 1, 1, 5]
    assert pricers[0].known == pricers[1].known == alone.known
    assert cuts.take(1) is cuts.take(1)


def test_a_shortlist_is_scored_only_as_far_as_the_budget_goes() -> None:
    space, costs = diamond(), PerKernel()
    problem = fusion_problem(space, "toy")
    model = FusionModelEvaluator(ProgramPricer(space, PerKernel()), "per kernel")
    predicted = tune(problem, model, Plan("exhaustive"))
    asked: list[int] = []

    class Counting(FusionModelEvaluator):
        def evaluate(self, decisions: I16) -> Evaluation:
            asked.append(len(decisions))
            return super().evaluate(decisions)

    device = Counting(ProgramPricer(space, costs), "counted", 1.0)
    shortlist = Shortlist(None, budget=MeasurementBudget(seconds=3.0))
    assert len(predicted) > 16
    assert len(measure_best(problem, predicted, device, shortlist)) == 3
    assert sum(asked) == 16


def test_known_costs_are_not_asked_for_again() -> None:
    first = ProgramPricer(diamond(), PerKernel())
    before = first.total_ns(first.cut(np.array([APART, TOGETHER])))
    costs = PerKernel()
    second = ProgramPricer(diamond(), costs, first.known)
    assert second.total_ns(second.cut(np.array([TOGETHER, APART]))).tolist() == before[::-1].tolist()
    assert costs.asked == []
    assert second.known == first.known


def test_what_a_measurement_is_charged() -> None:
    evaluator = FusionDeviceEvaluator(
        ProgramPricer(diamond(), PerKernel(broken=5)), "toy", ProgramCharge(compile_s=20.0, repeat_s=0.5)
    )
    alike = TOGETHER.copy()
    alike[-1] = 0
    evaluation = evaluator.evaluate(np.array([APART, TOGETHER, alike, APART]))
    # Three runs of 10 s; then a program that does not compile, once under two names; then one met before.
    assert evaluation.scores.tolist() == [10e9, math.inf, math.inf, 10e9]
    assert evaluation.seconds.tolist() == [20.0 + NUM_RUNS * 10.0, 20.0, 0.5, 0.5]


def test_recalled_programs_are_compiled_already() -> None:
    charge = ProgramCharge(compile_s=20.0)
    evaluator = FusionDeviceEvaluator(ProgramPricer(diamond(), PerKernel()), "toy", charge)
    evaluator.recall(APART[None])
    assert evaluator.evaluate(np.array([APART, TOGETHER])).seconds.tolist() == [1.0, 20.0 + NUM_RUNS * 6.0]


def test_the_search_finds_the_best_of_all_configs() -> None:
    space = diamond()
    problem = fusion_problem(space, "tpu_v3")
    assert problem.subject.space_size == 64
    evaluator = FusionModelEvaluator(ProgramPricer(space, PerKernel()), "per kernel", evaluation_s=0.25)
    trace = tune(problem, evaluator, Plan("annealing", start=(default_number(space),)))
    assert len(trace) == 64
    assert trace.best_score == 6e9
    assert trace.decisions[0] == default_number(space)
    assert trace.budget_left.spent_seconds == 16.0


def test_a_model_search_measures_each_program_once() -> None:
    space = diamond()
    problem = fusion_problem(space, "tpu_v3")
    model = FusionModelEvaluator(ProgramPricer(space, PerKernel()), "per kernel")
    charge = ProgramCharge(compile_s=100.0)
    device = FusionDeviceEvaluator(ProgramPricer(space, PerKernel()), "toy", charge)
    shortlist = Shortlist(None, distinct=True, budget=MeasurementBudget(seconds=400.0))
    _, measured = tune_by_model(problem, model, device, Plan("exhaustive"), shortlist)
    # 6, 7 and 8 s: three times 100 s and three runs, 363 s. The next one would not fit.
    assert [score / 1e9 for score in measured.scores] == [6.0, 7.0, 8.0]
    assert measured.seconds == (118.0, 121.0, 124.0)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_search_on_the_machine_is_interrupted_and_goes_on(strategy: str) -> None:
    name = "rnn_char_b64_infer_f32"
    program = PreparedProgram(read_module(PROGRAMS / f"{name}.hlo.pb.zst"), name)
    space = FusionSpace(program)
    problem, start = fusion_problem(space, TARGET.name), (default_number(space),)
    plan = Plan(strategy, MeasurementBudget(seconds=700.0, evaluations=200), 3, start)

    def machine() -> FusionDeviceEvaluator:
        return FusionDeviceEvaluator(ProgramPricer(space, on_machine(program)), "v3", ProgramCharge(10.0))

    def press_ctrl_c(progress: Progress, _: object) -> None:
        if progress.num_decisions > 1:
            raise KeyboardInterrupt

    whole = tune(problem, machine(), plan)
    assert 60 <= len(whole) <= 200
    assert whole.budget_left.spent_seconds <= 700.0
    with pytest.raises(SearchInterrupted) as stopped:
        tune(problem, machine(), plan, watch=press_ctrl_c)
    # What is charged depends on which programs were met before the interruption.
    assert tune(problem, machine(), plan, stopped.value.trace) == whole
