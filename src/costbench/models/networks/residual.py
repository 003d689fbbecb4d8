"""Graph networks with residual connections, as tpugraphs2023 has them (section 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from costbench.errors import choose
from costbench.models.batch.edges import Edges
from costbench.models.batch.graph_batch import GraphBatch
from costbench.models.net_spec import NetSpec
from costbench.models.networks.graphsage import SageHop
from costbench.models.networks.message_passing import Aggregation

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
        ways = gcn_edges(edges, directed=len(self.messages) > 1)
        parts = []
        for linear, edge_index in zip(self.messages, ways, strict=True):
            neighbours = torch.bincount(edge_index[1], minlength=edges.num_nodes)
            scale = (neighbours + 1).to(states.dtype).rsqrt()[:, None, None]
            messages = linear(states) * scale
            parts.append((self.aggregate(messages, edge_index) + messages) * scale)
        hop: Tensor = self.dropout(torch.stack(parts).sum(dim=0).relu())
        return hop


def gcn_edges(edges: Edges, *, directed: bool) -> list[Tensor]:
    """Returns the edges of each direction of a `GcnHop`, int64 [2, E] as PyG writes them."""
    ways = [edges.to_consumers, edges.to_producers]
    return ways if directed else [torch.cat(ways, dim=1)]


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
