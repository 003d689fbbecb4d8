"""Graph attention (GAT) as a fused kernel, and the steps that compute `networks.gat.Gat` with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from torch import Tensor, nn

from costbench.arrays import F32
from costbench.models.batch.edges import Edges
from costbench.models.kernels.feed_forward import aligned, aligned_zeros, turned_all
from costbench.models.kernels.gat.backward import GatGradients, gat_backward
from costbench.models.kernels.gat.forward import gat_forward, gat_states
from costbench.models.kernels.gat.pairs import Pairs, pairs_of
from costbench.models.kernels.gemm import BLOCK_ROWS
from costbench.models.kernels.layer_kernels import drops
from costbench.models.kernels.steps import FusedKernel, Step, array_of
from costbench.models.networks.gat import Gat, GatAttention, GatHop
from costbench.models.networks.layers import apply_layers


def attention_pairs(edges: Edges, configs: int, *, directed: bool) -> Pairs:
    """Returns the pairs of attention, in groups of at least `BLOCK_ROWS` rows (nodes times configs).

    Directed, attention to producers and to consumers are two ways; otherwise one way has both.
    """
    return pairs_of(
        edges.receiver.numpy(),
        edges.sender.numpy(),
        edges.backwards.numpy(),
        edges.num_nodes,
        2 if directed else 1,
        -(-BLOCK_ROWS // configs),
    )


class GatKernel(FusedKernel):
    """Consecutive hops, each x = relu(sum over ways of attention over that way's neighbours).

    Args:
        parameters: W [H, H] of each way of each hop, then s and r [heads, H / heads] of each (see
            `gat.GatAttention`).
        hops: number of hops.
        pairs: senders and receivers of attention.

    Shape: [N, C, H] kept.
    """

    weights: Sequence[Tensor]

    def __init__(self, parameters: Sequence[Tensor], hops: int, pairs: Pairs) -> None:
        self.weights = parameters
        self._hops = hops
        self._pairs = pairs

    def forward(self, states: F32, keep: bool) -> F32:
        """See `steps.FusedKernel`."""
        width, heads = states.shape[2], len(self.weights[-1])
        self._rows = states.reshape(-1, width)
        numbers = [array_of(parameter).reshape(-1) for parameter in self.weights]
        self._joined = aligned(1, sum(map(len, numbers)))[0]
        np.concatenate(numbers, out=self._joined)
        matrices, asks = _split(self._joined, self._hops, width)
        inputs_first = turned_all(matrices)
        kept = self._hops if keep else 1
        self._computed = gat_states(self._hops, kept, len(self._rows), width, heads, self._pairs)
        gat_forward(self._rows, inputs_first, asks, self._pairs, self._computed)
        last: F32 = self._computed.updated[-1].reshape(states.shape)
        return last

    def backward(self, gradient: F32) -> tuple[F32, list[F32]]:
        """See `steps.FusedKernel`."""
        width = self._rows.shape[1]
        d_rows, d_joined = aligned(*self._rows.shape), aligned_zeros(1, self._joined.size)[0]
        gat_backward(
            gradient.reshape(self._rows.shape),
            self._rows,
            _split(self._joined, self._hops, width),
            self._pairs,
            self._computed,
            GatGradients(d_rows, *_split(d_joined, self._hops, width)),
        )
        parts = np.split(d_joined, np.cumsum([parameter.numel() for parameter in self.weights])[:-1])
        found = [part.reshape(parameter.shape) for part, parameter in zip(parts, self.weights, strict=True)]
        return d_rows.reshape(gradient.shape), found


def _split(joined: F32, hops: int, width: int) -> tuple[F32, F32]:
    """Returns views of matrices [L, ways H, H] and attention vectors [L, 2 ways, H] in one flat array."""
    ways = len(joined) // (hops * width * (width + 2))
    matrices, asks = np.split(joined, [hops * ways * width * width])
    return matrices.reshape(hops, ways * width, width), asks.reshape(hops, 2 * ways, width)


def gat_steps(gat: Gat, edges: Edges, configs: int) -> list[Step]:
    """Returns the steps of GAT hops without biases over states [N, configs, H] of a batch.

    All hops are one kernel, unless a hop has module layers or active dropout, or l2 normalisation follows
    each.
    """
    pairs = attention_pairs(edges, configs, directed=gat.spec.directed)
    hops = [cast(GatHop, hop) for hop in gat.hops]
    if not gat.spec.l2_normalize and not any(_has_more(hop) for hop in hops):
        return [GatKernel(attention_parameters(hops), len(hops), pairs)]
    steps: list[Step] = []
    for hop in hops:
        steps.append(GatKernel(attention_parameters([hop]), 1, pairs))
        if _has_more(hop):
            steps.append(_RestOfHop(hop))
        if gat.spec.l2_normalize:
            steps.append(lambda states: nn.functional.normalize(states, dim=-1))
    return steps


def attention_parameters(hops: Iterable[GatHop]) -> list[Tensor]:
    """Returns the parameters of the ways of each hop in the order in which `GatKernel` takes them."""
    ways = [cast(GatAttention, way) for hop in hops for way in hop.ways]
    queries = (query for way in ways for query in (way.attend_sender, way.attend_receiver))
    return [*(way.values.weight for way in ways), *queries]


def _has_more(hop: GatHop) -> bool:
    return bool(len(hop.more)) or drops(hop.dropout)


class _RestOfHop:
    """Computes what follows attention in a hop, by torch: dropout and module layers."""

    def __init__(self, hop: GatHop) -> None:
        self._hop = hop

    def __call__(self, states: Tensor) -> Tensor:
        hop = self._hop
        return apply_layers(hop.dropout(states), hop.more, hop.dropout)
