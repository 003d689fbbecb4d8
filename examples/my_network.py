"""Parts of a network of your own: a convolution, a reduction, a loss, features of nodes.

Each is named by its dotted path in params.yaml; docs/your_network.md shows the entry. Nothing here is of
costbench: any `torch.nn.Module`, those of PyTorch Geometric included, and any function will do.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter, softmax


class MyConv(MessagePassing):
    """x'_i = relu(W x_i + V m_i), m_i a gated mean of the neighbours' states. Its name in params.yaml:

    net.encoder: examples.my_network:MyConv

    Shape: x [n, in_channels] and edge_index int64 [2, m], from sender to receiver, to [n, out_channels].
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(aggr="mean")
        self.gate = nn.Linear(2 * in_channels, 1)
        self.both = nn.Linear(2 * in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Returns the new states."""
        received = self.propagate(edge_index, x=x)
        return self.both(torch.cat([x, received], dim=1)).relu()

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        """Returns what a node sends, weighted by how it fits the receiver."""
        return torch.sigmoid(self.gate(torch.cat([x_i, x_j], dim=1))) * x_j


class MyReduction(nn.Module):
    """Attention and the maximum over the nodes of each kernel. Its name in params.yaml:

    net.reduction: examples.my_network:MyReduction(temperature=2.0)

    Shape: x [n, in_channels] and index int64 [n], the kernel of each row, to [dim_size, 2 in_channels].
    """

    def __init__(self, in_channels: int, temperature: float = 1.0) -> None:
        super().__init__()
        self.score = nn.Linear(in_channels, 1)
        self.temperature = temperature

    def forward(self, x: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """Returns a row for each kernel."""
        weights = softmax(self.score(x) / self.temperature, index, num_nodes=dim_size)
        attended = scatter(weights * x, index, dim_size=dim_size, reduce="sum")
        return torch.cat([attended, scatter(x, index, dim_size=dim_size, reduce="max")], dim=1)


def my_loss(costs: Tensor, runtime_ns: Tensor, mask: Tensor, focus: float = 3.0) -> Tensor:
    """Returns a pairwise rank loss in which pairs with the kernel's fastest decision count `focus` times.

    Its name in params.yaml:

    loss: examples.my_network:my_loss(focus=5.0)

    Shape: costs, runtime_ns and mask [K, C]; mask is False for padding.
    """
    fastest = runtime_ns == runtime_ns.masked_fill(~mask, math.inf).amin(dim=1, keepdim=True)
    slower = (runtime_ns.unsqueeze(2) > runtime_ns.unsqueeze(1)) & mask.unsqueeze(2) & mask.unsqueeze(1)
    weights = slower * (1.0 + (focus - 1.0) * fastest.unsqueeze(1))
    apart = costs.unsqueeze(2) - costs.unsqueeze(1)
    return (nn.functional.softplus(-apart) * weights).sum() / weights.sum().clamp(min=1.0)


# What a network trained with it predicts: a `score`, which only ranks, or `log_runtime_ns`.
my_loss.predicts = "score"


def my_node_features(kernel) -> np.ndarray:
    """Returns how many instructions of the kernel read each node, and the logarithm of its elements.

    Its name in params.yaml, once for the stage that computes it and once for a network that reads it:

    features.nodes: [examples.my_network:my_node_features]
    net.features: examples.my_network:my_node_features

    Args:
        kernel: `kernel.nodes` are its inputs, then its instructions; `kernel.instruction(node)` is what a
            node computes.

    Shape: [len(kernel.nodes), 2].
    """
    inside = [kernel.instruction(node) for node in kernel.instructions]
    readers = [sum(node in instruction.operands for instruction in inside) for node in kernel.nodes]
    shapes = [kernel.instruction(node).shape for node in kernel.nodes]
    elements = [math.prod(shape.dimensions) for shape in shapes]
    return np.column_stack([readers, np.log1p(elements)])


# To be raised when it computes something else: models that were trained on another version are refused.
my_node_features.version = 1
