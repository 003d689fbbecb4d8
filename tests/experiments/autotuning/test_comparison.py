from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.autotuning.budget import Charging
from costbench.compiler.program import PreparedProgram
from costbench.compiler.tile_space import tile_space
from costbench.errors import ChoiceError, DataError
from costbench.experiments.autotuning.comparison import AutotuneTask, autotune
from costbench.experiments.autotuning.fusion_comparison import AutotuneFusionParams
from costbench.experiments.autotuning.tile_comparison import AutotuneTileParams
from costbench.features.decision_features import decision_features
from costbench.features.graph_tensors import ProgramFeatureCache, kernel_graph
from costbench.hlo.reader import read_module
from costbench.models.checkpoint import save_checkpoint
from costbench.models.graph_batch import FeatureScaling, KernelSamples
from costbench.models.learned import LearnedCostNet
from costbench.models.spec import NetSpec, Predicts
from costbench.target import load_target
from tests.experiments.small_programs import small_file

PARAMS = {
    "tile": AutotuneTileParams(top_k=(1, 5), max_tiles_per_kernel=100),
    "fusion": AutotuneFusionParams(
        hardware_minutes=(1.0,), best_known_minutes=2.0, model_minutes=0.05, repeats=2, free_evaluations=20,
        charging=Charging(compile_s=14.4, evaluation_s=0.1),
    ),
    "layout": AutotuneTileParams(),
}  # fmt: skip


def checkpoint(folder: Path, file: Path, predicts: Predicts) -> Path:
    """A small network that was not trained."""
    cache, architecture = ProgramFeatureCache(), load_target("tpu_v3").architecture
    samples = []
    for unique in PreparedProgram(read_module(file), "small").unique_kernels:
        space = tile_space(unique.kernel, architecture)
        features = decision_features(space.nest, space.decode(np.zeros(1, dtype=np.int64)))
        samples.append(KernelSamples(kernel_graph(unique.kernel, cache), features, np.ones(1), ""))
    scaling = FeatureScaling.fit(samples)
    net = LearnedCostNet(NetSpec(hidden=8, opcode_embedding=4), scaling.sizes, seed=1)
    save_checkpoint(folder, net, scaling, predicts)
    return folder


def task(folder: Path, decision: str, predicts: Predicts) -> AutotuneTask:
    file = small_file(folder)
    models = {name: [checkpoint(folder / name, file, predicts)] for name in ("learned", "hybrid")}
    return AutotuneTask(decision, file, "small", "tpu_v3", models, PARAMS[decision])


def test_tiles_in_all_ways(tmp_path: Path) -> None:
    found = autotune(task(tmp_path, "tile", "score")).metrics
    models = ("learned", "hybrid", "analytical")
    arms = (*models, "alternating", "random")
    expected = {(arm, budget, 0) for arm in arms for budget in ("top1", "top5")}
    expected |= {*((model, "compiler", 0) for model in models), ("best", "main", 0)}
    expected |= {("exhaustive", "all", 0), ("sample", "all", 0)}
    assert set(found) == expected
    assert found["exhaustive", "all", 0]["slowdown"] == 0.0
    assert found["learned", "compiler", 0]["num_measured"] == 0.0
    assert found["best", "main", 0]["gain_exhaustive"] == found["exhaustive", "all", 0]["speedup"]
    assert found["best", "main", 0]["num_tiles"] >= found["exhaustive", "all", 0]["num_measured"]


def test_fusions_in_all_ways(tmp_path: Path) -> None:
    tuned = autotune(task(tmp_path, "fusion", "log_runtime_ns"))
    found = tuned.metrics
    arms = ("hardware", "model and hardware", "hybrid and hardware", "analytical and hardware")
    expected = {
        (arm, f"{start}-1m", seed) for arm in arms for start in ("default", "random") for seed in (0, 1)
    }
    expected |= {("hardware", "default-2m", 0), ("best known", "all", 0), ("best", "main", 0)}
    assert set(found) == expected
    assert found["best", "main", 0]["num_edges"] > 0
    assert [curve.arm for curve in tuned.curves] == [*arms, *arms]
    assert min(one["speedup"] for key, one in found.items() if key[1].startswith("default-")) >= 1.0
    assert autotune(task(tmp_path, "fusion", "log_runtime_ns")) == tuned


def test_what_the_user_can_mend(tmp_path: Path) -> None:
    with pytest.raises(ChoiceError, match="layout"):
        autotune(task(tmp_path, "layout", "score"))
    with pytest.raises(DataError, match="a model of the fusion task"):
        autotune(task(tmp_path, "fusion", "score"))
