"""GraphSAGE and graph convolutional networks, with and without residual connections.

GraphSAGE has directed messages (Hamilton et al., 2017, algorithm 1; lpm2021, section 3.2); residual
connections are those of tpugraphs2023, section 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from costbench.errors import choose
from costbench.models.edges import Edges
from costbench.models.graph_batch import GraphBatch
from costbench.models.networks.layers import Aggregation, FeedForward, PairFeedForward
from costbench.models.spec import NetSpec


class GraphSage(nn.Module):
    """`encoder_layers` GraphSAGE hops.

    e_i^k = l2(f3^k(concat(e_i^(k-1), sum over directions d of agg_{j in neighbours_d(i)} f2_d^k(e_j^(k-1)))))

    f2_d and f3 are feed-forward modules, agg the mean, sum or maximum, l2 optional. Directed, messages from
    producers and from consumers have different f2; undirected, the same.

    Shape: states [N, C, hidden] kept.
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.spec = spec
        self.hops = nn.ModuleList(SageHop(spec) for _ in range(spec.encoder_layers))

    def forward(self, states: Tensor, batch: GraphBatch) -> Tensor:
        for hop in self.hops:
            states = hop(states, batch.edges)
            if self.spec.l2_normalize:
                states = nn.functional.normalize(states, dim=-1)
        return states


class SageHop(nn.Module):
    """One hop, before l2: f3(concat(x_i, agg over producers of f2(x_j) + agg over consumers of f2'(x_j))).

    Shape: [N, C, hidden] kept.
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.to_consumers = FeedForward(spec.hidden, spec)
        self.to_producers = FeedForward(spec.hidden, spec) if spec.directed else None
        self.update = PairFeedForward(spec)
        self.aggregate = Aggregation(spec.aggregation)

    def forward(self, states: Tensor, edges: Edges) -> Tensor:
        to_consumers = self.to_consumers(states)
        to_producers = to_consumers if self.to_producers is None else self.to_producers(states)
        # Messages are sent along the edges of the kernel and against them.
        aggregated = self.aggregate(to_consumers, edges.to_consumers)
        aggregated = aggregated + self.aggregate(to_producers, edges.to_producers)
        updated: Tensor = self.update(states, aggregated)
        return updated


PREFIX = "residual."


class GcnHop(nn.Module):
    """One hop of a graph convolutional network (Kipf and Welling, 2017, equation 2) over either direction:

    y_i = relu(sum over directions d of sum_{j in neighbours_d(i) and i} W_d x_j / sqrt(n_d(i) n_d(j)))

    n_d(i) is the number of neighbours of i in direction d, plus one for i itself. Directed, producers and
    consumers are two directions with a matrix each; undirected, they are one. What costs the least is
    computed first: W x once per node, then the sums.

    Shape: states [N, C, hidden] kept.
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        count = 1 + spec.directed
        self.messages = nn.ModuleList(
            nn.Linear(spec.hidden, spec.hidden, bias=spec.biases) for _ in range(count)
        )
        self.aggregate = Aggregation("sum")
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, states: Tensor, edges: Edges) -> Tensor:
        parts = []
        edge_indices = edges.edge_indices(directed=len(self.messages) > 1)
        for linear, edge_index in zip(self.messages, edge_indices, strict=True):
            neighbours = torch.bincount(edge_index[1], minlength=edges.num_nodes)
            scale = (neighbours + 1).to(states.dtype).rsqrt()[:, None, None]
            messages = linear(states) * scale
            parts.append((self.aggregate(messages, edge_index) + messages) * scale)
        hop: Tensor = self.dropout(torch.stack(parts).sum(dim=0).relu())
        return hop


RESIDUAL_HOPS: Mapping[str, Callable[[NetSpec], nn.Module]] = {"gcn": GcnHop, "graphsage": SageHop}
"""Name after `residual.` in `NetSpec.encoder` to the hop whose output is added to its input."""


class ResidualHops(nn.Module):
    """`encoder_layers` hops x = l2(x + hop(x)); l2 is optional.

    Args:
        spec: hyper-parameters; `encoder` is `residual.` and a key of `RESIDUAL_HOPS`.

    Raises:
        ChoiceError: for another hop.

    Shape: states [N, C, hidden] kept.
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.spec = spec
        hop = choose(RESIDUAL_HOPS, spec.encoder.removeprefix(PREFIX), "hop with a residual connection")
        self.hops = nn.ModuleList(hop(spec) for _ in range(spec.encoder_layers))

    def forward(self, states: Tensor, batch: GraphBatch) -> Tensor:
        for hop in self.hops:
            states = states + hop(states, batch.edges)
            if self.spec.l2_normalize:
                states = nn.functional.normalize(states, dim=-1)
        return states
