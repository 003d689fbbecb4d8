"""Graph attention over the edges of a batch, all decisions at a time.

Scores of edges are sums of a part of the sender and a part of the receiver, so they are computed per node:
one narrow product. What is left per edge and decision is a softmax over each receiver's few senders, and a
weighted sum, written as one differentiable operation that keeps no messages for its gradient.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from costbench.models.batch.edges import Edges
from costbench.models.execution import runs_compiled
from costbench.models.kernels.fused import Pass, run_passes
from costbench.models.kernels.gat.forward import NEGATIVE_SLOPE
from costbench.models.kernels.gat.hops import GatPass, attended, attention_pairs
from costbench.models.kernels.gat.pairs import Pairs
from costbench.models.net_spec import NetSpec
from costbench.models.networks.layers import gather_sum

Whom = list["Attention"] | Pairs
"""Who attends to whom: way by way, or as compiled passes read it."""


@dataclass(frozen=True, eq=False)
class Attention:
    """Who attends to whom: E pairs along edges, in order of `receiver`, then every one of N nodes to itself.

    Attributes:
        receiver: int64 [E + N], the node that attends.
        sender: int64 [E + N], the node it attends to.
        by_receiver: int64 [E + N], pairs in order of receiver.
        starts: int64 [N], where each receiver starts in `by_receiver`.
    """

    receiver: Tensor
    sender: Tensor
    by_receiver: Tensor
    starts: Tensor

    @staticmethod
    def build(edges: Edges, backwards: bool | None) -> Attention:
        """Attention to producers (`backwards` False), to consumers (True) or to both (None)."""
        receiver, sender = edges.receiver, edges.sender
        if backwards is not None:
            kept = edges.backwards == backwards
            receiver, sender = receiver[kept], sender[kept]
        own = torch.arange(edges.num_nodes, device=receiver.device)
        receiver = torch.cat([receiver, own])
        ordered, by_receiver = torch.sort(receiver, stable=True)
        return Attention(receiver, torch.cat([sender, own]), by_receiver, torch.searchsorted(ordered, own))


class Gat(nn.Module):
    """`encoder_layers` GAT hops, each over producers and consumers apart (directed), or together."""

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.spec = spec
        self.hops = nn.ModuleList(GatHop(spec) for _ in range(spec.encoder_layers))

    def forward(self, states: Tensor, edges: Edges) -> Tensor:
        passes = self.passes(states, edges)
        if passes is not None:
            return run_passes(states, passes)
        hops = cast(list[GatHop], list(self.hops))
        if all(hop.runs_compiled(states) for hop in hops):
            return self._one_by_one(states, hops, self._pairs(states, edges))
        ways = [False, True] if self.spec.directed else [None]
        return self._one_by_one(states, hops, [Attention.build(edges, backwards) for backwards in ways])

    def passes(self, states: Tensor, edges: Edges) -> list[Pass] | None:
        """What it does to such states, compiled; None where that is not possible."""
        hops = cast(list[GatHop], list(self.hops))
        if self.spec.l2_normalize or not all(hop.is_plain() and hop.runs_compiled(states) for hop in hops):
            return None
        return [GatPass(attention_parameters(hops), len(hops), self._pairs(states, edges))]

    def _pairs(self, states: Tensor, edges: Edges) -> Pairs:
        return attention_pairs(edges, states.shape[1], directed=self.spec.directed)

    def _one_by_one(self, states: Tensor, hops: Iterable[GatHop], whom: Whom) -> Tensor:
        for hop in hops:
            states = hop(states, whom)
            if self.spec.l2_normalize:
                states = nn.functional.normalize(states, dim=-1)
        return states


class GatHop(nn.Module):
    """relu(sum over ways of attention over that way's neighbours), then `module_layers` feed-forward layers.

    Shape: [N, C, hidden] kept.
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.ways = nn.ModuleList(GatAttention(spec) for _ in range(2 if spec.directed else 1))
        self.more = nn.ModuleList(
            nn.Linear(spec.hidden, spec.hidden, bias=spec.biases) for _ in range(spec.module_layers)
        )
        self.dropout = nn.Dropout(spec.dropout)
        self._unbiased = not spec.biases

    def forward(self, states: Tensor, whom: Whom) -> Tensor:
        heard: Tensor = self.dropout(self._attended(states, whom))
        for layer in self.more:
            heard = self.dropout(torch.relu_(layer(heard)))
        return heard

    def runs_compiled(self, states: Tensor) -> bool:
        """Whether its attention goes through compiled passes."""
        return self._unbiased and runs_compiled(states, *attention_parameters([self]))

    def is_plain(self) -> bool:
        """Whether it is nothing but attention."""
        return not self.more and not (self.training and self.dropout.p > 0.0)

    def _attended(self, states: Tensor, whom: Whom) -> Tensor:
        if isinstance(whom, Pairs):
            return attended(states, attention_parameters([self]), 1, whom)
        heard: Tensor = self.ways[0](states, whom[0])
        for way, attention in zip(self.ways[1:], whom[1:], strict=True):
            heard = heard + way(states, attention)
        return torch.relu(heard)


class GatAttention(nn.Module):
    """out_i = concat over heads of sum_j alpha_ij W x_j, alpha_i the softmax over the senders j of i, i among
    them, of leaky_relu(s . W x_j + r . W x_i) (Veličković et al., 2018; the function of PyG's `GATConv`).

    Shape: [N, C, hidden] kept.
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.heads = spec.gat_heads
        self.values = nn.Linear(spec.hidden, spec.hidden, bias=spec.biases)
        self.attend_sender = nn.Parameter(torch.empty(self.heads, spec.hidden // self.heads))
        self.attend_receiver = nn.Parameter(torch.empty(self.heads, spec.hidden // self.heads))

    def forward(self, states: Tensor, attention: Attention) -> Tensor:
        values = self.values(states).unflatten(-1, (self.heads, -1))
        scores = nn.functional.linear(states, self.score_weights())
        of_sender, of_receiver = scores.chunk(2, dim=-1)
        paired = of_sender.index_select(0, attention.sender)
        paired = paired + of_receiver.index_select(0, attention.receiver)
        weights = softmax_of_receivers(nn.functional.leaky_relu(paired, NEGATIVE_SLOPE), attention)
        return weighted_sum(values, weights.to(values.dtype), attention).flatten(-2)

    def score_weights(self) -> Tensor:
        """What a state is multiplied with for its scores [2 heads, hidden]: as sender, then as receiver."""
        per_head = self.values.weight.view(self.heads, -1, self.values.weight.shape[1])
        asks = torch.stack([self.attend_sender, self.attend_receiver])
        weights: Tensor = torch.einsum("whd,hdi->whi", asks, per_head).flatten(0, 1)
        return weights


def attention_parameters(hops: Iterable[GatHop]) -> list[Tensor]:
    """Those of each way of each hop, as `gat_hops.attended` takes them."""
    ways = [cast(GatAttention, way) for hop in hops for way in hop.ways]
    asks = (ask for way in ways for ask in (way.attend_sender, way.attend_receiver))
    return [*(way.values.weight for way in ways), *asks]


def softmax_of_receivers(scores: Tensor, attention: Attention) -> Tensor:
    """exp(score) over the sum of those of the same receiver. Shape: [E + N, C, heads] kept."""
    flat, num_nodes = scores.flatten(1), len(attention.starts)
    with torch.no_grad():
        bags = attention.by_receiver, flat.detach(), attention.starts
        largest = nn.functional.embedding_bag(*bags, mode="max")
    powers = torch.exp(flat - largest.index_select(0, attention.receiver))
    totals = gather_sum(powers, attention.receiver, num_nodes)
    return (powers / totals.index_select(0, attention.receiver)).view_as(scores)


def weighted_sum(values: Tensor, weights: Tensor, attention: Attention) -> Tensor:
    """out_i = sum over senders j of i of weights_ij values_j.

    Shape: values [N, C, heads, d] and weights [E + N, C, heads] to [N, C, heads, d].
    """
    result = _WeightedSum.apply(values, weights, attention)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, weights: Tensor, attention: Attention) -> Tensor:
        ctx.save_for_backward(values, weights)
        ctx.attention = attention
        receiver, sender = _along_edges(attention, len(values))
        along, own = torch.split(weights.unsqueeze(-1), [len(sender), len(values)])
        told = values.index_select(0, sender).mul_(along)
        summed: Tensor = values * own
        return summed.index_add_(0, receiver, told)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        values, weights = ctx.saved_tensors
        receiver, sender = _along_edges(ctx.attention, len(values))
        along, own = torch.split(weights.unsqueeze(-1), [len(sender), len(values)])
        received = gradient.index_select(0, receiver)
        d_along = torch.linalg.vecdot(received, values.index_select(0, sender))
        d_values = (gradient * own).index_add_(0, sender, received.mul_(along))
        return d_values, torch.cat([d_along, torch.linalg.vecdot(gradient, values)]), None


def _along_edges(attention: Attention, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Receiver and sender of the pairs that are no node's with itself."""
    return attention.receiver[:-num_nodes], attention.sender[:-num_nodes]
