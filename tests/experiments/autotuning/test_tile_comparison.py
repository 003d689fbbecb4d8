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
    alternating,
    measure_space,
    next_best,
    score_kernel,
    tile_metrics,
)
from costbench.experiments.evaluation.program import ByModel
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


DEFAULT_NS = 500.0
"""Of both: 10 * 40 + 100."""


def of_tops(found: ByModel, arm: str, name: str, number: int = 0) -> list[float]:
    return [found[arm, f"top{k}", number][name] for k in PARAMS.top_k]


def test_by_hand() -> None:
    found = tile_metrics([FIRST, SECOND], PARAMS)
    # The best takes 10 * 16 + 100, the best of the candidates 10 * 20 + 100.
    exhaustive = found["exhaustive", "all", 0]
    assert (exhaustive["speedup"], exhaustive["slowdown"]) == (DEFAULT_NS / 260, 0.0)
    assert (exhaustive["num_measured"], exhaustive["hardware_seconds"]) == (8.0, 20.0)
    sample = found["sample", "all", 0]
    assert (sample["speedup"], sample["slowdown"]) == (DEFAULT_NS / 300, pytest.approx(2 / 13))
    assert (sample["num_measured"], sample["hardware_seconds"]) == (4.0, 9.5)
    # In the compiler a falls back on its second choice, b's first compiles.
    assert found["a", "compiler", 0]["speedup"] == DEFAULT_NS / 300
    assert found["b", "compiler", 0] == {
        "speedup": DEFAULT_NS / 400, "slowdown": 400 / 260 - 1, "num_measured": 0.0, "hardware_seconds": 0.0
    }  # fmt: skip
    # Measured alone, a's favourite leaves nothing but the default.
    assert of_tops(found, "a", "speedup") == [1.0, DEFAULT_NS / 300, DEFAULT_NS / 300]
    assert of_tops(found, "a", "hardware_seconds") == [0.5, 2.5, 5.5]
    assert of_tops(found, "b", "speedup") == [DEFAULT_NS / 400, DEFAULT_NS / 400, DEFAULT_NS / 300]
    assert found["b", "top1", 0]["slowdown"] == pytest.approx(400 / 260 - 1)
    # Third and fourth, then the second: a's and b's favourites in turn.
    assert of_tops(found, "alternating", "speedup") == [1.0, DEFAULT_NS / 400, DEFAULT_NS / 300]
    assert found["random", "top3", 0]["num_measured"] == 3.0


def test_every_network_of_a_model_has_results_of_its_own() -> None:
    found = tile_metrics([FIRST, SECOND], PARAMS)
    assert found["a", "compiler", 1]["speedup"] == 1.0
    assert of_tops(found, "a", "speedup", 1) == [1.0, DEFAULT_NS / 300, DEFAULT_NS / 300]
    assert of_tops(found, "a", "hardware_seconds", 1) == [4.0, 6.0, 6.5]
    # First, fourth, then second: its favourites and those of b, which has one network, in turn.
    assert of_tops(found, "alternating", "speedup", 1) == [1.0, DEFAULT_NS / 400, DEFAULT_NS / 300]
    assert of_tops(found, "alternating", "hardware_seconds", 1) == [4.0, 7.0, 9.0]
    once = {"a", "alternating"}
    assert {arm for arm, _, number in found if number == 1} == once
    assert {number for arm, _, number in found if arm not in once} == {0}


def test_keys_in_order() -> None:
    found = [key for key in tile_metrics([FIRST, SECOND], PARAMS) if key[0] in ("b", "exhaustive")]
    tops = [("b", "top1", 0), ("b", "top2", 0), ("b", "top3", 0)]
    assert found == [("b", "compiler", 0), ("exhaustive", "all", 0), *tops]


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
    kernels = [
        score_kernel(program, unique, Device(TARGET), ANALYTICAL, models, params)
        for unique in program.unique_kernels
    ]
    for tried, unique in zip(kernels, program.unique_kernels, strict=True):
        assert tried.runs == unique.runs_per_program
        assert len(tried.runtime_ns) <= 401
    found = tile_metrics(kernels, params)
    exhaustive = found["exhaustive", "all", 0]
    assert exhaustive["speedup"] >= 1.0
    for arm in ("analytical", "iterations", "alternating", "random"):
        curve = [found[arm, f"top{k}", 0] for k in params.top_k]
        assert [p["speedup"] for p in curve] == sorted(p["speedup"] for p in curve)
        assert [p["num_measured"] for p in curve] == sorted(p["num_measured"] for p in curve)
        assert min(p["slowdown"] for p in curve) >= 0.0
        assert max(p["hardware_seconds"] for p in curve) <= exhaustive["hardware_seconds"]
    # The compiler's model is what it is compared with.
    assert found["analytical", "compiler", 0]["speedup"] == 1.0
    # It ranks far better than chance.
    assert found["analytical", "top10", 0]["slowdown"] < found["random", "top10", 0]["slowdown"]
    again = [
        score_kernel(program, unique, Device(TARGET), ANALYTICAL, models, params)
        for unique in program.unique_kernels
    ]
    assert tile_metrics(again, params) == found


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
