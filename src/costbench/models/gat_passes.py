"""A compiled graph attention hop, forward and backward: scores, softmax and weighted sums, node by node.

Rows are those of states [N, C, H] as [N C, H]. What a hop does per pair of nodes, it does for the C decisions
of the receiver at once, while these are in the innermost cache. Heads are spread over the width of a state,
and gathered from it, by narrow products with a matrix of zeros and ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiled import compiled, compiled_inline, compiled_step
from costbench.models.layer_passes import BLOCK_ROWS, aligned, mask
from costbench.models.narrow_products import add_gradient, product, product_add

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

NEGATIVE_SLOPE = 0.2
"""Of the leaky rectifier of scores (Veličković et al., 2018, section 3.3)."""

_SLOPE, _ZERO, _HALF = np.float32(NEGATIVE_SLOPE), np.float32(0.0), np.float32(0.5)
_LEAST, _LOG2E = np.float32(-87.0), np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_E2, _E3, _E4, _E5, _E6 = (np.float32(1.0 / factorial) for factorial in (2, 6, 24, 120, 720))
_ONE, _EXPONENT_OF_ONE = np.float32(1.0), np.int32(127)


class Pairs(NamedTuple):
    """Who attends to whom, one way after another: node i of way w to `senders` from starts[w N + i] on.

    int64 [ways N + 1] and [P]; every node attends to itself, too.
    """

    starts: IntArray
    senders: IntArray


class GatMatrices(NamedTuple):
    """Over states: values [ways, H, H] and scores [H, S], inputs first; for gradients outputs first.

    Columns of scores: heads of a sender, of a receiver, of a sender of the second way, and so on; then zeros
    up to a whole number of tiles.
    """

    values: FloatArray
    scores: FloatArray


class GatStates(NamedTuple):
    """What a hop reads and computes.

    Attributes:
        states: [N C, H].
        values: [ways, N C, H].
        scores: [2 ways, N, C heads], of senders and receivers before they are added.
        weights: [P, C heads], of the softmax.
        updated: [N C, H].
    """

    states: FloatArray
    values: FloatArray
    scores: FloatArray
    weights: FloatArray
    updated: FloatArray


@compiled_inline
def _leaky(score: np.float32) -> np.float32:
    return score if score > _ZERO else _SLOPE * score


@compiled
def _softmax(
    of_receiver: FloatArray, of_sender: FloatArray, senders: IntArray, out: FloatArray, scratch: FloatArray
) -> None:
    """out_p = exp(leaky(r + s_p)) over the sum of these: r [W], s [N, W], out [pairs, W]; scratch [3, W]."""
    largest, total, powers = scratch[0], scratch[1], scratch[2]
    exponents = powers.view(np.int32)
    largest[:] = -np.inf
    total[:] = 0.0
    for p in range(len(senders)):
        told, score = of_sender[senders[p]], out[p]
        for w in range(len(largest)):
            value = _leaky(of_receiver[w] + told[w])
            score[w] = value
            # A NaN stays one.
            largest[w] = largest[w] if value <= largest[w] else value
    for p in range(len(senders)):
        score = out[p]
        for w in range(len(largest)):
            # exp(x) = 2^n exp(x - n ln 2), x <= 0 and n a whole number.
            x = score[w] - largest[w]
            x = _LEAST if x < _LEAST else x
            n = np.int32(x * _LOG2E - _HALF)
            exponents[w] = (n + _EXPONENT_OF_ONE) << 23
            r = x - np.float32(n) * _LN2_HIGH - np.float32(n) * _LN2_LOW
            score[w] = _ONE + r * (_ONE + r * (_E2 + r * (_E3 + r * (_E4 + r * (_E5 + r * _E6)))))
        for w in range(len(largest)):
            score[w] *= powers[w]
            total[w] += score[w]
    _divide(out, len(senders), total)


@compiled_step
def _divide(out: FloatArray, rows: int, total: FloatArray) -> None:
    for w in range(total.shape[0]):
        total[w] = _ONE / total[w]
    for p in range(rows):
        for w in range(total.shape[0]):
            out[p, w] *= total[w]


@compiled
def _split_scores(joined: FloatArray, parts: FloatArray, heads: int) -> None:
    """[rows, S] to [2 ways, rows heads]."""
    for row in range(len(joined)):
        for part in range(len(parts)):
            for head in range(heads):
                parts[part, row * heads + head] = joined[row, part * heads + head]


@compiled
def _join_scores(parts: FloatArray, first: int, joined: FloatArray, rows: int, heads: int) -> None:
    """The inverse of `_split_scores` for rows from `first` on; further columns are left alone."""
    for row in range(rows):
        for part in range(len(parts)):
            for head in range(heads):
                joined[row, part * heads + head] = parts[part, (first + row) * heads + head]


@compiled
def gat_forward(gat: GatStates, weights: GatMatrices, pairs: Pairs, spread: FloatArray) -> None:
    """updated_i = relu(sum over ways and over senders j of i of a_ij V x_j), a_i the softmax of scores.

    Args:
        gat: of which all but the states are written.
        weights: V and the matrix of scores.
        pairs: who attends to whom.
        spread: [heads, H], 1 where a place belongs to a head, else 0.
    """
    heads, width = spread.shape
    ways, rows = gat.values.shape[:2]
    num_nodes = (len(pairs.starts) - 1) // ways
    configs = rows // num_nodes
    joined = aligned(rows, weights.scores.shape[1])
    for first in range(0, rows, BLOCK_ROWS):
        count = min(BLOCK_ROWS, rows - first)
        for way in range(ways):
            product(gat.states, first, weights.values[way], gat.values[way], first, count)
        product(gat.states, first, weights.scores, joined, first, count)
    _split_scores(joined, gat.scores.reshape(2 * ways, rows * heads), heads)
    scratch, wide = aligned(3, configs * heads), aligned(configs, width)
    per_row = gat.weights.reshape(-1, heads)
    for node in range(num_nodes):
        out = gat.updated[node * configs : (node + 1) * configs]
        out[:] = 0.0
        for way in range(ways):
            begin, end = pairs.starts[way * num_nodes + node], pairs.starts[way * num_nodes + node + 1]
            senders = pairs.senders[begin:end]
            parts = gat.scores[2 * way : 2 * way + 2]
            _softmax(parts[1, node], parts[0], senders, gat.weights[begin:end], scratch)
            for place in range(len(senders)):
                product(per_row, (begin + place) * configs, spread, wide, 0, configs)
                _add_times(wide, gat.values[way], senders[place] * configs, out)
        _rectify(out)


@compiled
def _add_times(wide: FloatArray, values: FloatArray, first: int, out: FloatArray) -> None:
    """out += wide * values, the latter from a row on."""
    for c in range(len(wide)):
        weight, value, total = wide[c], values[first + c], out[c]
        for h in range(len(weight)):
            total[h] += weight[h] * value[h]


@compiled
def _rectify(states: FloatArray) -> None:
    for c in range(len(states)):
        row = states[c]
        for h in range(len(row)):
            row[h] = _ZERO if row[h] < _ZERO else row[h]


class GatGradients(NamedTuple):
    """Of what `GatStates` and `GatMatrices` hold, of the same shapes; all but `states` start as zeros."""

    states: FloatArray
    values: FloatArray
    scores: FloatArray
    matrices: GatMatrices


@compiled
def gat_backward(
    gradient: FloatArray,
    gat: GatStates,
    weights: GatMatrices,
    pairs: Pairs,
    gather: FloatArray,
    found: GatGradients,
) -> None:
    """Gradients of `gat_forward`; `gather` [H, tiles] is its `spread`, transposed, then columns of zeros."""
    ways, rows, width = gat.values.shape
    num_nodes = (len(pairs.starts) - 1) // ways
    configs = rows // num_nodes
    heads = gat.weights.shape[1] // configs
    spread = aligned(heads, width)
    spread[:] = gather[:, :heads].T
    block, wide, told = aligned(configs, width), aligned(configs, width), aligned(configs, width)
    gathered = aligned(configs, gather.shape[1])
    per_row = gat.weights.reshape(-1, heads)
    d_weights, total = np.empty_like(gat.weights), np.empty(configs * heads, np.float32)
    for node in range(num_nodes):
        mask(gradient, node * configs, gat.updated, node * configs, configs, block)
        for way in range(ways):
            begin, end = pairs.starts[way * num_nodes + node], pairs.starts[way * num_nodes + node + 1]
            for pair in range(begin, end):
                sender = pairs.senders[pair] * configs
                product(per_row, pair * configs, spread, wide, 0, configs)
                _through_pair(block, gat.values[way], wide, (sender, found.values[way]), told)
                product(told, 0, gather, gathered, 0, configs)
                d_weights[pair] = gathered[:, :heads].copy().reshape(-1)
            senders = pairs.senders[begin:end]
            _softmax_gradient(gat.weights[begin:end], d_weights[begin:end], total)
            _add_scores(gat.scores, found.scores, (way, node), senders, d_weights[begin:end])
    parts = found.scores.reshape(2 * ways, rows * heads)
    joined = np.zeros((BLOCK_ROWS, len(weights.scores)), np.float32)
    for first in range(0, rows, BLOCK_ROWS):
        count = min(BLOCK_ROWS, rows - first)
        _join_scores(parts, first, joined, count, heads)
        product(joined, 0, weights.scores, found.states, first, count)
        add_gradient(joined, 0, gat.states, first, count, found.matrices.scores)
        for way in range(ways):
            product_add(found.values[way], first, weights.values[way], found.states, first, count)
            add_gradient(found.values[way], first, gat.states, first, count, found.matrices.values[way])


@compiled
def _through_pair(
    d: FloatArray, values: FloatArray, wide: FloatArray, to: tuple[int, FloatArray], told: FloatArray
) -> None:
    """told = d * values, and to[1] += d * wide; of values and to[1] rows from to[0] on."""
    for c in range(len(d)):
        came, value, weight, more, product_of = d[c], values[to[0] + c], wide[c], to[1][to[0] + c], told[c]
        for h in range(len(came)):
            product_of[h] = came[h] * value[h]
        for h in range(len(came)):
            more[h] += came[h] * weight[h]


@compiled
def _softmax_gradient(weights: FloatArray, d: FloatArray, total: FloatArray) -> None:
    """d_p becomes a_p (d_p - sum over q of a_q d_q)."""
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
def _add_scores(
    scores: FloatArray, d_scores: FloatArray, place: tuple[int, int], senders: IntArray, d: FloatArray
) -> None:
    """Through the leaky rectifier to the scores of sender and receiver."""
    way, node = place
    of_receiver, d_receiver = scores[2 * way + 1, node], d_scores[2 * way + 1, node]
    for p in range(len(senders)):
        told, d_sender, came = scores[2 * way, senders[p]], d_scores[2 * way, senders[p]], d[p]
        for w in range(len(came)):
            came[w] = came[w] if of_receiver[w] + told[w] > _ZERO else _SLOPE * came[w]
        for w in range(len(came)):
            d_sender[w] += came[w]
        for w in range(len(came)):
            d_receiver[w] += came[w]
