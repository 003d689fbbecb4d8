"""The edges of a batch, along which nodes send messages, and the order of its nodes.

Data flows from producer to consumer, messages in both directions: a node receives messages of at most
`max_neighbors` of its producers and as many of its consumers.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from costbench.arrays import F32, I64
from costbench.errors import DataError
from costbench.execution.compiled import compiled
from costbench.features.packed_kernels import PackedKernels


@dataclass(frozen=True, eq=False)
class Edges:
    """M messages between the N nodes of a batch, in order of `receiver`.

    `to_consumers` and `to_producers` are the same messages as PyG writes edges. The compiled kernels of
    GraphSAGE (`costbench_kernels.graphsage`) read the rest: there the messages of a hop are rows of one
    table, one for every node (its message to consumers) and one for each of S nodes with producers (its
    message to those), and aggregation is a sparse matrix times that table.

    Attributes:
        receiver: int64 [M], the node that aggregates.
        sender: int64 [M], its neighbour.
        message: int64 [M], row of the table: `sender` if that is a producer of the receiver, else N + the
            index of `sender` in `with_producers`.
        backwards: bool [M], whether `sender` is a consumer of `receiver`.
        share: float32 [M], 1 / number of messages of the receiver in the same direction.
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
    def build(incoming: I64, outgoing: I64, num_nodes: int, *, even: bool = False) -> Edges:
        """Builds edges from pairs [2, m]: incoming (node, its producer) and outgoing (node, its consumer).

        With `even` S is padded to `even_size` by repeating the last node; no node receives the added
        messages.
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
        """Returns the same edges on `device`."""
        return Edges(
            receiver=self.receiver.to(device),
            sender=self.sender.to(device),
            message=self.message.to(device),
            backwards=self.backwards.to(device),
            share=self.share.to(device),
            with_producers=self.with_producers.to(device),
            num_nodes=self.num_nodes,
        )

    @cached_property
    def to_consumers(self) -> Tensor:
        """PyG's `edge_index`, int64 [2, E], of messages from producers: senders above receivers."""
        return torch.stack([self.sender, self.receiver])[:, ~self.backwards]

    @cached_property
    def to_producers(self) -> Tensor:
        """PyG's `edge_index`, int64 [2, E], of messages from consumers: senders above receivers."""
        return torch.stack([self.sender, self.receiver])[:, self.backwards]

    def edge_indices(self, *, directed: bool) -> list[Tensor]:
        """Returns `to_consumers` and `to_producers` if `directed`, else one of both together."""
        ways = [self.to_consumers, self.to_producers]
        return ways if directed else [torch.cat(ways, dim=1)]


def even_size(size: int) -> int:
    """Rounds `size` up to one of a few sizes, eight between a power of two and the next.

    oneDNN generates code for every new shape of a matrix product, which takes longer than most products do.
    Batches of a few different sizes, a few percent too large, therefore run much faster than exact ones.
    """
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step


@compiled
def _sorted_by_receiver(incoming: I64, outgoing: I64, num_nodes: int) -> tuple[Any, ...]:
    """Returns the arrays of `Edges`; incoming pairs of a receiver come before outgoing ones, as given."""
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
            entry = ends[receiver]
            ends[receiver] += 1
            receivers[entry], senders[entry] = receiver, sender
            messages[entry] = table_row[sender] if direction else sender
            backwards[entry] = direction == 1
            share[entry] = 1.0 / counts[direction, receiver]
    return receivers, senders, messages, backwards, share, with_producers


# Multiplier of Knuth's multiplicative hash for 64 bits: 2^64 divided by the golden ratio.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def sort_topologically(kernels: PackedKernels) -> PackedKernels:
    """Returns the kernels with the nodes of each in the order of `topological_order`.

    Raises:
        DataError: if edges form a cycle.
    """
    producers, consumers = kernels.edges
    backwards = producers >= consumers
    if not backwards.any():
        return kernels
    ends = np.cumsum(kernels.node_counts)
    order = np.arange(len(kernels.opcodes))
    for kernel in np.unique(np.searchsorted(ends, consumers[backwards], side="right")):
        first, last = int(ends[kernel] - kernels.node_counts[kernel]), int(ends[kernel])
        is_in_kernel = (consumers >= first) & (consumers < last)
        order[first:last] = first + topological_order(kernels.edges[:, is_in_kernel] - first, last - first)
    return replace(
        kernels,
        opcodes=kernels.opcodes[order],
        node_features=kernels.node_features[order],
        edges=np.argsort(order)[kernels.edges],
    )


def topological_order(edges: I64, num_nodes: int) -> I64:
    """Returns the nodes, int64 [n], each after its producers; of several that may come next, the first.

    Nodes that are stored in topological order keep it.

    Args:
        edges: int64 [2, m], producer above consumer.
        num_nodes: n.

    Raises:
        DataError: if edges form a cycle.
    """
    producers, consumers = edges
    waits_for = np.bincount(consumers, minlength=num_nodes)
    ready = np.flatnonzero(waits_for == 0).tolist()
    readers: list[list[int]] = [[] for _ in range(num_nodes)]
    for producer, consumer in zip(producers.tolist(), consumers.tolist(), strict=True):
        readers[producer].append(consumer)
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for consumer in readers[node]:
            waits_for[consumer] -= 1
            if not waits_for[consumer]:
                heapq.heappush(ready, consumer)
    if len(order) < num_nodes:
        raise DataError("edges form a cycle", field="edges", expected="an order of nodes from producers on")
    return np.array(order, np.int64)


def pad_nodes(kernels: PackedKernels, num_nodes: int, node: F32, static: F32) -> PackedKernels:
    """Pads the kernels to `num_nodes` nodes by an additional last kernel without edges and decisions.

    Args:
        kernels: kernels with at most `num_nodes` nodes.
        num_nodes: nodes of the result.
        node: features of each added node, float32 [1, width].
        static: features of the added kernel, float32 [1, width].
    """
    missing = num_nodes - len(kernels.opcodes)
    if not missing:
        return kernels
    nodes = np.repeat(node, missing, axis=0)
    return replace(
        kernels,
        opcodes=np.concatenate([kernels.opcodes, np.zeros(missing, np.int64)]),
        node_features=np.concatenate([kernels.node_features, nodes]),
        node_counts=np.append(kernels.node_counts, missing),
        static_features=np.concatenate([kernels.static_features, static]),
        config_counts=np.append(kernels.config_counts, 0),
    )


def first_neighbors(node: I64, neighbor: I64, limit: int) -> I64:
    """Returns sorted pairs (node, neighbour), int64 [2, m]: of each node the first `limit` neighbours."""
    return _first_neighbors(np.ascontiguousarray(node), np.ascontiguousarray(neighbor), limit)


@compiled
def _first_neighbors(node: I64, neighbor: I64, limit: int) -> I64:
    order = _stably_sorted(node, _stably_sorted(neighbor, np.arange(len(neighbor))))
    pairs = np.empty((2, len(node)), np.int64)
    count, neighbors_of_node = 0, 0
    for entry in range(len(order)):
        is_same_node = entry > 0 and node[order[entry]] == node[order[entry - 1]]
        neighbors_of_node = neighbors_of_node + 1 if is_same_node else 0
        if neighbors_of_node < limit:
            pairs[0, count] = node[order[entry]]
            pairs[1, count] = neighbor[order[entry]]
            count += 1
    return pairs[:, :count].copy()


@compiled
def _stably_sorted(keys: I64, order: I64) -> I64:
    """Returns `order`, indices of `keys`, stably sorted by key; keys are small and not negative."""
    max_key = 0
    for key in keys:
        max_key = max(max_key, key)
    ends = np.zeros(max_key + 2, np.int64)
    for key in keys:
        ends[key + 1] += 1
    for key in range(max_key):
        ends[key + 1] += ends[key]
    sorted_order = np.empty(len(order), np.int64)
    for index in order:
        sorted_order[ends[keys[index]]] = index
        ends[keys[index]] += 1
    return sorted_order


def random_neighbors(node: I64, neighbor: I64, limit: int) -> I64:
    """Returns pairs as `first_neighbors`, but of each node the `limit` neighbours with the smallest hashes.

    The difference of the indices of neighbour and node is hashed, so a kernel keeps the same neighbours in
    every batch.
    """
    hashes = ((neighbor - node).astype(np.uint64) * _MULTIPLIER) >> np.uint64(32)
    order = np.lexsort((hashes, node))
    pairs = np.stack([node[order], neighbor[order]])
    rank = np.arange(pairs.shape[1]) - np.searchsorted(pairs[0], pairs[0])
    return pairs[:, rank < limit]


NEIGHBORS = {"first": first_neighbors, "random": random_neighbors}
"""Name in `NetSpec.neighbors` to the function that selects neighbours."""
