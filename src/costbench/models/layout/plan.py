"""The part of a program's graph that a layout network sees, and which node states depend on the config.

Pruning to the neighbourhood of configurable nodes is what entries of the public competition did with large
graphs; parts in topological order are the segments of Graph Segment Training (Cao et al., "Learning large
graph property prediction via graph segment training", NeurIPS 2023; tpugraphs2023, appendix B).

Before any message only configurable nodes differ between configs; after l layers, nodes within l hops of one
do. All other states are the same for all configs and are computed once per graph (`fixed` rows). And a state
that no later layer and no pooling reads is not computed at all: if only configurable nodes are pooled, layer
l of L needs nodes within L - l hops of one.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, hstack, vstack
from torch import Tensor

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


def build_view(graph: LayoutGraph, prune_hops: int | None = None, part_nodes: int = 0) -> GraphView:
    """Returns what is left of a graph: nodes near configurable ones, edges within parts.

    Args:
        graph: the graph.
        prune_hops: largest number of edges, in either direction, to a configurable node; None for all nodes.
        part_nodes: largest number of nodes of a part, see `part_starts`; 0 for a single part.
    """
    configurable = graph.node_config_ids.astype(np.int64)
    edges = graph.edges.astype(np.int64)
    is_seen = np.ones(graph.num_nodes, dtype=bool)
    if prune_hops is not None:
        is_seen[:] = False
        is_seen[configurable] = True
        both_ways = _adjacency(np.concatenate([edges, edges[:, ::-1]]), graph.num_nodes)
        for _ in range(prune_hops):
            is_seen = reach_neighbours(both_ways, is_seen)
    nodes = np.flatnonzero(is_seen)
    new_index = np.full(graph.num_nodes, -1, np.int64)
    new_index[nodes] = np.arange(len(nodes))
    splits = np.searchsorted(nodes, graph.node_splits.astype(np.int64))
    starts = part_starts(len(nodes), splits, part_nodes)
    ends = new_index[edges[(is_seen[edges]).all(axis=1)]]
    part = np.searchsorted(starts, ends, side="right")
    within = part[:, 0] == part[:, 1]
    return GraphView(nodes, ends[within, 0], ends[within, 1], new_index[configurable], starts)


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


def reach_neighbours(adjacency: csr_array, nodes: Bool) -> Bool:
    """Returns which rows of a matrix are in `nodes` or have an entry in the column of one: bool [n]."""
    is_reached: Bool = nodes | (adjacency @ nodes.astype(np.float32) > 0)
    return is_reached


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


class SparseMatrix:
    """A float32 matrix in CSR form, and its transpose for the gradient when one is asked for.

    Args:
        matrix: matrix of SciPy, of any real type.
    """

    def __init__(self, matrix: csr_array) -> None:
        self._matrix = csr_array(matrix)
        self.shape: tuple[int, int] = (int(matrix.shape[0]), int(matrix.shape[1]))
        self._tensors: dict[tuple[torch.device, bool], Tensor] = {}

    def _on(self, device: torch.device, *, transposed: bool) -> Tensor:
        """Returns the matrix or its transpose on a device, made at the first call."""
        key = device, transposed
        if key not in self._tensors:
            self._tensors[key] = _tensor(csr_array(self._matrix.T) if transposed else self._matrix).to(device)
        return self._tensors[key]

    def times(self, dense: Tensor) -> Tensor:
        """Returns the product with `dense`: [columns, ...] to [rows, ...], differentiable in `dense`."""
        flat = dense.flatten(1)
        product: Tensor = _SparseProduct.apply(flat, self)  # type: ignore[no-untyped-call]
        return product.view(self.shape[0], *dense.shape[1:])

    def rows(self, rows: Any) -> SparseMatrix:
        """Returns the matrix of some rows."""
        return SparseMatrix(csr_array(self._matrix[rows]))

    def multiply(self, dense: Tensor, *, transposed: bool = False) -> Tensor:
        """Returns the product of the matrix, or its transpose, with `dense` [., w], without a gradient."""
        if not self._matrix.nnz:
            return dense.new_zeros(self.shape[1 if transposed else 0], dense.shape[1])
        matrix = self._on(dense.device, transposed=transposed)
        product = dense.new_empty(matrix.shape[0], dense.shape[1])
        # `torch.mm` would fill the result with zeros and copy it, which takes as long as the product.
        return torch.addmm(product, matrix, dense, beta=0, out=product)


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        return matrix.multiply(dense)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.matrix.multiply(gradients[0].contiguous(), transposed=True), None


def _tensor(matrix: csr_array) -> Tensor:
    with warnings.catch_warnings():
        # torch calls its support of CSR a beta; products are what it has had for years.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.data.astype(np.float32)),
            size=matrix.shape,
        )


@dataclass(frozen=True, eq=False)
class Rows:
    """The nodes with a state at one layer.

    Attributes:
        varying: int64 [v], those whose state depends on the config.
        fixed: int64 [f], those whose state does not.
    """

    varying: I64
    fixed: I64


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """From the states of one layer (v varying rows, f fixed) to those of the next (v', f').

    Attributes:
        num_matrices: K, matrices of the convolution.
        transform_first: whether states are multiplied by weights before they are aggregated, which is less
            work where v <= v'.
        varying: matrix from varying to varying rows: [v', K v] if `transform_first`, else [K v', v].
        into_varying: matrix from fixed to varying rows, [v', K f].
        fixed: matrix from fixed to fixed rows, [f', K f].
        varying_before: int64 [u], indices among the v rows of those that stay, which are the first of the v'
            rows; None if all do, in the same order.
        newly_varying: int64 [v' - u], indices among the f rows of the other v' rows.
        fixed_before: int64 [f'], indices among the f rows of the f' rows.
    """

    num_matrices: int
    transform_first: bool
    varying: SparseMatrix
    into_varying: SparseMatrix
    fixed: SparseMatrix
    varying_before: I64 | None
    newly_varying: I64
    fixed_before: I64


@dataclass(frozen=True, eq=False)
class Plan:
    """All layers of a network on one graph.

    Attributes:
        rows: rows of layer 0 to L; the configurable nodes are the first varying ones of each.
        layers: L steps between them.
        matrices: matrices of the convolution, [n, n] each.
    """

    rows: tuple[Rows, ...]
    layers: tuple[LayerPlan, ...]
    matrices: tuple[csr_array, ...]

    @property
    def largest(self) -> int:
        """Returns the largest number of varying rows of a layer."""
        return max(len(rows.varying) for rows in self.rows)


def plan_layers(
    matrices: Sequence[csr_array], configurable: I64, num_layers: int, *, pools_all: bool
) -> Plan:
    """Plans the layers of a network.

    Args:
        matrices: float32 [n, n] each, of the convolution (`view.aggregations`); one is needed for n even if
            `num_layers` is 0.
        configurable: int64 [nc], ascending.
        num_layers: L.
        pools_all: whether the states of all nodes are pooled, or of configurable nodes only.
    """
    rows = _rows(matrices, configurable, num_layers, pools_all=pools_all)
    layers = tuple(_layer(matrices, rows[k], rows[k + 1]) for k in range(num_layers))
    return Plan(rows, layers, tuple(matrices))


def _rows(
    matrices: Sequence[csr_array], configurable: I64, num_layers: int, *, pools_all: bool
) -> tuple[Rows, ...]:
    num_nodes = matrices[0].shape[0]
    # Entries are positive, so no sum of them vanishes.
    linked = csr_array(sum(matrices[1:], start=matrices[0]))
    touched = [np.isin(np.arange(num_nodes), configurable)]
    needed = [np.ones(num_nodes, dtype=bool) if pools_all else touched[0]]
    backwards = csr_array(linked.T)
    for _ in range(num_layers):
        touched.append(reach_neighbours(linked, touched[-1]))
        needed.append(reach_neighbours(backwards, needed[-1]))
    needed.reverse()
    rows = [Rows(configurable, np.flatnonzero(needed[0] & ~touched[0]))]
    for is_touched, is_needed in zip(touched[1:], needed[1:], strict=True):
        before = rows[-1].varying
        varies = is_touched & is_needed
        old = before[varies[before]]
        varies[old] = False
        varying = np.concatenate([old, np.flatnonzero(varies)])
        rows.append(Rows(varying, np.flatnonzero(is_needed & ~is_touched)))
    return tuple(rows)


def _layer(matrices: Sequence[csr_array], before: Rows, after: Rows) -> LayerPlan:
    num_nodes = matrices[0].shape[0]
    transform_first = len(before.varying) <= len(after.varying)
    to_varying = [csr_array(matrix[after.varying]) for matrix in matrices]
    to_fixed = [csr_array(matrix[after.fixed]) for matrix in matrices]
    blocks = [csr_array(matrix[:, before.varying]) for matrix in to_varying]
    varying_index = row_of_node(before.varying, num_nodes)[after.varying]
    fixed_index = row_of_node(before.fixed, num_nodes)
    varying_before = varying_index[varying_index >= 0]
    all_stay = np.array_equal(varying_before, np.arange(len(before.varying)))
    return LayerPlan(
        num_matrices=len(matrices),
        transform_first=transform_first,
        varying=SparseMatrix((hstack if transform_first else vstack)(blocks, format="csr")),
        into_varying=_side_by_side(to_varying, before.fixed),
        fixed=_side_by_side(to_fixed, before.fixed),
        varying_before=None if all_stay else varying_before,
        newly_varying=fixed_index[after.varying[len(varying_before) :]],
        fixed_before=fixed_index[after.fixed],
    )


def _side_by_side(matrices: Sequence[csr_array], columns: I64) -> SparseMatrix:
    return SparseMatrix(hstack([matrix[:, columns] for matrix in matrices], format="csr"))


def row_of_node(nodes: I64, num_nodes: int) -> I64:
    """Returns the row of each of `num_nodes` nodes among rows `nodes`, int64 [n]; -1 where it has none."""
    rows = np.full(num_nodes, -1, np.int64)
    rows[nodes] = np.arange(len(nodes))
    return rows
