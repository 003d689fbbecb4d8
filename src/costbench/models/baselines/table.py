"""Tables of samples: decisions of kernels as rows, which baselines are fitted to and predict for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costbench.arrays import F32, F64, I64
from costbench.errors import DataError
from costbench.features.feature_shards import FeatureShard
from costbench.features.packed_kernels import PackedKernels
from costbench.features.schema import NUM_DECISION_FEATURES
from costbench.models.baselines.kernel_features import kernel_rows

# Kernels and decisions that are read at a time: a few dozen megabytes of features.
_KERNELS, _ROWS = 256, 8192


@dataclass(frozen=True, eq=False)
class KernelTable:
    """D decisions of K kernels, a row each; those of a kernel are consecutive.

    Attributes:
        features: float32 [D, F], see `kernel_features`.
        static: float64 [D, 4], static performance features of the kernel, as they are.
        analytical_ns: float64 [D], the analytical model's estimates.
        runtime_ns: float64 [D], measured.
        counts: int64 [K], decisions of each kernel.
        applications: int64 [K], number of the application that the kernel's program belongs to.
    """

    features: F32
    static: F64
    analytical_ns: F64
    runtime_ns: F64
    counts: I64
    applications: I64

    def __len__(self) -> int:
        """Return D."""
        return len(self.runtime_ns)

    @property
    def decisions(self) -> F32:
        """The features that differ between decisions of a kernel, float32 [D, 28]."""
        return self.features[:, -NUM_DECISION_FEATURES:]

    @cached_property
    def kernel_weights(self) -> F64:
        """How much each kernel counts in a fit, float64 [K], of mean 1: all applications count the same.

        Within its application every kernel counts the same; kernels without rows count nothing.
        """
        filled = self.counts > 0
        sizes = np.bincount(self.applications[filled], minlength=int(self.applications.max(initial=0)) + 1)
        shares = filled / np.maximum(sizes, 1)[self.applications]
        weights: F64 = shares * len(shares) / shares.sum()
        return weights

    @property
    def row_weights(self) -> F64:
        """The weight of each row, float64 [D]: that of its kernel, divided among its decisions."""
        return np.repeat(self.kernel_weights / np.maximum(self.counts, 1), self.counts)

    @staticmethod
    def joined(parts: Sequence[KernelTable]) -> KernelTable:
        """Return the rows of all parts in order.

        Raises:
            DataError: if there are none.
        """
        if not parts:
            raise DataError("no kernels to fit a baseline to", expected="one or more")
        names = ("features", "static", "analytical_ns", "runtime_ns", "counts", "applications")
        return KernelTable(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def table_of(kernels: PackedKernels, application: int = 0) -> KernelTable:
    """Return the table of unscaled kernels with estimates, all of the application of that number."""
    assert kernels.analytical_ns is not None, "feature shards hold estimates"
    static = kernels.static_features.astype(np.float64)
    return KernelTable(
        kernel_rows(kernels),
        np.repeat(static, kernels.config_counts, axis=0),
        kernels.analytical_ns.astype(np.float64),
        kernels.runtime_ns.astype(np.float64),
        kernels.config_counts,
        np.full(kernels.num_kernels, application),
    )


def chosen_tables(
    shard: FeatureShard, kernels: I64, configs: Sequence[I64], application: int = 0
) -> Iterator[KernelTable]:
    """Yield some decisions of some kernels of a shard, in tables of bounded size, in order.

    Args:
        shard: of one program.
        kernels: int64 [K], by position.
        configs: for each kernel, positions of its decisions.
        application: number of the program's application.
    """
    first, rows = 0, 0
    for place in range(len(kernels)):
        own = len(configs[place])
        if place > first and (place - first == _KERNELS or rows + own > _ROWS):
            chunk = slice(first, place)
            yield table_of(shard.columns.pack(kernels[chunk], configs[chunk]), application)
            first, rows = place, 0
        rows += own
    if first < len(kernels):
        yield table_of(shard.columns.pack(kernels[first:], configs[first:]), application)


def program_tables(shard: FeatureShard) -> Iterator[KernelTable]:
    """Yield all decisions of all kernels of a program, in tables of bounded size, in the shard's order."""
    pieces = [
        (kernel, np.arange(start, min(start + _ROWS, count)))
        for kernel, count in enumerate(shard.num_configs().tolist())
        for start in range(0, count, _ROWS)
    ]
    kernels = np.array([kernel for kernel, _ in pieces], np.int64)
    yield from chosen_tables(shard, kernels, [configs for _, configs in pieces])
