"""Graph networks that sum over neighbours, checked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv

from benchmarks.synthetic_kernels import kernel_samples
from costbench.errors import ChoiceError
from costbench.models.edges import Edges
from costbench.models.graph_batch import Collator, FeatureScaling, GraphBatch
from costbench.models.networks.encoders import build_encoder
from costbench.models.networks.graphsage import GcnHop, GraphSage, ResidualHops, SageHop
from costbench.models.networks.layers import initialize
from costbench.models.spec import NetSpec

INCOMING = np.array([[1, 2, 2], [0, 0, 1]])
OUTGOING = np.array([[0, 0, 1], [1, 2, 2]])


def triangle() -> Edges:
    return Edges.build(INCOMING, OUTGOING, num_nodes=3)


def hop(spec: NetSpec) -> SageHop:
    """Width 1: messages are x to consumers and 10 x to producers, the update is 100 x + aggregate."""
    module = SageHop(spec)
    module.to_consumers.first.weight.data = torch.tensor([[1.0]])
    if module.to_producers is not None:
        module.to_producers.first.weight.data = torch.tensor([[10.0]])
    module.update.both.weight.data = torch.tensor([[100.0, 1.0]])
    return module


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        # 0 has consumers 1 and 2: (20 + 30) / 2; 1 has 0 and 2: 1 + 30; 2 has 0 and 1: (1 + 2) / 2.
        (NetSpec(hidden=1), [125.0, 231.0, 301.5]),
        (NetSpec(hidden=1, aggregation="sum"), [150.0, 231.0, 303.0]),
        (NetSpec(hidden=1, aggregation="max"), [130.0, 231.0, 302.0]),
        # The same message both ways: (2 + 3) / 2; 1 + 3; (1 + 2) / 2.
        (NetSpec(hidden=1, directed=False), [102.5, 204.0, 301.5]),
    ],
)
def test_hop_by_hand(spec: NetSpec, expected: list[float]) -> None:
    states = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)
    assert hop(spec)(states, triangle()).flatten().tolist() == expected
    # Decisions do not mix: the second one's states are all 0.
    both = torch.cat([states, 0.0 * states], dim=1)
    assert hop(spec)(both, triangle())[..., 0].tolist() == [[value, 0.0] for value in expected]


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
