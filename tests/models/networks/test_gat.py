from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch.func import functional_call

from costbench.models.batch.edges import Edges
from costbench.models.net_spec import NetSpec
from costbench.models.networks.gat import Attention, GatAttention, softmax_of_receivers, weighted_sum
from costbench.models.networks.layers import initialize

with warnings.catch_warnings():
    # PyG 2.8 compiles parts of itself with torch.jit, which torch 2.13 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATConv


def edges() -> Edges:
    """A diamond: 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3."""
    incoming, outgoing = [[1, 2, 3, 3], [0, 0, 1, 2]], [[0, 0, 1, 2], [1, 2, 3, 3]]
    return Edges.build(np.array(incoming), np.array(outgoing), num_nodes=4)


@pytest.mark.parametrize(
    ("backwards", "heard"),
    [
        (False, [{0}, {0, 1}, {0, 2}, {1, 2, 3}]),
        (True, [{0, 1, 2}, {1, 3}, {2, 3}, {3}]),
        (None, [{0, 1, 2}, {0, 1, 3}, {0, 2, 3}, {1, 2, 3}]),
    ],
)
def test_nodes_attend_to_themselves_and_their_neighbours(
    backwards: bool | None, heard: list[set[int]]
) -> None:
    attention = Attention.build(edges(), backwards)
    pairs = list(zip(attention.receiver.tolist(), attention.sender.tolist(), strict=True))
    assert [{sender for node, sender in pairs if node == receiver} for receiver in range(4)] == heard
    ordered = attention.receiver[attention.by_receiver].tolist()
    assert ordered == sorted(ordered)
    assert attention.starts.tolist() == [ordered.index(receiver) for receiver in range(4)]


def test_softmax_by_hand() -> None:
    attention = Attention.build(edges(), backwards=False)
    # Along 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3, then nodes to themselves; node 3 attends to 1, 2 and itself.
    scores = torch.zeros(8, 1, 1)
    scores[[2, 3, 7], 0, 0] = torch.tensor([1.0, 2.0, 5.0]).log() + 1000.0
    weights = softmax_of_receivers(scores, attention).flatten()
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.5, 0.125, 0.25, 1.0, 0.5, 0.5, 0.625]))


def test_weighted_sum_by_hand() -> None:
    attention = Attention.build(edges(), backwards=False)
    values = torch.tensor([1.0, 10.0, 100.0, 1000.0]).view(4, 1, 1, 1)
    weights = torch.arange(1.0, 9.0).view(8, 1, 1)
    # 5 * 1; 1 * 1 + 6 * 10; 2 * 1 + 7 * 100; 3 * 10 + 4 * 100 + 8 * 1000.
    assert weighted_sum(values, weights, attention).flatten().tolist() == [5.0, 61.0, 702.0, 8430.0]


def test_weighted_sum_gradient() -> None:
    attention = Attention.build(edges(), backwards=None)
    torch.manual_seed(0)
    values = torch.randn(4, 2, 2, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(12, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v, w: weighted_sum(v, w, attention), (values, weights))


@pytest.mark.parametrize("heads", [1, 4])
def test_one_way_equals_pygs_layer(heads: int) -> None:
    layer = GatAttention(NetSpec(encoder="gat", hidden=8, gat_heads=heads))
    initialize(layer, 0)
    conv = GATConv(8, 8 // heads, heads, bias=False)
    weights = {
        "lin.weight": layer.values.weight,
        "att_src": layer.attend_sender[None],
        "att_dst": layer.attend_receiver[None],
    }
    states = torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(0))
    edge_index = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])
    expected = [functional_call(conv, weights, (states[:, c], edge_index)) for c in range(3)]
    found = layer(states, Attention.build(edges(), backwards=False))
    torch.testing.assert_close(found, torch.stack(expected, dim=1))
