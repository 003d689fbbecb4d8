"""All hops of a GraphSAGE network in one call: a fused forward kernel, and one for its gradients.

Forward: groups of nodes that no edge leaves (`MessageGraph`), then hops, so that a hop's output is still in a
cache when the next hop reads it. Per hop and group: matrix products with ReLU give the messages, a sparse
matrix product aggregates them, and further products with ReLU update the states.

Messages are kept only until they are aggregated. The gradient needs no more than where their ReLU was active,
one byte instead of four per unit. States [N, C, H] are read as a matrix [N C, H], a node's C decisions next
to each other.

Backward: groups, then hops from last to first, so that gradients between hops stay in a workspace of the size
of one group. Per hop: through the update by matrix products, through the aggregation by the transposed sparse
matrix, through the messages' ReLU, and through their products to the states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import F32, I64, Bool
from costbench.execution.compiled import compiled, compiled_fused
from costbench_kernels.gemm import (
    BLOCK_ROWS,
    MANY_DECISIONS,
    Rows,
    add_gathered_gradient,
    aligned,
    aligned_zeros,
    all_units,
    chunk_end,
    find_active_units,
    gathered_product,
    gathered_product_add,
    gathered_product_add_relu,
    gathered_product_relu,
    relu_gradient,
    transpose_all,
)
from costbench_kernels.messages import CsrMatrix, MessageGraph, Senders


class SageMatrices(NamedTuple):
    """Weights of L hops: messages to consumers and to producers [L, H, H], and the update [L, H, 2 H].

    Each is [outputs, inputs] as in `nn.Linear`; inputs of the update are the state, then the aggregate.
    Undirected, `to_producers` is `to_consumers`, and its gradient is 0.
    """

    to_consumers: F32
    to_producers: F32
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


class _Weights(NamedTuple):
    """Matrices of one hop [H, H] each, or of all hops [L, H, H]; the update's are of state and aggregate."""

    to_consumers: F32
    to_producers: F32
    state: F32
    aggregate: F32


class _Hop(NamedTuple):
    """Input of a hop [N C, H], and its `SageStates`: active units, aggregates, output."""

    states: F32
    active: Bool
    aggregated: F32
    updated: F32


class _ActiveUnits(NamedTuple):
    """What `find_active_units` returns for each chunk of the states of a group, int64 [P, H] and [P]."""

    units: I64
    counts: I64


@compiled
def sage_forward(states: F32, weights: SageMatrices, graph: MessageGraph, keep: bool) -> SageStates:
    """Takes per hop m = relu([x[consumer senders] F; x[producer senders] B]), a = A m, x = relu(x U + a V).

    Args:
        states: x, [N C, H].
        weights: transposes of F (to consumers), B (to producers) and (U, V) (update).
        graph: A, and the nodes that send messages.
        keep: whether `sage_backward` will be called.
    """
    (rows, width), hops = states.shape, len(weights.to_consumers)
    stored_hops, configs = hops if keep else 1, rows // graph.nodes[-1]
    message_starts = graph.to_consumers.starts + graph.to_producers.starts
    computed = SageStates(
        np.empty((stored_hops, message_starts[-1] * configs if keep else 0, width), np.bool_),
        aligned(stored_hops * rows, width).reshape(stored_hops, rows, width),
        aligned(hops * rows, width).reshape(hops, rows, width),
    )
    transposed = _Weights(
        transpose_all(weights.to_consumers),
        transpose_all(weights.to_producers),
        transpose_all(weights.update[:, :, :width]),
        transpose_all(weights.update[:, :, width:]),
    )
    messages = aligned(longest_run(message_starts) * configs, width)
    active_units = _allocate_active_units(longest_run(graph.nodes), width, configs)
    for group in range(len(graph.nodes) - 1):
        x = states
        for number in range(hops):
            stored = number if keep else 0
            hop = _Hop(x, computed.active[stored], computed.aggregated[stored], computed.updated[number])
            _forward_hop(hop, _of_hop(transposed, number), graph, group, keep, messages, active_units)
            x = computed.updated[number]
    return computed


@compiled
def _of_hop(weights: _Weights, hop: int) -> _Weights:
    return _Weights(
        weights.to_consumers[hop], weights.to_producers[hop], weights.state[hop], weights.aggregate[hop]
    )


@compiled
def _forward_hop(
    hop: _Hop,
    weights: _Weights,
    graph: MessageGraph,
    group: int,
    keep: bool,
    messages: F32,
    active_units: _ActiveUnits,
) -> None:
    """Computes one hop of a group of nodes.

    Args:
        hop: input, and arrays of which the group's rows are written.
        weights: F, B, U and V, [inputs, outputs].
        graph: the messages.
        group: number of the group.
        keep: whether the backward kernel will run.
        messages: workspace for the messages of the largest group.
        active_units: workspace for its active units.
    """
    configs, width = len(hop.states) // graph.nodes[-1], hop.states.shape[1]
    begin, last = graph.nodes[group], graph.nodes[group + 1]
    first_message = graph.to_consumers.starts[group] + graph.to_producers.starts[group]
    _find_active_units_of(hop.states, begin, last, configs, active_units)
    count = _send(
        hop.states, begin, active_units, weights.to_consumers, graph.to_consumers, group, configs, messages
    )
    rest = messages[count * configs :]
    count += _send(
        hop.states, begin, active_units, weights.to_producers, graph.to_producers, group, configs, rest
    )
    if keep:
        _record_active(messages[: count * configs], hop.active[first_message * configs :])
    # Rows of these tables are nodes or messages, with all decisions side by side.
    table, aggregates = messages.reshape(-1, configs * width), hop.aggregated.reshape(-1, configs * width)
    step = 1 if configs >= MANY_DECISIONS else BLOCK_ROWS // configs
    units, chunk = all_units(width), 0
    for node in range(begin, last, step):
        end = min(node + step, last)
        for receiver in range(node, end):
            multiply_row(graph.matrix, receiver, table, first_message, aggregates[receiver])
        row = node * configs
        while row < end * configs:
            stop = chunk_end(row, end * configs, configs)
            active = active_units.units[chunk], active_units.counts[chunk]
            gathered_product((hop.states, row), weights.state, (hop.updated, row), stop - row, active)
            active = find_active_units(hop.aggregated, row, stop - row, configs, units)
            gathered_product_add_relu(
                (hop.aggregated, row), weights.aggregate, (hop.updated, row), stop - row, active
            )
            row = stop
            chunk += 1 if configs >= MANY_DECISIONS else 0


@compiled
def _chunks_per_node(configs: int) -> int:
    """Returns the number of chunks of a node (see `gemm.chunk_end`)."""
    count, row = 0, 0
    while row < configs:
        row = chunk_end(row, configs, configs)
        count += 1
    return count


@compiled
def _allocate_active_units(max_nodes: int, width: int, configs: int) -> _ActiveUnits:
    """Allocates the result of `_find_active_units_of` for the largest group; all units are active at first.

    With few decisions inactive units are not looked for, and one row stands for all chunks.
    """
    size = max_nodes * _chunks_per_node(configs) if configs >= MANY_DECISIONS else 1
    units = np.empty((size, width), np.int64)
    units[:] = all_units(width)
    return _ActiveUnits(units, np.full(size, width))


@compiled
def _find_active_units_of(states: F32, begin: int, end: int, configs: int, out: _ActiveUnits) -> None:
    """Writes the active units of nodes `begin` to `end` to the first rows of `out`, for all products."""
    chunk, row = 0, begin * configs
    while configs >= MANY_DECISIONS and row < end * configs:
        stop = chunk_end(row, end * configs, configs)
        out.counts[chunk] = find_active_units(states, row, stop - row, configs, out.units[chunk])[1]
        row = stop
        chunk += 1


@compiled
def _send(
    states: F32,
    first_node: int,
    active_units: _ActiveUnits,
    weight: F32,
    senders: Senders,
    group: int,
    configs: int,
    messages: F32,
) -> int:
    """Writes the messages of a group's senders to the first rows of `messages`; returns how many there are.

    `first_node` is the group's first node, from which on chunks are counted in `active_units`.
    """
    first, last = senders.starts[group], senders.starts[group + 1]
    to, chunks = 0, _chunks_per_node(configs)
    if configs < MANY_DECISIONS:
        _send_blocks(states, weight, senders.nodes[first:last], configs, messages)
    else:
        for node in senders.nodes[first:last]:
            row, chunk = node * configs, (node - first_node) * chunks
            while row < (node + 1) * configs:
                stop = chunk_end(row, (node + 1) * configs, configs)
                active = active_units.units[chunk], active_units.counts[chunk]
                gathered_product_relu((states, row), weight, (messages, to), stop - row, active)
                to += stop - row
                row = stop
                chunk += 1
    count: int = last - first
    return count


@compiled
def _send_blocks(states: F32, weight: F32, senders: I64, configs: int, messages: F32) -> None:
    """Writes messages of few decisions: one product per block of senders, copied unless consecutive."""
    width = states.shape[1]
    block, step, units = aligned(BLOCK_ROWS, width), BLOCK_ROWS // configs, (all_units(width), width)
    for first in range(0, len(senders), step):
        nodes = senders[first : first + step]
        row, rows = first * configs, len(nodes) * configs
        if are_consecutive(nodes):
            gathered_product_relu((states, nodes[0] * configs), weight, (messages, row), rows, units)
        else:
            gather_rows(states, nodes, configs, block)
            gathered_product_relu((block, 0), weight, (messages, row), rows, units)


@compiled_fused
def multiply_row(matrix: CsrMatrix, row: int, table: F32, first_column: int, out: F32) -> None:
    """out = row `row` of the sparse matrix times a table [., W], where W is the length of `out`.

    The table holds the rows from `first_column` on of the whole table that the matrix is defined over.
    """
    begin, end = matrix.starts[row], matrix.starts[row + 1]
    if begin == end:
        out[:] = 0.0
        return
    message, weight = table[matrix.columns[begin] - first_column], matrix.weights[begin]
    for w in range(len(out)):
        out[w] = weight * message[w]
    for entry in range(begin + 1, end):
        message, weight = table[matrix.columns[entry] - first_column], matrix.weights[entry]
        for w in range(len(out)):
            out[w] += weight * message[w]


@compiled
def longest_run(starts: I64) -> int:
    """Returns the length of the longest run, where run r is starts[r] to starts[r + 1]."""
    length: int = np.diff(starts).max()
    return length


@compiled
def are_consecutive(nodes: I64) -> bool:
    """Returns whether strictly ascending nodes are consecutive."""
    return bool(nodes[-1] - nodes[0] == len(nodes) - 1)


@compiled
def _record_active(messages: F32, active: Bool) -> None:
    values, flags = messages.reshape(-1), active.reshape(-1)
    for h in range(len(values)):
        # A NaN counts as active and lets its gradient pass, as in torch.
        flags[h] = not values[h] <= 0.0


@compiled
def gather_rows(states: F32, nodes: I64, configs: int, out: F32) -> None:
    """Copies the rows of `nodes`, `configs` each, to `out`, one node after another."""
    for number in range(len(nodes)):
        first = nodes[number] * configs
        out[number * configs : (number + 1) * configs] = states[first : first + configs]


@compiled
def scatter_add(block: F32, nodes: I64, configs: int, out: F32, shift: int) -> None:
    """Adds the rows of `block`, `configs` per node, to the rows of `nodes` in `out`, shifted by `shift`."""
    for number in range(len(nodes)):
        for c in range(configs):
            row, addend = out[nodes[number] * configs + c + shift], block[number * configs + c]
            for h in range(len(row)):
                row[h] += addend[h]


@compiled
def sage_backward(
    gradient: F32, states: F32, weights: SageMatrices, graph: MessageGraph, computed: SageStates
) -> tuple[F32, SageMatrices]:
    """Returns the gradients of the states [N C, H] and of the weights of `sage_forward`.

    Args:
        gradient: gradient of the last hop's output, [N C, H].
        states: x, [N C, H].
        weights: as in `sage_forward`.
        graph: as in `sage_forward`.
        computed: what `sage_forward` returned with `keep`.
    """
    (rows, width), hops = gradient.shape, len(weights.to_consumers)
    configs = rows // graph.nodes[-1]
    for_state, for_aggregate = _halves(weights.update)
    matrices = _Weights(weights.to_consumers, weights.to_producers, for_state, for_aggregate)
    d_matrices = _Weights(_zeros(for_state), _zeros(for_state), _zeros(for_state), _zeros(for_state))
    d_states, max_rows = aligned(rows, width), longest_run(graph.nodes) * configs
    workspace = aligned(3 * max_rows, width).reshape(3, max_rows, width)
    for group in range(len(graph.nodes) - 1):
        begin = graph.nodes[group] * configs
        # The gradient that the first hop below reads is the argument; between hops two buffers take turns.
        d_output = gradient, begin
        for number in range(hops - 1, -1, -1):
            x = computed.updated[number - 1] if number else states
            hop = _Hop(x, computed.active[number], computed.aggregated[number], computed.updated[number])
            d_input = (workspace[number % 2], 0) if number else (d_states, begin)
            _hop_gradient(
                d_output,
                d_input,
                hop,
                graph,
                group,
                _of_hop(matrices, number),
                _of_hop(d_matrices, number),
                workspace[2],
            )
            d_output = d_input
    d_update = np.concatenate((d_matrices.state, d_matrices.aggregate), axis=2)
    return d_states, SageMatrices(d_matrices.to_consumers, d_matrices.to_producers, d_update)


@compiled
def _halves(update: F32) -> tuple[F32, F32]:
    """Returns copies of the halves of [L, H, 2 H]: U over the state and V over the aggregate, [L, H, H]."""
    hops, width = update.shape[:2]
    for_state = aligned(hops * width, width).reshape(hops, width, width)
    for_aggregate = aligned(hops * width, width).reshape(hops, width, width)
    for_state[:], for_aggregate[:] = update[:, :, :width], update[:, :, width:]
    return for_state, for_aggregate


@compiled
def _zeros(like: F32) -> F32:
    count, height, width = like.shape
    return aligned_zeros(count * height, width).reshape(like.shape)


@compiled
def _hop_gradient(
    d_output: Rows,
    d_input: Rows,
    hop: _Hop,
    graph: MessageGraph,
    group: int,
    weights: _Weights,
    d_weights: _Weights,
    d_aggregated: F32,
) -> None:
    """Backpropagates through one hop of a group.

    Args:
        d_output: gradient of the hop's output; the group begins at its row.
        d_input: gradient of the hop's input, written from its row on.
        hop: what the forward kernel computed.
        graph: the messages.
        group: number of the group.
        weights: F, B, U and V, [outputs, inputs].
        d_weights: their gradients, which are added to.
        d_aggregated: workspace for the gradient of the group's aggregates.
    """
    (d_updated, updated_row), (d_states, states_row) = d_output, d_input
    width, configs = hop.states.shape[1], len(hop.states) // graph.nodes[-1]
    begin, end = graph.nodes[group] * configs, graph.nodes[group + 1] * configs
    block, units, row = aligned(BLOCK_ROWS, width), all_units(width), begin
    while row < end:
        stop = chunk_end(row, end, configs)
        size = stop - row
        relu_gradient(d_updated, updated_row + row - begin, hop.updated, row, size, block)
        active = find_active_units(block, 0, size, configs, units)
        add_gathered_gradient((block, 0), (hop.states, row), size, d_weights.state, active)
        add_gathered_gradient((block, 0), (hop.aggregated, row), size, d_weights.aggregate, active)
        gathered_product((block, 0), weights.state, (d_states, states_row + row - begin), size, active)
        gathered_product((block, 0), weights.aggregate, (d_aggregated, row - begin), size, active)
        row = stop
    table, shifted = d_aggregated.reshape(-1, configs * width), (d_states, states_row - begin)
    # A group's messages to consumers come before those to producers.
    for_consumers = graph.to_consumers.starts[group] + graph.to_producers.starts[group]
    for_producers = graph.to_consumers.starts[group + 1] + graph.to_producers.starts[group]
    _through_messages(
        _SparseProduct(graph.transposed, table, graph.nodes[group], for_consumers),
        hop,
        shifted,
        graph.to_consumers,
        group,
        weights.to_consumers,
        d_weights.to_consumers,
    )
    _through_messages(
        _SparseProduct(graph.transposed, table, graph.nodes[group], for_producers),
        hop,
        shifted,
        graph.to_producers,
        group,
        weights.to_producers,
        d_weights.to_producers,
    )


class _SparseProduct(NamedTuple):
    """Rows from `first_row` on of a sparse matrix times a table, whose first row is column `first_column`."""

    matrix: CsrMatrix
    table: F32
    first_column: int
    first_row: int


@compiled
def _through_messages(
    d_messages: _SparseProduct,
    hop: _Hop,
    d_states: Rows,
    senders: Senders,
    group: int,
    weight: F32,
    d_weight: F32,
) -> None:
    """Backpropagates through the messages of a group's senders, adding to the gradients of states and matrix.

    Args:
        d_messages: A^T times the gradient of the aggregates: the gradient of the messages.
        hop: what the forward kernel computed.
        d_states: gradient of the states, and by how much its rows are shifted against those of the states.
        senders: nodes that send the messages.
        group: number of the group.
        weight: F or B.
        d_weight: its gradient.
    """
    (d_rows, shift), width = d_states, hop.states.shape[1]
    configs = d_messages.table.shape[1] // width
    block, units = aligned(max(BLOCK_ROWS, configs), width), all_units(width)
    first, last = senders.starts[group], senders.starts[group + 1]
    step = 1 if configs >= MANY_DECISIONS else BLOCK_ROWS // configs
    gathered = aligned(step * configs, width)
    for sender in range(first, last, step):
        nodes = senders.nodes[sender : min(sender + step, last)]
        row, count = nodes[0] * configs, len(nodes) * configs
        _multiply_relu_gradient(d_messages, sender - first, hop.active, block[:count])
        if are_consecutive(nodes):
            begin = 0
            while begin < count:
                stop = chunk_end(begin, count, configs)
                size = stop - begin
                active = find_active_units(block, begin, size, configs, units)
                add_gathered_gradient((block, begin), (hop.states, row + begin), size, d_weight, active)
                out = d_rows, row + begin + shift
                gathered_product_add((block, begin), weight, out, size, active)
                begin = stop
        else:
            active = units, width
            gather_rows(hop.states, nodes, configs, gathered)
            add_gathered_gradient((block, 0), (gathered, 0), count, d_weight, active)
            gathered_product((block, 0), weight, (gathered, 0), count, active)
            scatter_add(gathered, nodes, configs, d_rows, shift)


@compiled_fused
def _multiply_relu_gradient(d_messages: _SparseProduct, skipped: int, active: Bool, out: F32) -> None:
    """Writes the gradients of messages before their ReLU, from message `first_row + skipped` on."""
    matrix, table, first_column = d_messages.matrix, d_messages.table, d_messages.first_column
    size, first = table.shape[1], d_messages.first_row + skipped
    rows, active_rows = out.reshape(-1, size), active.reshape(-1, size)
    for message in range(len(rows)):
        row, is_active = rows[message], active_rows[first + message]
        begin, end = matrix.starts[first + message], matrix.starts[first + message + 1]
        # Most messages have one receiver: then the sum and the ReLU are one loop.
        if end == begin + 1:
            gradient, weight = table[matrix.columns[begin] - first_column], matrix.weights[begin]
            for w in range(size):
                row[w] = weight * gradient[w] if is_active[w] else np.float32(0.0)
            continue
        multiply_row(matrix, first + message, table, first_column, row)
        for w in range(size):
            row[w] = row[w] if is_active[w] else np.float32(0.0)
