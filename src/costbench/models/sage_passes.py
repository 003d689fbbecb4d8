"""Compiled passes of GraphSAGE, all hops at a time, forward and backward.

Nodes go through in groups that no edge leaves (`listeners`), a group through all hops, so that what one hop
computes the next reads from a cache. Messages are needed whole only until they are added up: for the gradient
it is enough to know where a rectifier let them through, a quarter of the memory. Rows are those of states
[N, C, H] as [N C, H], a node's C decisions next to each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiled import compiled, compiled_fused
from costbench.models.layer_passes import aligned, aligned_zeros, mask, turned_all
from costbench.models.listeners import Bags, Listeners, Talkers
from costbench.models.narrow_products import (
    BLOCK_ROWS,
    RUN_ROWS,
    add_picked_gradient,
    all_units,
    pick,
    picked_product,
    picked_product_add,
    picked_product_add_relu,
    picked_product_relu,
    piece_end,
)

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@compiled_fused
def add_up(bags: Bags, row: int, table: FloatArray, base: int, out: FloatArray) -> None:
    """out = row `row` of the matrix times table [., W], W being the length of `out`.

    The table begins with row `base` of the one that the matrix is over.
    """
    begin, end = bags.starts[row], bags.starts[row + 1]
    if begin == end:
        out[:] = 0.0
        return
    told, weight = table[bags.columns[begin] - base], bags.weights[begin]
    for w in range(len(out)):
        out[w] = weight * told[w]
    for entry in range(begin + 1, end):
        told, weight = table[bags.columns[entry] - base], bags.weights[entry]
        for w in range(len(out)):
            out[w] += weight * told[w]


class SageMatrices(NamedTuple):
    """Of L hops: to consumers and to producers [L, H, H], update [L, H, 2 H] over state and what was heard.

    Outputs first, as in `nn.Linear`. Undirected, the first two are one, and the second's gradient is 0.
    """

    forth: FloatArray
    back: FloatArray
    update: FloatArray


class SageStates(NamedTuple):
    """What L hops compute; without gradients, all but the last is of one hop, that is, of each in turn.

    Attributes:
        told: bool [L, T C, H], False where a message is 0; without gradients, empty.
        heard: [L, N C, H].
        updated: [L, N C, H].
    """

    told: BoolArray
    heard: FloatArray
    updated: FloatArray


@compiled
def sage_forward(states: FloatArray, weights: SageMatrices, listeners: Listeners, keep: bool) -> SageStates:
    """messages = relu([x[forth] F; x[back] B]), heard = A messages, x = relu(x U + heard V), hop after hop.

    Args:
        states: x, [N C, H].
        weights: F, B, (U, V), transposed.
        listeners: A and the talkers.
        keep: whether the gradient will be asked for.
    """
    (rows, width), hops = states.shape, len(weights.forth)
    kept, configs = hops if keep else 1, rows // listeners.nodes[-1]
    starts = listeners.forth.starts + listeners.back.starts
    found = SageStates(
        np.empty((kept, starts[-1] * configs if keep else 0, width), np.bool_),
        aligned(kept * rows, width).reshape(kept, rows, width),
        aligned(hops * rows, width).reshape(hops, rows, width),
    )
    forth, back = turned_all(weights.forth), turned_all(weights.back)
    own, heard_by = turned_all(weights.update[:, :, :width]), turned_all(weights.update[:, :, width:])
    messages = aligned(_most(starts) * configs, width)
    known = _room(_most(listeners.nodes), width, configs)
    for group in range(len(listeners.nodes) - 1):
        x = states
        for hop in range(hops):
            place = hop if keep else 0
            matrices = forth[hop], back[hop], own[hop], heard_by[hop]
            step = found.told[place], found.heard[place], found.updated[hop]
            _hop(x, matrices, (listeners, group, keep), step, (messages, known))
            x = found.updated[hop]
    return found


class _Known(NamedTuple):
    """Which units of a group are not 0, as `pick` leaves them, piece by piece: int64 [P, H] and [P]."""

    units: IntArray
    counts: IntArray


@compiled
def _pieces(configs: int) -> int:
    """Of a node."""
    count, row = 0, 0
    while row < configs:
        row = piece_end(row, configs, configs)
        count += 1
    return count


@compiled
def _room(most_nodes: int, width: int, configs: int) -> _Known:
    """For the largest group; of few decisions, all units of all pieces."""
    size = most_nodes * _pieces(configs)
    units = np.empty((size, width), np.int64)
    units[:] = all_units(width)
    return _Known(units, np.full(size, width))


@compiled
def _learn(states: FloatArray, begin: int, end: int, configs: int, known: _Known) -> None:
    """Pick the units of some nodes, which are the first ones of `known`."""
    piece, row = 0, begin * configs
    while configs >= RUN_ROWS and row < end * configs:
        stop = piece_end(row, end * configs, configs)
        known.counts[piece] = pick(states, row, stop - row, configs, known.units[piece])[1]
        row = stop
        piece += 1


@compiled
def _hop(
    states: FloatArray,
    matrices: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    place: tuple[Listeners, int, bool],
    found: tuple[BoolArray, FloatArray, FloatArray],
    room: tuple[FloatArray, _Known],
) -> None:
    """One hop of a group of nodes; place[2] says whether the gradient will be asked for."""
    (forth, back, own, heard_by), (listeners, group, keep), (told, heard, updated) = matrices, place, found
    configs, width, (messages, known) = len(states) // listeners.nodes[-1], states.shape[1], room
    begin, last = listeners.nodes[group], listeners.nodes[group + 1]
    base = listeners.forth.starts[group] + listeners.back.starts[group]
    _learn(states, begin, last, configs, known)
    source = states, begin, known
    count = _tell(source, forth, listeners.forth, group, (messages, configs))
    count += _tell(source, back, listeners.back, group, (messages[count * configs :], configs))
    if keep:
        _note(messages[: count * configs], told[base * configs :])
    table, flat = messages.reshape(-1, configs * width), heard.reshape(-1, configs * width)
    step = 1 if configs >= RUN_ROWS else BLOCK_ROWS // configs
    units, piece = all_units(width), 0
    for node in range(begin, last, step):
        end = min(node + step, last)
        for receiver in range(node, end):
            add_up(listeners.heard, receiver, table, base, flat[receiver])
        row = node * configs
        while row < end * configs:
            stop = piece_end(row, end * configs, configs)
            on = known.units[piece], known.counts[piece]
            picked_product((states, row), own, (updated, row), stop - row, on)
            on = pick(heard, row, stop - row, configs, units)
            picked_product_add_relu((heard, row), heard_by, (updated, row), stop - row, on)
            row = stop
            piece += 1


@compiled
def _most(starts: IntArray) -> int:
    """Length of the longest of consecutive runs."""
    most: int = np.diff(starts).max()
    return most


@compiled
def _tell(
    source: tuple[FloatArray, int, _Known],
    weight: FloatArray,
    talkers: Talkers,
    group: int,
    out: tuple[FloatArray, int],
) -> int:
    """Messages of talkers of a group, into the first rows of out[0], of out[1] decisions each; how many.

    `source` are the states, the group's first node, and which units of it are not 0.
    """
    (states, begin, known), (messages, configs) = source, out
    first, last = talkers.starts[group], talkers.starts[group + 1]
    to, pieces = 0, _pieces(configs)
    if configs < RUN_ROWS:
        _tell_gathered(states, weight, talkers.nodes[first:last], configs, messages)
    else:
        for node in talkers.nodes[first:last]:
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
def _tell_gathered(
    states: FloatArray, weight: FloatArray, talkers: IntArray, configs: int, messages: FloatArray
) -> None:
    """Messages of few decisions each, a block of nodes at a time."""
    width = states.shape[1]
    block, step, on = aligned(BLOCK_ROWS, width), BLOCK_ROWS // configs, (all_units(width), width)
    for place in range(0, len(talkers), step):
        nodes = talkers[place : place + step]
        row, rows = place * configs, len(nodes) * configs
        if _lie_together(nodes):
            picked_product_relu((states, nodes[0] * configs), weight, (messages, row), rows, on)
        else:
            gather(states, nodes, configs, block)
            picked_product_relu((block, 0), weight, (messages, row), rows, on)


@compiled
def _lie_together(nodes: IntArray) -> bool:
    return bool(nodes[-1] - nodes[0] == len(nodes) - 1)


@compiled
def _note(messages: FloatArray, told: BoolArray) -> None:
    numbers, noted = messages.reshape(-1), told.reshape(-1)
    for h in range(len(numbers)):
        # A NaN lets its gradient through, as in torch.
        noted[h] = not numbers[h] <= 0.0


@compiled
def gather(states: FloatArray, nodes: IntArray, configs: int, out: FloatArray) -> None:
    """Rows of `nodes`, `configs` each, one node after another."""
    for place in range(len(nodes)):
        first = nodes[place] * configs
        out[place * configs : (place + 1) * configs] = states[first : first + configs]


@compiled
def scatter_add(block: FloatArray, nodes: IntArray, configs: int, out: FloatArray, ahead: int) -> None:
    """Add to the rows `ahead` of those of `nodes` what lies one node after another in `block`."""
    for place in range(len(nodes)):
        for c in range(configs):
            row, more = out[nodes[place] * configs + c + ahead], block[place * configs + c]
            for h in range(len(row)):
                row[h] += more[h]


@compiled
def sage_backward(
    gradient: FloatArray,
    states: FloatArray,
    weights: SageMatrices,
    listeners: Listeners,
    computed: SageStates,
) -> tuple[FloatArray, SageMatrices]:
    """Gradients of the states and the weights of `sage_forward` where [N C, H] reaches the last `updated`."""
    (rows, width), hops = gradient.shape, len(weights.forth)
    configs = rows // listeners.nodes[-1]
    own, heard_by = _halves(weights.update)
    d_own, d_heard_by = _zeros(own), _zeros(own)
    d_forth, d_back = _zeros(own), _zeros(own)
    d_states, most = aligned(rows, width), _most(listeners.nodes) * configs
    scratch = aligned(3 * most, width).reshape(3, most, width)
    for group in range(len(listeners.nodes) - 1):
        begin = listeners.nodes[group] * configs
        came, came_at = gradient, begin
        for hop in range(hops - 1, -1, -1):
            x = computed.updated[hop - 1] if hop else states
            of_hop = x, computed.told[hop], computed.heard[hop], computed.updated[hop]
            matrices = weights.forth[hop], weights.back[hop], own[hop], heard_by[hop]
            found = d_forth[hop], d_back[hop], d_own[hop], d_heard_by[hop]
            to, at = (scratch[hop % 2], 0) if hop else (d_states, begin)
            places = (came, came_at), (to, at)
            _hop_gradient(places, of_hop, (listeners, group), (matrices, found), scratch[2])
            came, came_at = to, at
    d_update = np.concatenate((d_own, d_heard_by), axis=2)
    return d_states, SageMatrices(d_forth, d_back, d_update)


@compiled
def _halves(update: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of [L, H, 2 H] what goes over the state, and over what was heard, [L, H, H] each."""
    hops, width = update.shape[:2]
    own = aligned(hops * width, width).reshape(hops, width, width)
    heard_by = aligned(hops * width, width).reshape(hops, width, width)
    own[:], heard_by[:] = update[:, :, :width], update[:, :, width:]
    return own, heard_by


@compiled
def _zeros(like: FloatArray) -> FloatArray:
    count, height, width = like.shape
    return aligned_zeros(count * height, width).reshape(like.shape)


FourMatrices = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


@compiled
def _hop_gradient(
    places: tuple[tuple[FloatArray, int], tuple[FloatArray, int]],
    of_hop: tuple[FloatArray, BoolArray, FloatArray, FloatArray],
    whose: tuple[Listeners, int],
    matrices: tuple[FourMatrices, FourMatrices],
    d_heard: FloatArray,
) -> None:
    """Through one hop of a group: from rows of places[0], an array and the first row, to those of places[1].

    Gradients of the matrices are added to matrices[1].
    """
    (came, came_at), (d_states, at) = places
    (states, told, heard, updated), (listeners, group) = of_hop, whose
    (forth, back, own, heard_by), (d_forth, d_back, d_own, d_heard_by) = matrices
    width, configs = states.shape[1], len(states) // listeners.nodes[-1]
    begin, end = listeners.nodes[group] * configs, listeners.nodes[group + 1] * configs
    block, units, row = aligned(BLOCK_ROWS, width), all_units(width), begin
    while row < end:
        stop = piece_end(row, end, configs)
        size = stop - row
        mask(came, came_at + row - begin, updated, row, size, block)
        on = pick(block, 0, size, configs, units)
        add_picked_gradient((block, 0), (states, row), size, d_own, on)
        add_picked_gradient((block, 0), (heard, row), size, d_heard_by, on)
        picked_product((block, 0), own, (d_states, at + row - begin), size, on)
        picked_product((block, 0), heard_by, (d_heard, row - begin), size, on)
        row = stop
    table, base = d_heard.reshape(-1, configs * width), listeners.nodes[group]
    talked = listeners.forth.starts[group] + listeners.back.starts[group]
    rows = states, told, d_states, at - begin
    forth_sum = Sum(listeners.told, table, base, talked)
    _through_messages(forth_sum, rows, (listeners.forth, group), (forth, d_forth))
    talked = listeners.forth.starts[group + 1] + listeners.back.starts[group]
    back_sum = Sum(listeners.told, table, base, talked)
    _through_messages(back_sum, rows, (listeners.back, group), (back, d_back))


class Sum(NamedTuple):
    """Rows of a sparse matrix from `first` on, times a table that begins with row `base`."""

    bags: Bags
    table: FloatArray
    base: int
    first: int


@compiled
def _through_messages(
    told: Sum,
    rows: tuple[FloatArray, BoolArray, FloatArray, int],
    whose: tuple[Talkers, int],
    matrices: tuple[FloatArray, FloatArray],
) -> None:
    """Through messages of talkers of a group: gradients of the states and of the matrix are added.

    `rows` are the states, which messages are not 0, the gradient of the states, and how much further on
    its rows lie than theirs.
    """
    (states, seen, d_states, ahead), (talkers, group), (weight, d_weight) = rows, whose, matrices
    width = states.shape[1]
    configs = told.table.shape[1] // width
    block, units = aligned(max(BLOCK_ROWS, configs), width), all_units(width)
    first, last = talkers.starts[group], talkers.starts[group + 1]
    step = 1 if configs >= RUN_ROWS else BLOCK_ROWS // configs
    own = aligned(step * configs, width)
    for place in range(first, last, step):
        nodes = talkers.nodes[place : min(place + step, last)]
        row, count = nodes[0] * configs, len(nodes) * configs
        _messages_gradient(told, place - first, seen, block[:count])
        if _lie_together(nodes):
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
def _messages_gradient(told: Sum, place: int, seen: BoolArray, out: FloatArray) -> None:
    """Gradients of the messages from `place` on before their rectifier."""
    wide, first = told.table.shape[1], told.first + place
    rows, known = out.reshape(-1, wide), seen.reshape(-1, wide)
    for message in range(len(rows)):
        row, lets = rows[message], known[first + message]
        begin, end = told.bags.starts[first + message], told.bags.starts[first + message + 1]
        # Most are heard by one node.
        if end == begin + 1:
            came, weight = told.table[told.bags.columns[begin] - told.base], told.bags.weights[begin]
            for w in range(wide):
                row[w] = weight * came[w] if lets[w] else np.float32(0.0)
            continue
        add_up(told.bags, first + message, told.table, told.base, row)
        for w in range(wide):
            row[w] = row[w] if lets[w] else np.float32(0.0)
