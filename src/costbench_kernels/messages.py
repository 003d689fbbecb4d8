"""The messages between the nodes of a batch as sparse matrices, for compiled kernels and for torch.

Aggregation is a sparse matrix times the table of messages (see `edges.Edges`). Compiled kernels read it
in groups of nodes that no edge leaves, mostly one or a few tensor-program kernels, so that the messages of a
group fit a cache.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from costbench.arrays import F32, I64
from costbench.execution.compiled import compiled
from costbench.models.edges import Edges
from costbench_kernels.gemm import MANY_DECISIONS


@compiled
def closed_groups(receiver: I64, sender: I64, num_nodes: int, min_nodes: int) -> I64:
    """Returns the first node of each group that no edge leaves, and N at the end: int64 [G + 1].

    A group is a run of consecutive nodes; each but the last has at least `min_nodes`.

    Args:
        receiver: int64 [M], one end of each edge.
        sender: int64 [M], the other end.
        num_nodes: N.
        min_nodes: smallest number of nodes in a group.
    """
    farthest = np.arange(num_nodes)
    for edge in range(len(receiver)):
        first, last = min(receiver[edge], sender[edge]), max(receiver[edge], sender[edge])
        farthest[first] = max(farthest[first], last)
    starts = np.empty(num_nodes + 1, np.int64)
    starts[0], count, reach = 0, 1, 0
    for node in range(num_nodes):
        reach = max(reach, farthest[node])
        if reach == node and (node + 1 - starts[count - 1] >= min_nodes or node + 1 == num_nodes):
            starts[count] = node + 1
            count += 1
    return starts[:count].copy()


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
    end = starts[:-1].copy()
    rows, weights = np.empty_like(matrix.columns), np.empty_like(matrix.weights)
    for row in range(len(matrix.starts) - 1):
        for entry in range(matrix.starts[row], matrix.starts[row + 1]):
            column = matrix.columns[entry]
            rows[end[column]] = row
            weights[end[column]] = matrix.weights[entry]
            end[column] += 1
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
        to_consumers: nodes that send messages to consumers; all nodes with fewer than `MANY_DECISIONS`
            decisions.
        to_producers: nodes that send messages to producers.
        matrix: A, [N, T]. Columns are sorted by group, in a group those to consumers before the others.
        transposed: A^T, [T, N].
    """

    nodes: I64
    to_consumers: Senders
    to_producers: Senders
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
    consumer_senders = np.flatnonzero(is_received[:num_nodes])
    indices = np.flatnonzero(is_received[num_nodes:])
    producer_senders = with_producers[indices]
    to_consumers = Senders(consumer_senders, np.searchsorted(consumer_senders, nodes))
    to_producers = Senders(producer_senders, np.searchsorted(producer_senders, nodes))
    columns = np.empty_like(message)
    group = 0
    for entry in range(len(message)):
        while receiver[entry] >= nodes[group + 1]:
            group += 1
        if message[entry] < num_nodes:
            column = np.searchsorted(consumer_senders, message[entry])
            columns[entry] = to_producers.starts[group] + column
        else:
            column = np.searchsorted(indices, message[entry] - num_nodes)
            columns[entry] = to_consumers.starts[group + 1] + column
    matrix = CsrMatrix(np.searchsorted(receiver, np.arange(num_nodes + 1)), columns, weights)
    transposed = transpose(matrix, len(consumer_senders) + len(indices))
    return MessageGraph(nodes, to_consumers, to_producers, matrix, transposed)


class SparseMatrix(Protocol):
    """A sparse matrix A that aggregates rows of a table of states."""

    def times(self, table: Tensor) -> Tensor:
        """Returns A x for x [M, W], [N, W], without gradient."""
        ...

    def transposed_times(self, states: Tensor) -> Tensor:
        """Returns A^T x for x [N, W], [M, W], without gradient."""
        ...


class TorchCsr:
    """A CSR matrix that torch multiplies; its entries are in order of `rows`."""

    def __init__(self, rows: Tensor, columns: Tensor, weights: Tensor, num_rows: int) -> None:
        self._columns = columns
        self._weights = weights
        self._starts = torch.searchsorted(rows, torch.arange(num_rows, device=rows.device))

    def times(self, table: Tensor) -> Tensor:
        """Returns the product with a table [M, W], without gradient."""
        # Of torch's sparse products this one is fast on wide rows and writes its result only once.
        return nn.functional.embedding_bag(
            self._columns, table, self._starts, mode="sum", per_sample_weights=self._weights
        )


class MessageMatrix:
    """The sparse matrix A [N, N + S] that sums or averages the messages each node receives.

    The table has N messages to consumers and S to producers. The mean over producers and the mean over
    consumers are taken separately and added.

    Attributes:
        edges: the edges that the matrix is made of.
    """

    def __init__(self, edges: Edges, *, mean: bool) -> None:
        self.edges = edges
        self._weights = edges.share if mean else torch.ones_like(edges.share)
        self._graphs: dict[int, MessageGraph] = {}

    def times(self, table: Tensor) -> Tensor:
        """Returns A x, [N + S, W] to [N, W], without gradient."""
        return self._both[0].times(table)

    def transposed_times(self, states: Tensor) -> Tensor:
        """Returns A^T x, [N, W] to [N + S, W], without gradient."""
        return self._both[1].times(states)

    def graph(self, configs: int) -> MessageGraph:
        """Returns the matrix for compiled kernels of `configs` decisions, in groups that fit the caches."""
        if configs not in self._graphs:
            edges = self.edges
            arrays = (edges.receiver, edges.sender, edges.message, self._weights)
            entries = Entries(*(array.numpy() for array in arrays))
            with_producers = edges.with_producers.numpy()
            self._graphs[configs] = message_graph(entries, with_producers, edges.num_nodes, configs)
        return self._graphs[configs]

    @cached_property
    def _both(self) -> tuple[TorchCsr, TorchCsr]:
        edges, weights = self.edges, self._weights
        num_messages = edges.num_nodes + len(edges.with_producers)
        order = torch.argsort(edges.message, stable=True)
        return (
            TorchCsr(edges.receiver, edges.message, weights, edges.num_nodes),
            TorchCsr(edges.message[order], edges.receiver[order], weights[order], num_messages),
        )


class GcnMatrix:
    """The matrix D^-1/2 (A + I) D^-1/2 of one direction, [N, N]; D counts a node's neighbours and itself.

    Args:
        edge_index: int64 [2, E], senders above receivers.
        num_nodes: N.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        nodes = torch.arange(num_nodes, device=edge_index.device)
        sender, receiver = torch.cat([edge_index, nodes.expand(2, -1)], dim=1)
        scale = torch.bincount(receiver, minlength=num_nodes).to(torch.float32).rsqrt()
        weights = scale[sender] * scale[receiver]
        order, transposed = (torch.argsort(ends, stable=True) for ends in (receiver, sender))
        self._matrix = TorchCsr(receiver[order], sender[order], weights[order], num_nodes)
        self._transposed = TorchCsr(sender[transposed], receiver[transposed], weights[transposed], num_nodes)

    def times(self, table: Tensor) -> Tensor:
        """Returns A x for x [N, W], without gradient."""
        return self._matrix.times(table)

    def transposed_times(self, states: Tensor) -> Tensor:
        """Returns A^T x for x [N, W], without gradient."""
        return self._transposed.times(states)


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        return matrix.times(table)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        matrix: SparseMatrix = ctx.matrix
        return matrix.transposed_times(gradient.contiguous()), None


def aggregate(messages: Tensor, matrix: SparseMatrix) -> Tensor:
    """Returns what each node receives of the messages, A m: [M, C, H] to [N, C, H]."""
    aggregated = cast(Tensor, _Times.apply(messages.flatten(1), matrix))  # type: ignore[no-untyped-call]
    return aggregated.view(-1, *messages.shape[1:])


def undirected(edges: Edges) -> Edges:
    """Returns the edges over a table of N messages: a node sends producers and consumers the same one."""
    return replace(edges, message=edges.sender, with_producers=edges.with_producers[:0])
