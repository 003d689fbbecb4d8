"""The messages of a batch as CSR matrices over groups of nodes, as the GraphSAGE kernels read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import F32, I64
from costbench.execution.compiled import compiled
from costbench.models.kernels.components import closed_groups
from costbench.models.kernels.gemm import MANY_DECISIONS

GROUP_ROWS = 512
"""Rows (nodes times decisions) at which a group is full: its messages then fit the L2 cache."""


class CsrMatrix(NamedTuple):
    """A sparse matrix in compressed sparse row (CSR) format.

    Row r has the entries starts[r] to starts[r + 1] of `columns` and `weights`.

    Attributes:
        starts: int64 [rows + 1].
        columns: int64 [entries].
        weights: float32 [entries].
    """

    starts: I64
    columns: I64
    weights: F32


@compiled
def transpose(matrix: CsrMatrix, num_columns: int) -> CsrMatrix:
    """Returns the transposed matrix; the columns of each row ascend."""
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
    """`receiver`, `sender`, `message` of `edges.Edges`, int64 [M], and weights of entries, float32 [M]."""

    receiver: I64
    sender: I64
    message: I64
    weights: F32


class Senders(NamedTuple):
    """Nodes that send messages, ascending, int64 [T]; group g has the entries starts[g] to starts[g + 1]."""

    nodes: I64
    starts: I64


class MessageGraph(NamedTuple):
    """T messages in groups of nodes that receive none from outside their group.

    Attributes:
        nodes: int64 [G + 1]; group g has the nodes nodes[g] to nodes[g + 1].
        forth: nodes that send messages to consumers; all nodes with fewer than `MANY_DECISIONS` decisions.
        back: nodes that send messages to producers.
        matrix: A, [N, T]. Columns are sorted by group, in a group those of `forth` before those of `back`.
        transposed: A^T, [T, N].
    """

    nodes: I64
    forth: Senders
    back: Senders
    matrix: CsrMatrix
    transposed: CsrMatrix


@compiled
def message_graph(entries: Entries, with_producers: I64, num_nodes: int, configs: int) -> MessageGraph:
    """Returns the messages of a batch with `configs` decisions per node, without those that nobody receives.

    With few decisions messages to consumers are computed for all nodes, since consecutive rows need no
    copies. `with_producers` is that of `edges.Edges`.
    """
    receiver, sender, message, weights = entries
    nodes = closed_groups(receiver, sender, num_nodes, -(-GROUP_ROWS // configs))
    is_received = np.zeros(num_nodes + len(with_producers), np.bool_)
    is_received[:num_nodes] = configs < MANY_DECISIONS
    # All messages of `with_producers` are received but those of its padding, which repeats the last node.
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
