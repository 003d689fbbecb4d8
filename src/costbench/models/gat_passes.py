"""Compiled passes of graph attention, all hops at a time, forward and backward.

Nodes go through in groups that no edge leaves, a group through all hops, so that what one hop computes the
next reads from a cache. The values of all ways are one product of a state, scores are dots of these, and
sums over a node's few neighbours stay in registers. Rows are those of states [N, C, H] as [N C, H].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiled import compiled, compiled_inline, compiled_step
from costbench.models.gat_pairs import Pairs, sizes
from costbench.models.gat_sums import head_dots, rectified_sums
from costbench.models.layer_passes import BLOCK_ROWS, aligned
from costbench.models.narrow_products import product

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

NEGATIVE_SLOPE = 0.2
"""Of the leaky rectifier of scores (Veličković et al., 2018, section 3.3)."""

_SLOPE, _ZERO, _HALF = np.float32(NEGATIVE_SLOPE), np.float32(0.0), np.float32(0.5)
_LEAST, _LOG2E = np.float32(-87.0), np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_E2, _E3, _E4, _E5, _E6 = (np.float32(1.0 / factorial) for factorial in (2, 6, 24, 120, 720))
_ONE, _EXPONENT_OF_ONE = np.float32(1.0), np.int32(127)


class GatStates(NamedTuple):
    """What L hops compute.

    Attributes:
        told: [L, N C, ways H], the values of each way.
        scores: [L, N, 2 ways, C heads]: those of a sender, of a receiver, of a sender of the second way, ...
        weights: [L, P, C heads], of the softmax.
        updated: [L, N C, H].
    """

    told: FloatArray
    scores: FloatArray
    weights: FloatArray
    updated: FloatArray


@compiled
def gat_states(hops: int, rows: int, width: int, heads: int, pairs: Pairs) -> GatStates:
    """Room for what `gat_forward` computes."""
    num_nodes, ways = sizes(pairs)
    told, scored = ways * width, rows // num_nodes * heads
    return GatStates(
        aligned(hops * rows, told).reshape(hops, rows, told),
        aligned(hops * num_nodes * 2 * ways, scored).reshape(hops, num_nodes, 2 * ways, scored),
        aligned(hops * len(pairs.senders), scored).reshape(hops, len(pairs.senders), scored),
        aligned(hops * rows, width).reshape(hops, rows, width),
    )


@compiled_inline
def _leaky(score: np.float32) -> np.float32:
    return score if score > _ZERO else _SLOPE * score


@compiled
def _softmax(
    scores: FloatArray, slot: tuple[int, int], senders: IntArray, out: FloatArray, scratch: FloatArray
) -> None:
    """out_p = exp(leaky(r + s_p)) over the sum of these: r and s_p [W], of scores [N, 2 ways, W].

    Shape: out [pairs, W], scratch [3, W]. The slot is a node and a way.
    """
    node, way = slot
    largest, total, powers = scratch[0], scratch[1], scratch[2]
    of_receiver, exponents = scores[node, 2 * way + 1], powers.view(np.int32)
    if len(senders) == 1:
        told, score = scores[senders[0], 2 * way], out[0]
        for w in range(len(largest)):
            # What is not finite becomes a NaN here, too.
            score[w] = _ONE + _ZERO * (of_receiver[w] + told[w])
        return
    largest[:] = -np.inf
    total[:] = 0.0
    for p in range(len(senders)):
        told, score = scores[senders[p], 2 * way], out[p]
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
def row_places(nodes: IntArray, starts: IntArray, ways: int, steps: tuple[int, int]) -> IntArray:
    """Where rows of nodes begin that lie by slot: steps[0] of a node apart and steps[1] of a way."""
    places = np.empty_like(nodes)
    for slot in range(len(starts) - 1):
        for place in range(starts[slot], starts[slot + 1]):
            places[place] = nodes[place] * steps[0] + (slot % ways) * steps[1]
    return places


@compiled
def gat_forward(
    states: FloatArray, matrices: FloatArray, asks: FloatArray, pairs: Pairs, gat: GatStates
) -> None:
    """x^(l+1)_i = relu(sum over ways and over senders j of i of a_ij V x^l_j), a_i the softmax of
    leaky_relu(s . V x_j + r . V x_i) over the senders.

    Args:
        states: x^0 [N C, H].
        matrices: V [L, H, ways H], inputs first.
        asks: s and r [L, 2 ways, H], heads next to each other.
        pairs: who attends to whom.
        gat: all of it is written.
    """
    hops, rows, width = gat.updated.shape
    num_nodes, ways = sizes(pairs)
    configs = rows // num_nodes
    heads = gat.weights.shape[2] // configs
    weight_at = np.arange(len(pairs.senders)) * gat.weights.shape[2]
    row_at = row_places(pairs.senders, pairs.starts, ways, (configs * ways * width, width))
    scratch = aligned(3, configs * heads)
    for group in range(len(pairs.groups) - 1):
        nodes = pairs.groups[group], pairs.groups[group + 1]
        for hop in range(hops):
            before = gat.updated[hop - 1] if hop else states
            one = GatStates(gat.told[hop], gat.scores[hop], gat.weights[hop], gat.updated[hop])
            begin, end = nodes[0] * configs, nodes[1] * configs
            for row in range(begin, end, BLOCK_ROWS):
                product(before, row, matrices[hop], one.told, row, min(BLOCK_ROWS, end - row))
            _score(one, asks[hop], nodes, (configs, heads, width // heads))
            _attend(one, pairs, (weight_at, row_at), nodes, scratch)


@compiled
def _score(hop: GatStates, asks: FloatArray, nodes: tuple[int, int], shape: tuple[int, int, int]) -> None:
    """Scores of nodes from one to another, as senders and as receivers."""
    configs, heads, _ = shape
    width, row = asks.shape[1], hop.told.shape[1]
    told, vectors, scores = hop.told.reshape(-1), asks.reshape(-1), hop.scores.reshape(-1)
    for node in range(nodes[0], nodes[1]):
        for part in range(len(asks)):
            values = told, node * configs * row + part // 2 * width, row
            out = scores, (node * len(asks) + part) * configs * heads
            head_dots((vectors, part * width, 0), values, out, shape)


@compiled
def _attend(
    hop: GatStates,
    pairs: Pairs,
    places: tuple[IntArray, IntArray],
    nodes: tuple[int, int],
    scratch: FloatArray,
) -> None:
    """Weights of the pairs of nodes from one to another, and what these nodes hear; `places` are where a
    pair's weights begin and where its values do.
    """
    ways, width, row = hop.scores.shape[1] // 2, hop.updated.shape[1], hop.told.shape[1]
    configs = len(hop.updated) // len(hop.scores)
    heads = hop.weights.shape[1] // configs
    weights, told, out = hop.weights.reshape(-1), hop.told.reshape(-1), hop.updated.reshape(-1)
    for node in range(nodes[0], nodes[1]):
        for way in range(ways):
            begin, end = pairs.starts[node * ways + way], pairs.starts[node * ways + way + 1]
            _softmax(hop.scores, (node, way), pairs.senders[begin:end], hop.weights[begin:end], scratch)
        terms = places[0], places[1], pairs.starts[node * ways], pairs.starts[node * ways + ways]
        heard = out, node * configs * width, width
        rectified_sums(terms, weights, (told, row), heard, (configs, heads, width // heads))
