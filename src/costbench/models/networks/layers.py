"""Feed-forward layers, the aggregation of messages, and the initialisation of all weights.

States have shape [nodes, decisions, width]: a graph is shared by all of its decisions, and a message along an
edge has the states of all of them. A quantity that does not depend on the decision has size 1 on the middle
axis and is broadcast by additions, so it is computed once.
"""

from __future__ import annotations

import re
import warnings
from typing import Literal

import torch
from torch import Tensor, nn

from costbench.models.spec import NetSpec

with warnings.catch_warnings():
    # PyG 2.8 compiles parts of itself with torch.jit, which torch 2.13 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import MessagePassing
    from torch_geometric.utils import softmax

__all__ = [
    "Aggregation",
    "FeedForward",
    "FeedForwardStack",
    "JoinedFeedForward",
    "MessagePassing",
    "PairFeedForward",
    "apply_layers",
    "hidden_layers",
    "initialize",
    "softmax",
]


class FeedForward(nn.Module):
    """relu(W x), followed by `module_layers` more layers of the same width; dropout after each.

    Shape: [..., inputs] to [..., spec.hidden].
    """

    def __init__(self, inputs: int, spec: NetSpec) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, spec.hidden, bias=spec.biases)
        self.more = hidden_layers(spec)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, states: Tensor) -> Tensor:
        return apply_layers(self.dropout(torch.relu(self.first(states))), self.more, self.dropout)


class JoinedFeedForward(nn.Module):
    """relu(W x + V k): a feed-forward module over node features x and kernel features k, concatenated.

    Multiplying both by one matrix of width |x| + |k| is the same function, but W x is needed once per node
    and V k once per decision, not both for every pair (lpm2021, figure 3, either option).

    Shape: x [R, 1 or C, inputs] and k [K or R, 1 or C, joined] to [R, 1 or C, spec.hidden].
    """

    def __init__(self, inputs: int, joined: int, spec: NetSpec) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, spec.hidden, bias=spec.biases)
        self.joined = nn.Linear(joined, spec.hidden, bias=False) if joined else None
        self.more = hidden_layers(spec)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, states: Tensor, joined: Tensor, kernel_of_row: Tensor | None = None) -> Tensor:
        """Joins each row of `states` with a row of `joined`.

        With `kernel_of_row` [R], row r is joined by `joined[kernel_of_row[r]]`, else by `joined[r]`.
        """
        sums: Tensor = self.own(states)
        if self.joined is not None:
            of_kernel: Tensor = self.joined(joined)
            sums = sums + (of_kernel if kernel_of_row is None else of_kernel.index_select(0, kernel_of_row))
        return apply_layers(self.dropout(torch.relu(sums)), self.more, self.dropout)


class PairFeedForward(nn.Module):
    """relu(W concat(x, y)) of two states of width `spec.hidden`, as relu(W_x x + W_y y).

    Shape: two [N, C, spec.hidden] to [N, C, spec.hidden].
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.both = nn.Linear(2 * spec.hidden, spec.hidden, bias=spec.biases)
        self.more = hidden_layers(spec)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        for_left, for_right = self.both.weight.chunk(2, dim=1)
        sums = nn.functional.linear(left, for_left, self.both.bias) + nn.functional.linear(right, for_right)
        return apply_layers(self.dropout(torch.relu(sums)), self.more, self.dropout)


class FeedForwardStack(nn.ModuleList):
    """`count` feed-forward modules one after another. Shape: [..., spec.hidden] kept."""

    def __init__(self, count: int, spec: NetSpec) -> None:
        super().__init__(FeedForward(spec.hidden, spec) for _ in range(count))

    def forward(self, states: Tensor) -> Tensor:
        for layer in self:
            states = layer(states)
        return states


def hidden_layers(spec: NetSpec) -> nn.ModuleList:
    """Returns the `module_layers` additional linear layers of a feed-forward module."""
    widths = range(spec.module_layers)
    return nn.ModuleList(nn.Linear(spec.hidden, spec.hidden, bias=spec.biases) for _ in widths)


def apply_layers(states: Tensor, layers: nn.ModuleList, dropout: nn.Module) -> Tensor:
    """Applies x = dropout(relu(W x)) for every layer W. Shape: [..., H] kept."""
    for layer in layers:
        states = dropout(torch.relu(layer(states)))
    return states


def initialize(net: nn.Module, seed: int) -> None:
    """Draws all weights of `net` from one seeded generator, in order of name.

    He's uniform initialisation keeps the scale of states through layers with ReLUs and no biases (He et al.,
    2015); layers without a ReLU (attention, the gates of an LSTM) need half the variance. Embeddings are
    normal with the standard deviation of features in [0, 1]; norms start as the identity.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in sorted(net.named_parameters()):
            if weight.dim() < 2:
                weight.fill_(1.0 if name.endswith("norm.weight") else 0.0)
            elif "embedding" in name:
                weight.normal_(0.0, EMBEDDING_STD, generator=generator)
            else:
                follows: Literal["linear", "relu"] = "linear" if _LINEAR.search(name) else "relu"
                nn.init.kaiming_uniform_(weight, nonlinearity=follows, generator=generator)


_LINEAR = re.compile(r"gates_of|attention_|attend_|narrow")
EMBEDDING_STD = 0.3
"""Standard deviation of new embeddings: about that of a uniform feature in [0, 1], sqrt(1 / 12)."""


class Aggregation(MessagePassing):  # type: ignore[misc]
    """Computes out_i = aggregate of x_j over the edges j -> i; 0 for a node without incoming edges.

    Args:
        aggregation: "mean", "sum" or "max".
    """

    def __init__(self, aggregation: str) -> None:
        super().__init__(aggr=aggregation, node_dim=0)

    def forward(self, messages: Tensor, edge_index: Tensor) -> Tensor:
        """Shape: messages [N, C, H] and edge_index int64 [2, E], sources above targets, to [N, C, H]."""
        aggregated: Tensor = self.propagate(edge_index, x=messages)
        return aggregated
