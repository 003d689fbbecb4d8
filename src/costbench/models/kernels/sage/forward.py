"""Compiled passes of GraphSAGE, all hops at a time.

Nodes go through in groups that no edge leaves (`listeners`), a group through all hops, so that what one hop
computes the next reads from a cache. Messages are needed whole only until they are added up: for the gradient
it is enough to know where a rectifier let them through, a quarter of the memory. Rows are those of states
[N, C, H] as [N C, H], a node's C decisions next to each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
from costbench.models.kernels.sage.neighbours import Bags, Listeners, Talkers

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
    messages = aligned(longest(starts) * configs, width)
    known = _room(longest(listeners.nodes), width, configs)
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
    """For the largest group; of few decisions, one piece for all, of all units."""
    size = most_nodes * _pieces(configs) if configs >= MANY_DECISIONS else 1
    units = np.empty((size, width), np.int64)
    units[:] = all_units(width)
    return _Known(units, np.full(size, width))


@compiled
def _learn(states: FloatArray, begin: int, end: int, configs: int, known: _Known) -> None:
    """Pick the units of some nodes, which are the first ones of `known`."""
    piece, row = 0, begin * configs
    while configs >= MANY_DECISIONS and row < end * configs:
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
    step = 1 if configs >= MANY_DECISIONS else BLOCK_ROWS // configs
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
            piece += 1 if configs >= MANY_DECISIONS else 0


@compiled
def longest(starts: IntArray) -> int:
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
    if configs < MANY_DECISIONS:
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
        if lie_together(nodes):
            picked_product_relu((states, nodes[0] * configs), weight, (messages, row), rows, on)
        else:
            gather(states, nodes, configs, block)
            picked_product_relu((block, 0), weight, (messages, row), rows, on)


@compiled
def lie_together(nodes: IntArray) -> bool:
    """Whether nodes, strictly ascending, are neighbours."""
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
