"""Graph attention (Veličković et al., 2018; lpm2021, section 5.3) on one graph with many decisions."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from costbench.models.edges import Edges
from costbench.models.networks.layers import MessagePassing, apply_layers, softmax
from costbench.models.spec import NetSpec

NEGATIVE_SLOPE = 0.2
"""Slope of the leaky ReLU over attention scores (Veličković et al., 2018, section 2.1)."""


class Gat(nn.Module):
    """`encoder_layers` GAT hops, each with separate attention to producers and consumers (directed), or one.

    Shape: states [N, C, hidden] kept.
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.spec = spec
        self.hops = nn.ModuleList(GatHop(spec) for _ in range(spec.encoder_layers))

    def forward(self, states: Tensor, edges: Edges) -> Tensor:
        edge_indices = edges.edge_indices(directed=self.spec.directed)
        self_loops = torch.arange(edges.num_nodes, device=states.device).expand(2, -1)
        edge_indices = [torch.cat([edge_index, self_loops], dim=1) for edge_index in edge_indices]
        for hop in self.hops:
            states = hop(states, edge_indices)
            if self.spec.l2_normalize:
                states = nn.functional.normalize(states, dim=-1)
        return states


class GatHop(nn.Module):
    """relu(sum over directions of attention over that direction's neighbours), then `module_layers` layers.

    Shape: [N, C, hidden] kept.
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.ways = nn.ModuleList(GatAttention(spec) for _ in range(2 if spec.directed else 1))
        self.more = nn.ModuleList(
            nn.Linear(spec.hidden, spec.hidden, bias=spec.biases) for _ in range(spec.module_layers)
        )
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, states: Tensor, edge_indices: list[Tensor]) -> Tensor:
        """One edge index per direction, each with an edge from every node to itself."""
        attended: Tensor = self.ways[0](states, edge_indices[0])
        for attention, edge_index in zip(self.ways[1:], edge_indices[1:], strict=True):
            attended = attended + attention(states, edge_index)
        return apply_layers(self.dropout(torch.relu(attended)), self.more, self.dropout)


class GatAttention(MessagePassing):  # type: ignore[misc]
    """Attention over the sources of every node: PyG's `GATConv` for states [N, C, hidden].

    out_i = concat over heads of sum_j alpha_ij W x_j, with alpha_i the softmax over the sources j of i of
    leaky_relu(s . W x_j + r . W x_i).

    Shape: states [N, C, hidden] and edge_index int64 [2, E] to [N, C, hidden].
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__(aggr="sum", node_dim=0)
        self.heads = spec.gat_heads
        self.values = nn.Linear(spec.hidden, spec.hidden, bias=spec.biases)
        self.attend_sender = nn.Parameter(torch.empty(self.heads, spec.hidden // self.heads))
        self.attend_receiver = nn.Parameter(torch.empty(self.heads, spec.hidden // self.heads))

    def forward(self, states: Tensor, edge_index: Tensor) -> Tensor:
        values = nn.functional.linear(states, self.values.weight)
        values = values.view(*states.shape[:-1], self.heads, -1)
        # A score is the sum of a term of the source and one of the target, so terms are computed per node.
        of_source = (values * self.attend_sender).sum(dim=-1)
        of_target = (values * self.attend_receiver).sum(dim=-1)
        source, target = edge_index
        scores = of_source.index_select(0, source) + of_target.index_select(0, target)
        scores = nn.functional.leaky_relu(scores, NEGATIVE_SLOPE)
        alpha = softmax(scores, target, num_nodes=len(states), dim=0)
        attended: Tensor = self.propagate(edge_index, values=values, alpha=alpha)
        attended = attended.flatten(-2)
        # The weights of a node sum to 1, so a bias of the values can be added afterwards.
        bias = cast(Tensor | None, self.values.bias)
        return attended if bias is None else attended + bias

    def message(self, values_j: Tensor, alpha: Tensor) -> Tensor:
        """alpha_ij W x_j. Shape: values_j [E, C, heads, d] and alpha [E, C, heads]."""
        return values_j * alpha.unsqueeze(-1).to(values_j.dtype)
