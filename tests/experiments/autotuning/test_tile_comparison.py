from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.program import PreparedProgram
from costbench.compiler.tile_space import tile_space
from costbench.errors import DataError
from costbench.experiments.autotuning.tile_comparison import (
    AutotuneTileParams,
    MeasuredSpace,
    ScoredKernel,
    TilePoint,
    alternating,
    measure_space,
    next_best,
    score_kernels,
    tile_points,
)
from costbench.experiments.evaluation.unfitted import IterationModel
from costbench.hardware.device import Device
from costbench.hlo.reader import read_module
from costbench.target import load_target

NAME = "rnn_char_b64_infer_f32"
PROGRAM = Path(__file__).resolve().parents[3] / "data" / "programs" / f"{NAME}.hlo.pb.zst"
TARGET = load_target("tpu_v3")
ANALYTICAL = AnalyticalModel(TARGET.architecture)
PARAMS = AutotuneTileParams(top_k=(1, 2, 3), alternating=("a", "b"), random_seeds=(0, 1))

# Four tile sizes, the third does not compile; a's first network likes the third, then the fastest, its second
# goes forwards; b goes backwards.
FIRST = ScoredKernel(
    runs=10,
    runtime_ns=np.array([40.0, 20.0, math.inf, 30.0]),
    seconds=np.array([4.0, 2.0, 0.5, 3.0]),
    costs={
        "a": [np.array([3.0, 1.0, 0.0, 2.0]), np.array([0.0, 1.0, 2.0, 3.0])],
        "b": [np.array([4.0, 3.0, 2.0, 1.0])],
    },
    default=0,
    space=MeasuredSpace(num_tiles=8, best_ns=16.0, seconds=20.0),
)
# One tile size: nothing to choose, nothing to measure.
SECOND = ScoredKernel(
    runs=1,
    runtime_ns=np.array([100.0]),
    seconds=np.array([9.0]),
    costs={"a": [np.array([0.0]), np.array([0.0])], "b": [np.array([0.0])]},
    default=0,
    space=MeasuredSpace(num_tiles=1, best_ns=100.0, seconds=9.0),
)


def point(
    points: list[TilePoint], arm: str, top_k: int, *, measured: bool = True, number: int = 0
) -> TilePoint:
    (found,) = (p for p in points if (p.arm, p.top_k, p.measured, p.number) == (arm, top_k, measured, number))
    return found


def test_by_hand() -> None:
    points = tile_points([FIRST, SECOND], PARAMS)
    # The default takes 10 * 40 + 100, the best 10 * 16 + 100, the best of the candidates 10 * 20 + 100.
    exhaustive = point(points, "exhaustive", 0)
    assert (exhaustive.runtime_ns, exhaustive.speedup, exhaustive.slowdown) == (260.0, 500 / 260, 0.0)
    assert (exhaustive.num_measured, exhaustive.hardware_seconds) == (8.0, 20.0)
    sample = point(points, "sample", 0)
    assert (sample.runtime_ns, sample.speedup, sample.slowdown) == (300.0, 5 / 3, pytest.approx(2 / 13))
    assert (sample.num_measured, sample.hardware_seconds) == (4.0, 9.5)
    # In the compiler a falls back on its second choice, b's first compiles.
    assert point(points, "a", 0, measured=False).runtime_ns == 300.0
    compiled = point(points, "b", 0, measured=False)
    assert (compiled.runtime_ns, compiled.num_measured, compiled.hardware_seconds) == (400.0, 0.0, 0.0)
    # Measured alone, a's favourite leaves nothing but the default.
    assert [point(points, "a", k).runtime_ns for k in (1, 2, 3)] == [500.0, 300.0, 300.0]
    assert [point(points, "a", k).hardware_seconds for k in (1, 2, 3)] == [0.5, 2.5, 5.5]
    assert [point(points, "b", k).runtime_ns for k in (1, 2, 3)] == [400.0, 400.0, 300.0]
    assert point(points, "b", 1).slowdown == pytest.approx(400 / 260 - 1)
    # Third and fourth, then the second: a's and b's favourites in turn.
    assert [point(points, "alternating", k).runtime_ns for k in (1, 2, 3)] == [500.0, 400.0, 300.0]
    assert point(points, "random", 3).num_measured == 3.0


def test_every_network_of_a_model_has_results_of_its_own() -> None:
    points = tile_points([FIRST, SECOND], PARAMS)
    assert point(points, "a", 0, measured=False, number=1).runtime_ns == 500.0
    assert [point(points, "a", k, number=1).runtime_ns for k in (1, 2, 3)] == [500.0, 300.0, 300.0]
    assert [point(points, "a", k, number=1).hardware_seconds for k in (1, 2, 3)] == [4.0, 6.0, 6.5]
    # First, fourth, then second: its favourites and those of b, which has one network, in turn.
    alternated = [point(points, "alternating", k, number=1) for k in (1, 2, 3)]
    assert [p.runtime_ns for p in alternated] == [500.0, 400.0, 300.0]
    assert [p.hardware_seconds for p in alternated] == [4.0, 7.0, 9.0]
    once = {"a", "alternating"}
    assert {p.arm for p in points if p.number == 1} == once
    assert {p.number for p in points if p.arm not in once} == {0}


def test_alternating_by_hand() -> None:
    found = alternating(np.array([2, 1, 3, 0]), np.array([3, 2, 1, 0]))
    assert found.tolist() == [2, 3, 1, 0]


def test_the_next_best_default_by_hand() -> None:
    runtime_ns = np.array([40.0, math.inf, 30.0])
    assert next_best(np.array([3.0, 1.0, 2.0]), runtime_ns, "k") == 2
    with pytest.raises(DataError, match="none of 3 tile sizes compiles"):
        next_best(np.zeros(3), np.full(3, math.inf), "k")


def test_a_program() -> None:
    program = PreparedProgram(read_module(PROGRAM), NAME)
    models = {"analytical": [ANALYTICAL], "iterations": [IterationModel()]}
    params = AutotuneTileParams(alternating=("iterations", "analytical"), max_tiles_per_kernel=400)
    kernels = list(score_kernels(program, Device(TARGET), ANALYTICAL, models, params))
    assert len(kernels) == len(program.unique_kernels)
    for tried, unique in zip(kernels, program.unique_kernels, strict=True):
        assert tried.runs == unique.runs_per_program
        assert len(tried.runtime_ns) <= 401
    points = tile_points(kernels, params)
    exhaustive = point(points, "exhaustive", 0)
    assert exhaustive.speedup >= 1.0
    for arm in ("analytical", "iterations", "alternating", "random"):
        curve = [point(points, arm, k) for k in params.top_k]
        assert [p.runtime_ns for p in curve] == sorted((p.runtime_ns for p in curve), reverse=True)
        assert [p.num_measured for p in curve] == sorted(p.num_measured for p in curve)
        assert min(p.slowdown for p in curve) >= 0.0
        assert max(p.hardware_seconds for p in curve) <= exhaustive.hardware_seconds
    # The compiler's model is what it is compared with.
    assert point(points, "analytical", 0, measured=False).speedup == 1.0
    # It ranks far better than chance.
    assert point(points, "analytical", 10).slowdown < point(points, "random", 10).slowdown
    again = tile_points(list(score_kernels(program, Device(TARGET), ANALYTICAL, models, params)), params)
    assert again == points


def test_exhaustive_search_measures_every_legal_tile_size() -> None:
    program, device = PreparedProgram(read_module(PROGRAM), NAME), Device(TARGET)
    kernel = program.unique_kernels[0].kernel
    space = tile_space(kernel, TARGET.architecture)
    legal = [number for number in range(space.size) if space.legal(np.array([number]))[0]]
    alone = [device.measure(kernel, space.decode(np.array([number]))) for number in legal]
    candidates = np.array(legal[:3])
    found = measure_space(space, device, candidates, replace(PARAMS, compile_s=0.5))
    assert found.complete
    assert found.num_tiles == len(legal) > 3
    assert found.best_ns == min(float(one.runtime_ns[0]) for one in alone if not one.failed[0])
    assert found.seconds == pytest.approx(sum(float(one.run_seconds[0]) + 0.5 for one in alone))
    small = measure_space(space, device, candidates, replace(PARAMS, max_exhaustive_tiles=space.size - 1))
    assert (small.complete, small.num_tiles) == (False, 3)
    assert small.best_ns == min(float(one.runtime_ns[0]) for one in alone[:3] if not one.failed[0])


@pytest.mark.parametrize("wrong", [{"top_k": (0,)}, {"random_seeds": ()}, {"compile_s": -1.0}], ids=str)
def test_impossible_params(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(PARAMS, **wrong)  # type: ignore[arg-type]
