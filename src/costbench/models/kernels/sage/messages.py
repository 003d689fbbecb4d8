"""Aggregation of messages as a sparse matrix times the table of messages (see `batch.edges.Edges`)."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from costbench.models.batch.edges import Edges
from costbench.models.kernels.sage.neighbours import Entries, MessageGraph, message_graph


class SparseMatrix(Protocol):
    """A sparse matrix A that aggregates rows of a table of states."""

    def times(self, table: Tensor) -> Tensor:
        """Returns A x for x [M, W], [N, W], without gradient."""
        ...

    def transposed_times(self, states: Tensor) -> Tensor:
        """Returns A^T x for x [N, W], [M, W], without gradient."""
        ...


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


class TorchCsr:
    """A CSR matrix that torch multiplies; its entries are given in order of `rows`."""

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
