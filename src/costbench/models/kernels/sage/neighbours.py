"""Messages between the nodes of a batch, as compiled kernels of GraphSAGE read them."""

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


class CsrMatrix(NamedTuple):
    """A sparse matrix by rows: row r holds `weights` at `columns`, from starts[r] to starts[r + 1].

    int64 [rows + 1], int64 [entries], float32 [entries].
    """

    starts: IntArray
    columns: IntArray
    weights: FloatArray


@compiled
def transpose(matrix: CsrMatrix, num_columns: int) -> CsrMatrix:
    """The transposed matrix; entries of a row in order of the former rows."""
    starts = np.zeros(num_columns + 1, np.int64)
    for column in matrix.columns:
        starts[column + 1] += 1
    for column in range(num_columns):
        starts[column + 1] += starts[column]
    place = starts[:-1].copy()
    rows, weights = np.empty_like(matrix.columns), np.empty_like(matrix.weights)
    for row in range(len(matrix.starts) - 1):
        for entry in range(matrix.starts[row], matrix.starts[row + 1]):
            column = matrix.columns[entry]
            rows[place[column]] = row
            weights[place[column]] = matrix.weights[entry]
            place[column] += 1
    return CsrMatrix(starts, rows, weights)


class Entries(NamedTuple):
    """`receiver`, `sender`, `message` of `edges.Edges`, int64 [M] each, and float32 [M], what each counts."""

    receiver: IntArray
    sender: IntArray
    message: IntArray
    weights: FloatArray


class Senders(NamedTuple):
    """Nodes that send messages, ascending: int64 [T], and int64 [G + 1], where each group's begin."""

    nodes: IntArray
    starts: IntArray


class MessageGraph(NamedTuple):
    """Messages by groups of nodes that receive none from outside.

    Attributes:
        nodes: int64 [G + 1], where each group's nodes begin.
        forth: nodes that send messages to consumers; of few decisions (`MANY_DECISIONS`), all nodes.
        back: nodes that send others to their producers.
        matrix: A, [N, T]. Messages lie group by group, those of `forth` first, then those of `back`.
        transposed: A^T, [T, N].
    """

    nodes: IntArray
    forth: Senders
    back: Senders
    matrix: CsrMatrix
    transposed: CsrMatrix


@compiled
def message_graph(entries: Entries, with_producers: IntArray, num_nodes: int, configs: int) -> MessageGraph:
    """Of batches with `configs` decisions; `with_producers` as `with_producers` of `edges.Edges`."""
    receiver, sender, message, weights = entries
    nodes = closed_groups(receiver, sender, num_nodes, -(-GROUP_ROWS // configs))
    is_received = np.zeros(num_nodes + len(with_producers), np.bool_)
    is_received[:num_nodes] = configs < MANY_DECISIONS
    # Of `with_producers` all messages are received but those of padding, the last node again and again.
    is_received[message] = True
    to_consumers, places = np.flatnonzero(is_received[:num_nodes]), np.flatnonzero(is_received[num_nodes:])
    forth = Senders(to_consumers, np.searchsorted(to_consumers, nodes))
    back = Senders(with_producers[places], np.searchsorted(with_producers[places], nodes))
    columns = np.empty_like(message)
    group = 0
    for entry in range(len(message)):
        while receiver[entry] >= nodes[group + 1]:
            group += 1
        if message[entry] < num_nodes:
            columns[entry] = back.starts[group] + np.searchsorted(to_consumers, message[entry])
        else:
            columns[entry] = forth.starts[group + 1] + np.searchsorted(places, message[entry] - num_nodes)
    matrix = CsrMatrix(np.searchsorted(receiver, np.arange(num_nodes + 1)), columns, weights)
    return MessageGraph(nodes, forth, back, matrix, transpose(matrix, len(to_consumers) + len(places)))
