"""Hops of graph attention as one differentiable operation, by `gat_passes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from costbench.models.edges import Edges
from costbench.models.gat_gradients import GatGradients, gat_backward
from costbench.models.gat_pairs import Pairs, pairs_of
from costbench.models.gat_passes import GatStates, gat_forward, gat_states
from costbench.models.layer_passes import BLOCK_ROWS


def attention_pairs(edges: Edges, configs: int, *, directed: bool) -> Pairs:
    """Attention to producers and to consumers apart (directed), or together, of so many decisions a node."""
    return pairs_of(
        edges.receiver.numpy(),
        edges.sender.numpy(),
        edges.backwards.numpy(),
        edges.num_nodes,
        2 if directed else 1,
        -(-BLOCK_ROWS // configs),
    )


def attended(states: Tensor, parameters: Sequence[Tensor], hops: int, pairs: Pairs) -> Tensor:
    """Hops one after another: x becomes relu(sum over ways of attention over that way's neighbours).

    Args:
        states: [N, C, H].
        parameters: W [H, H] of each way of each hop, then s and r [heads, H / heads] of each (see
            `gat.GatAttention`).
        hops: their number.
        pairs: who attends to whom.

    Shape: [N, C, H] kept.
    """
    states = states.contiguous()
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (states, *parameters)):
        result = _Attended.apply(states, hops, pairs, *parameters)  # type: ignore[no-untyped-call]
        return cast(Tensor, result)
    gat = _computed(states, _joined(parameters), (hops, 1, len(parameters[-1])), pairs)
    return torch.from_numpy(gat.updated[-1].reshape(states.shape))


def _joined(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([parameter.detach().view(-1) for parameter in parameters])


def _computed(states: Tensor, joined: Tensor, counts: tuple[int, int, int], pairs: Pairs) -> GatStates:
    """By so many hops, keeping so many, of so many heads."""
    (hops, kept, heads), width = counts, states.shape[-1]
    matrices, asks = _split(joined, hops, width)
    rows = states.detach().view(-1, width)
    gat = gat_states(hops, kept, len(rows), width, heads, pairs)
    inputs_first = matrices.transpose(1, 2).contiguous()
    gat_forward(rows.numpy(), inputs_first.numpy(), asks.numpy(), pairs, gat)
    return gat


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, hops: int, pairs: Pairs, *parameters: Tensor) -> Tensor:
        ctx.joined, ctx.pairs = _joined(parameters), pairs
        ctx.shapes = [parameter.shape for parameter in parameters]
        ctx.gat = _computed(states, ctx.joined, (hops, hops, len(parameters[-1])), pairs)
        updated = torch.from_numpy(ctx.gat.updated[-1].reshape(states.shape))
        # These two may be changed by others, which torch notices.
        ctx.save_for_backward(states, updated)
        return updated

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, _ = ctx.saved_tensors
        width, hops = states.shape[-1], len(ctx.gat.updated)
        d_states, d_joined = torch.empty_like(states), torch.zeros_like(ctx.joined)
        matrices, asks = _split(ctx.joined, hops, width)
        d_matrices, d_asks = _split(d_joined, hops, width)
        gat_backward(
            gradient.contiguous().view(-1, width).numpy(),
            states.detach().view(-1, width).numpy(),
            (matrices.numpy(), asks.numpy()),
            ctx.pairs,
            ctx.gat,
            GatGradients(d_states.view(-1, width).numpy(), d_matrices.numpy(), d_asks.numpy()),
        )
        parts = torch.split(d_joined, [shape.numel() for shape in ctx.shapes])
        found = (part.view(shape) for part, shape in zip(parts, ctx.shapes, strict=True))
        return d_states, None, None, *found


def _split(joined: Tensor, hops: int, width: int) -> tuple[Tensor, Tensor]:
    """Matrices [L, ways H, H] and asks [L, 2 ways, H], which lie one after another."""
    ways = len(joined) // (hops * width * (width + 2))
    matrices, asks = torch.split(joined, [hops * ways * width * width, hops * ways * 2 * width])
    return matrices.view(hops, ways * width, width), asks.view(hops, 2 * ways, width)
