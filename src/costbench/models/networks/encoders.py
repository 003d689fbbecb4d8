"""Graph networks: node states that know their neighbourhood.

- `none`: no graph network; a node knows itself only.
- `graphsage`: GraphSAGE with directed messages (lpm2021, section 3.2).
- `gat`: graph attention with several heads (lpm2021, section 5.3 and table 4).

An encoder is built from a `NetSpec` and maps states [N, 1 or C, hidden] to states of the same shape, given
the batch for its edges. A new one is one class and one row of `ENCODERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from costbench.models.batch.edges import Edges, SumMatrix, hear_max, hear_sum
from costbench.models.batch.graph_batch import GraphBatch
from costbench.models.execution import runs_compiled
from costbench.models.kernels.fused import Pass, run_passes
from costbench.models.kernels.sage.hops import HopWeights, SagePass, sage_hop
from costbench.models.net_spec import NetSpec
from costbench.models.networks.gat import Gat
from costbench.models.networks.layers import FeedForward, PairFeedForward


class Encoder(nn.Module):
    """States of the same shape that know more."""

    def passes(self, states: Tensor, batch: GraphBatch) -> list[Pass] | None:
        """What it does to such states, compiled; None where that is not possible."""
        return None


class NoGraph(Encoder):
    """The states as they are."""

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()

    def forward(self, states: Tensor, batch: GraphBatch) -> Tensor:
        return states

    def passes(self, states: Tensor, batch: GraphBatch) -> list[Pass] | None:
        return []


class GraphAttention(Encoder):
    """`encoder_layers` GAT hops; see `gat.Gat`. Attention takes the place of the aggregation."""

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.gat = Gat(spec)

    def forward(self, states: Tensor, batch: GraphBatch) -> Tensor:
        heard: Tensor = self.gat(states, batch.edges)
        return heard

    def passes(self, states: Tensor, batch: GraphBatch) -> list[Pass] | None:
        return self.gat.passes(states, batch.edges)


class GraphSage(Encoder):
    """`encoder_layers` GraphSAGE hops.

    e_i^k = l2(f3^k(concat(e_i^(k-1), sum over directions d of agg_{j in neighbours_d(i)} f2_d^k(e_j^(k-1)))))

    f2_d and f3 are feed-forward modules, agg the mean, sum or maximum, l2 optional. Directed, producers and
    consumers of a node pass through different f2; undirected, through the same.
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.spec = spec
        self.hops = nn.ModuleList(SageHop(spec) for _ in range(spec.encoder_layers))

    def forward(self, states: Tensor, batch: GraphBatch) -> Tensor:
        passes = self.passes(states, batch)
        if passes is not None:
            return run_passes(states, passes)
        edges, matrix = self._heard(batch)
        for hop in self.hops:
            states = hop(states, edges, matrix)
            if self.spec.l2_normalize:
                states = nn.functional.normalize(states, dim=-1)
        return states

    def passes(self, states: Tensor, batch: GraphBatch) -> list[Pass] | None:
        matrix, hops = self._heard(batch)[1], [cast(SageHop, hop) for hop in self.hops]
        fits = matrix is not None and not self.spec.l2_normalize
        if not fits or not all(
            hop.is_fusable(states) and runs_compiled(states, *hop.weights()) for hop in hops
        ):
            return None
        return [SagePass([hop.weights() for hop in hops], cast(SumMatrix, matrix))]

    def _heard(self, batch: GraphBatch) -> tuple[Edges, SumMatrix | None]:
        edges = batch.edges if self.spec.directed else batch.edges.undirected()
        return edges, None if self.spec.aggregation == "max" else SumMatrix(
            edges, self.spec.aggregation == "mean"
        )


class SageHop(nn.Module):
    """One hop, before l2. Shape: [N, C, hidden] kept."""

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.to_consumers = FeedForward(spec.hidden, spec)
        self.to_producers = FeedForward(spec.hidden, spec) if spec.directed else None
        self.update = PairFeedForward(spec)
        self._plain = spec.module_layers == 0 and not spec.biases

    def forward(self, states: Tensor, edges: Edges, matrix: SumMatrix | None) -> Tensor:
        """Aggregates by `matrix`, or by the maximum without one."""
        if matrix is not None and self.is_fusable(states):
            return sage_hop(states, self.weights(), matrix)
        messages = self.to_consumers(states)
        if self.to_producers is not None:
            back = self.to_producers(states.index_select(0, edges.with_producers))
            messages = torch.cat([messages, back])
        heard = hear_max(messages, edges) if matrix is None else hear_sum(messages, matrix)
        updated: Tensor = self.update(states, heard)
        return updated

    def is_fusable(self, states: Tensor) -> bool:
        """Whether `sage_hop` computes this hop, too."""
        dropping = self.training and self.update.dropout.p > 0.0
        # The fused hop computes in the type it is given; autocast would mix two.
        mixed = torch.is_autocast_enabled(states.device.type)
        return self._plain and not dropping and not mixed

    def weights(self) -> HopWeights:
        """Those that `sage_hop` takes."""
        back = None if self.to_producers is None else self.to_producers.first.weight
        return HopWeights(self.to_consumers.first.weight, back, self.update.both.weight)


ENCODERS: Mapping[str, Callable[[NetSpec], Encoder]] = {
    "gat": GraphAttention,
    "graphsage": GraphSage,
    "none": NoGraph,
}
"""Name in `NetSpec.encoder` to class."""
