"""Batches in the shared-graph form: one graph per kernel, many decisions on it.

Naive batching repeats a kernel's nodes for every decision. Here the nodes of K kernels lie one after
another once, `[N, features]`, the decisions stand beside them, `[K, C, features]`, and the network
broadcasts: all tile sizes of one kernel share a batch (which the rank losses need), and everything that
does not depend on the decision is computed once. Kernels with fewer than C decisions are padded; `mask`
says which predictions count.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from costbench.errors import DataError
from costbench.features.graph_tensors import KernelGraph
from costbench.features.normalizer import MinMaxNormalizer, Transform
from costbench.models.edges import Edges
from costbench.models.net_spec import InputSizes

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class KernelSamples:
    """Measured decisions of one kernel, unscaled.

    Attributes:
        graph: the kernel's graph.
        config_features: float32 [c, F], one row per decision (24 features of a tile size).
        runtime_ns: float64 [c], measured.
        group: the application that the kernel comes from; sampling is even over these.
        analytical_ns: float64 [c], the analytical model's estimates; None where nobody asked it.
    """

    graph: KernelGraph
    config_features: FloatArray
    runtime_ns: npt.NDArray[np.float64]
    group: str
    analytical_ns: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        count = len(self.config_features)
        if self.config_features.ndim != 2 or self.runtime_ns.shape != (count,):
            shapes = f"{self.config_features.shape} and {self.runtime_ns.shape}"
            raise DataError(
                f"features and runtimes of shapes {shapes}", field="runtime_ns", expected="[c, F] and [c]"
            )
        if not (np.isfinite(self.runtime_ns).all() and (self.runtime_ns > 0).all()):
            raise DataError("a runtime is not a positive number", field="runtime_ns", expected="above zero")
        if self.analytical_ns is not None and self.analytical_ns.shape != (count,):
            shape = f"estimates of shape {self.analytical_ns.shape}"
            raise DataError(shape, field="analytical_ns", expected=f"[{count}]")

    def __len__(self) -> int:
        return len(self.config_features)

    def select(self, configs: IntArray) -> KernelSamples:
        """Some of the decisions, by place, on the same graph."""
        return replace(
            self,
            config_features=self.config_features[configs],
            runtime_ns=self.runtime_ns[configs],
            analytical_ns=None if self.analytical_ns is None else self.analytical_ns[configs],
        )


@dataclass(frozen=True)
class FeatureScaling:
    """The three scalers of a model, fitted on training data only and kept with its weights."""

    node: MinMaxNormalizer
    decision: MinMaxNormalizer
    static: MinMaxNormalizer

    @staticmethod
    def fit(samples: Iterable[KernelSamples], transform: Transform = "log1p") -> FeatureScaling:
        """Scalers over every node, decision and kernel of `samples`, read once, one kernel at a time.

        Raises:
            DataError: if there are no samples.
        """
        node, decision, static = (MinMaxNormalizer.partial(transform) for _ in range(3))
        for sample in samples:
            node.update(sample.graph.node_features)
            decision.update(sample.config_features)
            static.update(sample.graph.static_features[None])
        return FeatureScaling(node.finish(), decision.finish(), static.finish())

    @property
    def sizes(self) -> InputSizes:
        """Widths of what the scalers return."""
        return InputSizes(self.node.num_outputs, self.decision.num_outputs, self.static.num_outputs)

    def without(self, endings: Sequence[str]) -> FeatureScaling:
        """The same without the features whose names end with one of `endings`."""
        return FeatureScaling(*(getattr(self, field.name).without(endings) for field in fields(self)))

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON; `from_dict` gives an equal scaling."""
        return {field.name: getattr(self, field.name).to_dict() for field in fields(self)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> FeatureScaling:
        """Inverse of `to_dict`.

        Raises:
            DataError: naming the scaler, for missing or unknown keys and values that are no scaler.
        """
        names = [field.name for field in fields(FeatureScaling)]
        if set(values) != set(names):
            raise DataError(f"scalers {sorted(values)}", field="scaling", expected=", ".join(names))
        for name in names:
            if not isinstance(values[name], Mapping):
                raise DataError("is no scaler", field=name, expected="a mapping")
        return FeatureScaling(**{name: MinMaxNormalizer.from_dict(values[name]) for name in names})


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """K kernels with N nodes together and C decisions each.

    The nodes of a kernel lie in topological order: producers before consumers.

    Attributes:
        opcodes: int64 [N].
        node_features: float32 [N, sizes.node], scaled.
        static_features: float32 [K, 1, sizes.static], scaled.
        config_features: float32 [K, C, sizes.decision], scaled; zeros where `mask` is False.
        kernel_of_node: int64 [N], ascending.
        node_counts: nodes of each kernel; they sum to N.
        edges: who hears whom.
        mask: bool [K, C], True for decisions, False for padding.
        runtime_ns: float64 [K, C], measured; 1 where `mask` is False.
        log_analytical: float64 [K, C], natural logarithm of the analytical model's estimates in nanoseconds;
            0 where `mask` is False, None where a kernel comes without them.
    """

    opcodes: Tensor
    node_features: Tensor
    static_features: Tensor
    config_features: Tensor
    kernel_of_node: Tensor
    node_counts: tuple[int, ...]
    edges: Edges
    mask: Tensor
    runtime_ns: Tensor
    log_analytical: Tensor | None = None

    @property
    def num_kernels(self) -> int:
        """K."""
        return len(self.node_counts)

    def to(self, device: torch.device | str) -> GraphBatch:
        """The same batch on `device`."""
        place = torch.device(device)
        return GraphBatch(
            opcodes=self.opcodes.to(place),
            node_features=self.node_features.to(place),
            static_features=self.static_features.to(place),
            config_features=self.config_features.to(place),
            kernel_of_node=self.kernel_of_node.to(place),
            node_counts=self.node_counts,
            edges=self.edges.to(place),
            mask=self.mask.to(place),
            runtime_ns=self.runtime_ns.to(place),
            log_analytical=None if self.log_analytical is None else self.log_analytical.to(place),
        )


@dataclass(frozen=True, eq=False)
class _PreparedGraph:
    """What a batch needs of one kernel, scaled, in topological order.

    Edges are cut to the neighbours kept: [2, m], node first.
    """

    opcodes: IntArray
    node_features: FloatArray
    static_features: FloatArray
    incoming: IntArray
    outgoing: IntArray


class Collator:
    """Builds batches. Scaled graphs are remembered for as long as the caller keeps the `KernelGraph`.

    Args:
        scaling: scalers fitted on the training data.
        max_neighbors: neighbours kept per node and direction.
    """

    def __init__(self, scaling: FeatureScaling, max_neighbors: int) -> None:
        self._scaling = scaling
        self._max_neighbors = max_neighbors
        self._prepared: weakref.WeakKeyDictionary[KernelGraph, _PreparedGraph] = weakref.WeakKeyDictionary()

    def __call__(self, samples: Sequence[KernelSamples]) -> GraphBatch:
        """One batch of `samples`, C being the largest number of decisions among them.

        Raises:
            DataError: if there are no samples.
        """
        if not samples:
            raise DataError("a batch of no kernels")
        graphs = [self._prepare(sample.graph) for sample in samples]
        counts = np.array([len(graph.opcodes) for graph in graphs])
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        placed = list(zip(graphs, starts, strict=True))
        config_features, runtime_ns, mask = self._decisions(samples)
        return GraphBatch(
            opcodes=_tensor(np.concatenate([graph.opcodes for graph in graphs])),
            node_features=_tensor(np.concatenate([graph.node_features for graph in graphs])),
            static_features=_tensor(np.stack([graph.static_features for graph in graphs])[:, None]),
            config_features=_tensor(config_features),
            kernel_of_node=_tensor(np.repeat(np.arange(len(graphs)), counts)),
            node_counts=tuple(int(count) for count in counts),
            edges=Edges.build(
                np.concatenate([graph.incoming + start for graph, start in placed], axis=1),
                np.concatenate([graph.outgoing + start for graph, start in placed], axis=1),
                num_nodes=int(counts.sum()),
            ),
            mask=_tensor(mask),
            runtime_ns=_tensor(runtime_ns),
            log_analytical=_log_estimates(samples, mask),
        )

    def _prepare(self, graph: KernelGraph) -> _PreparedGraph:
        prepared = self._prepared.get(graph)
        if prepared is None:
            order = topological_order(graph)
            producers, consumers = np.argsort(order)[graph.edges]
            prepared = _PreparedGraph(
                opcodes=graph.opcodes[order],
                node_features=self._scaling.node(graph.node_features)[order],
                static_features=self._scaling.static(graph.static_features[None])[0],
                incoming=_first_neighbors(consumers, producers, self._max_neighbors),
                outgoing=_first_neighbors(producers, consumers, self._max_neighbors),
            )
            self._prepared[graph] = prepared
        return prepared

    def _decisions(
        self, samples: Sequence[KernelSamples]
    ) -> tuple[FloatArray, npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        scaled = self._scaling.decision(np.concatenate([sample.config_features for sample in samples]))
        counts = np.array([len(sample) for sample in samples])
        mask = np.arange(counts.max()) < counts[:, None]
        config_features = np.zeros((*mask.shape, scaled.shape[1]), np.float32)
        config_features[mask] = scaled
        runtime_ns = np.ones(mask.shape)
        runtime_ns[mask] = np.concatenate([sample.runtime_ns for sample in samples])
        return config_features, runtime_ns, mask


def _log_estimates(samples: Sequence[KernelSamples], mask: npt.NDArray[np.bool_]) -> Tensor | None:
    """Logarithms of the analytical estimates, [K, C]; None unless all kernels come with them.

    Raises:
        DataError: if an estimate is not a positive number.
    """
    found = [sample.analytical_ns for sample in samples if sample.analytical_ns is not None]
    if len(found) < len(samples):
        return None
    estimates = np.ones(mask.shape)
    estimates[mask] = np.concatenate(found)
    if not (np.isfinite(estimates).all() and (estimates > 0.0).all()):
        raise DataError("an estimate is not a positive number", field="analytical_ns", expected="above zero")
    return _tensor(np.log(estimates))


def topological_order(graph: KernelGraph) -> IntArray:
    """Nodes, each after its producers and, among those that may come next, the first one first. int64 [n].

    Nodes that are stored in such an order keep it.

    Raises:
        DataError: if edges form a cycle.
    """
    producers, consumers = graph.edges
    if (producers < consumers).all():
        return np.arange(graph.num_nodes)
    waits_for = np.bincount(consumers, minlength=graph.num_nodes)
    ready = np.flatnonzero(waits_for == 0).tolist()
    readers: list[list[int]] = [[] for _ in range(graph.num_nodes)]
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
    if len(order) < graph.num_nodes:
        raise DataError("edges form a cycle", field="edges", expected="an order of nodes from producers on")
    return np.array(order, np.int64)


def _first_neighbors(node: IntArray, neighbor: IntArray, limit: int) -> IntArray:
    """Pairs (node, neighbour) in order, at most `limit` of each node: those that come first."""
    order = np.lexsort((neighbor, node))
    node, neighbor = node[order], neighbor[order]
    place = np.arange(len(node)) - np.searchsorted(node, node)
    return np.stack([node, neighbor])[:, place < limit]


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    # A writable copy where the array is a read-only view (a memory map): torch must not alias those.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
