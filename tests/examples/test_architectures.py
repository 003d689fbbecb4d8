"""Architectures of other papers: each learns, and prices a batch as kernels and decisions one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.synthetic_kernels import kernel_samples
from costbench.models.graph_batch import Collator, FeatureScaling
from costbench.models.learned import LearnedCostNet
from costbench.models.spec import NetSpec
from costbench.training.losses import LOSSES

ARCHITECTURES: dict[str, dict[str, object]] = {
    "gps": {"encoder": "examples.gps:Gps"},
    "pna": {"encoder": "examples.pna:Pna"},
    "set-transformer": {
        "encoder": "examples.set_transformer:SetEncoder",
        "reduction": "examples.set_transformer:SetPooling",
    },
    "tabular-resnet": {
        "encoder": "none",
        "reduction": "examples.tabular_resnet:TabularResNet",
        "decision_features": "kernel",
    },
}
# Sizes of all classes that are encoded apart, and two kernels of the same class.
SAMPLES = [
    kernel_samples(seed, num_nodes=num_nodes, num_configs=num_configs)
    for seed, (num_nodes, num_configs) in enumerate([(6, 3), (1, 2), (12, 5), (2, 4), (5, 1)])
]
COLLATE = Collator(scaling := FeatureScaling.fit(SAMPLES), 20)


def network(name: str) -> LearnedCostNet:
    widths = {"hidden": 16, "opcode_embedding": 8, "encoder_layers": 2}
    return LearnedCostNet(NetSpec(**widths, **ARCHITECTURES[name]), scaling.sizes, seed=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_batch_is_priced_as_kernels_and_decisions_one_by_one(name: str) -> None:
    net = network(name).eval()
    with torch.no_grad():
        together = net(COLLATE(SAMPLES))
        for row, sample in enumerate(SAMPLES):
            for decision in range(len(sample)):
                alone = net(COLLATE([sample.select(np.array([decision]))]))
                torch.testing.assert_close(together[row, decision], alone[0, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_it_moves_to_other_types_and_devices(name: str) -> None:
    """Training stages do so before they write a network."""
    assert {weights.dtype for weights in network(name).double().cpu().parameters()} == {torch.float64}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_it_overfits_one_kernel(name: str) -> None:
    """Eight decisions come to be in the order of their runtimes."""
    batch = COLLATE([kernel_samples(7, num_nodes=6, num_configs=8)])
    net = network(name)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    slower = batch.runtime_ns[0].argsort()
    for _ in range(300):
        costs = net(batch)
        if bool((costs[0][slower].diff() > 0.0).all()):
            break
        optimizer.zero_grad()
        LOSSES["hinge"].function(costs.float(), batch.runtime_ns, batch.mask).backward()
        optimizer.step()
    assert bool((net(batch)[0][slower].diff() > 0.0).all())


@pytest.mark.parametrize("name", ["gps", "pna"])
def test_edges_count(name: str) -> None:
    """Without its edges a kernel has other costs; a set of instructions has none to lose."""
    net = network(name).eval()
    sample = SAMPLES[2]
    graph = sample.graph
    unconnected = type(graph)(graph.opcodes, graph.node_features, graph.edges[:, :0], graph.static_features)
    bare = type(sample)(unconnected, sample.config_features, sample.runtime_ns, sample.group)
    with torch.no_grad():
        assert not torch.allclose(net(COLLATE([sample])), net(COLLATE([bare])))
