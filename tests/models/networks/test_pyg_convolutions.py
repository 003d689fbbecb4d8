"""Convolutions of PyG as encoders: found by name, checked, and the same as on every decision alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.nn import GATv2Conv, GCNConv, SAGEConv

from benchmarks.synthetic_kernels import kernel_samples
from costbench.errors import ChoiceError, ParamsError
from costbench.models.graph_batch import Collator, FeatureScaling, GraphBatch
from costbench.models.learned import LearnedCostNet
from costbench.models.networks.encoders import build_encoder
from costbench.models.networks.pyg_convolutions import (
    PygConvolutions,
    copy_edges,
    draw_weights,
    find_convolution,
)
from costbench.models.spec import NetSpec

NAMES = (
    "pyg.GCNConv",
    "pyg.GINConv(train_eps=True)",
    "pyg.GINEConv",
    "pyg.GATv2Conv(heads=2)",
    "pyg.TransformerConv(heads=2, beta=True)",
    "pyg.SAGEConv(aggr='max')",
    "pyg.ChebConv(K=3)",
    "pyg.GATConv(heads=3, concat=False, edge_dim=1)",
)
SAMPLES = [kernel_samples(seed, nodes, 5) for seed, nodes in enumerate((1, 4, 9))]
HIDDEN = 8


def batch() -> GraphBatch:
    return Collator(FeatureScaling.fit(SAMPLES), 20)(SAMPLES)


def spec(encoder: str, *, directed: bool = True, layers: int = 2) -> NetSpec:
    return NetSpec(encoder=encoder, hidden=HIDDEN, encoder_layers=layers, directed=directed)


def states(given: GraphBatch, num_decisions: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(len(given.opcodes), num_decisions, HIDDEN, generator=generator)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_all_decisions_together_are_each_decision_alone(name: str, directed: bool) -> None:
    """PyG's layers are called here as PyG's users do: on the states [nodes, hidden] of one decision."""
    encoder = PygConvolutions(spec(name, directed=directed))
    draw_weights(encoder, 3)
    given = batch()
    together = encoder(states(given, 5), given)
    ways = [given.edges.to_consumers, given.edges.to_producers]
    ways = ways if directed else [torch.cat(ways, dim=1)]
    for decision, alone in enumerate(states(given, 5).unbind(1)):
        for hop in encoder.hops:
            assert len(hop) == len(ways)
            extra = [
                {"edge_attr": torch.ones(way.shape[1], 1)} if "edge_dim" in name or "GINE" in name else {}
                for way in ways
            ]
            alone = sum(
                conv(alone, way, **more) for conv, way, more in zip(hop, ways, extra, strict=True)
            ).relu()
        torch.testing.assert_close(together[:, decision], alone, rtol=1e-4, atol=1e-5)


def test_a_hop_adds_the_convolutions_of_both_directions() -> None:
    encoder = PygConvolutions(spec("pyg.SAGEConv(root_weight=False, bias=False)", layers=1))
    given = batch()
    edges, whole = given.edges, states(given, 1)
    down, up = (layer.lin_l.weight for layer in encoder.hops[0])
    expected = torch.zeros(len(whole), HIDDEN)
    for weight, edge_index in ((down, edges.to_consumers), (up, edges.to_producers)):
        for node in range(len(whole)):
            senders = edge_index[0, edge_index[1] == node]
            if len(senders):
                expected[node] += whole[senders, 0].mean(dim=0) @ weight.T
    torch.testing.assert_close(encoder(whole, given)[:, 0], expected.relu())


def test_copies_keep_edges_within_their_decision() -> None:
    assert copy_edges(torch.tensor([[0, 2], [1, 0]]), 3).tolist() == [[0, 1, 2, 6, 7, 8], [3, 4, 5, 0, 1, 2]]


def test_weights_follow_from_the_seed_and_draw_nothing_from_the_global_generator() -> None:
    def weights(seed: int) -> list[torch.Tensor]:
        encoder = PygConvolutions(spec("pyg.GATv2Conv"))
        draw_weights(encoder, seed)
        return [weight.detach() for weight in encoder.parameters()]

    torch.manual_seed(5)
    first = weights(0)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))
    assert all(torch.equal(one, other) for one, other in zip(first, weights(0), strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(first, weights(1), strict=True))


@pytest.mark.parametrize(
    ("name", "kind", "arguments"),
    [
        ("pyg.GCNConv", GCNConv, {}),
        ("pyg.GATv2Conv( heads = 2,dropout=0.1 )", GATv2Conv, {"heads": 2, "dropout": 0.1}),
        ("pyg.SAGEConv(aggr='max')", SAGEConv, {"aggr": "max"}),
    ],
)
def test_names_and_arguments_are_read(name: str, kind: type, arguments: dict[str, object]) -> None:
    found = find_convolution(name)
    assert found.kind is kind
    assert found.arguments == arguments


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("pyg.GATvConv", ChoiceError, "unknown convolution 'GATvConv', did you mean .GATv2Conv."),
        ("pyg.Linear", ChoiceError, "unknown convolution 'Linear'"),
        ("pyg.MessagePassing", ChoiceError, "unknown convolution 'MessagePassing'"),
        ("gnn", ChoiceError, "unknown encoder 'gnn' .expected one of gat, graphsage, none, residual.gcn"),
        ("pyg.", ParamsError, "'pyg.' is no convolution .expected pyg.Name or pyg.Name.argument=value"),
        ("pyg.GCNConv(True)", ParamsError, "is no convolution"),
        ("pyg.GCNConv(bias=print(1))", ParamsError, "is no convolution"),
        ("pyg.GCNConv(**{'bias': True})", ParamsError, "is no convolution"),
        ("pyg.GCNConv(head=2)", ParamsError, "encoder: pyg.GCNConv: no argument: 'head' .expected .*bias"),
        ("pyg.GCNConv(cached=True)", ParamsError, "encoder: pyg.GCNConv: set by costbench: 'cached'"),
        ("pyg.GCNConv(in_channels=3)", ParamsError, "set by costbench: 'in_channels'"),
        ("pyg.GATv2Conv(heads=3)", ParamsError, r"GATv2Conv\(heads=3\): .*heads is 3, must divide hidden, 8"),
        ("pyg.RGCNConv(num_relations=2)", ParamsError, r"pyg.RGCNConv\(num_relations=2\): "),
        ("pyg.ChebConv", ParamsError, r"pyg.ChebConv: .* required positional argument: 'K'"),
        ("pyg.MixHopConv", ParamsError, r"gives \[2, 24\] for two nodes .expected \[2, 8\]"),
    ],
)  # fmt: skip
def test_what_cannot_be_an_encoder_is_refused_in_one_line(
    name: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        build_encoder(spec(name))
    assert "\n" not in str(raised.value)


def test_it_learns_on_the_cpu_without_compiled_kernels_and_with_few_decisions() -> None:
    network = LearnedCostNet(spec("pyg.TransformerConv(heads=2)"), FeatureScaling.fit(SAMPLES).sizes, 0)
    one = Collator(FeatureScaling.fit(SAMPLES), 20)([SAMPLES[2].select(np.array([1]))])
    costs = network(one)
    costs.sum().backward()
    assert costs.shape == (1, 1)
    assert all(weight.grad is not None for weight in network.encoder.parameters())
