"""Graph attention over the edges of a batch, all decisions at a time.

Scores of edges are sums of a part of the sender and a part of the receiver, so they are computed per node:
one narrow product. What is left per edge and decision is a softmax over each receiver's few senders, and a
weighted sum, written as one differentiable operation that keeps no messages for its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from costbench.compiled_tiles import NARROW
from costbench.models.edges import Edges
from costbench.models.execution import runs_compiled
from costbench.models.gat_passes import (
    NEGATIVE_SLOPE,
    GatGradients,
    GatMatrices,
    GatStates,
    Pairs,
    gat_backward,
    gat_forward,
)
from costbench.models.layers import gather_sum
from costbench.models.net_spec import NetSpec

Made = TypeVar("Made")


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
        ways = [False, True] if self.spec.directed else [None]
        attentions = [Attention.build(edges, backwards) for backwards in ways]
        for hop in self.hops:
            states = hop(states, attentions)
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
        self._plain = not spec.biases

    def forward(self, states: Tensor, attentions: list[Attention]) -> Tensor:
        heard: Tensor = self.dropout(self._attended(states, attentions))
        for layer in self.more:
            heard = self.dropout(torch.relu_(layer(heard)))
        return heard

    def _attended(self, states: Tensor, attentions: list[Attention]) -> Tensor:
        if self._plain and runs_compiled(states, *self.parameters()):
            ways = cast(list[GatAttention], list(self.ways))
            values = torch.stack([way.values.weight for way in ways])
            scores = torch.cat([way.score_weights() for way in ways])
            heads = scores.shape[0] // (2 * len(self.ways))
            missing = -len(scores) % NARROW
            scores = nn.functional.pad(scores, (0, 0, 0, missing))
            result = _CompiledHop.apply(  # type: ignore[no-untyped-call]
                states.contiguous(), values, scores, heads, joined_pairs(attentions)
            )
            return cast(Tensor, result)
        heard: Tensor = self.ways[0](states, attentions[0])
        for way, attention in zip(self.ways[1:], attentions[1:], strict=True):
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


def joined_pairs(attentions: list[Attention]) -> Pairs:
    """All ways one after another, for compiled passes."""
    starts, senders = [], []
    count = 0
    for attention in attentions:
        starts.append(attention.starts + count)
        senders.append(attention.sender[attention.by_receiver])
        count += len(attention.sender)
    starts.append(torch.tensor([count]))
    return Pairs(torch.cat(starts).numpy(), torch.cat(senders).numpy())


class _CompiledHop(torch.autograd.Function):
    """relu of the ways' attention, added up, by `gat_passes`.

    Shape: states [N, C, H], values [ways, H, H], scores [S, H] to [N, C, H].
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, values: Tensor, scores: Tensor, heads: int, pairs: Pairs) -> Tensor:
        rows, (num_nodes, configs, width) = states.flatten(0, 1), states.shape
        shapes = (
            (len(values), len(rows), width),
            (2 * len(values), num_nodes, configs * heads),
            (len(pairs.senders), configs * heads),
            (len(rows), width),
        )
        tensors = rows, *(rows.new_empty(shape) for shape in shapes)
        spread = torch.eye(heads).repeat_interleave(width // heads, dim=1)
        weights = values.transpose(1, 2).contiguous(), scores.t().contiguous()
        gat_forward(_arrays(GatStates, tensors), _arrays(GatMatrices, weights), pairs, spread.numpy())
        ctx.save_for_backward(*tensors, values, scores)
        ctx.spread, ctx.pairs, ctx.shape = spread, pairs, states.shape
        return tensors[-1].view(states.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, values, scores = ctx.saved_tensors
        gather = nn.functional.pad(ctx.spread, (0, 0, 0, -len(ctx.spread) % NARROW)).t().contiguous()
        d_states, d_matrices = (
            torch.empty_like(tensors[0]),
            (torch.zeros_like(values), torch.zeros_like(scores)),
        )
        d_values, d_scores = (torch.zeros_like(tensor) for tensor in tensors[1:3])
        gat_backward(
            gradient.reshape(d_states.shape).contiguous().numpy(),
            _arrays(GatStates, tensors),
            _arrays(GatMatrices, (values, scores)),
            ctx.pairs,
            gather.numpy(),
            GatGradients(
                d_states.numpy(), d_values.numpy(), d_scores.numpy(), _arrays(GatMatrices, d_matrices)
            ),
        )
        return d_states.view(ctx.shape), *d_matrices, None, None


def _arrays(kind: Callable[..., Made], tensors: Iterable[Tensor]) -> Made:
    return kind(*(tensor.numpy() for tensor in tensors))


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
