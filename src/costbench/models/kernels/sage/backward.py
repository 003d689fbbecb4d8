"""Fused backward kernel of GraphSAGE: gradients of `sage.forward.sage_forward`.

Loop order: groups of nodes, then hops from last to first, so that gradients between hops stay in a workspace
of the size of one group. Per hop: through the update by matrix products, through the aggregation by the
transposed sparse matrix, through the messages' ReLU, and through their products to the states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import F32, I64, Bool
from costbench.execution.compiled import compiled, compiled_fused
from costbench.models.kernels.feed_forward import aligned, aligned_zeros, mask
from costbench.models.kernels.gemm import (
    BLOCK_ROWS,
    MANY_DECISIONS,
    add_picked_gradient,
    all_units,
    pick,
    picked_product,
    picked_product_add,
    piece_end,
)
from costbench.models.kernels.sage.forward import (
    SageMatrices,
    SageStates,
    add_up,
    gather,
    lie_together,
    longest,
)
from costbench.models.kernels.sage.neighbours import CsrMatrix, MessageGraph, Senders


@compiled
def scatter_add(block: F32, nodes: I64, configs: int, out: F32, ahead: int) -> None:
    """Add the rows of `block`, `configs` per node, to the rows of `nodes` in `out`, shifted by `ahead`."""
    for place in range(len(nodes)):
        for c in range(configs):
            row, more = out[nodes[place] * configs + c + ahead], block[place * configs + c]
            for h in range(len(row)):
                row[h] += more[h]


@compiled
def sage_backward(
    gradient: F32,
    states: F32,
    weights: SageMatrices,
    graph: MessageGraph,
    computed: SageStates,
) -> tuple[F32, SageMatrices]:
    """Returns the gradients of the states [N C, H] and of the weights of `sage_forward`.

    Args:
        gradient: of the last hop's output, [N C, H].
        states: x, [N C, H].
        weights: as in `sage_forward`.
        graph: as in `sage_forward`.
        computed: what `sage_forward` returned with `keep`.
    """
    (rows, width), hops = gradient.shape, len(weights.forth)
    configs = rows // graph.nodes[-1]
    own, for_aggregate = _halves(weights.update)
    d_own, d_for_aggregate = _zeros(own), _zeros(own)
    d_forth, d_back = _zeros(own), _zeros(own)
    d_states, most = aligned(rows, width), longest(graph.nodes) * configs
    scratch = aligned(3 * most, width).reshape(3, most, width)
    for group in range(len(graph.nodes) - 1):
        begin = graph.nodes[group] * configs
        came, came_at = gradient, begin
        for hop in range(hops - 1, -1, -1):
            x = computed.updated[hop - 1] if hop else states
            of_hop = x, computed.active[hop], computed.aggregated[hop], computed.updated[hop]
            matrices = weights.forth[hop], weights.back[hop], own[hop], for_aggregate[hop]
            found = d_forth[hop], d_back[hop], d_own[hop], d_for_aggregate[hop]
            to, at = (scratch[hop % 2], 0) if hop else (d_states, begin)
            places = (came, came_at), (to, at)
            _hop_gradient(places, of_hop, (graph, group), (matrices, found), scratch[2])
            came, came_at = to, at
    d_update = np.concatenate((d_own, d_for_aggregate), axis=2)
    return d_states, SageMatrices(d_forth, d_back, d_update)


@compiled
def _halves(update: F32) -> tuple[F32, F32]:
    """Returns copies of the halves of [L, H, 2 H]: U over the state and V over the aggregate, [L, H, H]."""
    hops, width = update.shape[:2]
    own = aligned(hops * width, width).reshape(hops, width, width)
    for_aggregate = aligned(hops * width, width).reshape(hops, width, width)
    own[:], for_aggregate[:] = update[:, :, :width], update[:, :, width:]
    return own, for_aggregate


@compiled
def _zeros(like: F32) -> F32:
    count, height, width = like.shape
    return aligned_zeros(count * height, width).reshape(like.shape)


FourMatrices = tuple[F32, F32, F32, F32]


@compiled
def _hop_gradient(
    places: tuple[tuple[F32, int], tuple[F32, int]],
    of_hop: tuple[F32, Bool, F32, F32],
    whose: tuple[MessageGraph, int],
    matrices: tuple[FourMatrices, FourMatrices],
    d_aggregated: F32,
) -> None:
    """Backpropagate through one hop of a group.

    Args:
        places: the gradient of the hop's output, and where to write that of its input: array and first row
            each.
        of_hop: input of the hop, active units of its messages, aggregates, and output.
        whose: the graph and the number of the group.
        matrices: F, B, U and V, [outputs, inputs], and their gradients, which are added to.
        d_aggregated: workspace for the gradient of the group's aggregates.
    """
    (came, came_at), (d_states, at) = places
    (states, active, aggregated, updated), (graph, group) = of_hop, whose
    (forth, back, own, for_aggregate), (d_forth, d_back, d_own, d_for_aggregate) = matrices
    width, configs = states.shape[1], len(states) // graph.nodes[-1]
    begin, end = graph.nodes[group] * configs, graph.nodes[group + 1] * configs
    block, units, row = aligned(BLOCK_ROWS, width), all_units(width), begin
    while row < end:
        stop = piece_end(row, end, configs)
        size = stop - row
        mask(came, came_at + row - begin, updated, row, size, block)
        on = pick(block, 0, size, configs, units)
        add_picked_gradient((block, 0), (states, row), size, d_own, on)
        add_picked_gradient((block, 0), (aggregated, row), size, d_for_aggregate, on)
        picked_product((block, 0), own, (d_states, at + row - begin), size, on)
        picked_product((block, 0), for_aggregate, (d_aggregated, row - begin), size, on)
        row = stop
    table, base = d_aggregated.reshape(-1, configs * width), graph.nodes[group]
    first_message = graph.forth.starts[group] + graph.back.starts[group]
    rows = states, active, d_states, at - begin
    forth_sum = Sum(graph.transposed, table, base, first_message)
    _through_messages(forth_sum, rows, (graph.forth, group), (forth, d_forth))
    first_message = graph.forth.starts[group + 1] + graph.back.starts[group]
    back_sum = Sum(graph.transposed, table, base, first_message)
    _through_messages(back_sum, rows, (graph.back, group), (back, d_back))


class Sum(NamedTuple):
    """The product of a sparse matrix's rows from `first` on and a table whose first row has number `base`."""

    matrix: CsrMatrix
    table: F32
    base: int
    first: int


@compiled
def _through_messages(
    total: Sum,
    rows: tuple[F32, Bool, F32, int],
    whose: tuple[Senders, int],
    matrices: tuple[F32, F32],
) -> None:
    """Backpropagate through the messages of a group's senders, adding to the gradients of states and matrix.

    Args:
        total: A^T times the gradient of the aggregates: the gradient of the messages.
        rows: states, active units of the messages, gradient of the states, and the shift of its rows.
        whose: the senders and the number of the group.
        matrices: F or B, and its gradient.
    """
    (states, seen, d_states, ahead), (senders, group), (weight, d_weight) = rows, whose, matrices
    width = states.shape[1]
    configs = total.table.shape[1] // width
    block, units = aligned(max(BLOCK_ROWS, configs), width), all_units(width)
    first, last = senders.starts[group], senders.starts[group + 1]
    step = 1 if configs >= MANY_DECISIONS else BLOCK_ROWS // configs
    own = aligned(step * configs, width)
    for place in range(first, last, step):
        nodes = senders.nodes[place : min(place + step, last)]
        row, count = nodes[0] * configs, len(nodes) * configs
        _messages_gradient(total, place - first, seen, block[:count])
        if lie_together(nodes):
            begin = 0
            while begin < count:
                stop = piece_end(begin, count, configs)
                size, on = stop - begin, pick(block, begin, stop - begin, configs, units)
                add_picked_gradient((block, begin), (states, row + begin), size, d_weight, on)
                picked_product_add((block, begin), weight, (d_states, row + begin + ahead), size, on)
                begin = stop
        else:
            on = units, width
            gather(states, nodes, configs, own)
            add_picked_gradient((block, 0), (own, 0), count, d_weight, on)
            picked_product((block, 0), weight, (own, 0), count, on)
            scatter_add(own, nodes, configs, d_states, ahead)


@compiled_fused
def _messages_gradient(total: Sum, place: int, seen: Bool, out: F32) -> None:
    """Write the gradients of messages before their ReLU, from message `total.first + place` on."""
    wide, first = total.table.shape[1], total.first + place
    rows, known = out.reshape(-1, wide), seen.reshape(-1, wide)
    for message in range(len(rows)):
        row, lets = rows[message], known[first + message]
        begin, end = total.matrix.starts[first + message], total.matrix.starts[first + message + 1]
        # Most messages have one receiver: then the sum and the ReLU are one loop.
        if end == begin + 1:
            came, weight = total.table[total.matrix.columns[begin] - total.base], total.matrix.weights[begin]
            for w in range(wide):
                row[w] = weight * came[w] if lets[w] else np.float32(0.0)
            continue
        add_up(total.matrix, first + message, total.table, total.base, row)
        for w in range(wide):
            row[w] = row[w] if lets[w] else np.float32(0.0)
