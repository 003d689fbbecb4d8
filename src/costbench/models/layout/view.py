"""The part of a program's graph that a layout network sees: pruned around configurable nodes, cut into parts.

Pruning to the neighbourhood of configurable nodes is what entries of the public competition did with large
graphs; parts in topological order are the segments of Graph Segment Training (Cao et al., "Learning large
graph property prediction via graph segment training", NeurIPS 2023; tpugraphs2023, appendix B).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from costbench.arrays import I64, AnyFloat, Bool
from costbench.datasets.layout_graphs import LayoutGraph


@dataclass(frozen=True, eq=False)
class GraphView:
    """The seen part of a graph; nodes have new numbers in it.

    Attributes:
        nodes: int64 [n], numbers in the whole graph, ascending.
        consumers: int64 [m], the reading end of each edge.
        producers: int64 [m], the end whose result is read.
        configurable: int64 [nc], the configurable nodes, ascending.
        starts: int64 [p], first node of each part, ascending, from 0.
    """

    nodes: I64
    consumers: I64
    producers: I64
    configurable: I64
    starts: I64

    @property
    def num_nodes(self) -> int:
        """Nodes that are seen."""
        return len(self.nodes)


def view_of(graph: LayoutGraph, prune_hops: int | None = None, part_nodes: int = 0) -> GraphView:
    """Returns what is left of a graph: nodes near configurable ones, edges within parts.

    Args:
        graph: the graph.
        prune_hops: largest number of edges, in either direction, to a configurable node; None for all nodes.
        part_nodes: largest number of nodes of a part, see `part_starts`; 0 for a single part.
    """
    configurable = graph.node_config_ids.astype(np.int64)
    edges = graph.edges.astype(np.int64)
    kept = np.ones(graph.num_nodes, dtype=bool)
    if prune_hops is not None:
        kept[:] = False
        kept[configurable] = True
        both_ways = _adjacency(np.concatenate([edges, edges[:, ::-1]]), graph.num_nodes)
        for _ in range(prune_hops):
            kept = reached(both_ways, kept)
    nodes = np.flatnonzero(kept)
    number = np.full(graph.num_nodes, -1, np.int64)
    number[nodes] = np.arange(len(nodes))
    splits = np.searchsorted(nodes, graph.node_splits.astype(np.int64))
    starts = part_starts(len(nodes), splits, part_nodes)
    ends = number[edges[(kept[edges]).all(axis=1)]]
    part = np.searchsorted(starts, ends, side="right")
    within = part[:, 0] == part[:, 1]
    return GraphView(nodes, ends[within, 0], ends[within, 1], number[configurable], starts)


def part_starts(num_nodes: int, splits: I64, part_nodes: int) -> I64:
    """Returns the first node of each part of nodes 0 to `num_nodes` - 1, int64 [p].

    A part ends at the last of `splits` within `part_nodes` nodes; without one it has `part_nodes` nodes.
    """
    if part_nodes <= 0 or num_nodes <= part_nodes:
        return np.zeros(1, np.int64)
    starts = [0]
    while num_nodes - starts[-1] > part_nodes:
        limit = starts[-1] + part_nodes
        before = splits[(splits > starts[-1]) & (splits <= limit)]
        starts.append(int(before[-1]) if len(before) else limit)
    return np.array(starts, np.int64)


def reached(adjacency: csr_array, nodes: Bool) -> Bool:
    """Returns which rows of a matrix are in `nodes` or have an entry in the column of one: bool [n]."""
    found: Bool = nodes | (adjacency @ nodes.astype(np.float32) > 0)
    return found


def _adjacency(edges: I64, num_nodes: int) -> csr_array:
    """Returns a matrix [n, n] with a positive entry for each edge (row, column)."""
    ones = np.ones(len(edges), np.float32)
    return csr_array((ones, (edges[:, 0], edges[:, 1])), shape=(num_nodes, num_nodes))


def aggregations(view: GraphView, encoder: str, directed: bool) -> list[csr_array]:
    """Returns the matrices A_1 ... A_K, float32 [n, n], of a linear convolution x' = sum_k A_k x W_k.

    - `graphsage`: the identity, and the mean over producers and over consumers, or over all neighbours if not
      `directed` (Hamilton et al., 2017, algorithm 1, with the mean; a node without neighbours gets 0).
    - `gcn`: D^-1/2 (A + A^T + I) D^-1/2 alone, D the row sums of A + A^T + I (Kipf and Welling, 2017).
    """
    size = view.num_nodes
    ones = np.ones(len(view.producers), np.float32)
    reads = csr_array((ones, (view.consumers, view.producers)), shape=(size, size))
    read_by = csr_array(reads.T)
    identity = csr_array(
        (np.ones(size, np.float32), np.arange(size), np.arange(size + 1)), shape=(size, size)
    )
    if encoder == "gcn":
        both = csr_array(reads + read_by + identity)
        scale = 1.0 / np.sqrt(both.sum(axis=1))
        return [_scaled(both, scale, scale)]
    ways = [reads, read_by] if directed else [csr_array(reads + read_by)]
    return [identity, *(_scaled(way, 1.0 / np.maximum(way.sum(axis=1), 1.0), np.ones(size)) for way in ways)]


def _scaled(matrix: csr_array, rows: AnyFloat, columns: AnyFloat) -> csr_array:
    """Returns diag(rows) matrix diag(columns) in float32."""
    counts = np.diff(matrix.indptr)
    data = matrix.data * np.repeat(rows, counts) * columns[matrix.indices]
    return csr_array((data.astype(np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)
