"""GraphSAGE with directed messages (Hamilton et al., 2017, algorithm 1; lpm2021, section 3.2)."""

from __future__ import annotations

from torch import Tensor, nn

from costbench.models.batch.edges import Edges
from costbench.models.batch.graph_batch import GraphBatch
from costbench.models.net_spec import NetSpec
from costbench.models.networks.layers import FeedForward, PairFeedForward
from costbench.models.networks.message_passing import Aggregation


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
