"""Many kernels concatenated in a few arrays, so that a batch is built by whole-array calls.

A training batch has up to hundreds of small kernels. Reading them one at a time costs tens of microseconds of
Python each, more than the network needs for them; reading a whole batch at once takes about as long as one
kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np

from costbench.arrays import F32, F64, I32, I64, AnyArray
from costbench.errors import DataError
from costbench.execution.compiled import compiled
from costbench.features.graph_tensors import KernelGraph
from costbench.features.node import IS_ROOT_COLUMN, PARAMETER_NUMBER_COLUMN
from costbench.features.normalizer import MinMaxNormalizer
from costbench.features.schema import (
    NUM_DECISION_FEATURES,
    NUM_LOOP_FEATURES,
    NUM_NODE_FEATURES,
    TILE_FEATURES,
    absent_row,
    column,
)

_PARTS: Mapping[str, tuple[str, ...]] = {
    "node_row": ("node_row", "node_is_output"),
    "edge_nodes": ("edge_nodes",),
    "tile_bounds": ("tile_bounds",),
    "config_runtime_ns": ("config_runtime_ns", "config_analytical_ns", "config_loops"),
}
"""Column that offsets delimit -> columns with as many entries of each kernel."""
EXTRA = "node_extra"
"""Column of further features of nodes, by a function of the user's."""
_PER_KERNEL = ("kernel_num_inputs", "kernel_static", "kernel_ranks")
_BOUNDARY = [PARAMETER_NUMBER_COLUMN, IS_ROOT_COLUMN]
"""Columns of node features that depend on the kernel: numbers of its inputs, and which nodes are outputs."""
_NO_TILE = absent_row(TILE_FEATURES)
_BLOCKS = np.array([column(TILE_FEATURES, f"{block}_0") for block in ("kernel_bounds", "output_bounds")])
_NUM_BOUNDS = 6
# Decisions whose features are held at a time while looking for their extremes.
_CHUNK = 1 << 18


class Columns(Protocol):
    """Arrays by key, such as a `costbench.datasets.storage.Shard`."""

    def __getitem__(self, key: str, /) -> AnyArray:
        """Returns a column."""


class Scalers(Protocol):
    """Scalers of a model, such as a `costbench.models.graph_batch.FeatureScaling`."""

    @property
    def node(self) -> MinMaxNormalizer:
        """Scaler of node features."""

    @property
    def decision(self) -> MinMaxNormalizer:
        """Scaler of features of decisions."""

    @property
    def static(self) -> MinMaxNormalizer:
        """Scaler of static performance features."""


@dataclass(frozen=True, eq=False)
class PackedKernels:
    """K kernels with N nodes, M edges and D measured decisions in total, concatenated.

    Attributes:
        opcodes: codes of `Opcode`, int64 [N].
        node_features: node features, float32 [N, 140] or more with a user's, or scaled: [N, number of columns
            of the scaler].
        node_counts: number of nodes of each kernel, int64 [K].
        edges: producer above consumer, as indices among all N nodes, int64 [2, M].
        static_features: static performance features, float32 [K, 4], or scaled.
        config_features: features of the decisions, float32 [D, F], or scaled.
        config_counts: number of decisions of each kernel, int64 [K].
        runtime_ns: measured runtimes, float64 [D].
        analytical_ns: estimates of the analytical model, float64 [D]; None if they were not computed.
        scaled_by: scalers of the features; None if they are unscaled.
    """

    opcodes: I64
    node_features: F32
    node_counts: I64
    edges: I64
    static_features: F32
    config_features: F32
    config_counts: I64
    runtime_ns: F64
    analytical_ns: F64 | None = None
    scaled_by: Scalers | None = None

    @property
    def num_kernels(self) -> int:
        """K."""
        return len(self.node_counts)

    @staticmethod
    def concatenate(parts: Sequence[PackedKernels]) -> PackedKernels:
        """Returns the kernels of all parts in order; if there are several parts, they must be unscaled.

        Raises:
            DataError: if there are no parts.
        """
        if not parts:
            raise DataError("no kernels")
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(len(part.opcodes) for part in parts)])
        estimates = [part.analytical_ns for part in parts if part.analytical_ns is not None]
        return PackedKernels(
            opcodes=np.concatenate([part.opcodes for part in parts]),
            node_features=np.concatenate([part.node_features for part in parts]),
            node_counts=np.concatenate([part.node_counts for part in parts]),
            edges=np.concatenate([p.edges + start for p, start in zip(parts, starts, strict=False)], axis=1),
            static_features=np.concatenate([part.static_features for part in parts]),
            config_features=np.concatenate([part.config_features for part in parts]),
            config_counts=np.concatenate([part.config_counts for part in parts]),
            runtime_ns=np.concatenate([part.runtime_ns for part in parts]),
            analytical_ns=np.concatenate(estimates) if len(estimates) == len(parts) else None,
        )


def pack_kernels(
    graphs: Sequence[KernelGraph],
    config_features: Sequence[F32],
    runtime_ns: Sequence[F64],
    analytical_ns: Sequence[F64] | None = None,
) -> PackedKernels:
    """Concatenates kernels: for each its graph and the features [c, F] and runtimes [c] of its decisions."""
    counts = np.array([graph.num_nodes for graph in graphs])
    starts = np.cumsum(counts) - counts
    return PackedKernels(
        opcodes=np.concatenate([graph.opcodes for graph in graphs]),
        node_features=np.concatenate([graph.node_features for graph in graphs]),
        node_counts=counts,
        edges=np.concatenate([g.edges + start for g, start in zip(graphs, starts, strict=True)], axis=1),
        static_features=np.stack([graph.static_features for graph in graphs]),
        config_features=np.concatenate(config_features),
        config_counts=np.array([len(features) for features in config_features]),
        runtime_ns=np.concatenate(runtime_ns),
        analytical_ns=None if analytical_ns is None else np.concatenate(analytical_ns),
    )


@dataclass(frozen=True, eq=False)
class FeatureExtremes:
    """Smallest and largest value of every feature over some kernels, or nothing.

    Attributes:
        node: extremes of the node features, float32 [2 or 0, 140].
        decision: extremes of the features of decisions, float32 [2 or 0, 28].
        static: extremes of the static performance features, float32 [2 or 0, 4].
    """

    node: F32
    decision: F32
    static: F32


class KernelColumns:
    """Columns of feature shards (`costbench.datasets.record_types`) that batches are gathered from.

    Args:
        columns: columns of one shard, mapped or in memory.
        scaled_by: scalers that `merge_columns` has applied to `row_features` and `kernel_static`.

    Attributes:
        columns: columns of one shard.
    """

    parts: ClassVar[Mapping[str, tuple[str, ...]]] = _PARTS
    per_kernel: ClassVar[tuple[str, ...]] = _PER_KERNEL

    def __init__(self, columns: Columns, scaled_by: Scalers | None = None) -> None:
        self.columns = columns
        self._scaled_by = scaled_by
        self._boundary_outputs: Any = _BOUNDARY
        if scaled_by is not None:
            self._boundary_scaler = scaled_by.node.of_columns(_BOUNDARY)
            self._boundary_outputs = np.searchsorted(np.flatnonzero(scaled_by.node.varying), _BOUNDARY)[
                self._boundary_scaler.varying
            ]
        self._offsets = {key: np.asarray(columns[f"{key}_offsets"], np.int64) for key in self.parts}

    def __len__(self) -> int:
        """Returns the number of kernels."""
        return len(self.columns["kernel_num_inputs"])

    def pack(self, kernels: I64, configs: Sequence[I64]) -> PackedKernels:
        """Reads some kernels, in this order.

        Args:
            kernels: indices of kernels, int64 [K].
            configs: indices of the decisions to read, for each kernel.
        """
        columns = self.columns
        nodes, counts = self._entries("node_row", kernels)
        edges, edge_counts = self._entries("edge_nodes", kernels)
        rows = columns["node_row"][nodes]
        config_counts = np.array([len(numbers) for numbers in configs], np.int64)
        config = np.concatenate([np.zeros(0, np.int64), *configs])
        decisions = np.repeat(self._offsets["config_runtime_ns"][kernels], config_counts) + config
        features = self._config_features(np.repeat(kernels, config_counts), config, decisions)
        return PackedKernels(
            opcodes=columns["row_opcode"][rows].astype(np.int64),
            node_features=self._node_features(rows, nodes, counts, columns["kernel_num_inputs"][kernels]),
            node_counts=counts,
            edges=shift_pairs(columns["edge_nodes"][edges], edge_counts, np.cumsum(counts) - counts),
            static_features=columns["kernel_static"][kernels],
            config_features=features if self._scaled_by is None else self._scaled_by.decision(features),
            config_counts=config_counts,
            runtime_ns=columns["config_runtime_ns"][decisions].astype(np.float64),
            analytical_ns=columns["config_analytical_ns"][decisions],
            scaled_by=self._scaled_by,
        )

    def extremes(self) -> FeatureExtremes:
        """Returns the extremes of the features of all nodes, decisions and kernels.

        Raises:
            DataError: if they are scaled.
        """
        if self._scaled_by is not None:
            raise DataError("are scaled", field="features", expected="unscaled ones")
        decisions = [np.zeros((0, NUM_DECISION_FEATURES), np.float32)]
        decisions.extend(_extremes(chunk) for chunk in self._all_config_features())
        return FeatureExtremes(
            node=self._node_extremes(),
            decision=_extremes(np.concatenate(decisions)),
            static=_extremes(np.asarray(self.columns["kernel_static"])),
        )

    def _entries(self, key: str, kernels: I64) -> tuple[I64, I64]:
        """Returns the indices in a column of all entries of some kernels, and the number of each kernel's."""
        first, last = self._offsets[key][kernels], self._offsets[key][kernels + 1]
        return concatenate_ranges(first, last - first), last - first

    def _node_features(self, rows: I64, nodes: I64, counts: I64, num_inputs: AnyArray) -> F32:
        features: F32 = np.take(self.columns["row_features"], rows, axis=0)
        boundary = features[:, _BOUNDARY] if self._scaled_by is None else self.columns["row_boundary"][rows]
        write_batch_boundaries(
            boundary, self.columns["node_is_output"][nodes], num_inputs.astype(np.int64), counts
        )
        features[:, self._boundary_outputs] = (
            boundary if self._scaled_by is None else self._boundary_scaler(boundary)
        )
        return features

    def _config_features(self, kernel: I64, config: I64, decisions: I64) -> F32:
        """Returns the features of n decisions, float32 [n, 28].

        Args:
            kernel: index of the kernel of each, int64 [n].
            config: number of each among the decisions of its kernel, int64 [n].
            decisions: index of each in the columns, int64 [n].
        """
        ranks = self.columns["kernel_ranks"][kernel].astype(np.int64)
        first = self._offsets["tile_bounds"][kernel] + config * ranks.sum(axis=1)
        tiles = gathered_tile_features(np.asarray(self.columns["tile_bounds"], np.int32), first, ranks)
        return np.concatenate([tiles, self.columns["config_loops"][decisions]], axis=1)

    def _all_config_features(self) -> Iterable[F32]:
        offsets = self._offsets["config_runtime_ns"]
        for start in range(0, int(offsets[-1]), _CHUNK):
            decisions = np.arange(start, min(start + _CHUNK, int(offsets[-1])))
            kernel = np.searchsorted(offsets, decisions, side="right") - 1
            yield self._config_features(kernel, decisions - offsets[kernel], decisions)

    def _node_extremes(self) -> F32:
        """Returns the extremes over all rows (each has a node) and of the two features that a kernel sets."""
        features = np.asarray(self.columns["row_features"])
        extremes = _extremes(features)
        if len(extremes):
            rows, counts = self.columns["node_row"], np.diff(self._offsets["node_row"])
            boundary = features[:, _BOUNDARY][rows]
            num_inputs = self.columns["kernel_num_inputs"].astype(np.int64)
            write_batch_boundaries(boundary, np.array(self.columns["node_is_output"]), num_inputs, counts)
            extremes[:, _BOUNDARY] = _extremes(boundary)
        return extremes


class ImportedColumns(KernelColumns):
    """Columns of imported kernels (`costbench.datasets.record_types`), whose tile features are given.

    Their loop features are not known and constant.
    """

    parts: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **{key: _PARTS[key] for key in ("node_row", "edge_nodes")},
        "config_runtime_ns": ("config_runtime_ns", "config_analytical_ns", "config_features"),
    }
    per_kernel: ClassVar[tuple[str, ...]] = ("kernel_num_inputs", "kernel_static")

    def _config_features(self, _kernel: I64, _config: I64, decisions: I64) -> F32:
        return with_unknown_loops(self.columns["config_features"][decisions])


class ExtendedColumns(KernelColumns):
    """Columns of feature shards with further features of nodes, which follow the others: [n, 140 + e]."""

    parts: ClassVar[Mapping[str, tuple[str, ...]]] = {**_PARTS, "node_row": (*_PARTS["node_row"], EXTRA)}

    def _node_features(self, rows: I64, nodes: I64, counts: I64, num_inputs: AnyArray) -> F32:
        features = super()._node_features(rows, nodes, counts, num_inputs)
        return np.concatenate([features, self.columns[EXTRA][nodes]], axis=1)

    def _node_extremes(self) -> F32:
        extremes = super()._node_extremes()
        return (
            np.concatenate([extremes, _extremes(self.columns[EXTRA])], axis=1) if len(extremes) else extremes
        )


def gathered_tile_features(bounds: I32, first: I64, ranks: I64) -> F32:
    """Returns `tile_features` of tile sizes of different kernels: float32 [n, 24].

    Args:
        bounds: [b], for each tile size its kernel bounds, then its output bounds.
        first: int64 [n], index of each tile size's first bound.
        ranks: int64 [n, 2], the number of kernel bounds and of output bounds.
    """
    table = np.tile(_NO_TILE, (len(first), 1))
    write_bounds(table, bounds[concatenate_ranges(first, ranks.sum(axis=1))], ranks, _BLOCKS, _NUM_BOUNDS)
    return table


def with_unknown_loops(tiles: F32) -> F32:
    """Returns tile features [n, 24] with the loop features of a single iteration: float32 [n, 28]."""
    return np.concatenate([tiles, np.ones((len(tiles), NUM_LOOP_FEATURES), np.float32)], axis=1)


def merge_columns(shards: Sequence[KernelColumns], scaled_by: Scalers) -> KernelColumns:
    """Returns the kernels of one or more shards of a kind, concatenated, copied into memory and scaled."""
    kind = type(shards[0])
    columns = [shard.columns for shard in shards if len(shard)] or [shards[0].columns]
    rows = np.cumsum([0, *(len(shard["row_opcode"]) for shard in columns)])
    merged = {
        key: np.concatenate([shard[key] for shard in columns])
        for key in ("row_opcode", *kind.per_kernel, *(key for keys in kind.parts.values() for key in keys))
    }
    starts = zip(columns, rows, strict=False)
    merged["node_row"] = np.concatenate([shard["node_row"] + start for shard, start in starts])
    for key in kind.parts:
        lengths = np.concatenate([np.diff(shard[f"{key}_offsets"]) for shard in columns])
        merged[f"{key}_offsets"] = np.cumsum(np.concatenate([np.zeros(1, np.int64), lengths]))
    merged["row_boundary"] = np.concatenate([shard["row_features"][:, _BOUNDARY] for shard in columns])
    # A node's row is scaled once here, and not whenever it is in a batch.
    node = scaled_by.node
    if kind is ExtendedColumns:
        merged[EXTRA] = node.of_columns(range(NUM_NODE_FEATURES, node.num_inputs))(merged[EXTRA])
        node = node.of_columns(range(NUM_NODE_FEATURES))
    merged["row_features"] = np.empty((rows[-1], node.num_outputs), np.float32)
    for shard, (first, last) in zip(columns, pairwise(rows), strict=True):
        merged["row_features"][first:last] = node(shard["row_features"])
    merged["kernel_static"] = scaled_by.static(merged["kernel_static"])
    return kind(merged, scaled_by)


def _extremes(values: F32) -> F32:
    """Returns smallest and largest value of each column, [n, k] to [2, k], or [0, k] without rows."""
    return np.stack([values.min(axis=0), values.max(axis=0)]) if len(values) else values[:0]


@compiled
def concatenate_ranges(starts: I64, counts: I64) -> I64:
    """Returns the integers starts[i] to starts[i] + counts[i] (exclusive) of every i, concatenated; int64."""
    result = np.empty(counts.sum(), np.int64)
    end = 0
    for run in range(len(counts)):
        for offset in range(counts[run]):
            result[end + offset] = starts[run] + offset
        end += counts[run]
    return result


@compiled
def shift_pairs(pairs: AnyArray, counts: I64, shifts: I64) -> I64:
    """Returns pairs [m, 2] as int64 [2, m]; run i, of counts[i] pairs, is increased by shifts[i]."""
    result = np.empty((2, len(pairs)), np.int64)
    end = 0
    for run in range(len(counts)):
        for pair in range(end, end + counts[run]):
            result[0, pair] = pairs[pair, 0] + shifts[run]
            result[1, pair] = pairs[pair, 1] + shifts[run]
        end += counts[run]
    return result


@compiled
def write_batch_boundaries(features: F32, is_output: AnyArray, num_inputs: I64, counts: I64) -> None:
    """Writes what `graph_tensors.write_boundary_features` writes, for several kernels.

    Args:
        features: float32 [n, 2], parameter number and whether it is a root, of counts[0] nodes of one kernel,
            then of another; changed.
        is_output: whether each node is an output, [n].
        num_inputs: number of inputs of every kernel, its first nodes.
        counts: number of nodes of every kernel.
    """
    end = 0
    for kernel in range(len(counts)):
        for node in range(counts[kernel]):
            if node < num_inputs[kernel]:
                features[end + node, 0] = node
            else:
                features[end + node, 1] = is_output[end + node]
        end += counts[kernel]


@compiled
def write_bounds(table: F32, bounds: AnyArray, ranks: I64, blocks: I64, num_bounds: int) -> None:
    """Writes lists of bounds into a table, each into the columns of its block.

    A list takes `num_bounds` columns for its first bounds, one for their sum and one for their product, which
    is 0 for an empty list.

    Args:
        table: float32 [n, k], zeros in those columns; changed.
        bounds: the lists of the first row, those of the second, and so on.
        ranks: int64 [n, b], lengths of the lists of a row.
        blocks: int64 [b], first columns.
        num_bounds: columns for single bounds.
    """
    end = 0
    for row in range(len(ranks)):
        for block in range(ranks.shape[1]):
            rank, start = ranks[row, block], blocks[block]
            total, product = np.int64(0), np.int64(1)
            for position in range(rank):
                bound = np.int64(bounds[end + position])
                if position < num_bounds:
                    table[row, start + position] = bound
                total += bound
                product *= bound
            end += rank
            table[row, start + num_bounds] = total
            table[row, start + num_bounds + 1] = product if rank else 0
