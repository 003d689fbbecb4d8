"""The layout network as one would first write it in PyTorch Geometric: a graph per config.

The reference that the split form is checked against and timed against. Every config gets a copy of the
program's nodes with the config's layout features appended to each (zero where a node is not configurable),
`Batch` stacks the copies, `SAGEConv` passes messages. Weights are those of a `LayoutNetwork`, read in place,
so both give the same scores. Networks with `graphsage`, scaled options and pooling by means only.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from costbench.models.layout.inputs import LayoutInputs
from costbench.models.layout.network import LayoutNetwork

with warnings.catch_warnings():
    # PyG 2.8 compiles parts of itself with torch.jit, which torch 2.13 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import SAGEConv, global_mean_pool


def naive_batch(inputs: LayoutInputs, options: Tensor) -> Batch:
    """Returns a PyG batch of one graph per config; options int64 [c, nc]."""
    ids = torch.from_numpy(inputs.view.configurable)
    edges = torch.from_numpy(np.stack([inputs.view.producers, inputs.view.consumers]))
    is_configurable = torch.zeros(inputs.view.num_nodes, dtype=torch.bool)
    is_configurable[ids] = True
    graphs = []
    for chosen in options:
        layout = torch.zeros(inputs.view.num_nodes, inputs.options.shape[1])
        layout[ids] = inputs.options[chosen]
        features = torch.cat([inputs.node_features, layout], dim=1)
        graphs.append(
            Data(x=features, opcodes=inputs.opcodes, edge_index=edges, is_configurable=is_configurable)
        )
    return Batch.from_data_list(graphs)


class NaiveLayoutNet(nn.Module):
    """The function of `net` over such batches."""

    def __init__(self, net: LayoutNetwork) -> None:
        super().__init__()
        self.net = net
        self.conv = SAGEConv(net.spec.hidden, net.spec.hidden, root_weight=False, bias=False)

    def forward(self, batch: Batch) -> Tensor:
        """Returns scores, float32 [graphs]."""
        net = self.net
        inputs = torch.cat([net.opcode_embedding(batch.opcodes), batch.x], dim=1)
        weight = torch.cat([net.node_input.weight, net.option_input.weight], dim=1)
        states = torch.relu(nn.functional.linear(inputs, weight, net.node_input.bias))
        for layer in net.inputs:
            states = torch.relu(layer(states))
        ways = [batch.edge_index, batch.edge_index.flip(0)]
        if not net.spec.directed:
            ways = [torch.cat(ways, dim=1)]
        for layer in net.layers:
            own, *others = layer.parts
            sums = own(states) + layer.bias
            for part, way in zip(others, ways, strict=True):
                sums = sums + functional_call(self.conv, {"lin_l.weight": part.weight}, (states, way))
            states = states + torch.relu(sums) if net.spec.residual else torch.relu(sums)
        return net.score(self._pooled(states, batch))

    def _pooled(self, states: Tensor, batch: Batch) -> Tensor:
        parts = []
        for name in self.net.spec.pooling:
            if name == "mean":
                parts.append(global_mean_pool(states, batch.batch, batch.num_graphs))
            else:
                chosen = batch.is_configurable
                parts.append(global_mean_pool(states[chosen], batch.batch[chosen], batch.num_graphs))
        return torch.cat(parts, dim=1)
