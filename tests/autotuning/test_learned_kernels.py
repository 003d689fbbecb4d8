from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from costbench.autotuning.fusion import ProgramPricer
from costbench.autotuning.kernel_costs import TiledKernels
from costbench.autotuning.learned_kernels import LearnedKernels
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.estimate_quality import QUALITIES
from costbench.compiler.fusion.space import FusionSpace
from costbench.compiler.program import PreparedProgram
from costbench.compiler.tile_space import tile_space
from costbench.errors import DataError
from costbench.features.decision_features import decision_features
from costbench.features.graph_tensors import ProgramFeatureCache, kernel_graph
from costbench.hlo.reader import read_module
from costbench.models.graph_batch import FeatureScaling, KernelSamples
from costbench.models.learned import LearnedCostModel, LearnedCostNet
from costbench.models.spec import NetSpec, Predicts
from costbench.target import load_target

NAME = "rnn_char_b64_infer_f32"
PROGRAM = Path(__file__).resolve().parents[2] / "data" / "programs" / f"{NAME}.hlo.pb.zst"
TARGET = load_target("tpu_v3")


@pytest.fixture(scope="module")
def program() -> PreparedProgram:
    return PreparedProgram(read_module(PROGRAM), NAME)


def model_of(
    program: PreparedProgram, predicts: Predicts, residual: Literal["none", "analytical"] = "none"
) -> LearnedCostModel:
    cache = ProgramFeatureCache()
    samples = []
    for unique in program.unique_kernels:
        space = tile_space(unique.kernel, TARGET.architecture)
        features = decision_features(space.nest, space.decode(np.zeros(1, dtype=np.int64)))
        samples.append(KernelSamples(kernel_graph(unique.kernel, cache), features, np.ones(1), "rnn"))
    scaling = FeatureScaling.fit(samples)
    net = LearnedCostNet(NetSpec(hidden=8, opcode_embedding=4, residual=residual), scaling.sizes, seed=1)
    return LearnedCostModel(net, scaling, predicts, analytical=AnalyticalModel(TARGET.architecture))


def tiled(program: PreparedProgram) -> TiledKernels:
    return TiledKernels(program.lowering, TARGET.architecture, AnalyticalModel(TARGET.architecture))


@pytest.mark.parametrize("residual", ["none", "analytical"])
def test_kernels_cost_what_the_model_says_at_the_chosen_tile(
    program: PreparedProgram, residual: Literal["none", "analytical"]
) -> None:
    model = model_of(program, "log_runtime_ns", residual)
    kernels = [unique.kernel for unique in program.unique_kernels]
    costs_ns = LearnedKernels(tiled(program), model).costs(kernels)
    for kernel, cost in zip(kernels, costs_ns, strict=True):
        space = tile_space(kernel, TARGET.architecture)
        chosen = AnalyticalModel(TARGET.architecture).choose(space)
        alone = model.predict(kernel, space.nest.tile_sizes(chosen[None]))
        assert cost == pytest.approx(alone[0], rel=1e-4)
    assert len(set(costs_ns.round(6).tolist())) > len(kernels) / 2


def test_a_hybrid_gets_estimates_of_its_own_quality_at_tiles_that_the_compiler_chooses(
    program: PreparedProgram,
) -> None:
    of_compiler = model_of(program, "log_runtime_ns", "analytical")
    spec = replace(of_compiler.net.spec, estimate="roofline")
    net = LearnedCostNet(spec, of_compiler.scaling.sizes, seed=1)
    roofline = AnalyticalModel(TARGET.architecture, QUALITIES["roofline"])
    model = LearnedCostModel(net, of_compiler.scaling, "log_runtime_ns", analytical=roofline)
    kernels = [unique.kernel for unique in program.unique_kernels]
    costs_ns = LearnedKernels(tiled(program), model).costs(kernels)
    differing = 0
    for kernel, cost in zip(kernels, costs_ns, strict=True):
        space = tile_space(kernel, TARGET.architecture)
        tile = space.nest.tile_sizes(AnalyticalModel(TARGET.architecture).choose(space)[None])
        assert cost == pytest.approx(model.predict(kernel, tile)[0], rel=1e-4)
        differing += cost != pytest.approx(of_compiler.predict(kernel, tile)[0], rel=1e-3)
    assert differing


def test_programs_are_priced_in_batches_as_one_by_one(program: PreparedProgram) -> None:
    costs, space = LearnedKernels(tiled(program), model_of(program, "log_runtime_ns")), FusionSpace(program)
    configs = space.sample(np.random.default_rng(0), 5)
    together = ProgramPricer(space, costs)
    alone = [ProgramPricer(space, costs) for _ in configs]
    expected = [p.total_ns(p.cut(config[None]))[0] for p, config in zip(alone, configs, strict=True)]
    assert together.total_ns(together.cut(configs)) == pytest.approx(expected, rel=1e-4)


def test_scores_do_not_add_up(program: PreparedProgram) -> None:
    with pytest.raises(DataError, match=r"predicts: costs of kernels do not add up .expected log_runtime_ns"):
        LearnedKernels(tiled(program), model_of(program, "score"))
