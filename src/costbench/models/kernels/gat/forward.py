"""Fused forward kernel of graph attention (GAT): all hops of a network in one call.

Loop order: groups of nodes that no edge leaves, then hops, so that a hop's output is still in a cache when
the next hop reads it. Per hop and group: one matrix product gives the values V x of all ways, dot products of
these give the scores, then the softmax over each node's senders, then the weighted sums, which stay in
registers. States
[N, C, H] are read as a matrix [N C, H]. For ways, slots and pairs see `gat.pairs`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import F32, I64
from costbench.execution.compiled import compiled, compiled_inline, compiled_step
from costbench.models.kernels.feed_forward import aligned
from costbench.models.kernels.gat.pairs import Pairs, sizes
from costbench.models.kernels.gat.sums import head_dots, relu_sums
from costbench.models.kernels.gemm import BLOCK_ROWS, product
from costbench.models.networks.constants import NEGATIVE_SLOPE

_SLOPE, _ZERO, _HALF = np.float32(NEGATIVE_SLOPE), np.float32(0.0), np.float32(0.5)
# exp(_LEAST) is still a normal number in single precision. ln 2 is split in two (Cody and Waite), so that n
# ln 2 is subtracted without cancellation. _E2 to _E6 are the Taylor coefficients of exp: with |r| <= ln 2 / 2
# the first term left out, r^7 / 7!, is at most 1.2e-7, about the spacing of float32 at 1.
_LEAST, _LOG2E = np.float32(-87.0), np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_E2, _E3, _E4, _E5, _E6 = (np.float32(1.0 / factorial) for factorial in (2, 6, 24, 120, 720))
_ONE, _EXPONENT_OF_ONE = np.float32(1.0), np.int32(127)
_EXPONENTS = 1024


class GatStates(NamedTuple):
    """The results of L hops. Without gradients only `updated` has all hops; each hop overwrites the others.

    Attributes:
        projected: [L, N C, ways H], values V x of each way.
        scores: [L, 2 ways, N, C heads], of each node as sender and as receiver of the first way, then of the
            second.
        weights: [L, P, C heads], softmax weights of the pairs.
        updated: [L, N C, H], output of each hop.
    """

    projected: F32
    scores: F32
    weights: F32
    updated: F32


@compiled
def gat_states(hops: int, kept: int, rows: int, width: int, heads: int, pairs: Pairs) -> GatStates:
    """Allocate buffers for `gat_forward`; `kept` is the number of hops, or 1 without gradients."""
    num_nodes, ways = sizes(pairs)
    projected, scored = ways * width, rows // num_nodes * heads
    return GatStates(
        aligned(kept * rows, projected).reshape(kept, rows, projected),
        aligned(kept * num_nodes * 2 * ways, scored).reshape(kept, 2 * ways, num_nodes, scored),
        aligned(kept * len(pairs.senders), scored).reshape(kept, len(pairs.senders), scored),
        aligned(hops * rows, width).reshape(hops, rows, width),
    )


@compiled_inline
def _leaky(score: np.float32) -> np.float32:
    return score if score > _ZERO else _SLOPE * score


@compiled
def _subtract_largest(scores: F32, slot: tuple[int, int], senders: I64, out: F32, largest: F32) -> None:
    """out_p = x_p - max over p of x_p, x_p = leaky_relu(r + s_p): the arguments of one slot's softmax.

    r and s_p are the scores of the receiver and of sender p. Subtracting the maximum keeps exp from
    overflowing.

    Shape: scores [2 ways, N, W], out [pairs of the slot, W], largest [W], W = C heads. The slot is a node and
        a way.
    """
    node, way = slot
    of_receiver = scores[2 * way + 1, node]
    largest[:] = -np.inf
    for p in range(len(senders)):
        of_sender, score = scores[2 * way, senders[p]], out[p]
        for w in range(len(largest)):
            value = _leaky(of_receiver[w] + of_sender[w])
            score[w] = value
            # Written so that a NaN becomes the maximum, and with it all weights of the slot.
            largest[w] = largest[w] if value <= largest[w] else value
    for p in range(len(senders)):
        score = out[p]
        for w in range(len(largest)):
            score[w] -= largest[w]


@compiled
def _exponentials(x: F32, powers: F32) -> None:
    """x = exp(x) in place, for x <= 0; `powers` is scratch of at least the same length."""
    exponents = powers.view(np.int32)
    for w in range(len(x)):
        # exp(x) = 2^n exp(r), r = x - n ln 2. The cast truncates, so for x <= 0 n is x / ln 2 rounded to
        # nearest. 2^n is made by writing n + 127 to the exponent bits; the second loop multiplies by it.
        y = x[w]
        y = _LEAST if y < _LEAST else y
        n = np.int32(y * _LOG2E - _HALF)
        exponents[w] = (n + _EXPONENT_OF_ONE) << 23
        r = y - np.float32(n) * _LN2_HIGH - np.float32(n) * _LN2_LOW
        x[w] = _ONE + r * (_ONE + r * (_E2 + r * (_E3 + r * (_E4 + r * (_E5 + r * _E6)))))
    for w in range(len(x)):
        x[w] *= powers[w]


@compiled
def _to_shares(out: F32, total: F32) -> None:
    """Divide the rows of `out` by their sum, which makes weights of exponentials."""
    total[:] = out[0]
    for p in range(1, len(out)):
        for w in range(len(total)):
            total[w] += out[p, w]
    _divide(out, len(out), total)


@compiled_step
def _divide(out: F32, rows: int, total: F32) -> None:
    for w in range(total.shape[0]):
        total[w] = _ONE / total[w]
    for p in range(rows):
        for w in range(total.shape[0]):
            out[p, w] *= total[w]


@compiled
def _softmax(hop: GatStates, pairs: Pairs, nodes: tuple[int, int], scratch: F32) -> None:
    """Write the softmax weights of all pairs whose receivers are nodes[0] to nodes[1] (exclusive).

    A weight is exp(leaky_relu(r + s)) over the sum of these in its slot. The exponentials of all pairs are
    one loop, since those of a single pair are few if there are few decisions. Shape: scratch [C heads].
    """
    ways = len(hop.scores) // 2
    for slot in range(nodes[0] * ways, nodes[1] * ways):
        begin, end, place = pairs.starts[slot], pairs.starts[slot + 1], (slot // ways, slot % ways)
        _subtract_largest(hop.scores, place, pairs.senders[begin:end], hop.weights[begin:end], scratch)
    weights, width = hop.weights.reshape(-1), hop.weights.shape[1]
    end = pairs.starts[nodes[1] * ways] * width
    powers = np.empty(_EXPONENTS, np.float32)
    for begin in range(pairs.starts[nodes[0] * ways] * width, end, _EXPONENTS):
        _exponentials(weights[begin : min(begin + _EXPONENTS, end)], powers)
    for slot in range(nodes[0] * ways, nodes[1] * ways):
        begin, end = pairs.starts[slot], pairs.starts[slot + 1]
        # A slot with one pair has exp(0) = 1 already, or a NaN.
        if end > begin + 1:
            _to_shares(hop.weights[begin:end], scratch)


@compiled
def row_places(nodes: I64, starts: I64, ways: int, steps: tuple[int, int]) -> I64:
    """Returns, for each entry of `nodes`, sorted by slot, the position of the values of that node and way.

    Nodes are steps[0] elements apart and ways steps[1].
    """
    places = np.empty_like(nodes)
    for slot in range(len(starts) - 1):
        for place in range(starts[slot], starts[slot + 1]):
            places[place] = nodes[place] * steps[0] + (slot % ways) * steps[1]
    return places


@compiled
def gat_forward(states: F32, matrices: F32, asks: F32, pairs: Pairs, gat: GatStates) -> None:
    """Compute x^(l+1)_i = relu(sum over ways and over senders j of i of a_ij V x^l_j) for all hops l.

    a_i is the softmax of leaky_relu(s . V x_j + r . V x_i) over the senders j of i in a way.

    Args:
        states: x^0, [N C, H].
        matrices: V, [L, H, ways H], [inputs, outputs].
        asks: attention vectors s and r, [L, 2 ways, H], heads side by side.
        pairs: senders and receivers of attention.
        gat: buffers of `gat_states`; all of them are written.
    """
    hops, rows, width = gat.updated.shape
    num_nodes, ways = sizes(pairs)
    configs = rows // num_nodes
    heads = gat.weights.shape[2] // configs
    weight_at = np.arange(len(pairs.senders)) * gat.weights.shape[2]
    row_at = row_places(pairs.senders, pairs.starts, ways, (configs * ways * width, width))
    scratch = np.empty(configs * heads, np.float32)
    for group in range(len(pairs.groups) - 1):
        nodes = pairs.groups[group], pairs.groups[group + 1]
        for hop in range(hops):
            before = gat.updated[hop - 1] if hop else states
            kept = hop % len(gat.projected)
            one = GatStates(gat.projected[kept], gat.scores[kept], gat.weights[kept], gat.updated[hop])
            begin, end = nodes[0] * configs, nodes[1] * configs
            for row in range(begin, end, BLOCK_ROWS):
                count = min(BLOCK_ROWS, end - row)
                product(before, row, matrices[hop], one.projected, row, count)
                _score(one, asks[hop], row, (count, heads, width // heads))
            _softmax(one, pairs, nodes, scratch)
            _attend(one, pairs, (weight_at, row_at), nodes)


@compiled
def _score(hop: GatStates, asks: F32, first: int, shape: tuple[int, int, int]) -> None:
    """Write the scores s . V x and r . V x of rows from `first` on; `shape` is their number, heads, depth."""
    width, row, heads = asks.shape[1], hop.projected.shape[1], shape[1]
    projected, vectors, scores = hop.projected.reshape(-1), asks.reshape(-1), hop.scores.reshape(-1)
    for part in range(len(asks)):
        values = projected, first * row + part // 2 * width, row
        out = scores, (part * len(hop.projected) + first) * heads
        head_dots((vectors, part * width, 0), values, out, shape)


@compiled
def _attend(hop: GatStates, pairs: Pairs, places: tuple[I64, I64], nodes: tuple[int, int]) -> None:
    """Write the outputs of nodes[0] to nodes[1]: the ReLU of the weighted sums of their senders' values.

    `places` are the positions of each pair's weights and of its sender's values.
    """
    ways, width, row = len(hop.scores) // 2, hop.updated.shape[1], hop.projected.shape[1]
    configs = len(hop.updated) // hop.scores.shape[1]
    heads = hop.weights.shape[1] // configs
    weights, projected, out = hop.weights.reshape(-1), hop.projected.reshape(-1), hop.updated.reshape(-1)
    for node in range(nodes[0], nodes[1]):
        terms = places[0], places[1], pairs.starts[node * ways], pairs.starts[node * ways + ways]
        attended = out, node * configs * width, width
        relu_sums(terms, weights, (projected, row), attended, (configs, heads, width // heads))
