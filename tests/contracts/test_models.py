"""What every network cell (encoder x reduction) and every cost model promises, over the tables of choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from benchmarks.synthetic_kernels import kernel_samples
from benchmarks.synthetic_layouts import random_graph
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import tile_space
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.experiments.evaluation.unfitted import IterationModel, RandomModel
from costbench.features.graph_tensors import KernelGraph
from costbench.models.checkpoint import load_checkpoint, save_checkpoint
from costbench.models.cost_model import CostModel, Predictor
from costbench.models.graph_batch import Collator, FeatureScaling, KernelSamples
from costbench.models.layout.inputs import LayoutScaling
from costbench.models.layout.model import LayoutModel
from costbench.models.layout.network import LayoutNetwork
from costbench.models.learned import LearnedCostModel, LearnedCostNet
from costbench.models.networks.encoders import ENCODERS
from costbench.models.networks.graphsage import RESIDUAL_HOPS
from costbench.models.networks.reductions import REDUCTIONS
from costbench.models.spec import LayoutNetSpec, NetSpec
from costbench.target import load_target
from costbench.training.losses import pairwise_hinge
from tests.hlo.builder import ModuleBuilder

SAMPLES = [kernel_samples(seed, nodes, 8) for seed, nodes in enumerate((1, 4, 9))]
SCALING = FeatureScaling.fit(SAMPLES)
ANALYTICAL = AnalyticalModel(load_target("tpu_v3").architecture)
CONVOLUTIONS = ("pyg.GCNConv", "pyg.GINConv", "pyg.GATv2Conv(heads=2)", "pyg.TransformerConv(heads=2)")
"""Any convolution of PyG is an encoder; these stand for all."""
RESIDUAL = tuple(f"residual.{hop}" for hop in RESIDUAL_HOPS)
CELLS = [
    *product(sorted(ENCODERS), sorted(REDUCTIONS)),
    *((encoder, "column-wise") for encoder in (*CONVOLUTIONS, *RESIDUAL)),
]
SEQUENTIAL = {"lstm"}
"""Reductions that read nodes in topological order, of which a graph may have several."""

pytestmark = pytest.mark.filterwarnings("error")
every_cell = pytest.mark.parametrize(("encoder", "reduction"), CELLS)


def net(encoder: str, reduction: str, seed: int = 0, hidden: int = 16) -> LearnedCostNet:
    spec = NetSpec(encoder=encoder, reduction=reduction, hidden=hidden, opcode_embedding=8)
    return LearnedCostNet(spec, SCALING.sizes, seed)


def costs(network: LearnedCostNet, samples: list[KernelSamples]) -> torch.Tensor:
    found: torch.Tensor = network(Collator(SCALING, 20)(samples))
    return found


def permuted(sample: KernelSamples) -> KernelSamples:
    """The same kernel, its nodes in another order."""
    order = np.random.Generator(np.random.PCG64(0)).permutation(sample.graph.num_nodes)
    graph = KernelGraph(
        opcodes=sample.graph.opcodes[order],
        node_features=sample.graph.node_features[order],
        edges=np.argsort(order)[sample.graph.edges],
        static_features=sample.graph.static_features,
    )
    return replace(sample, graph=graph)


def chained(sample: KernelSamples) -> KernelSamples:
    """Every node reads the one before: there is one topological order."""
    nodes = np.arange(sample.graph.num_nodes)
    return replace(sample, graph=replace(sample.graph, edges=np.stack([nodes[:-1], nodes[1:]])))


@every_cell
def test_costs_do_not_depend_on_the_order_of_nodes(encoder: str, reduction: str) -> None:
    network = net(encoder, reduction)
    samples = [chained(sample) for sample in SAMPLES] if reduction in SEQUENTIAL else SAMPLES
    turned = [permuted(sample) for sample in samples]
    torch.testing.assert_close(costs(network, samples), costs(network, turned), rtol=1e-4, atol=1e-5)


@every_cell
def test_the_order_of_a_chain_matters_to_what_reads_it_in_order(encoder: str, reduction: str) -> None:
    """Without a graph network, edges reach the cost through the order of nodes only."""
    sample = chained(SAMPLES[2])
    backwards = replace(sample, graph=replace(sample.graph, edges=sample.graph.edges[::-1]))
    network = net(encoder, reduction)
    same = torch.allclose(costs(network, [sample]), costs(network, [backwards]), rtol=1e-4, atol=1e-5)
    assert same is (encoder == "none" and reduction not in SEQUENTIAL)


@every_cell
def test_costs_do_not_depend_on_the_rest_of_the_batch(encoder: str, reduction: str) -> None:
    network = net(encoder, reduction)
    together = costs(network, SAMPLES)
    for place, sample in enumerate(SAMPLES):
        torch.testing.assert_close(costs(network, [sample])[0], together[place], rtol=1e-4, atol=1e-5)
        few = costs(network, [*SAMPLES, sample.select(np.array([5, 2]))])[-1, :2]
        torch.testing.assert_close(few, together[place][[5, 2]], rtol=1e-4, atol=1e-5)


@every_cell
def test_every_weight_takes_part(encoder: str, reduction: str) -> None:
    network = net(encoder, reduction)
    pull = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    (costs(network, SAMPLES) * pull).sum().backward()
    idle = [name for name, weight in network.named_parameters() if not weight.grad.abs().sum() > 0]  # type: ignore[union-attr]
    assert idle == []


@every_cell
@pytest.mark.parametrize("residual", ["none", "analytical"])
def test_learns_one_kernel_by_heart(
    encoder: str, reduction: str, residual: Literal["none", "analytical"]
) -> None:
    spec = NetSpec(encoder=encoder, reduction=reduction, hidden=32, opcode_embedding=8, residual=residual)
    network = LearnedCostNet(spec, SCALING.sizes, 0)
    backwards = replace(SAMPLES[1], analytical_ns=1e7 / SAMPLES[1].runtime_ns)
    batch = Collator(SCALING, 20)([backwards])
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)

    costs, in_order = network(batch), False
    for _ in range(150):
        optimizer.zero_grad()
        pairwise_hinge(costs, batch.runtime_ns, batch.mask).backward()
        optimizer.step()
        costs = network(batch)
        order = costs[0].detach().argsort()
        in_order = bool((batch.runtime_ns[0][order].diff() >= 0).all())
        if in_order:
            break
    assert in_order


@every_cell
@pytest.mark.parametrize("num_nodes", [1, 1000])
def test_smallest_and_largest_kernels(encoder: str, reduction: str, num_nodes: int) -> None:
    sample = kernel_samples(7, num_nodes, 3)
    network = net(encoder, reduction)
    found = costs(network, [sample, SAMPLES[1].select(np.arange(3))])
    assert torch.isfinite(found).all()
    torch.testing.assert_close(costs(network, [sample])[0], found[0], rtol=1e-4, atol=1e-3)


@every_cell
def test_a_saved_network_comes_back(encoder: str, reduction: str, tmp_path: Path) -> None:
    network = net(encoder, reduction, seed=4)
    save_checkpoint(tmp_path, network, SCALING, "score")
    loaded = load_checkpoint(tmp_path)
    expected = LearnedCostModel(network, SCALING, "score")
    for sample in SAMPLES:
        found = [model.predict_graph(sample.graph, sample.config_features) for model in (loaded, expected)]
        np.testing.assert_array_equal(*found)


@every_cell
def test_the_seed_decides_the_weights(encoder: str, reduction: str) -> None:
    first, second, other = (costs(net(encoder, reduction, seed), SAMPLES) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def tanh_kernel() -> Kernel:
    builder = ModuleBuilder("tanh")
    builder.op("tanh", builder.parameter("f32[640,512]"))
    return kernel_from_module(builder.build())


def learned() -> LearnedCostModel:
    return LearnedCostModel(net("graphsage", "column-wise"), SCALING, "score")


def hybrid() -> LearnedCostModel:
    spec = NetSpec(hidden=16, opcode_embedding=8, residual="analytical")
    return LearnedCostModel(LearnedCostNet(spec, SCALING.sizes, 0), SCALING, "score", analytical=ANALYTICAL)


def layout() -> LayoutModel:
    scaling = LayoutScaling.fit([program()])
    spec = LayoutNetSpec(hidden=16, opcode_embedding=8)
    net = LayoutNetwork(spec, scaling.node.num_outputs, scaling.option.num_outputs, 0)
    return LayoutModel(net, scaling, "score")


def program() -> LayoutGraph:
    return random_graph(20, 40, 6, 12)


def tiles(kernel: Kernel) -> TileSizes:
    space = tile_space(kernel, load_target("tpu_v3").architecture)
    return space.decode(space.legal_ids())


MODELS: dict[str, Callable[[], Predictor[Any, Any]]] = {
    "learned": learned,
    "hybrid": hybrid,
    "analytical": lambda: ANALYTICAL,
    "iterations": IterationModel,
    "random": lambda: RandomModel(3),
    "layout": layout,
}
every_model = pytest.mark.parametrize("model", sorted(MODELS))


def subject_and_decisions(model: str) -> tuple[Any, Any]:
    """A kernel and its tile sizes, or a program and the rows of its configs."""
    if model == "layout":
        return program(), np.arange(program().num_configs)
    return tanh_kernel(), tiles(tanh_kernel())


@every_model
def test_models_give_one_finite_cost_per_decision(model: str) -> None:
    subject, decisions = subject_and_decisions(model)
    costs = MODELS[model]().predict(subject, decisions)
    assert costs.dtype == np.float64
    assert costs.shape == (len(decisions),)
    assert np.isfinite(costs).all()
    assert len(np.unique(costs)) > 1


@every_model
def test_costs_do_not_depend_on_which_others_are_asked_for(model: str) -> None:
    subject, decisions = subject_and_decisions(model)
    some = np.arange(len(decisions))[::-3].copy()
    whole = MODELS[model]().predict(subject, decisions)
    np.testing.assert_allclose(
        MODELS[model]().predict(subject, decisions[some]), whole[some], rtol=1e-4, atol=1e-5
    )


@every_model
def test_no_decisions_no_costs(model: str) -> None:
    subject, decisions = subject_and_decisions(model)
    assert MODELS[model]().predict(subject, decisions[:0]).shape == (0,)


@every_model
def test_equal_subjects_have_equal_costs(model: str) -> None:
    (first, decisions), (second, _) = (subject_and_decisions(model) for _ in range(2))
    np.testing.assert_array_equal(
        MODELS[model]().predict(first, decisions), MODELS[model]().predict(second, decisions)
    )


@pytest.mark.parametrize("model", sorted(set(MODELS) - {"layout"}))
def test_cost_models_are_such_by_their_method(model: str) -> None:
    assert isinstance(MODELS[model](), CostModel)
