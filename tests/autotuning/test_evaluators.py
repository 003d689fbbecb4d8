from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from costbench.arrays import F64, I64, Bool
from costbench.autotuning.evaluators import DeviceEvaluator, Evaluation, ModelEvaluator
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import tile_space
from costbench.errors import DataError
from costbench.hardware.device import Device
from costbench.target import load_target
from tests.hlo.builder import ModuleBuilder

TARGET = load_target("tpu_v3")


@pytest.fixture
def kernel() -> Kernel:
    b = ModuleBuilder("tanh")
    b.op("tanh", b.parameter("f32[64,512]"))
    return kernel_from_module(b.build())


@pytest.fixture
def tiles(kernel: Kernel) -> TileSizes:
    space = tile_space(kernel, TARGET.architecture)
    return space.decode(space.legal_ids())


@dataclass(frozen=True)
class Stopwatch:
    """A machine on which the first tile size takes 7 ns and 2 s, and the second does not compile."""

    runtime_ns: I64
    failed: Bool
    run_seconds: F64

    def measure(self, kernel: Kernel, decisions: TileSizes) -> Stopwatch:
        return self


@dataclass(frozen=True)
class Constant:
    """A model with one answer, whatever it is asked."""

    cost: F64

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        return self.cost


def test_a_model_is_asked_as_it_is(kernel: Kernel, tiles: TileSizes) -> None:
    model = AnalyticalModel(TARGET.architecture)
    evaluation = ModelEvaluator(kernel, model, "analytical", evaluation_s=0.25).evaluate(tiles)
    assert evaluation.scores.tolist() == model.predict(kernel, tiles).tolist()
    assert evaluation.seconds.tolist() == [0.25] * 15


@pytest.mark.parametrize("cost", [[1.0], [1.0, math.nan], [1.0, math.inf]])
def test_a_model_that_breaks_its_contract(kernel: Kernel, tiles: TileSizes, cost: list[float]) -> None:
    with pytest.raises(DataError, match=r"model odd: costs of shape .* 2 finite numbers"):
        ModelEvaluator(kernel, Constant(np.array(cost)), "odd").evaluate(tiles[:2])


def test_failures_score_infinity_and_pay_for_their_compile(kernel: Kernel, tiles: TileSizes) -> None:
    machine = Stopwatch(np.array([7, 0]), np.array([False, True]), np.array([2.0, 0.0]))
    evaluation = DeviceEvaluator(kernel, machine, "stopwatch", compile_s=0.5).evaluate(tiles[:2])
    assert evaluation.scores.tolist() == [7.0, math.inf]
    assert evaluation.seconds.tolist() == [2.5, 0.5]


def test_the_simulated_machine_measures_one_by_one_as_all_at_once(kernel: Kernel, tiles: TileSizes) -> None:
    evaluator = DeviceEvaluator(kernel, Device(TARGET), "tpu_v3")
    whole = evaluator.evaluate(tiles)
    single = [evaluator.evaluate(tiles[index : index + 1]) for index in range(len(tiles))]
    assert whole.scores.tolist() == [one.scores[0] for one in single]
    assert whole.seconds.tolist() == [one.seconds[0] for one in single]
    # Three runs, the score is the fastest of them: at least three times as long, and noise is small.
    assert (whole.seconds >= 2.999 * whole.scores * 1e-9).all()
    assert whole.seconds.sum() == pytest.approx(Device(TARGET).measure(kernel, tiles).seconds)


@pytest.mark.parametrize(
    ("scores", "seconds", "problem"),
    [
        ([1.0, math.nan], [1.0, 1.0], "no number"),
        ([1.0, -math.inf], [1.0, 1.0], "no number"),
        ([1.0, math.inf], [1.0, -1.0], "negative or endless"),
        ([1.0, 2.0], [1.0, math.inf], "negative or endless"),
        ([1.0], [1.0, 1.0], "scores"),
    ],
)
def test_what_a_trace_would_refuse_is_refused_at_once(
    scores: list[float], seconds: list[float], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Evaluation(np.array(scores), np.array(seconds))
