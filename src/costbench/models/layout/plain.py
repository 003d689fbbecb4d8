"""The layout network as one first writes it with PyTorch Geometric: every config has a copy of all nodes.

It is the reference for the split form of `network` and `convolutions`, and the only form for convolutions of
PyG by name, whose receptive fields and normalisations are their own. States are [n, c, hidden].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from costbench.models.layout.convolutions import LinearConvolution
from costbench.models.layout.inputs import LayoutInputs
from costbench.models.layout.net_spec import LayoutNetSpec
from costbench.models.networks.message_passing import Aggregation, MessagePassing
from costbench.models.networks.pyg_convolutions import copies_of, find_convolution

if TYPE_CHECKING:
    from costbench.models.layout.network import LayoutNetwork


def plain_scores(net: LayoutNetwork, inputs: LayoutInputs, options: Tensor) -> Tensor:
    """Returns the scores [c] of configs, options int64 [c, nc]; memory grows with c n hidden."""
    states = plain_states(net, inputs, options)
    nothing = states.new_zeros(0, states.shape[2])
    return net.score(net.pooled(states, nothing, states[torch.from_numpy(inputs.view.configurable)]))


def plain_states(net: LayoutNetwork, inputs: LayoutInputs, options: Tensor) -> Tensor:
    """Returns the node states after the last layer, [n, c, hidden]."""
    count = len(options)
    terms = net.node_terms(inputs, np.arange(inputs.view.num_nodes))[:, None].expand(-1, count, -1)
    layouts = net.option_terms(inputs.options)[options.t()]
    # Zero where a node is not configurable.
    configurable = torch.from_numpy(inputs.view.configurable)
    states = net.input_states(terms + torch.zeros_like(terms).index_copy(0, configurable, layouts))
    to_consumers = torch.from_numpy(np.stack([inputs.view.producers, inputs.view.consumers]))
    for layer in net.layers:
        after = torch.relu(_convolved(net.spec, layer, states, to_consumers))
        states = states + after if net.spec.residual else after
    return states


def _convolved(spec: LayoutNetSpec, layer: nn.Module, states: Tensor, to_consumers: Tensor) -> Tensor:
    """Returns a convolution's sums before the ReLU, [n, c, hidden]."""
    to_producers = to_consumers.flip(0)
    both = torch.cat([to_consumers, to_producers], dim=1)
    ways = [to_consumers, to_producers] if spec.directed else [both]
    if isinstance(layer, PygConvolution):
        return layer(states, ways)  # type: ignore[no-any-return]
    assert isinstance(layer, LinearConvolution), "the two kinds of layers"
    if spec.encoder == "gcn":
        edges, weight = gcn_norm(both, num_nodes=len(states))
        messages = layer.parts[0](states)[edges[0]] * weight[:, None, None]
        summed = torch.zeros_like(states).index_add(0, edges[1], messages)
        return summed + layer.bias
    mean = Aggregation("mean")
    own, *others = layer.parts
    sums = own(states) + layer.bias
    for part, way in zip(others, ways, strict=True):
        sums = sums + part(mean(states, way))
    return sums  # type: ignore[no-any-return]


class PygConvolution(nn.Module):
    """A convolution of PyG by name (`networks.pyg_convolutions`), one for each direction of messages, summed.

    Args:
        spec: `encoder` names it.

    Raises:
        ParamsError, ChoiceError: if there is none of that name or it cannot be built.

    Shape: states [n, c, hidden] kept.
    """

    def __init__(self, spec: LayoutNetSpec) -> None:
        super().__init__()
        self._convolution = find_convolution(spec.encoder)
        # Building and trying a layer draws random numbers, which must not change later draws of the process.
        with torch.random.fork_rng(devices=[]):
            self.ways = nn.ModuleList(self._convolution.layer(spec.hidden) for _ in range(1 + spec.directed))

    def draw_weights(self, seed: int) -> None:
        """Draws all weights by the rules of PyG's own classes, from one seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for module in self.modules():
                if isinstance(module, MessagePassing):
                    module.reset_parameters()

    def forward(self, states: Tensor, ways: Sequence[Tensor]) -> Tensor:
        rows = states.flatten(0, 1)
        parts = []
        for layer, edge_index in zip(self.ways, ways, strict=True):
            copies = copies_of(edge_index, states.shape[1])
            given = self._convolution.edge_features(copies.shape[1])
            parts.append(layer(rows, copies, **{name: ones.to(rows) for name, ones in given.items()}))
        return torch.stack(parts).sum(dim=0).view_as(states)
