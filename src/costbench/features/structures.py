"""Hashes the structure of kernels: their operator graph, the extents of its values aside.

Two kernels with different shapes may still be one computation at two sizes, such as a layer of two widths. A
network that has been trained on one of them has seen all of the other but its extents, which fingerprints do
not show. The structure of a kernel is its graph with the opcode, element type and rank of each node, and
which nodes are inputs and outputs; extents, layouts, attributes and the order of operands do not count.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench.arrays import U64
from costbench.datasets.storage import Shard
from costbench.features.schema import NODE_FEATURES, column
from costbench.hashing import mix

_ROUNDS = 8
_TYPES = [feature.index for feature in NODE_FEATURES if feature.name.startswith("shape_element_type_is_")]
_EXTENTS = [column(NODE_FEATURES, f"shape_dimensions_{dimension}") for dimension in range(6)]
_INPUTS, _USERS, _KERNEL = np.uint64(1), np.uint64(2), np.uint64(3)


def kernel_structures(path: Path) -> U64:
    """Returns a hash of the structure of each kernel of a feature shard, uint64 [k].

    Labels of nodes are refined by those of the nodes that they read and of those that read them, eight times
    (Weisfeiler and Leman, 1968); the hash is over the multiset of the labels. Equal structures have equal
    hashes. Different ones may share a hash if they look alike up to eight steps from every node, so that the
    share of structures that were seen in training is at most overstated.

    Raises:
        DataError: for a damaged shard.
    """
    shard = Shard.open(path)
    node_offsets = np.asarray(shard["node_row_offsets"])
    edge_offsets = np.asarray(shard["edge_nodes_offsets"])
    if len(node_offsets) < 2:
        return np.zeros(0, np.uint64)
    # Edges name indices of nodes in their kernel.
    first = np.repeat(node_offsets[:-1], np.diff(edge_offsets))
    producers, consumers = (np.asarray(shard["edge_nodes"])[:, end] + first for end in (0, 1))
    outputs = np.asarray(shard["node_is_output"]).astype(np.uint64)
    labels = mix(2 * _row_labels(shard)[np.asarray(shard["node_row"])] + outputs)
    for _ in range(_ROUNDS):
        read, users = np.zeros_like(labels), np.zeros_like(labels)
        np.add.at(read, consumers, mix(labels[producers] ^ _INPUTS))
        np.add.at(users, producers, mix(labels[consumers] ^ _USERS))
        labels = mix(labels + 3 * mix(read) + 5 * mix(users))
    totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix(labels ^ _KERNEL), dtype=np.uint64)])
    return mix(totals[node_offsets[1:]] - totals[node_offsets[:-1]])


def known_structures(tested: list[Path], trained: list[Path]) -> frozenset[str]:
    """Returns the fingerprints of kernels in the shards `tested` whose structure occurs in `trained`.

    Raises:
        DataError: for a damaged shard.
    """
    seen = np.unique(np.concatenate([np.zeros(0, np.uint64), *map(kernel_structures, trained)]))
    fingerprints: set[str] = set()
    for path in tested:
        is_known = np.isin(kernel_structures(path), seen)
        fingerprints |= {
            bytes(row).hex() for row in np.asarray(Shard.open(path)["kernel_fingerprint"])[is_known]
        }
    return frozenset(fingerprints)


def _row_labels(shard: Shard) -> U64:
    """Returns a number for the opcode, element type and rank of each feature row, uint64 [r]."""
    features = np.asarray(shard["row_features"])
    types = features[:, _TYPES].argmax(axis=1)
    ranks = (features[:, _EXTENTS] > 0).sum(axis=1)
    opcodes = np.asarray(shard["row_opcode"]).astype(np.int64)
    labels: U64 = ((opcodes * len(_TYPES) + types) * (len(_EXTENTS) + 1) + ranks).astype(np.uint64)
    return labels
