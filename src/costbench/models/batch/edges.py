"""Edges of a batch, and sums of messages along them.

Data flows from producer to consumer, messages both ways: a node hears its producers and its consumers. The
messages of a hop form one table with a row for every node (what it tells its consumers), followed by a row
for every node with producers (what it tells those). What a node hears is then a bag of table rows, a whole
hop one sparse matrix times the table, and its gradient the transposed matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from costbench.execution.compiled import compiled
from costbench.models.kernels.sage.neighbours import Entries, Listeners, listeners_of

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Edges:
    """Who hears whom in a batch of N nodes, S of which have producers: M entries, in order of `receiver`.

    Attributes:
        receiver: int64 [M], the node that hears.
        sender: int64 [M], the node it hears.
        message: int64 [M], the table row it hears: `sender` if that is a producer of it, else N + the place
            of `sender` in `with_producers`.
        backwards: bool [M], whether `sender` is a consumer of `receiver`.
        share: float32 [M], 1 / number of entries of the receiver in the same direction.
        with_producers: int64 [S], ascending.
        num_nodes: N.
    """

    receiver: Tensor
    sender: Tensor
    message: Tensor
    backwards: Tensor
    share: Tensor
    with_producers: Tensor
    num_nodes: int

    @staticmethod
    def build(incoming: IntArray, outgoing: IntArray, num_nodes: int, *, even: bool = False) -> Edges:
        """From pairs [2, m]: (node, a producer of it) and (node, a consumer of it).

        With `even` S is brought to `even_size` by the last node, whose further messages nobody hears.
        """
        receiver, sender, message, backwards, share, with_producers = _sorted_by_receiver(
            np.ascontiguousarray(incoming), np.ascontiguousarray(outgoing), num_nodes
        )
        if even:
            missing = even_size(len(with_producers)) - len(with_producers)
            with_producers = np.append(with_producers, np.full(missing, num_nodes - 1))
        return Edges(
            receiver=torch.from_numpy(receiver),
            sender=torch.from_numpy(sender),
            message=torch.from_numpy(message),
            backwards=torch.from_numpy(backwards),
            share=torch.from_numpy(share),
            with_producers=torch.from_numpy(with_producers),
            num_nodes=num_nodes,
        )

    def to(self, device: torch.device) -> Edges:
        """The same edges on `device`."""
        return Edges(
            receiver=self.receiver.to(device),
            sender=self.sender.to(device),
            message=self.message.to(device),
            backwards=self.backwards.to(device),
            share=self.share.to(device),
            with_producers=self.with_producers.to(device),
            num_nodes=self.num_nodes,
        )

    def undirected(self) -> Edges:
        """The same edges over a table of N rows: a node tells its producers what it tells its consumers."""
        return replace(self, message=self.sender, with_producers=self.with_producers[:0])

    @property
    def num_messages(self) -> int:
        """Rows of the table: N + S."""
        return self.num_nodes + len(self.with_producers)


def even_size(size: int) -> int:
    """The next larger one of a few sizes, eight to an octave, or `size` itself where it is one of them.

    oneDNN generates code for every new shape of a matrix product, which takes longer than most products do.
    Batches of a few different sizes, a few percent too large, therefore run much faster than exact ones.
    """
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step


@compiled
def _sorted_by_receiver(incoming: IntArray, outgoing: IntArray, num_nodes: int) -> tuple[Any, ...]:
    """The arrays of `Edges`; of a receiver its incoming pairs come first, each kind in the order given."""
    counts = np.zeros((2, num_nodes), np.int64)
    table_row = np.full(num_nodes, -1)
    for receiver in incoming[0]:
        counts[0, receiver] += 1
    for receiver, sender in outgoing.T:
        counts[1, receiver] += 1
        table_row[sender] = 0
    with_producers = np.flatnonzero(table_row + 1)
    table_row[with_producers] = num_nodes + np.arange(len(with_producers))
    ends = np.cumsum(counts[0] + counts[1]) - counts[0] - counts[1]
    size = incoming.shape[1] + outgoing.shape[1]
    receivers, senders, messages = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    backwards, share = np.empty(size, np.bool_), np.empty(size, np.float32)
    for direction, pairs in enumerate((incoming, outgoing)):
        for receiver, sender in pairs.T:
            place = ends[receiver]
            ends[receiver] += 1
            receivers[place], senders[place] = receiver, sender
            messages[place] = table_row[sender] if direction else sender
            backwards[place] = direction == 1
            share[place] = 1.0 / counts[direction, receiver]
    return receivers, senders, messages, backwards, share, with_producers


class SumMatrix:
    """The sparse matrix [N, N + S] that adds up, or averages, what every node hears.

    A mean is taken over producers and over consumers apart, and the two means are added.

    Attributes:
        edges: what it was made from.
    """

    def __init__(self, edges: Edges, mean: bool) -> None:
        self.edges = edges
        self._weights = edges.share if mean else torch.ones_like(edges.share)
        self._listeners: dict[int, Listeners] = {}

    def times(self, table: Tensor) -> Tensor:
        """A x: [N + S, W] to [N, W], without gradient."""
        return self._torch_bags[0].sum(table)

    def transposed_times(self, states: Tensor) -> Tensor:
        """A^T x: [N, W] to [N + S, W], without gradient."""
        return self._torch_bags[1].sum(states)

    def listeners(self, configs: int) -> Listeners:
        """The matrix for compiled passes over `configs` decisions, in groups of nodes that fit the caches."""
        if configs not in self._listeners:
            edges = self.edges
            arrays = (edges.receiver, edges.sender, edges.message, self._weights)
            entries, talking = Entries(*(array.numpy() for array in arrays)), edges.with_producers.numpy()
            self._listeners[configs] = listeners_of(entries, talking, edges.num_nodes, configs)
        return self._listeners[configs]

    @cached_property
    def _torch_bags(self) -> tuple[_TorchBags, _TorchBags]:
        edges, weights = self.edges, self._weights
        order = torch.argsort(edges.message, stable=True)
        return (
            _TorchBags(edges.receiver, edges.message, weights, edges.num_nodes),
            _TorchBags(edges.message[order], edges.receiver[order], weights[order], edges.num_messages),
        )


class _TorchBags:
    """A sparse matrix as bags of rows. `rows` ascends."""

    def __init__(self, rows: Tensor, columns: Tensor, weights: Tensor, num_rows: int) -> None:
        self._columns = columns
        self._weights = weights
        self._starts = torch.searchsorted(rows, torch.arange(num_rows, device=rows.device))

    def sum(self, table: Tensor) -> Tensor:
        # embedding_bag is the one sparse product of torch that is fast on wide rows, writes its result
        # once, and knows bfloat16.
        weights = self._weights.to(table.dtype)
        return nn.functional.embedding_bag(
            self._columns, table, self._starts, mode="sum", per_sample_weights=weights
        )


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, matrix: SumMatrix) -> Tensor:
        ctx.matrix = matrix
        return matrix.times(table)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        matrix: SumMatrix = ctx.matrix
        return matrix.transposed_times(gradient.contiguous()), None


def hear_sum(table: Tensor, matrix: SumMatrix) -> Tensor:
    """What every node hears, added up or averaged. Shape: [N + S, C, H] to [N, C, H]."""
    heard = cast(Tensor, _Times.apply(table.flatten(1), matrix))  # type: ignore[no-untyped-call]
    return heard.view(-1, *table.shape[1:])


def hear_max(table: Tensor, edges: Edges) -> Tensor:
    """Maximum over a node's producers plus maximum over its consumers, zero where there is none.

    Shape: [N + S, C, H] to [N, C, H].
    """
    gathered = table.index_select(0, edges.message)
    rows = torch.where(edges.backwards, edges.receiver + edges.num_nodes, edges.receiver)
    # Messages come out of relu, so the zeros to start from never win over a message.
    start = table.new_zeros((2 * edges.num_nodes, *table.shape[1:]))
    largest = start.scatter_reduce(0, rows.view(-1, 1, 1).expand_as(gathered), gathered, "amax")
    return largest[: edges.num_nodes] + largest[edges.num_nodes :]
