"""Hops with residual connections, against PyG's own layers."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import GCNConv

from benchmarks.synthetic_kernels import kernel_samples
from costbench.errors import ChoiceError
from costbench.models.batch.graph_batch import Collator, FeatureScaling, GraphBatch
from costbench.models.net_spec import NetSpec
from costbench.models.networks.encoders import build_encoder
from costbench.models.networks.graphsage import GraphSage
from costbench.models.networks.layers import initialize
from costbench.models.networks.residual import GcnHop, ResidualHops

HIDDEN = 8


def batch() -> GraphBatch:
    samples = [kernel_samples(seed, nodes, 5) for seed, nodes in enumerate((1, 4, 9))]
    return Collator(FeatureScaling.fit(samples), 20)(samples)


def states(given: GraphBatch) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(len(given.opcodes), 5, HIDDEN, generator=generator)


@pytest.mark.parametrize("directed", [True, False])
def test_a_gcn_hop_is_that_of_pyg_on_each_decision(directed: bool) -> None:
    hop, given = GcnHop(NetSpec(hidden=HIDDEN, directed=directed)), batch()
    ways = [given.edges.to_consumers, given.edges.to_producers]
    ways = ways if directed else [torch.cat(ways, dim=1)]
    together = hop(states(given), given.edges)
    for decision, alone in enumerate(states(given).unbind(1)):
        parts = []
        for linear, way in zip(hop.messages, ways, strict=True):
            convolution = GCNConv(HIDDEN, HIDDEN, bias=False)
            convolution.lin.weight = linear.weight
            parts.append(convolution(alone, way))
        expected = torch.stack(parts).sum(dim=0).relu()
        torch.testing.assert_close(together[:, decision], expected, rtol=1e-4, atol=1e-5)


def test_what_a_hop_returns_is_added_to_its_input() -> None:
    spec, given = NetSpec(hidden=HIDDEN, encoder="residual.graphsage", encoder_layers=2), batch()
    encoder, plain = ResidualHops(spec), GraphSage(spec)
    initialize(encoder, 0)
    plain.load_state_dict(encoder.state_dict())
    first = states(given) + plain.hops[0](states(given), given.edges)
    second = first + plain.hops[1](first, given.edges)
    torch.testing.assert_close(encoder(states(given), given), second)


@pytest.mark.parametrize("name", ["residual.graphsage", "residual.gcn"])
def test_without_messages_states_stay_as_they_are(name: str) -> None:
    encoder, given = build_encoder(NetSpec(hidden=HIDDEN, encoder=name)), batch()
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.zero_()
    assert torch.equal(encoder(states(given), given), states(given))


def test_l2_gives_unit_states() -> None:
    spec, given = NetSpec(hidden=HIDDEN, encoder="residual.gcn", l2_normalize=True), batch()
    lengths = build_encoder(spec)(states(given), given).norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))


def test_another_hop_is_refused() -> None:
    with pytest.raises(ChoiceError, match="gcn, graphsage"):
        build_encoder(NetSpec(encoder="residual.gat"))
