"""Graph attention (GAT) as a fused kernel, and the steps that compute `networks.gat.Gat` with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from torch import Tensor, nn

from costbench.arrays import F32
from costbench.models.edges import Edges
from costbench.models.networks.gat import Gat, GatAttention, GatHop
from costbench.models.networks.layers import apply_layers
from costbench_kernels.gat import GatGradients, Pairs, allocate_states, build_pairs, gat_backward, gat_forward
from costbench_kernels.gemm import BLOCK_ROWS, aligned, aligned_zeros, transpose_all
from costbench_kernels.layers import is_dropout_active
from costbench_kernels.steps import FusedKernel, Step, as_array


def attention_pairs(edges: Edges, configs: int, *, directed: bool) -> Pairs:
    """Returns the pairs of attention, in groups of at least `BLOCK_ROWS` rows (nodes times configs).

    Directed, attention to producers and to consumers are two edge types; otherwise one type has both.
    """
    return build_pairs(
        edges.receiver.numpy(),
        edges.sender.numpy(),
        edges.backwards.numpy(),
        edges.num_nodes,
        2 if directed else 1,
        -(-BLOCK_ROWS // configs),
    )


class GatKernel(FusedKernel):
    """Consecutive hops, each x = relu(sum over edge types of attention over neighbours of that type).

    Args:
        parameters: W [H, H] of each edge type of each hop, then s and r [heads, H / heads] of each (see
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
        flat = [as_array(parameter).reshape(-1) for parameter in self.weights]
        self._joined = aligned(1, sum(map(len, flat)))[0]
        np.concatenate(flat, out=self._joined)
        matrices, vectors = _split(self._joined, self._hops, width)
        stored_hops = self._hops if keep else 1
        self._computed = allocate_states(self._hops, stored_hops, len(self._rows), width, heads, self._pairs)
        gat_forward(self._rows, transpose_all(matrices), vectors, self._pairs, self._computed)
        last: F32 = self._computed.updated[-1].reshape(states.shape)
        return last

    def backward(self, gradient: F32) -> tuple[F32, list[F32]]:
        """See `steps.FusedKernel`."""
        width = self._rows.shape[1]
        d_rows, d_joined = aligned(*self._rows.shape), aligned_zeros(1, self._joined.size)[0]
        gat_backward(
            gradient.reshape(self._rows.shape),
            self._rows,
            *_split(self._joined, self._hops, width),
            self._pairs,
            self._computed,
            GatGradients(d_rows, *_split(d_joined, self._hops, width)),
        )
        parts = np.split(d_joined, np.cumsum([parameter.numel() for parameter in self.weights])[:-1])
        d_weights = [part.reshape(weight.shape) for part, weight in zip(parts, self.weights, strict=True)]
        return d_rows.reshape(gradient.shape), d_weights


def _split(joined: F32, hops: int, width: int) -> tuple[F32, F32]:
    """Returns views of matrices [L, edge_types H, H] and vectors [L, 2 edge_types, H] in one flat array."""
    edge_types = len(joined) // (hops * width * (width + 2))
    matrices, vectors = np.split(joined, [hops * edge_types * width * width])
    return matrices.reshape(hops, edge_types * width, width), vectors.reshape(hops, 2 * edge_types, width)


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
    """Returns the parameters of each hop in the order in which `GatKernel` takes them."""
    attentions = [cast(GatAttention, attention) for hop in hops for attention in hop.ways]
    vectors = (
        vector for attention in attentions for vector in (attention.attend_sender, attention.attend_receiver)
    )
    return [*(attention.values.weight for attention in attentions), *vectors]


def _has_more(hop: GatHop) -> bool:
    return bool(len(hop.more)) or is_dropout_active(hop.dropout)


class _RestOfHop:
    """Computes what follows attention in a hop, by torch: dropout and module layers."""

    def __init__(self, hop: GatHop) -> None:
        self._hop = hop

    def __call__(self, states: Tensor) -> Tensor:
        hop = self._hop
        return apply_layers(hop.dropout(states), hop.more, hop.dropout)
