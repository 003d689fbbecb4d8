"""Compiled passes of feed-forward layers and of a GraphSAGE hop, forward and backward.

They go through the rows of a batch in blocks that fit the innermost caches: what one product writes the next
reads from there, and values that are needed once only are never written to memory. Rows are those of states
[N, C, H] as [N C, H], a node's C decisions next to each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiled import compiled
from costbench.models.narrow_products import (
    add_gradient,
    product,
    product_add,
    product_add_relu,
    product_masked,
    product_relu,
)

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

BLOCK_ROWS = 256
"""Rows of a block: of width 64 they take 64 kB."""


@compiled
def aligned(rows: int, width: int) -> FloatArray:
    """An array whose rows begin where vector registers like to read: at whole lines of the caches."""
    store = np.empty(rows * width + 16, np.float32)
    skipped = (-(store.ctypes.data >> 2)) % 16
    return store[skipped : skipped + rows * width].reshape(rows, width)


@compiled
def mask(d: FloatArray, d_row: int, seen: FloatArray, seen_row: int, rows: int, out: FloatArray) -> None:
    """out = d where `seen` is above 0, else 0: rows from 0 on of `out`, else from a row on."""
    for r in range(rows):
        came, above, written = d[d_row + r], seen[seen_row + r], out[r]
        for h in range(len(came)):
            written[h] = np.float32(0.0) if above[h] <= 0.0 else came[h]


@compiled
def mask_in_place(d: FloatArray, seen: FloatArray, seen_row: int, rows: int) -> None:
    """As `mask`, of the first rows of `d`: where arrays overlap, that one is not vectorised."""
    for r in range(rows):
        came, above = d[r], seen[seen_row + r]
        for h in range(len(came)):
            came[h] = np.float32(0.0) if above[h] <= 0.0 else came[h]


@compiled
def stack_forward(rows: FloatArray, weights: FloatArray, outputs: FloatArray) -> None:
    """outputs_l = relu(outputs_(l-1) weights_l), outputs_(-1) being `rows`.

    Shape: rows [R, H], weights [L, H, H] (inputs first) to outputs [L, R, H].
    """
    for start in range(0, len(rows), BLOCK_ROWS):
        count = min(BLOCK_ROWS, len(rows) - start)
        product_relu(rows, start, weights[0], outputs[0], start, count)
        for place in range(1, len(weights)):
            product_relu(outputs[place - 1], start, weights[place], outputs[place], start, count)


@compiled
def stack_backward(
    gradient: FloatArray,
    rows: FloatArray,
    outputs: FloatArray,
    weights: FloatArray,
    d_weights: FloatArray,
    d_rows: FloatArray,
) -> None:
    """Gradients of `stack_forward`; `weights` and `d_weights` [L, H, H] outputs first, the latter zeros."""
    here, there = aligned(BLOCK_ROWS, rows.shape[1]), aligned(BLOCK_ROWS, rows.shape[1])
    last = len(weights) - 1
    for start in range(0, len(rows), BLOCK_ROWS):
        count = min(BLOCK_ROWS, len(rows) - start)
        mask(gradient, start, outputs[last], start, count, here)
        for place in range(last, 0, -1):
            before = outputs[place - 1]
            add_gradient(here, 0, before, start, count, d_weights[place])
            product_masked(here, weights[place], there, count, before, start)
            here, there = there, here
        add_gradient(here, 0, rows, start, count, d_weights[0])
        product(here, 0, weights[0], d_rows, start, count)


class Bags(NamedTuple):
    """A sparse matrix by rows: row r holds `weights` at `columns`, from starts[r] to starts[r + 1].

    int64 [rows + 1], int64 [entries], float32 [entries].
    """

    starts: IntArray
    columns: IntArray
    weights: FloatArray


@compiled
def transposed(bags: Bags, num_columns: int) -> Bags:
    """The transposed matrix; entries of a row in order of the former rows."""
    starts = np.zeros(num_columns + 1, np.int64)
    for column in bags.columns:
        starts[column + 1] += 1
    for column in range(num_columns):
        starts[column + 1] += starts[column]
    place = starts[:-1].copy()
    rows, weights = np.empty_like(bags.columns), np.empty_like(bags.weights)
    for row in range(len(bags.starts) - 1):
        for entry in range(bags.starts[row], bags.starts[row + 1]):
            column = bags.columns[entry]
            rows[place[column]] = row
            weights[place[column]] = bags.weights[entry]
            place[column] += 1
    return Bags(starts, rows, weights)


@compiled
def add_up(bags: Bags, row: int, table: FloatArray, out: FloatArray) -> None:
    """out = row `row` of the matrix times table [., W], W being the length of `out`."""
    begin, end = bags.starts[row], bags.starts[row + 1]
    if begin == end:
        out[:] = 0.0
        return
    told, weight = table[bags.columns[begin]], bags.weights[begin]
    for w in range(len(out)):
        out[w] = weight * told[w]
    for entry in range(begin + 1, end):
        told, weight = table[bags.columns[entry]], bags.weights[entry]
        for w in range(len(out)):
            out[w] += weight * told[w]


class HopMatrices(NamedTuple):
    """To consumers, to producers, over the state, over what was heard: [H, H] each, inputs first where a
    state is multiplied, outputs first where a gradient is.
    """

    forth: FloatArray
    back: FloatArray
    own: FloatArray
    heard: FloatArray


class HopStates(NamedTuple):
    """What a hop reads and computes: states [N C, H], messages [(N + S) C, H], heard and updated [N C, H]."""

    states: FloatArray
    messages: FloatArray
    heard: FloatArray
    updated: FloatArray


@compiled
def hop_forward(hop: HopStates, weights: HopMatrices, bags: Bags, talkers: IntArray, configs: int) -> None:
    """messages = relu([x F; x[talkers] B]), heard = A messages, updated = relu(x U + heard V).

    Args:
        hop: of which all but the states are written.
        weights: F, B, U, V.
        bags: A, [N, N + S].
        talkers: int64 [S], nodes with producers; none where they tell these what they tell consumers.
        configs: C.
    """
    width = hop.states.shape[1]
    num_nodes = len(hop.states) // configs
    step = max(1, BLOCK_ROWS // configs)
    for node in range(0, num_nodes, step):
        count = min(step, num_nodes - node) * configs
        product_relu(hop.states, node * configs, weights.forth, hop.messages, node * configs, count)
    block = aligned(step * configs, width)
    for place in range(0, len(talkers), step):
        count = min(step, len(talkers) - place)
        gather(hop.states, talkers[place : place + count], configs, block)
        product_relu(block, 0, weights.back, hop.messages, (num_nodes + place) * configs, count * configs)
    table, heard = hop.messages.reshape(-1, configs * width), hop.heard.reshape(-1, configs * width)
    for node in range(0, num_nodes, step):
        count = min(step, num_nodes - node)
        for receiver in range(node, node + count):
            add_up(bags, receiver, table, heard[receiver])
        product(hop.states, node * configs, weights.own, hop.updated, node * configs, count * configs)
        product_add_relu(
            hop.heard, node * configs, weights.heard, hop.updated, node * configs, count * configs
        )


@compiled
def gather(states: FloatArray, nodes: IntArray, configs: int, out: FloatArray) -> None:
    """Rows of `nodes`, `configs` each, one node after another."""
    for place in range(len(nodes)):
        first = nodes[place] * configs
        out[place * configs : (place + 1) * configs] = states[first : first + configs]


@compiled
def scatter_add(block: FloatArray, nodes: IntArray, configs: int, out: FloatArray) -> None:
    """Add to the rows of `nodes` those that lie one node after another in `block`."""
    for place in range(len(nodes)):
        for c in range(configs):
            row, more = out[nodes[place] * configs + c], block[place * configs + c]
            for h in range(len(row)):
                row[h] += more[h]


class HopGradients(NamedTuple):
    """Of states and of what was heard, [N C, H], and of the weights, which start as zeros."""

    states: FloatArray
    heard: FloatArray
    weights: HopMatrices


@compiled
def hop_backward(
    gradient: FloatArray,
    hop: HopStates,
    weights: HopMatrices,
    bags: Bags,
    talkers: IntArray,
    found: HopGradients,
) -> None:
    """Gradients of `hop_forward`. `bags` is A^T, [N + S, N]."""
    num_nodes = len(bags.starts) - 1 - len(talkers)
    width, configs = hop.states.shape[1], len(hop.states) // num_nodes
    step = max(1, BLOCK_ROWS // configs)
    d_states, d_heard, d_weights = found
    block, own = aligned(step * configs, width), aligned(step * configs, width)
    for node in range(0, num_nodes, step):
        first, count = node * configs, min(step, num_nodes - node) * configs
        mask(gradient, first, hop.updated, first, count, block)
        add_gradient(block, 0, hop.states, first, count, d_weights.own)
        add_gradient(block, 0, hop.heard, first, count, d_weights.heard)
        product(block, 0, weights.own, d_states, first, count)
        product(block, 0, weights.heard, d_heard, first, count)
    table, flat = d_heard.reshape(-1, configs * width), block.reshape(-1, configs * width)
    for node in range(0, num_nodes, step):
        first, count = node * configs, min(step, num_nodes - node)
        for place in range(count):
            add_up(bags, node + place, table, flat[place])
        mask_in_place(block, hop.messages, first, count * configs)
        add_gradient(block, 0, hop.states, first, count * configs, d_weights.forth)
        product_add(block, 0, weights.forth, d_states, first, count * configs)
    for talker in range(0, len(talkers), step):
        count = min(step, len(talkers) - talker)
        for place in range(count):
            add_up(bags, num_nodes + talker + place, table, flat[place])
        mask_in_place(block, hop.messages, (num_nodes + talker) * configs, count * configs)
        gather(hop.states, talkers[talker : talker + count], configs, own)
        add_gradient(block, 0, own, 0, count * configs, d_weights.back)
        product(block, 0, weights.back, own, 0, count * configs)
        scatter_add(own, talkers[talker : talker + count], configs, d_states)
