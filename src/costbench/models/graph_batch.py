"""Batches in which each kernel has one graph that all of its decisions share.

Naive batching repeats a kernel's nodes for every decision. Here the nodes of K kernels are stored once,
`[N, features]`, and their decisions separately, `[K, C, features]`; the network broadcasts. All tile sizes of
a kernel are in one batch (which the rank losses need), and whatever does not depend on the decision is
computed once. Kernels with fewer than C decisions are padded; `mask` says which predictions count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from costbench.arrays import F32, F64, I64, AnyArray, Bool
from costbench.errors import DataError, choose
from costbench.features.graph_tensors import KernelGraph
from costbench.features.normalizer import MinMaxFit, MinMaxNormalizer, Transform
from costbench.features.packed_kernels import FeatureExtremes, PackedKernels, pack_kernels
from costbench.models.edges import NEIGHBORS, Edges, even_size, pad_nodes, sort_topologically
from costbench.models.execution import LARGE_BATCH_ROWS
from costbench.models.spec import InputSizes


@dataclass(frozen=True, eq=False)
class KernelSamples:
    """Measured decisions of one kernel, unscaled.

    Attributes:
        graph: the kernel's graph.
        config_features: float32 [c, F], one row per decision (28 features of a tile size).
        runtime_ns: float64 [c], measured.
        group: the application that the kernel comes from; sampling is even over these.
        analytical_ns: float64 [c], the analytical model's estimates; None if they were not computed.
    """

    graph: KernelGraph
    config_features: F32
    runtime_ns: F64
    group: str
    analytical_ns: F64 | None = None

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

    def select(self, configs: I64) -> KernelSamples:
        """Returns the decisions at positions `configs`, on the same graph."""
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
        """Fits scalers to all nodes, decisions and kernels of `samples`, which are read once, one at a time.

        Raises:
            DataError: if there are no samples.
        """
        return FeatureScaling.of_extremes(
            (
                FeatureExtremes(
                    sample.graph.node_features, sample.config_features, sample.graph.static_features[None]
                )
                for sample in samples
            ),
            transform,
        )

    @staticmethod
    def of_extremes(extremes: Iterable[FeatureExtremes], transform: Transform = "log1p") -> FeatureScaling:
        """Returns the scalers that `fit` returns for kernels with these extremes, given part by part.

        Raises:
            DataError: if there are none.
        """
        node, decision, static = (MinMaxFit(transform) for _ in range(3))
        for part in extremes:
            node.update(part.node)
            decision.update(part.decision)
            static.update(part.static)
        return FeatureScaling(node.finish(), decision.finish(), static.finish())

    @property
    def sizes(self) -> InputSizes:
        """Widths of the scaled features."""
        return InputSizes(self.node.num_outputs, self.decision.num_outputs, self.static.num_outputs)

    def without(self, endings: Sequence[str]) -> FeatureScaling:
        """Returns the scaling without the features whose names end with one of `endings`."""
        return FeatureScaling(*(getattr(self, field.name).without(endings) for field in fields(self)))

    def beyond_training(self, graph: KernelGraph, config_features: F32) -> tuple[float, str]:
        """Returns how far a kernel and its decisions lie outside of the training data.

        Returns:
            How many times further from zero than in any training kernel the feature lies that is furthest
            out, and its name; 1 and no name if all lie within.
        """
        times, name = 1.0, ""
        tables = ((self.node, graph.node_features), (self.decision, config_features))
        for scaler, rows in (*tables, (self.static, graph.static_features[None])):
            factors = scaler.beyond(rows)
            if factors.size and factors.max() > times:
                times, name = float(factors.max()), scaler.column_name(int(factors.argmax()))
        return times, name

    def to_dict(self) -> dict[str, object]:
        """Returns plain values for JSON, from which `from_dict` makes an equal scaling."""
        return {field.name: getattr(self, field.name).to_dict() for field in fields(self)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> FeatureScaling:
        """Inverts `to_dict`.

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
    """K kernels with N nodes in total and up to C decisions each.

    The nodes of a kernel are in topological order: producers before consumers.

    Attributes:
        opcodes: int64 [N].
        node_features: float32 [N, sizes.node], scaled.
        static_features: float32 [K, 1, sizes.static], scaled.
        config_features: float32 [K, C, sizes.decision], scaled; zeros where `mask` is False.
        kernel_of_node: int64 [N], ascending.
        node_counts: nodes of each kernel; they sum to N.
        edges: the edges along which nodes send messages.
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
        """Returns the same batch on `device`."""
        target = torch.device(device)
        return GraphBatch(
            opcodes=self.opcodes.to(target),
            node_features=self.node_features.to(target),
            static_features=self.static_features.to(target),
            config_features=self.config_features.to(target),
            kernel_of_node=self.kernel_of_node.to(target),
            node_counts=self.node_counts,
            edges=self.edges.to(target),
            mask=self.mask.to(target),
            runtime_ns=self.runtime_ns.to(target),
            log_analytical=None if self.log_analytical is None else self.log_analytical.to(target),
        )


class Collator:
    """Builds batches with whole-array operations over all kernels of a batch.

    Args:
        scaling: scalers fitted on the training data.
        max_neighbors: neighbours kept per node and direction.
        neighbors: rule that selects them, key of `edges.NEIGHBORS`.
    """

    def __init__(self, scaling: FeatureScaling, max_neighbors: int, neighbors: str = "first") -> None:
        self._scaling = scaling
        self._max_neighbors = max_neighbors
        self._kept = choose(NEIGHBORS, neighbors, "neighbors")
        self._padding = tuple(
            scaler(np.zeros((1, scaler.num_inputs), np.float32)) for scaler in (scaling.node, scaling.static)
        )

    def __call__(self, samples: Sequence[KernelSamples]) -> GraphBatch:
        """Returns one batch of `samples`; C is the largest number of decisions among them.

        Raises:
            DataError: if there are no samples.
        """
        return self.collate(pack_samples(samples))

    def collate(self, kernels: PackedKernels, *, even: bool = False) -> GraphBatch:
        """Returns one batch of packed kernels.

        Args:
            kernels: kernels of the batch, one or more.
            even: pad a large batch to sizes of `even_size`: with decisions that `mask` excludes, and with the
                nodes of an additional last kernel without decisions.

        Raises:
            DataError: without kernels, for a cycle of edges, for a runtime or an estimate not above 0, for
                features scaled by others.
        """
        if not kernels.num_kernels:
            raise DataError("a batch of no kernels")
        kernels = self._scaled(kernels)
        kernels = sort_topologically(kernels)
        max_configs = int(kernels.config_counts.max())
        even = even and max_configs * len(kernels.opcodes) >= LARGE_BATCH_ROWS
        if even:
            kernels = pad_nodes(kernels, even_size(len(kernels.opcodes)), *self._padding)
        producers, consumers = kernels.edges
        counts = kernels.config_counts
        mask = np.arange(even_size(max_configs) if even else max_configs) < counts[:, None]
        estimates = kernels.analytical_ns
        return GraphBatch(
            opcodes=_tensor(kernels.opcodes),
            node_features=_tensor(kernels.node_features),
            static_features=_tensor(kernels.static_features[:, None]),
            config_features=_tensor(_spread(kernels.config_features, mask, 0.0)),
            kernel_of_node=_tensor(np.repeat(np.arange(kernels.num_kernels), kernels.node_counts)),
            node_counts=tuple(kernels.node_counts.tolist()),
            edges=Edges.build(
                self._kept(consumers, producers, self._max_neighbors),
                self._kept(producers, consumers, self._max_neighbors),
                num_nodes=len(kernels.opcodes),
                even=even,
            ),
            mask=_tensor(mask),
            runtime_ns=_tensor(_spread(_positive(kernels.runtime_ns, "runtime_ns"), mask, 1.0)),
            log_analytical=None
            if estimates is None
            else _tensor(np.log(_spread(_positive(estimates, "analytical_ns"), mask, 1.0))),
        )

    def _scaled(self, kernels: PackedKernels) -> PackedKernels:
        scaling = self._scaling
        if kernels.scaled_by is scaling:
            return kernels
        if kernels.scaled_by is not None:
            raise DataError("are scaled by another model's scalers", field="features", expected="unscaled")
        return replace(
            kernels,
            node_features=scaling.node(kernels.node_features),
            static_features=scaling.static(kernels.static_features),
            config_features=scaling.decision(kernels.config_features),
            scaled_by=scaling,
        )


def pack_samples(samples: Sequence[KernelSamples]) -> PackedKernels:
    """Returns the kernels of `samples` in packed form, with estimates if all samples have them.

    Raises:
        DataError: if there are none.
    """
    if not samples:
        raise DataError("a batch of no kernels")
    estimates = [sample.analytical_ns for sample in samples if sample.analytical_ns is not None]
    return pack_kernels(
        [sample.graph for sample in samples],
        [sample.config_features for sample in samples],
        [sample.runtime_ns for sample in samples],
        estimates if len(estimates) == len(samples) else None,
    )


def _positive(values: F64, field: str) -> F64:
    if not (np.isfinite(values).all() and (values > 0.0).all()):
        raise DataError("not a positive number", field=field, expected="above zero")
    return values


def _spread(values: AnyArray, mask: Bool, padding: float) -> AnyArray:
    """Returns [K, C, ...] with the rows [D, ...] where `mask` [K, C] is True and `padding` elsewhere."""
    if mask.all():
        return values.reshape(*mask.shape, *values.shape[1:])
    table = np.full((*mask.shape, *values.shape[1:]), padding, values.dtype)
    table[mask] = values
    return table


def _tensor(array: AnyArray) -> Tensor:
    # A writable copy where the array is a read-only view (a memory map): torch must not alias those.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
