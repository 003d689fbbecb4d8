from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from benchmarks.naive_pyg import NaiveCollator, NaiveNet
from benchmarks.synthetic_kernels import kernel_samples
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import tile_space
from costbench.errors import ChoiceError, DataError
from costbench.features.decision_features import decision_features
from costbench.features.graph_tensors import ProgramFeatureCache, kernel_graph
from costbench.metrics.ranking import count_pairs, tau_of
from costbench.models import learned
from costbench.models.graph_batch import Collator, FeatureScaling, KernelSamples
from costbench.models.learned import LearnedCostModel, LearnedCostNet
from costbench.models.networks.encoders import ENCODERS
from costbench.models.networks.reductions import REDUCTIONS
from costbench.models.spec import NetSpec, Predicts
from costbench.target import load_target
from tests.hlo.builder import ModuleBuilder

SAMPLES = [kernel_samples(seed, nodes, 7) for seed, nodes in enumerate((1, 2, 6, 19))]
SCALING = FeatureScaling.fit(SAMPLES)
CELLS = list(product(sorted(ENCODERS), sorted(REDUCTIONS)))
ANALYTICAL = AnalyticalModel(load_target("tpu_v3").architecture)
PLACES = list(product(("node", "kernel"), ("off", "node", "kernel")))


def difference_to_naive(spec: NetSpec) -> tuple[float, float]:
    """Largest difference of costs in fp32, and of gradients in fp64, relative to the largest of them.

    Differences of gradients are taken weight by weight; costs are compared to 1 where all are smaller.
    """
    net = LearnedCostNet(spec, SCALING.sizes, seed=1)
    batch = Collator(SCALING, spec.max_neighbors)(SAMPLES)
    naive_batch = NaiveCollator(SCALING, spec.max_neighbors)(SAMPLES)
    costs, expected = net(batch).detach().flatten(), NaiveNet(net)(naive_batch).detach()
    net.double()
    batch = replace(
        batch,
        node_features=batch.node_features.double(),
        static_features=batch.static_features.double(),
        config_features=batch.config_features.double(),
    )
    for name in ("x", "static", "decision"):
        naive_batch[name] = naive_batch[name].double()
    pull = torch.randn(len(costs), generator=torch.Generator().manual_seed(0))
    weights = list(net.parameters())
    found = (net(batch).flatten(), NaiveNet(net).double()(naive_batch))
    ours, theirs = (torch.autograd.grad((values * pull).sum(), weights) for values in found)
    ratios = [
        float((mine - other).abs().max() / other.abs().max().clamp(min=1e-6))
        for mine, other in zip(ours, theirs, strict=True)
    ]
    return float((costs - expected).abs().max() / expected.abs().max().clamp(min=1.0)), max(ratios)


@pytest.mark.parametrize(("encoder", "reduction"), CELLS)
@pytest.mark.parametrize("directed", [True, False])
def test_shared_graph_equals_naive_batching(encoder: str, reduction: str, directed: bool) -> None:
    for decision, static in PLACES:
        spec = NetSpec(
            encoder=encoder,
            reduction=reduction,
            hidden=16,
            opcode_embedding=8,
            directed=directed,
            decision_features=decision,
            static_features=static,
        )
        costs, gradients = difference_to_naive(spec)
        assert costs < 1e-5
        assert gradients < 1e-6


@pytest.mark.parametrize(
    "spec",
    [
        NetSpec(hidden=16, aggregation="sum", columns=("sum", "max", "mean")),
        NetSpec(hidden=16, aggregation="max", max_neighbors=2),
        NetSpec(hidden=16, l2_normalize=True, max_neighbors=1),
        NetSpec(hidden=16, kernel_layers=2, module_layers=1, biases=True),
        NetSpec(hidden=16, kernel_layers=2, reduction="per-node", decision_features="kernel"),
        NetSpec(hidden=16, biases=True, module_layers=1, reduction="per-node"),
        NetSpec(hidden=16, node_final_layers=0, encoder_layers=1, directed=False, aggregation="max"),
        NetSpec(hidden=16, encoder="gat", gat_heads=2, biases=True, module_layers=1, max_neighbors=2),
        NetSpec(hidden=16, encoder="gat", gat_heads=1, l2_normalize=True, directed=False),
        NetSpec(hidden=16, encoder="none", reduction="lstm", lstm_layers=2, lstm_width=12, biases=True),
        NetSpec(
            hidden=16,
            reduction="transformer",
            transformer_layers=2,
            transformer_heads=2,
            transformer_width=24,
            biases=True,
        ),
    ],
)
def test_shared_graph_equals_naive_batching_whatever_the_layers(spec: NetSpec) -> None:
    costs, gradients = difference_to_naive(spec)
    assert costs < 1e-5
    assert gradients < 1e-6


@pytest.mark.parametrize(("field", "choices"), [("encoder", "graphsage"), ("reduction", "per-node")])
def test_unknown_names_list_the_choices(field: str, choices: str) -> None:
    with pytest.raises(ChoiceError, match=f"unknown {field} 'x'.*{choices}"):
        LearnedCostNet(NetSpec(**{field: "x"}), SCALING.sizes)  # type: ignore[arg-type]


def test_decisions_that_join_late_cost_the_graph_network_nothing() -> None:
    """The nodes then pass through the network once, not once per decision."""
    seen: list[torch.Size] = []
    net = LearnedCostNet(NetSpec(hidden=8, decision_features="kernel"), SCALING.sizes)
    net.encoder.register_forward_hook(lambda _module, _inputs, output: seen.append(output.shape))
    assert net(Collator(SCALING, 20)(SAMPLES)).shape == (4, 7)
    assert seen == [torch.Size([28, 1, 8])]


def tanh_kernel() -> Kernel:
    builder = ModuleBuilder("tanh")
    builder.op("tanh", builder.parameter("f32[640,512]"))
    return kernel_from_module(builder.build())


def tiles(kernel: Kernel) -> TileSizes:
    space = tile_space(kernel, load_target("tpu_v3").architecture)
    return space.decode(space.legal_ids())


def model(predicts: Predicts = "score") -> LearnedCostModel:
    return LearnedCostModel(LearnedCostNet(NetSpec(hidden=16), SCALING.sizes, seed=3), SCALING, predicts)


def test_predicts_tile_sizes_of_a_real_kernel() -> None:
    kernel = tanh_kernel()
    decisions = tiles(kernel)
    costs = model().predict(kernel, decisions)
    assert costs.shape == (len(decisions),)
    assert costs.dtype == np.float64
    assert len(np.unique(costs)) > 1


def test_chunks_do_not_change_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tanh_kernel()
    decisions = tiles(kernel)
    whole = model().predict(kernel, decisions)
    monkeypatch.setattr(learned, "CHUNK_CONFIGS", 3)
    np.testing.assert_allclose(model().predict(kernel, decisions), whole, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(learned, "CHUNK_ROWS", 1)
    np.testing.assert_allclose(model().predict(kernel, decisions), whole, rtol=1e-5, atol=1e-6)


def test_no_decisions_no_costs() -> None:
    kernel = tanh_kernel()
    assert model().predict(kernel, tiles(kernel)[:0]).shape == (0,)


def test_log_runtimes_become_nanoseconds() -> None:
    kernel = tanh_kernel()
    decisions = tiles(kernel)
    scores, runtimes = (
        model(predicts).predict(kernel, decisions) for predicts in ("score", "log_runtime_ns")
    )
    np.testing.assert_allclose(runtimes, np.exp(scores))


def test_costs_that_are_no_numbers_are_an_error() -> None:
    broken = model()
    torch.nn.init.constant_(broken.net.reduction.head.cost.weight, torch.nan)
    kernel = tanh_kernel()
    with pytest.raises(DataError, match="not finite"):
        broken.predict(kernel, tiles(kernel))


def test_predicting_leaves_torch_as_it_was() -> None:
    before = torch.get_num_threads(), torch.backends.mkldnn.matmul.fp32_precision, torch.is_grad_enabled()
    kernel = tanh_kernel()
    model().predict(kernel, tiles(kernel))
    after = torch.get_num_threads(), torch.backends.mkldnn.matmul.fp32_precision, torch.is_grad_enabled()
    assert before == after


def hybrid(
    predicts: Predicts = "log_runtime_ns", analytical: AnalyticalModel | None = ANALYTICAL
) -> LearnedCostModel:
    net = LearnedCostNet(NetSpec(hidden=16, residual="analytical"), SCALING.sizes, seed=3)
    return LearnedCostModel(net, SCALING, predicts, analytical=analytical)


def silenced(model: LearnedCostModel) -> LearnedCostModel:
    """With a network that returns zeros."""
    with torch.no_grad():
        for weight in model.net.reduction.parameters():
            weight.zero_()
    return model


@pytest.mark.parametrize("predicts", ["score", "log_runtime_ns"])
def test_a_hybrid_without_corrections_is_the_analytical_model(predicts: Predicts) -> None:
    kernel = tanh_kernel()
    decisions = tiles(kernel)
    estimated = ANALYTICAL.predict(kernel, decisions)
    found = silenced(hybrid(predicts)).predict(kernel, decisions)
    np.testing.assert_allclose(
        found if predicts == "log_runtime_ns" else np.exp(found), estimated, rtol=1e-12
    )
    assert tau_of(count_pairs(found, estimated)) == 1.0


def test_a_hybrid_is_estimate_to_the_power_of_its_coefficient_times_the_correction() -> None:
    """cost = exp(w) log(estimate) + correction, by hand for w = log 2 and a network that says log 3."""
    sample = replace(SAMPLES[0].select(np.arange(2)), analytical_ns=np.array([10.0, 40.0]))
    model = hybrid()
    with torch.no_grad():
        for weight in model.net.reduction.parameters():
            weight.zero_()
        model.net.level.fill_(math.log(3.0))
        assert model.net.log_coefficient is not None
        model.net.log_coefficient.fill_(math.log(2.0))
    np.testing.assert_allclose(model.predict_kernels([sample])[0], [300.0, 4800.0], rtol=1e-6)


def test_a_hybrid_corrects_the_given_estimates_as_it_does_those_that_it_asks_for() -> None:
    kernel = tanh_kernel()
    decisions = tiles(kernel)
    model = hybrid()
    graph = kernel_graph(kernel, ProgramFeatureCache())
    estimates = ANALYTICAL.predict(kernel, decisions)
    features = decision_features(loop_nest(kernel), decisions)
    given = KernelSamples(graph, features, np.ones(len(decisions)), "", estimates)
    found = model.predict(kernel, decisions)
    np.testing.assert_allclose(model.predict_kernels([given])[0], found, rtol=1e-5)
    plain = LearnedCostNet(NetSpec(hidden=16), SCALING.sizes, seed=3)
    corrections = LearnedCostModel(plain, SCALING, "log_runtime_ns").predict(kernel, decisions)
    np.testing.assert_allclose(found, estimates * corrections, rtol=1e-5)


def test_a_hybrid_without_estimates_says_what_it_needs() -> None:
    with pytest.raises(DataError, match="analytical_ns"):
        hybrid(analytical=None).predict(tanh_kernel(), tiles(tanh_kernel()))
    with pytest.raises(DataError, match="analytical_ns"):
        hybrid().predict_kernels([SAMPLES[0]])
