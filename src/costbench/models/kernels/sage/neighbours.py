"""Who hears whom in a batch, as compiled passes of GraphSAGE read it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.execution.compiled import compiled
from costbench.models.kernels.components import closed_groups
from costbench.models.kernels.gemm import MANY_DECISIONS

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

GROUP_ROWS = 512
"""Rows of a group of nodes, whose messages then fit the second cache."""


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


class Entries(NamedTuple):
    """`receiver`, `sender`, `message` of `edges.Edges`, int64 [M] each, and float32 [M], what each counts."""

    receiver: IntArray
    sender: IntArray
    message: IntArray
    weights: FloatArray


class Talkers(NamedTuple):
    """Nodes that tell others something, ascending: int64 [T], and int64 [G + 1], where each group's begin."""

    nodes: IntArray
    starts: IntArray


class Listeners(NamedTuple):
    """Who hears whom, by groups of nodes that hear nobody outside.

    Attributes:
        nodes: int64 [G + 1], where each group's nodes begin.
        forth: nodes that tell their consumers something; of few decisions (`MANY_DECISIONS`), all nodes.
        back: nodes that tell their producers something else.
        heard: A, [N, T]. Messages lie group by group, those of `forth` first, then those of `back`.
        told: A^T, [T, N].
    """

    nodes: IntArray
    forth: Talkers
    back: Talkers
    heard: Bags
    told: Bags


@compiled
def listeners_of(entries: Entries, talking: IntArray, num_nodes: int, configs: int) -> Listeners:
    """Of batches with `configs` decisions; `talking` as `with_producers` of `edges.Edges`."""
    receiver, sender, message, weights = entries
    nodes = closed_groups(receiver, sender, num_nodes, -(-GROUP_ROWS // configs))
    is_heard = np.zeros(num_nodes + len(talking), np.bool_)
    is_heard[:num_nodes] = configs < MANY_DECISIONS
    # Of `talking` all are heard but for padding, the last node again and again.
    is_heard[message] = True
    tellers, places = np.flatnonzero(is_heard[:num_nodes]), np.flatnonzero(is_heard[num_nodes:])
    forth = Talkers(tellers, np.searchsorted(tellers, nodes))
    back = Talkers(talking[places], np.searchsorted(talking[places], nodes))
    columns = np.empty_like(message)
    group = 0
    for entry in range(len(message)):
        while receiver[entry] >= nodes[group + 1]:
            group += 1
        if message[entry] < num_nodes:
            columns[entry] = back.starts[group] + np.searchsorted(tellers, message[entry])
        else:
            columns[entry] = forth.starts[group + 1] + np.searchsorted(places, message[entry] - num_nodes)
    heard = Bags(np.searchsorted(receiver, np.arange(num_nodes + 1)), columns, weights)
    return Listeners(nodes, forth, back, heard, transposed(heard, len(tellers) + len(places)))
