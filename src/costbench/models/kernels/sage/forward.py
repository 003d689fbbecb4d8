"""Fused forward kernel of GraphSAGE: all hops of a network in one call.

Loop order: groups of nodes that no edge leaves (`MessageGraph`), then hops, so that a hop's output is still
in a cache when the next hop reads it. Per hop and group: matrix products with ReLU give the messages, a
sparse matrix product aggregates them, and further products with ReLU update the states.

Messages are kept only until they are aggregated. The gradient needs no more than where their ReLU was active,
one byte instead of four per unit. States [N, C, H] are read as a matrix [N C, H], a node's C decisions next
to each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import F32, I64, Bool
from costbench.execution.compiled import compiled, compiled_fused
from costbench.models.kernels.feed_forward import aligned, turned_all
from costbench.models.kernels.gemm import (
    BLOCK_ROWS,
    MANY_DECISIONS,
    all_units,
    pick,
    picked_product,
    picked_product_add_relu,
    picked_product_relu,
    piece_end,
)
from costbench.models.kernels.sage.neighbours import CsrMatrix, MessageGraph, Senders


@compiled_fused
def add_up(matrix: CsrMatrix, row: int, table: F32, base: int, out: F32) -> None:
    """out = row `row` of the sparse matrix times a table [., W], where W is the length of `out`.

    The table holds the rows from `base` on of the whole table that the matrix is defined over.
    """
    begin, end = matrix.starts[row], matrix.starts[row + 1]
    if begin == end:
        out[:] = 0.0
        return
    message, weight = table[matrix.columns[begin] - base], matrix.weights[begin]
    for w in range(len(out)):
        out[w] = weight * message[w]
    for entry in range(begin + 1, end):
        message, weight = table[matrix.columns[entry] - base], matrix.weights[entry]
        for w in range(len(out)):
            out[w] += weight * message[w]


class SageMatrices(NamedTuple):
    """Weights of L hops: messages to consumers (forth) and producers (back) [L, H, H], update [L, H, 2 H].

    Each is [outputs, inputs] as in `nn.Linear`; inputs of the update are the state, then the aggregate.
    Undirected, `back` is `forth`, and its gradient is 0.
    """

    forth: F32
    back: F32
    update: F32


class SageStates(NamedTuple):
    """The results of L hops; without gradients, only `updated` has all of them.

    Attributes:
        active: bool [L, T C, H], where the ReLU of a message is active; empty without gradients.
        aggregated: [L, N C, H]; without gradients [1, N C, H], overwritten by each hop.
        updated: [L, N C, H], output of each hop.
    """

    active: Bool
    aggregated: F32
    updated: F32


@compiled
def sage_forward(states: F32, weights: SageMatrices, graph: MessageGraph, keep: bool) -> SageStates:
    """Compute m = relu([x[forth] F; x[back] B]), a = A m, x = relu(x U + a V) for all hops.

    Args:
        states: x, [N C, H].
        weights: the transposes of F, B and (U, V).
        graph: A, and the nodes that send messages.
        keep: whether `sage_backward` will be called.
    """
    (rows, width), hops = states.shape, len(weights.forth)
    kept, configs = hops if keep else 1, rows // graph.nodes[-1]
    starts = graph.forth.starts + graph.back.starts
    found = SageStates(
        np.empty((kept, starts[-1] * configs if keep else 0, width), np.bool_),
        aligned(kept * rows, width).reshape(kept, rows, width),
        aligned(hops * rows, width).reshape(hops, rows, width),
    )
    forth, back = turned_all(weights.forth), turned_all(weights.back)
    own, for_aggregate = turned_all(weights.update[:, :, :width]), turned_all(weights.update[:, :, width:])
    messages = aligned(longest(starts) * configs, width)
    known = _workspace(longest(graph.nodes), width, configs)
    for group in range(len(graph.nodes) - 1):
        x = states
        for hop in range(hops):
            place = hop if keep else 0
            matrices = forth[hop], back[hop], own[hop], for_aggregate[hop]
            step = found.active[place], found.aggregated[place], found.updated[hop]
            _hop(x, matrices, (graph, group, keep), step, (messages, known))
            x = found.updated[hop]
    return found


class _Known(NamedTuple):
    """The active units of the states of a group: what `pick` returns for each piece, int64 [P, H] and [P]."""

    units: I64
    counts: I64


@compiled
def _pieces(configs: int) -> int:
    """Returns the number of pieces of a node (see `gemm.piece_end`)."""
    count, row = 0, 0
    while row < configs:
        row = piece_end(row, configs, configs)
        count += 1
    return count


@compiled
def _workspace(most_nodes: int, width: int, configs: int) -> _Known:
    """Allocate the result of `_find_active_units` for the largest group; all units count as active at first.

    With few decisions inactive units are not looked for, and one row stands for all pieces.
    """
    size = most_nodes * _pieces(configs) if configs >= MANY_DECISIONS else 1
    units = np.empty((size, width), np.int64)
    units[:] = all_units(width)
    return _Known(units, np.full(size, width))


@compiled
def _find_active_units(states: F32, begin: int, end: int, configs: int, known: _Known) -> None:
    """Write the active units of nodes `begin` to `end` to the first rows of `known`, for all products."""
    piece, row = 0, begin * configs
    while configs >= MANY_DECISIONS and row < end * configs:
        stop = piece_end(row, end * configs, configs)
        known.counts[piece] = pick(states, row, stop - row, configs, known.units[piece])[1]
        row = stop
        piece += 1


@compiled
def _hop(
    states: F32,
    matrices: tuple[F32, F32, F32, F32],
    place: tuple[MessageGraph, int, bool],
    found: tuple[Bool, F32, F32],
    workspace: tuple[F32, _Known],
) -> None:
    """Compute one hop of a group of nodes.

    Args:
        states: input of the hop, [N C, H].
        matrices: F, B, U and V, [H, H] each, [inputs, outputs].
        place: the graph, the number of the group, and whether the backward kernel will run.
        found: one hop of each array of `SageStates`, of which the group's rows are written.
        workspace: messages of the largest group, and its active units.
    """
    (forth, back, own, for_aggregate), (graph, group, keep) = matrices, place
    active, aggregated, updated = found
    configs, width, (messages, known) = len(states) // graph.nodes[-1], states.shape[1], workspace
    begin, last = graph.nodes[group], graph.nodes[group + 1]
    base = graph.forth.starts[group] + graph.back.starts[group]
    _find_active_units(states, begin, last, configs, known)
    source = states, begin, known
    count = _send(source, forth, graph.forth, group, (messages, configs))
    count += _send(source, back, graph.back, group, (messages[count * configs :], configs))
    if keep:
        _record_active(messages[: count * configs], active[base * configs :])
    table, flat = messages.reshape(-1, configs * width), aggregated.reshape(-1, configs * width)
    step = 1 if configs >= MANY_DECISIONS else BLOCK_ROWS // configs
    units, piece = all_units(width), 0
    for node in range(begin, last, step):
        end = min(node + step, last)
        for receiver in range(node, end):
            add_up(graph.matrix, receiver, table, base, flat[receiver])
        row = node * configs
        while row < end * configs:
            stop = piece_end(row, end * configs, configs)
            on = known.units[piece], known.counts[piece]
            picked_product((states, row), own, (updated, row), stop - row, on)
            on = pick(aggregated, row, stop - row, configs, units)
            picked_product_add_relu((aggregated, row), for_aggregate, (updated, row), stop - row, on)
            row = stop
            piece += 1 if configs >= MANY_DECISIONS else 0


@compiled
def longest(starts: I64) -> int:
    """Returns the length of the longest run, where run r is starts[r] to starts[r + 1]."""
    most: int = np.diff(starts).max()
    return most


@compiled
def _send(
    source: tuple[F32, int, _Known],
    weight: F32,
    senders: Senders,
    group: int,
    out: tuple[F32, int],
) -> int:
    """Write the messages of a group's senders to the first rows of out[0] and return the number of senders.

    `source` is the states, the group's first node, and its active units; out[1] is C.
    """
    (states, begin, known), (messages, configs) = source, out
    first, last = senders.starts[group], senders.starts[group + 1]
    to, pieces = 0, _pieces(configs)
    if configs < MANY_DECISIONS:
        _send_gathered(states, weight, senders.nodes[first:last], configs, messages)
    else:
        for node in senders.nodes[first:last]:
            row, piece = node * configs, (node - begin) * pieces
            while row < (node + 1) * configs:
                stop = piece_end(row, (node + 1) * configs, configs)
                on = known.units[piece], known.counts[piece]
                picked_product_relu((states, row), weight, (messages, to), stop - row, on)
                to += stop - row
                row = stop
                piece += 1
    count: int = last - first
    return count


@compiled
def _send_gathered(states: F32, weight: F32, senders: I64, configs: int, messages: F32) -> None:
    """Write messages of few decisions: one product per block of senders, gathered unless consecutive."""
    width = states.shape[1]
    block, step, on = aligned(BLOCK_ROWS, width), BLOCK_ROWS // configs, (all_units(width), width)
    for place in range(0, len(senders), step):
        nodes = senders[place : place + step]
        row, rows = place * configs, len(nodes) * configs
        if lie_together(nodes):
            picked_product_relu((states, nodes[0] * configs), weight, (messages, row), rows, on)
        else:
            gather(states, nodes, configs, block)
            picked_product_relu((block, 0), weight, (messages, row), rows, on)


@compiled
def lie_together(nodes: I64) -> bool:
    """Whether strictly ascending nodes are consecutive."""
    return bool(nodes[-1] - nodes[0] == len(nodes) - 1)


@compiled
def _record_active(messages: F32, active: Bool) -> None:
    numbers, flags = messages.reshape(-1), active.reshape(-1)
    for h in range(len(numbers)):
        # A NaN counts as active and lets its gradient pass, as in torch.
        flags[h] = not numbers[h] <= 0.0


@compiled
def gather(states: F32, nodes: I64, configs: int, out: F32) -> None:
    """Copy the rows of `nodes`, `configs` each, to `out`, one node after another."""
    for place in range(len(nodes)):
        first = nodes[place] * configs
        out[place * configs : (place + 1) * configs] = states[first : first + configs]
