"""Fused backward kernel of graph attention: gradients of `gat.forward.gat_forward`.

Loop order: groups of nodes, then hops from last to first. Per hop and group: a pass over receivers gives the
gradients of the softmax weights and of the scores of pairs and receivers; a pass over senders adds these up
per sender and gives the gradients of the values V x; matrix products give those of V and of the hop's input.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import F32, I64
from costbench.execution.compiled import compiled
from costbench.models.kernels.feed_forward import aligned, mask
from costbench.models.kernels.gat.forward import GatStates, row_places
from costbench.models.kernels.gat.pairs import Pairs, sizes
from costbench.models.kernels.gat.sums import Shape, ask_gradients, head_dots, value_gradients
from costbench.models.kernels.gemm import BLOCK_ROWS, add_gradient, product, product_masked
from costbench.models.networks.constants import NEGATIVE_SLOPE

_SLOPE, _ZERO = np.float32(NEGATIVE_SLOPE), np.float32(0.0)


@compiled
def _softmax_gradient(weights: F32, d: F32, total: F32) -> None:
    """Backpropagate through the softmax of one slot: d_p becomes a_p (d_p - sum over q of a_q d_q).

    Shape: weights a and d [pairs, W]; total [W] is scratch.
    """
    total[:] = 0.0
    for p in range(len(weights)):
        a, came = weights[p], d[p]
        for w in range(len(total)):
            total[w] += a[w] * came[w]
    for p in range(len(weights)):
        a, came = weights[p], d[p]
        for w in range(len(total)):
            came[w] = a[w] * (came[w] - total[w])


@compiled
def _rectifier_gradient(scores: F32, slot: tuple[int, int], senders: I64, d: F32, total: F32) -> None:
    """Backpropagate through the leaky ReLU of one slot: d [pairs, W] is overwritten.

    `total` [W] becomes the sum over the pairs, which is the gradient of the receiver's score.
    """
    node, way = slot
    of_receiver = scores[2 * way + 1, node]
    total[:] = 0.0
    for p in range(len(senders)):
        of_sender, came = scores[2 * way, senders[p]], d[p]
        for w in range(len(total)):
            came[w] = came[w] if of_receiver[w] + of_sender[w] > _ZERO else _SLOPE * came[w]
        for w in range(len(total)):
            total[w] += came[w]


class GatGradients(NamedTuple):
    """Gradients of states [N C, H], matrices [L, ways H, H] ([outputs, inputs]), and attention vectors (asks)
    [L, 2 ways, H]. The latter two are added to.
    """

    states: F32
    matrices: F32
    asks: F32


class _Found(NamedTuple):
    """Workspace of a group of n nodes: gradients of the hop's output [n C, H], of the scores of pairs
    [pairs, W], of the scores of senders and receivers [n, ways, 2, W], and of the values [n C, ways H].
    """

    updated: F32
    pairs: F32
    scores: F32
    projected: F32


@compiled
def _room(pairs: Pairs, shape: Shape) -> _Found:
    """Allocate a workspace that is large enough for every group."""
    configs, heads, depth = shape
    ways = sizes(pairs)[1]
    most_nodes, most_pairs = 0, 0
    for group in range(len(pairs.groups) - 1):
        first, end = pairs.groups[group], pairs.groups[group + 1]
        most_nodes = max(most_nodes, end - first)
        most_pairs = max(most_pairs, pairs.starts[end * ways] - pairs.starts[first * ways])
    return _Found(
        aligned(most_nodes * configs, heads * depth),
        aligned(most_pairs, configs * heads),
        aligned(most_nodes * 2 * ways, configs * heads).reshape(most_nodes, ways, 2, configs * heads),
        aligned(most_nodes * configs, ways * heads * depth),
    )


@compiled
def _through_receivers(
    pairs: Pairs, hop: GatStates, row_at: I64, nodes: tuple[int, int], shape: Shape, found: _Found
) -> None:
    """Backpropagate from the output of a hop to the scores of pairs and of receivers.

    Args:
        pairs: senders and receivers of attention.
        hop: one hop of what `gat_forward` computed.
        row_at: position of the values of each pair's sender in `projected`.
        nodes: the group's first node, and the one after its last.
        shape: C, heads, width of a head.
        found: `pairs` and half of `scores` are written.
    """
    configs, heads, width = shape[0], shape[1], shape[1] * shape[2]
    ways = len(hop.scores) // 2
    base = pairs.starts[nodes[0] * ways]
    flat, projected, d_flat = found.updated.reshape(-1), hop.projected.reshape(-1), found.pairs.reshape(-1)
    for node in range(nodes[0], nodes[1]):
        attended = flat, (node - nodes[0]) * configs * width, width
        for way in range(ways):
            begin, end = pairs.starts[node * ways + way], pairs.starts[node * ways + way + 1]
            d, of_receiver = found.pairs[begin - base : end - base], found.scores[node - nodes[0], way, 1]
            if end == begin + 1:
                # A single sender has weight 1 whatever its score is.
                d[:] = 0.0
                of_receiver[:] = 0.0
                continue
            for pair in range(begin, end):
                values = projected, row_at[pair], ways * width
                out = d_flat, (pair - base) * configs * heads
                head_dots(attended, values, out, shape)
            _softmax_gradient(hop.weights[begin:end], d, of_receiver)
            _rectifier_gradient(hop.scores, (node, way), pairs.senders[begin:end], d, of_receiver)


@compiled
def _through_senders(
    pairs: Pairs,
    hop: GatStates,
    asks: tuple[F32, F32],
    places: tuple[I64, I64],
    nodes: tuple[int, int],
    found: _Found,
) -> None:
    """Backpropagate from the scores of pairs to those of senders, and from all scores to values and asks.

    Args:
        pairs: senders and receivers of attention.
        hop: one hop of what `gat_forward` computed.
        asks: attention vectors of the hop [2 ways, H] and their gradients, which are added to.
        places: for each entry of `by_sender_pairs` the position of the pair's weights, and that of its
            receiver's rows within the group.
        nodes: the group's first node, and the one after its last.
        found: `projected` and the other half of `scores` are written.
    """
    ways, width = len(hop.scores) // 2, hop.updated.shape[1]
    configs = len(hop.updated) // hop.scores.shape[1]
    heads = hop.scores.shape[2] // configs
    shape = configs, heads, width // heads
    base = pairs.starts[nodes[0] * ways]
    weights, rows, projected = hop.weights.reshape(-1), found.updated.reshape(-1), hop.projected.reshape(-1)
    vectors, d_vectors, d_projected = asks[0].reshape(-1), asks[1].reshape(-1), found.projected.reshape(-1)
    for node in range(nodes[0], nodes[1]):
        place = node - nodes[0]
        for way in range(ways):
            own_slot = node * ways + way
            begin, end = pairs.by_sender_starts[own_slot], pairs.by_sender_starts[own_slot + 1]
            d_scores = found.scores[place, way]
            _sum_of(found.pairs, pairs.by_sender_pairs[begin:end], base, d_scores[0])
            of_both, terms = d_scores.reshape(-1), (places[0], places[1], begin, end)
            out = d_projected, place * configs * ways * width + way * width, ways * width
            value_gradients(terms, weights, (rows, width), (of_both, vectors, 2 * way), out, shape)
            values = projected, node * configs * ways * width + way * width, ways * width
            ask_gradients(of_both, values, (d_vectors, 2 * way * width), shape)


@compiled
def _sum_of(table: F32, rows: I64, base: int, out: F32) -> None:
    """Write the sum of some rows of a table whose first row has number `base`."""
    out[:] = table[rows[0] - base]
    for place in range(1, len(rows)):
        row = table[rows[place] - base]
        for w in range(len(out)):
            out[w] += row[w]


@compiled
def gat_backward(
    gradient: F32,
    states: F32,
    weights: tuple[F32, F32],
    pairs: Pairs,
    gat: GatStates,
    found: GatGradients,
) -> None:
    """Write the gradients of `gat_forward` to `found`.

    Args:
        gradient: of the last hop's output, [N C, H].
        states: x^0, [N C, H].
        weights: V, [L, ways H, H] ([outputs, inputs]), and attention vectors, [L, 2 ways, H].
        pairs: senders and receivers of attention.
        gat: what `gat_forward` computed, with all hops kept.
        found: its states are written, its matrices and asks are added to.
    """
    hops, rows, width = gat.updated.shape
    num_nodes, ways = sizes(pairs)
    configs = rows // num_nodes
    heads = gat.weights.shape[2] // configs
    shape = configs, heads, width // heads
    row_at = row_places(pairs.senders, pairs.starts, ways, (configs * ways * width, width))
    weight_at, receiver_at = pairs.by_sender_pairs * (configs * heads), np.empty_like(row_at)
    inner = _room(pairs, shape)
    for number in range(len(pairs.groups) - 1):
        first, end = pairs.groups[number], pairs.groups[number + 1]
        for entry in range(pairs.by_sender_starts[first * ways], pairs.by_sender_starts[end * ways]):
            receiver_at[entry] = (pairs.receivers[entry] - first) * configs * width
        begin, count = first * configs, (end - first) * configs
        mask(gradient, begin, gat.updated[hops - 1], begin, count, inner.updated)
        for hop in range(hops - 1, -1, -1):
            one = GatStates(gat.projected[hop], gat.scores[hop], gat.weights[hop], gat.updated[hop])
            asks = weights[1][hop], found.asks[hop]
            _through_receivers(pairs, one, row_at, (first, end), shape, inner)
            _through_senders(pairs, one, asks, (weight_at, receiver_at), (first, end), inner)
            for row in range(0, count, BLOCK_ROWS):
                block, at, d_projected = min(BLOCK_ROWS, count - row), begin + row, inner.projected[row:]
                if hop:
                    before = gat.updated[hop - 1]
                    product_masked(d_projected, weights[0][hop], inner.updated[row:], block, before, at)
                    add_gradient(d_projected, 0, before, at, block, found.matrices[hop])
                else:
                    product(d_projected, 0, weights[0][0], found.states, at, block)
                    add_gradient(d_projected, 0, states, at, block, found.matrices[0])
