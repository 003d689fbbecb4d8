"""Sorts and pads the nodes of a batch, and selects the neighbours from which a node receives messages."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np

from costbench.arrays import F32, I64
from costbench.errors import DataError
from costbench.execution.compiled import compiled
from costbench.features.packed_kernels import PackedKernels

# Multiplier of Knuth's multiplicative hash for 64 bits: 2^64 divided by the golden ratio.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def in_topological_order(kernels: PackedKernels) -> PackedKernels:
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
        own = (consumers >= first) & (consumers < last)
        order[first:last] = first + topological_order(kernels.edges[:, own] - first, last - first)
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


def with_padding(kernels: PackedKernels, num_nodes: int, node: F32, static: F32) -> PackedKernels:
    """Pad the kernels to `num_nodes` nodes by an additional last kernel without edges and decisions.

    Args:
        kernels: with at most `num_nodes` nodes.
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
    kept, of_node = 0, 0
    for place in range(len(order)):
        same = place > 0 and node[order[place]] == node[order[place - 1]]
        of_node = of_node + 1 if same else 0
        if of_node < limit:
            pairs[0, kept] = node[order[place]]
            pairs[1, kept] = neighbor[order[place]]
            kept += 1
    return pairs[:, :kept].copy()


@compiled
def _stably_sorted(keys: I64, order: I64) -> I64:
    """Returns `order`, indices of `keys`, stably sorted by key; keys are small and not negative."""
    most = 0
    for key in keys:
        most = max(most, key)
    ends = np.zeros(most + 2, np.int64)
    for key in keys:
        ends[key + 1] += 1
    for key in range(most):
        ends[key + 1] += ends[key]
    found = np.empty(len(order), np.int64)
    for place in order:
        found[ends[keys[place]]] = place
        ends[keys[place]] += 1
    return found


def drawn_neighbors(node: I64, neighbor: I64, limit: int) -> I64:
    """Returns pairs as `first_neighbors`, but of each node the `limit` neighbours with the smallest hashes.

    The difference of the indices of neighbour and node is hashed, so a kernel keeps the same neighbours in
    every batch.
    """
    scrambled = ((neighbor - node).astype(np.uint64) * _MULTIPLIER) >> np.uint64(32)
    order = np.lexsort((scrambled, node))
    pairs = np.stack([node[order], neighbor[order]])
    place = np.arange(pairs.shape[1]) - np.searchsorted(pairs[0], pairs[0])
    return pairs[:, place < limit]


NEIGHBORS = {"first": first_neighbors, "random": drawn_neighbors}
"""Name in `NetSpec.neighbors` to the function that selects neighbours."""
