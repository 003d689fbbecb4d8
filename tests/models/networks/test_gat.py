from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch.func import functional_call

from costbench.models.edges import Edges
from costbench.models.networks.gat import Gat, GatAttention
from costbench.models.networks.layers import initialize
from costbench.models.spec import NetSpec

with warnings.catch_warnings():
    # PyG 2.8 compiles parts of itself with torch.jit, which torch 2.13 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATConv


def edges() -> Edges:
    """A diamond: 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3."""
    incoming, outgoing = [[1, 2, 3, 3], [0, 0, 1, 2]], [[0, 0, 1, 2], [1, 2, 3, 3]]
    return Edges.build(np.array(incoming), np.array(outgoing), num_nodes=4)


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
    edge_index = edges().to_consumers
    expected = [functional_call(conv, weights, (states[:, c], edge_index)) for c in range(3)]
    with_own = torch.cat([edge_index, torch.arange(4).expand(2, -1)], dim=1)
    found = layer(states, with_own)
    torch.testing.assert_close(found, torch.stack(expected, dim=1))


def test_bias_is_that_of_pygs_layer() -> None:
    layer, conv = GatAttention(NetSpec(encoder="gat", hidden=8, biases=True)), GATConv(8, 2, 4)
    initialize(layer, 0)
    with torch.no_grad():
        layer.values.bias.copy_(torch.arange(8.0))
    weights = {
        "lin.weight": layer.values.weight,
        "att_src": layer.attend_sender[None],
        "att_dst": layer.attend_receiver[None],
        "bias": layer.values.bias,
    }
    states = torch.randn(4, 1, 8, generator=torch.Generator().manual_seed(0))
    with_own = torch.cat([edges().to_consumers, torch.arange(4).expand(2, -1)], dim=1)
    expected = functional_call(conv, weights, (states[:, 0], edges().to_consumers))
    torch.testing.assert_close(layer(states, with_own)[:, 0], expected)


def test_alone_a_node_attends_to_itself() -> None:
    none = np.zeros((2, 0), np.int64)
    network = Gat(NetSpec(encoder="gat", hidden=4, gat_heads=2, directed=False, encoder_layers=1))
    initialize(network, 0)
    states = torch.rand(1, 2, 4, generator=torch.Generator().manual_seed(0))
    values = network.hops[0].ways[0].values(states)
    torch.testing.assert_close(network(states, Edges.build(none, none, num_nodes=1)), torch.relu(values))


def test_dropout_goes_between_hops() -> None:
    network = Gat(NetSpec(encoder="gat", dropout=0.5))
    initialize(network, 0)
    states = torch.ones(4, 2, 64)
    torch.manual_seed(0)
    dropped = network(states, edges())
    assert float((dropped == 0.0).float().mean()) > 0.4
    network.eval()
    assert not torch.equal(network(states, edges()), dropped)
