from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.synthetic_kernels import kernel_samples
from costbench.models.edges import Edges
from costbench.models.graph_batch import Collator, FeatureScaling, GraphBatch
from costbench.models.networks.encoders import ENCODERS, GraphSage, NoGraph
from costbench.models.networks.layers import initialize
from costbench.models.spec import NetSpec


def batch() -> GraphBatch:
    samples = [kernel_samples(1, num_nodes=6, num_configs=3), kernel_samples(2, num_nodes=4, num_configs=3)]
    return Collator(FeatureScaling.fit(samples), 20)(samples)


def states(width: int) -> torch.Tensor:
    return torch.rand(10, 3, width, generator=torch.Generator().manual_seed(0))


def encoder(spec: NetSpec) -> GraphSage:
    net = GraphSage(spec)
    initialize(net, 0)
    return net


def test_no_graph_network_leaves_states_alone() -> None:
    given = states(4)
    assert NoGraph(NetSpec(hidden=4))(given, batch()) is given


def test_l2_normalisation_gives_unit_states() -> None:
    lengths = encoder(NetSpec(hidden=8, l2_normalize=True))(states(8), batch()).norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))


def test_states_reach_as_far_as_there_are_hops() -> None:
    # A chain of 6 nodes: after two hops node 5 knows node 3 and not node 2.
    sample = kernel_samples(1, num_nodes=6, num_configs=1)
    chain = torch.stack([torch.arange(5), torch.arange(1, 6)]).numpy()
    graph = type(sample.graph)(
        sample.graph.opcodes, sample.graph.node_features, chain, sample.graph.static_features
    )
    sample = type(sample)(graph, sample.config_features, sample.runtime_ns, sample.group)
    one = Collator(FeatureScaling.fit([sample, kernel_samples(2, 6, 4)]), 20)([sample])
    given = torch.rand(6, 1, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    encoder(NetSpec(hidden=4, encoder_layers=2))(given, one)[5].sum().backward()
    assert given.grad is not None
    reached = given.grad.abs().sum(dim=(1, 2)) > 0
    assert reached.tolist() == [False, False, False, True, True, True]


@pytest.mark.parametrize("name", ["graphsage", "gat"])
def test_direction_matters_only_to_directed_hops(name: str) -> None:
    # A fork and the same fork turned round; edges are laid out by hand, as a collator sorts nodes.
    fork = np.array([[0, 0, 1], [1, 2, 3]])
    forth, back = (Edges.build(pair[::-1].copy(), pair.copy(), num_nodes=4) for pair in (fork, fork[::-1]))
    one = Collator(FeatureScaling.fit([kernel_samples(1, 4, 3)]), 20)([kernel_samples(1, 4, 3)])
    given = torch.rand(4, 3, 8, generator=torch.Generator().manual_seed(0))
    for directed in (True, False):
        net = ENCODERS[name](NetSpec(encoder=name, hidden=8, directed=directed))
        initialize(net, 0)
        same = torch.allclose(
            net(given, replace(one, edges=forth)), net(given, replace(one, edges=back)), atol=1e-6
        )
        assert same is not directed
