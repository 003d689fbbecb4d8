"""All hops of a graph attention network (GAT) in one call: a fused forward kernel, and one for its gradients.

Forward: groups of nodes that no edge leaves, then hops, so that a hop's output is still in a cache when the
next hop reads it. Per hop and group: one matrix product gives the values V x of all edge types, dot products
of these give the scores, then the softmax over each node's senders, then the weighted sums, which stay in
registers.

Backward: groups, then hops from last to first. Per hop and group: a pass over receivers gives the gradients
of the softmax weights and of the scores of pairs and receivers; a pass over senders adds these up per sender
and gives the gradients of the values V x; matrix products give those of V and of the hop's input.

States [N, C, H] are read as a matrix [N C, H]. A pair is a receiver i and a sender j that it attends to. An
edge type is one attention of a hop: directed networks have two, over producers and over consumers, undirected
ones have one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import F32, I64, Bool
from costbench.execution.compiled import compiled, compiled_inline, compiled_step
from costbench.models.networks.gat import NEGATIVE_SLOPE
from costbench_kernels.gemm import (
    BLOCK_ROWS,
    add_gradient,
    aligned,
    product,
    product_masked,
    relu_gradient,
)
from costbench_kernels.head_sums import (
    Numbers,
    Rows,
    ScoreTerms,
    Shape,
    Table,
    Terms,
    attention_vector_gradients,
    head_dots,
    relu_sums,
    value_gradients,
)
from costbench_kernels.messages import closed_groups

_SLOPE, _ZERO, _HALF = np.float32(NEGATIVE_SLOPE), np.float32(0.0), np.float32(0.5)
# exp(_LEAST) is still a normal number in single precision. ln 2 is split in two (Cody and Waite), so that n
# ln 2 is subtracted without cancellation. _E2 to _E6 are the Taylor coefficients of exp: with |r| <= ln 2 / 2
# the first term left out, r^7 / 7!, is at most 1.2e-7, about the spacing of float32 at 1.
_LEAST, _LOG2E = np.float32(-87.0), np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_E2, _E3, _E4, _E5, _E6 = (np.float32(1.0 / factorial) for factorial in (2, 6, 24, 120, 720))
_ONE, _EXPONENT_OF_ONE = np.float32(1.0), np.int32(127)
_EXPONENTS = 1024


class Pairs(NamedTuple):
    """P pairs, sorted by receiver and by sender; every node is also paired with itself, once per edge type.

    A slot is a node i and an edge type t, with number edge_types * i + t.

    Attributes:
        starts: int64 [N edge_types + 1]. Pairs starts[s] to starts[s + 1] have slot s as receiver.
        senders: int64 [P], the sender of each pair.
        by_sender_starts: int64 [N edge_types + 1]. Entries by_sender_starts[s] to by_sender_starts[s + 1] of
            the next two arrays have slot s as sender.
        by_sender_pairs: int64 [P], numbers of pairs, in order of their senders.
        receivers: int64 [P], the receivers of these pairs.
        groups: int64 [G + 1]. Nodes groups[g] to groups[g + 1] attend only to each other.
    """

    starts: I64
    senders: I64
    by_sender_starts: I64
    by_sender_pairs: I64
    receivers: I64
    groups: I64


@compiled
def build_pairs(
    receiver: I64, sender: I64, is_second_type: Bool, num_nodes: int, edge_types: int, min_nodes: int
) -> Pairs:
    """Returns the pairs of M edges. A receiver's senders keep the order of the edges; itself comes last.

    Args:
        receiver: int64 [M].
        sender: int64 [M].
        is_second_type: bool [M], True for edges of the second type; not read if there is one type.
        num_nodes: N.
        edge_types: 1 or 2.
        min_nodes: smallest number of nodes in a group, but for the last one.
    """
    starts = np.ones(num_nodes * edge_types + 1, np.int64)
    by_sender_starts = np.ones(num_nodes * edge_types + 1, np.int64)
    starts[0] = by_sender_starts[0] = 0
    for edge in range(len(receiver)):
        edge_type = int(is_second_type[edge]) if edge_types == 2 else 0
        starts[receiver[edge] * edge_types + edge_type + 1] += 1
        by_sender_starts[sender[edge] * edge_types + edge_type + 1] += 1
    starts, by_sender_starts = np.cumsum(starts), np.cumsum(by_sender_starts)
    senders = np.empty(len(receiver) + num_nodes * edge_types, np.int64)
    end = starts[:-1].copy()
    for edge in range(len(receiver)):
        slot = receiver[edge] * edge_types + (int(is_second_type[edge]) if edge_types == 2 else 0)
        senders[end[slot]] = sender[edge]
        end[slot] += 1
    for slot in range(num_nodes * edge_types):
        senders[end[slot]] = slot // edge_types
    by_sender_pairs, receivers = _sort_by_sender(starts, senders, by_sender_starts, edge_types)
    groups = closed_groups(receiver, sender, num_nodes, min_nodes)
    return Pairs(starts, senders, by_sender_starts, by_sender_pairs, receivers, groups)


@compiled
def _sort_by_sender(starts: I64, senders: I64, by_sender_starts: I64, edge_types: int) -> tuple[I64, I64]:
    by_sender_pairs, receivers = np.empty_like(senders), np.empty_like(senders)
    end = by_sender_starts[:-1].copy()
    for slot in range(len(starts) - 1):
        for pair in range(starts[slot], starts[slot + 1]):
            sender_slot = senders[pair] * edge_types + slot % edge_types
            by_sender_pairs[end[sender_slot]], receivers[end[sender_slot]] = pair, slot // edge_types
            end[sender_slot] += 1
    return by_sender_pairs, receivers


@compiled
def count_nodes_and_edge_types(pairs: Pairs) -> tuple[int, int]:
    """Returns the number of nodes and the number of edge types."""
    num_nodes = pairs.groups[-1]
    return num_nodes, (len(pairs.starts) - 1) // num_nodes


class GatStates(NamedTuple):
    """The results of L hops, or of one. Without gradients `updated` alone has all hops.

    Attributes:
        projected: [L, N C, edge_types H], values V x of each edge type.
        scores: [L, 2 edge_types, N, C heads], of each node as sender and as receiver of the first edge type,
            then of the second.
        weights: [L, P, C heads], softmax weights of the pairs.
        updated: [L, N C, H], output of each hop.
    """

    projected: F32
    scores: F32
    weights: F32
    updated: F32


@compiled
def allocate_states(
    hops: int, stored_hops: int, rows: int, width: int, heads: int, pairs: Pairs
) -> GatStates:
    """Allocates buffers for `gat_forward`; `stored_hops` is the number of hops, or 1 without gradients."""
    num_nodes, edge_types = count_nodes_and_edge_types(pairs)
    value_width, score_width = edge_types * width, rows // num_nodes * heads
    return GatStates(
        aligned(stored_hops * rows, value_width).reshape(stored_hops, rows, value_width),
        aligned(stored_hops * num_nodes * 2 * edge_types, score_width).reshape(
            stored_hops, 2 * edge_types, num_nodes, score_width
        ),
        aligned(stored_hops * len(pairs.senders), score_width).reshape(
            stored_hops, len(pairs.senders), score_width
        ),
        aligned(hops * rows, width).reshape(hops, rows, width),
    )


@compiled
def _shape_of(hop: GatStates) -> Shape:
    """Returns the number of decisions, the number of heads and their depth of one hop."""
    configs = len(hop.updated) // hop.scores.shape[1]
    heads = hop.weights.shape[1] // configs
    return Shape(configs, heads, hop.updated.shape[1] // heads)


@compiled_inline
def _leaky(score: np.float32) -> np.float32:
    return score if score > _ZERO else _SLOPE * score


@compiled
def _subtract_largest(scores: F32, node: int, edge_type: int, senders: I64, out: F32, largest: F32) -> None:
    """out_p = x_p - max over p of x_p, x_p = leaky_relu(r + s_p): the arguments of one slot's softmax.

    r and s_p are the scores of the receiver and of sender p. Subtracting the maximum keeps exp from
    overflowing.

    Shape: scores [2 edge_types, N, W], out [pairs of the slot, W], largest [W], W = C heads.
    """
    receiver_score = scores[2 * edge_type + 1, node]
    largest[:] = -np.inf
    for p in range(len(senders)):
        sender_score, score = scores[2 * edge_type, senders[p]], out[p]
        for w in range(len(largest)):
            value = _leaky(receiver_score[w] + sender_score[w])
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
def _normalize(out: F32, total: F32) -> None:
    """Divides the rows of `out` by their sum, which makes softmax weights of exponentials."""
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
def _softmax(hop: GatStates, pairs: Pairs, first: int, last: int, scratch: F32) -> None:
    """Writes the softmax weights of all pairs whose receivers are nodes `first` to `last` (exclusive).

    A weight is exp(leaky_relu(r + s)) over the sum of these in its slot. The exponentials of all pairs are
    one loop, since those of a single pair are few if there are few decisions. Shape: scratch [C heads].
    """
    edge_types = len(hop.scores) // 2
    for slot in range(first * edge_types, last * edge_types):
        begin, end = pairs.starts[slot], pairs.starts[slot + 1]
        node, edge_type, senders = slot // edge_types, slot % edge_types, pairs.senders[begin:end]
        _subtract_largest(hop.scores, node, edge_type, senders, hop.weights[begin:end], scratch)
    weights, width = hop.weights.reshape(-1), hop.weights.shape[1]
    end = pairs.starts[last * edge_types] * width
    powers = np.empty(_EXPONENTS, np.float32)
    for begin in range(pairs.starts[first * edge_types] * width, end, _EXPONENTS):
        _exponentials(weights[begin : min(begin + _EXPONENTS, end)], powers)
    for slot in range(first * edge_types, last * edge_types):
        begin, end = pairs.starts[slot], pairs.starts[slot + 1]
        # A slot with one pair has exp(0) = 1 already, or a NaN.
        if end > begin + 1:
            _normalize(hop.weights[begin:end], scratch)


@compiled
def row_offsets(nodes: I64, starts: I64, edge_types: int, node_step: int, type_step: int) -> I64:
    """Returns, for each entry of `nodes`, sorted by slot, the offset of its node's values of an edge type.

    Values of nodes are `node_step` elements apart and those of edge types `type_step`.
    """
    offsets = np.empty_like(nodes)
    for slot in range(len(starts) - 1):
        for entry in range(starts[slot], starts[slot + 1]):
            offsets[entry] = nodes[entry] * node_step + (slot % edge_types) * type_step
    return offsets


@compiled
def gat_forward(states: F32, matrices: F32, attention_vectors: F32, pairs: Pairs, gat: GatStates) -> None:
    """Computes x^(l+1)_i = relu(sum over edge types and over senders j of i of a_ij V x^l_j) for all hops l.

    a_i is the softmax of leaky_relu(s . V x_j + r . V x_i) over the senders j of i of an edge type.

    Args:
        states: x^0, [N C, H].
        matrices: V, [L, H, edge_types H], [inputs, outputs].
        attention_vectors: s and r, [L, 2 edge_types, H], heads side by side.
        pairs: senders and receivers of attention.
        gat: buffers of `allocate_states`; all of them are written.
    """
    hops, rows, width = gat.updated.shape
    num_nodes, edge_types = count_nodes_and_edge_types(pairs)
    configs = rows // num_nodes
    heads = gat.weights.shape[2] // configs
    weight_offsets = np.arange(len(pairs.senders)) * gat.weights.shape[2]
    value_offsets = row_offsets(pairs.senders, pairs.starts, edge_types, configs * edge_types * width, width)
    scratch = np.empty(configs * heads, np.float32)
    for group in range(len(pairs.groups) - 1):
        first, last = pairs.groups[group], pairs.groups[group + 1]
        for number in range(hops):
            before = gat.updated[number - 1] if number else states
            stored = number % len(gat.projected)
            hop = GatStates(
                gat.projected[stored], gat.scores[stored], gat.weights[stored], gat.updated[number]
            )
            begin, end = first * configs, last * configs
            for row in range(begin, end, BLOCK_ROWS):
                count = min(BLOCK_ROWS, end - row)
                product(before, row, matrices[number], hop.projected, row, count)
                _score(hop, attention_vectors[number], row, Shape(count, heads, width // heads))
            _softmax(hop, pairs, first, last, scratch)
            _attend(hop, pairs, weight_offsets, value_offsets, first, last)


@compiled
def _score(hop: GatStates, attention_vectors: F32, first_row: int, shape: Shape) -> None:
    """Writes the scores s . V x and r . V x of rows from `first_row` on; `shape` has their number first."""
    width, row, heads = attention_vectors.shape[1], hop.projected.shape[1], shape.heads
    projected, vectors, scores = (
        hop.projected.reshape(-1),
        attention_vectors.reshape(-1),
        hop.scores.reshape(-1),
    )
    for part in range(len(attention_vectors)):
        values = Rows(projected, first_row * row + part // 2 * width, row)
        out = Numbers(scores, (part * len(hop.projected) + first_row) * heads)
        head_dots(Rows(vectors, part * width, 0), values, out, shape)


@compiled
def _attend(
    hop: GatStates, pairs: Pairs, weight_offsets: I64, value_offsets: I64, first: int, last: int
) -> None:
    """Writes the outputs of nodes `first` to `last`: the ReLU of the weighted sums of their senders' values.

    The offsets are those of each pair's weights and of its sender's values.
    """
    edge_types, width, row = len(hop.scores) // 2, hop.updated.shape[1], hop.projected.shape[1]
    shape = _shape_of(hop)
    weights, projected, out = hop.weights.reshape(-1), hop.projected.reshape(-1), hop.updated.reshape(-1)
    for node in range(first, last):
        begin, end = pairs.starts[node * edge_types], pairs.starts[node * edge_types + edge_types]
        terms = Terms(weight_offsets, value_offsets, begin, end)
        attended = Rows(out, node * shape.configs * width, width)
        relu_sums(terms, weights, Table(projected, row), attended, shape)


@compiled
def _softmax_gradient(weights: F32, d: F32, total: F32) -> None:
    """Backpropagates through the softmax of one slot: d_p becomes a_p (d_p - sum over q of a_q d_q).

    Shape: weights a and d [pairs, W]; total [W] is scratch.
    """
    total[:] = 0.0
    for p in range(len(weights)):
        a, d_row = weights[p], d[p]
        for w in range(len(total)):
            total[w] += a[w] * d_row[w]
    for p in range(len(weights)):
        a, d_row = weights[p], d[p]
        for w in range(len(total)):
            d_row[w] = a[w] * (d_row[w] - total[w])


@compiled
def _leaky_relu_gradient(scores: F32, node: int, edge_type: int, senders: I64, d: F32, total: F32) -> None:
    """Backpropagates through the leaky ReLU of one slot: d [pairs, W] is overwritten.

    `total` [W] becomes the sum over the pairs, which is the gradient of the receiver's score.
    """
    receiver_score = scores[2 * edge_type + 1, node]
    total[:] = 0.0
    for p in range(len(senders)):
        sender_score, d_row = scores[2 * edge_type, senders[p]], d[p]
        for w in range(len(total)):
            d_row[w] = d_row[w] if receiver_score[w] + sender_score[w] > _ZERO else _SLOPE * d_row[w]
        for w in range(len(total)):
            total[w] += d_row[w]


class GatGradients(NamedTuple):
    """Gradients of states [N C, H], matrices and attention vectors.

    Matrices are [L, edge_types H, H] ([outputs, inputs]), vectors [L, 2 edge_types, H]; the gradients of both
    are added to.
    """

    states: F32
    matrices: F32
    attention_vectors: F32


class _GroupGradients(NamedTuple):
    """Workspace of a group of n nodes.

    Gradients of the hop's output [n C, H], of the scores of pairs [pairs, W], of the scores of senders and
    receivers [n, edge_types, 2, W], and of the values [n C, edge_types H].
    """

    updated: F32
    pairs: F32
    scores: F32
    projected: F32


@compiled
def _allocate_gradients(pairs: Pairs, shape: Shape) -> _GroupGradients:
    """Allocates a workspace that is large enough for every group."""
    configs, heads, depth = shape.configs, shape.heads, shape.depth
    edge_types = count_nodes_and_edge_types(pairs)[1]
    max_nodes, max_pairs = 0, 0
    for group in range(len(pairs.groups) - 1):
        first, last = pairs.groups[group], pairs.groups[group + 1]
        max_nodes = max(max_nodes, last - first)
        max_pairs = max(max_pairs, pairs.starts[last * edge_types] - pairs.starts[first * edge_types])
    scores = aligned(max_nodes * 2 * edge_types, configs * heads)
    return _GroupGradients(
        aligned(max_nodes * configs, heads * depth),
        aligned(max_pairs, configs * heads),
        scores.reshape(max_nodes, edge_types, 2, configs * heads),
        aligned(max_nodes * configs, edge_types * heads * depth),
    )


@compiled
def gat_backward(
    gradient: F32,
    states: F32,
    matrices: F32,
    attention_vectors: F32,
    pairs: Pairs,
    gat: GatStates,
    gradients: GatGradients,
) -> None:
    """Writes the gradients of `gat_forward`.

    Args:
        gradient: gradient of the last hop's output, [N C, H].
        states: x^0, [N C, H].
        matrices: V, [L, edge_types H, H] ([outputs, inputs]).
        attention_vectors: s and r, [L, 2 edge_types, H].
        pairs: senders and receivers of attention.
        gat: what `gat_forward` computed, with all hops kept.
        gradients: states are written; matrices and attention vectors are added to.
    """
    hops, rows, width = gat.updated.shape
    num_nodes, edge_types = count_nodes_and_edge_types(pairs)
    configs = rows // num_nodes
    heads = gat.weights.shape[2] // configs
    value_offsets = row_offsets(pairs.senders, pairs.starts, edge_types, configs * edge_types * width, width)
    weight_offsets, receiver_offsets = pairs.by_sender_pairs * (configs * heads), np.empty_like(value_offsets)
    of_group = _allocate_gradients(pairs, Shape(configs, heads, width // heads))
    for group in range(len(pairs.groups) - 1):
        first, last = pairs.groups[group], pairs.groups[group + 1]
        for entry in range(
            pairs.by_sender_starts[first * edge_types], pairs.by_sender_starts[last * edge_types]
        ):
            receiver_offsets[entry] = (pairs.receivers[entry] - first) * configs * width
        begin, count = first * configs, (last - first) * configs
        relu_gradient(gradient, begin, gat.updated[hops - 1], begin, count, of_group.updated)
        for number in range(hops - 1, -1, -1):
            hop = GatStates(
                gat.projected[number], gat.scores[number], gat.weights[number], gat.updated[number]
            )
            _through_receivers(pairs, hop, value_offsets, first, last, of_group)
            vectors = _AttentionVectors(attention_vectors[number], gradients.attention_vectors[number])
            offsets = _SenderOffsets(weight_offsets, receiver_offsets)
            _through_senders(pairs, hop, vectors, offsets, first, last, of_group)
            for row in range(0, count, BLOCK_ROWS):
                block, at, d_values = min(BLOCK_ROWS, count - row), begin + row, of_group.projected[row:]
                if number:
                    before = gat.updated[number - 1]
                    product_masked(d_values, matrices[number], of_group.updated[row:], block, before, at)
                    add_gradient(d_values, 0, before, at, block, gradients.matrices[number])
                else:
                    product(d_values, 0, matrices[0], gradients.states, at, block)
                    add_gradient(d_values, 0, states, at, block, gradients.matrices[0])


@compiled
def _through_receivers(
    pairs: Pairs, hop: GatStates, value_offsets: I64, first: int, last: int, gradients: _GroupGradients
) -> None:
    """Backpropagates from the output of a hop to the scores of pairs and of receivers.

    Args:
        pairs: senders and receivers of attention.
        hop: one hop of what `gat_forward` computed.
        value_offsets: offset of the values of each pair's sender in `projected`.
        first: first node of the group.
        last: node after its last one.
        gradients: `pairs` and half of `scores` are written.
    """
    shape, edge_types, width = _shape_of(hop), len(hop.scores) // 2, hop.updated.shape[1]
    first_pair = pairs.starts[first * edge_types]
    d_updated, d_pairs = gradients.updated.reshape(-1), gradients.pairs.reshape(-1)
    projected = hop.projected.reshape(-1)
    for node in range(first, last):
        d_attended = Rows(d_updated, (node - first) * shape.configs * width, width)
        for edge_type in range(edge_types):
            slot = node * edge_types + edge_type
            begin, end = pairs.starts[slot], pairs.starts[slot + 1]
            d = gradients.pairs[begin - first_pair : end - first_pair]
            d_receiver = gradients.scores[node - first, edge_type, 1]
            if end == begin + 1:
                # A single sender has weight 1 whatever its score is.
                d[:] = 0.0
                d_receiver[:] = 0.0
                continue
            for pair in range(begin, end):
                values = Rows(projected, value_offsets[pair], edge_types * width)
                out = Numbers(d_pairs, (pair - first_pair) * shape.configs * shape.heads)
                head_dots(d_attended, values, out, shape)
            _softmax_gradient(hop.weights[begin:end], d, d_receiver)
            _leaky_relu_gradient(hop.scores, node, edge_type, pairs.senders[begin:end], d, d_receiver)


class _AttentionVectors(NamedTuple):
    """Vectors of a hop [2 edge_types, H], and their gradients."""

    values: F32
    gradients: F32


class _SenderOffsets(NamedTuple):
    """For each entry of `by_sender_pairs` the offset of its weights, and of its receiver's rows."""

    weights: I64
    receivers: I64


@compiled
def _through_senders(
    pairs: Pairs,
    hop: GatStates,
    vectors: _AttentionVectors,
    offsets: _SenderOffsets,
    first: int,
    last: int,
    gradients: _GroupGradients,
) -> None:
    """Backpropagates from the scores of pairs to those of senders, and from all scores to values and vectors.

    Args:
        pairs: senders and receivers of attention.
        hop: one hop of what `gat_forward` computed.
        vectors: attention vectors of the hop, whose gradients are added to.
        offsets: where the terms of each sender's gradients lie.
        first: first node of the group.
        last: node after its last one.
        gradients: `projected` and the other half of `scores` are written.
    """
    shape, edge_types, width = _shape_of(hop), len(hop.scores) // 2, hop.updated.shape[1]
    first_pair, step = pairs.starts[first * edge_types], shape.configs * edge_types * width
    weights, projected = hop.weights.reshape(-1), hop.projected.reshape(-1)
    d_updated, d_projected = gradients.updated.reshape(-1), gradients.projected.reshape(-1)
    flat_vectors, d_vectors = vectors.values.reshape(-1), vectors.gradients.reshape(-1)
    for node in range(first, last):
        for edge_type in range(edge_types):
            slot = node * edge_types + edge_type
            begin, end = pairs.by_sender_starts[slot], pairs.by_sender_starts[slot + 1]
            d_scores = gradients.scores[node - first, edge_type]
            _sum_rows(gradients.pairs, pairs.by_sender_pairs[begin:end], first_pair, d_scores[0])
            flat_scores, terms = d_scores.reshape(-1), Terms(offsets.weights, offsets.receivers, begin, end)
            out = Rows(d_projected, (node - first) * step + edge_type * width, edge_types * width)
            scores = ScoreTerms(flat_scores, flat_vectors, 2 * edge_type)
            value_gradients(terms, weights, Table(d_updated, width), scores, out, shape)
            values = Rows(projected, node * step + edge_type * width, edge_types * width)
            d_vector = Numbers(d_vectors, 2 * edge_type * width)
            attention_vector_gradients(flat_scores, values, d_vector, shape)


@compiled
def _sum_rows(table: F32, rows: I64, first_row: int, out: F32) -> None:
    """Writes the sum of some rows of a table whose first row has number `first_row`."""
    out[:] = table[rows[0] - first_row]
    for number in range(1, len(rows)):
        row = table[rows[number] - first_row]
        for w in range(len(out)):
            out[w] += row[w]
