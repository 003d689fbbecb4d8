"""Kernels and their decisions as tables of samples, which baselines are fitted to and predict for.

A row of features summarises what a network reads of the same sample: how many nodes have which opcode;
maximum, mean and sum of every node feature; the numbers of nodes and edges; static performance features;
features of the decision. Features of wide ranges pass through sign(x) log(1 + |x|), as for networks. The
analytical model's estimates are not among them.

Samples are drawn as evenly as the batches that networks are trained on. Applications differ hundredfold in
their number of kernels. Here each counts the same, and within it every kernel, as in the balanced batches of
`costbench.training.batches` (lpm2021, section 4, 'Imbalances'): kernels are drawn without replacement,
as many of each application as fit the budget, and count by `KernelTable.kernel_weights`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from costbench import rng
from costbench.arrays import F32, F64, I64, AnyArray
from costbench.artifacts import digest_bytes
from costbench.errors import DataError
from costbench.features import schema
from costbench.features.feature_shards import FeatureShard
from costbench.features.packed_kernels import PackedKernels
from costbench.hlo.opcode import NUM_OPCODE_CODES
from costbench.models.baselines.spec import SampleSpec

# Kernels and decisions that are read at a time: a few dozen megabytes of features.
_KERNELS, _ROWS = 256, 8192

_NODE = schema.names(schema.NODE_FEATURES)
FEATURE_NAMES: tuple[str, ...] = (
    *schema.names(schema.STATIC_FEATURES),
    "nodes",
    "edges",
    *(f"opcode_{code}" for code in range(NUM_OPCODE_CODES)),
    *(f"max_{name}" for name in _NODE),
    *(f"mean_{name}" for name in _NODE),
    *(f"sum_{name}" for name in _NODE),
    *schema.names(schema.DECISION_FEATURES),
)
"""Names of the columns, in order."""
NUM_FEATURES = len(FEATURE_NAMES)


def features_digest() -> str:
    """Returns a digest of the names: a model must read the features that it was fitted to."""
    return digest_bytes(",".join(FEATURE_NAMES).encode())[:16]


def kernel_rows(kernels: PackedKernels) -> F32:
    """Returns one row for each decision of unscaled kernels, float32 [D, `NUM_FEATURES`], in their order."""
    counts = kernels.node_counts
    starts = np.cumsum(counts) - counts
    nodes = _signed_log1p(kernels.node_features)
    per_kernel = np.concatenate(
        [
            _signed_log1p(kernels.static_features),
            _signed_log1p(np.stack([counts, _edge_counts(kernels)], axis=1)),
            _opcode_counts(kernels),
            np.maximum.reduceat(nodes, starts, axis=0),
            np.add.reduceat(nodes, starts, axis=0) / counts[:, None].astype(np.float32),
            _signed_log1p(np.add.reduceat(kernels.node_features, starts, axis=0)),
        ],
        axis=1,
    )
    decisions = _signed_log1p(kernels.config_features)
    return np.concatenate([np.repeat(per_kernel, kernels.config_counts, axis=0), decisions], axis=1)


def _edge_counts(kernels: PackedKernels) -> I64:
    ends = np.cumsum(kernels.node_counts)
    kernel = np.searchsorted(ends, kernels.edges[0], side="right")
    return np.bincount(kernel, minlength=kernels.num_kernels)


def _opcode_counts(kernels: PackedKernels) -> F32:
    kernel = np.repeat(np.arange(kernels.num_kernels), kernels.node_counts)
    bins = kernel * NUM_OPCODE_CODES + kernels.opcodes
    counts = np.bincount(bins, minlength=kernels.num_kernels * NUM_OPCODE_CODES)
    return counts.reshape(-1, NUM_OPCODE_CODES).astype(np.float32)


def _signed_log1p(values: AnyArray) -> F32:
    # In double precision, which all processors round to the same float32; their log1p of float32 differ.
    wide = values.astype(np.float32).astype(np.float64)
    return np.copysign(np.log1p(np.abs(wide)), wide).astype(np.float32)


@dataclass(frozen=True, eq=False)
class KernelTable:
    """D decisions of K kernels, a row each; those of a kernel are consecutive.

    Attributes:
        features: features of each row, float32 [D, F]; see `FEATURE_NAMES`.
        static: static performance features of the row's kernel, as they are, float64 [D, 4].
        analytical_ns: the analytical model's estimates, float64 [D].
        runtime_ns: measured runtimes, float64 [D].
        counts: number of decisions of each kernel, int64 [K].
        applications: number of the application that each kernel's program belongs to, int64 [K].
    """

    features: F32
    static: F64
    analytical_ns: F64
    runtime_ns: F64
    counts: I64
    applications: I64

    def __len__(self) -> int:
        """Returns D."""
        return len(self.runtime_ns)

    @property
    def decisions(self) -> F32:
        """Returns the features that differ between decisions of a kernel, float32 [D, 28]."""
        return self.features[:, -schema.NUM_DECISION_FEATURES :]

    @cached_property
    def kernel_weights(self) -> F64:
        """Returns how much each kernel counts in a fit, float64 [K], of mean 1: all applications the same.

        Within its application every kernel counts the same; kernels without rows count nothing.
        """
        filled = self.counts > 0
        sizes = np.bincount(self.applications[filled], minlength=int(self.applications.max(initial=0)) + 1)
        shares = filled / np.maximum(sizes, 1)[self.applications]
        weights: F64 = shares * len(shares) / shares.sum()
        return weights

    @property
    def row_weights(self) -> F64:
        """Returns the weight of each row, float64 [D]: that of its kernel, divided among its decisions."""
        return np.repeat(self.kernel_weights / np.maximum(self.counts, 1), self.counts)

    @staticmethod
    def join(parts: Sequence[KernelTable]) -> KernelTable:
        """Returns the rows of all parts in order.

        Raises:
            DataError: if there are none.
        """
        if not parts:
            raise DataError("no kernels to fit a baseline to", expected="one or more")
        names = ("features", "static", "analytical_ns", "runtime_ns", "counts", "applications")
        return KernelTable(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def table_of(kernels: PackedKernels, application: int = 0) -> KernelTable:
    """Returns the table of unscaled kernels with estimates, all of the application of that number."""
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


def read_tables(
    shard: FeatureShard, kernels: I64, configs: Sequence[I64], application: int = 0
) -> Iterator[KernelTable]:
    """Yields some decisions of some kernels of a shard, in tables of bounded size, in order.

    Args:
        shard: features of one program.
        kernels: positions of kernels, int64 [K].
        configs: positions of the decisions of each of these kernels.
        application: number of the program's application.
    """
    first, rows = 0, 0
    for index in range(len(kernels)):
        num_configs = len(configs[index])
        if index > first and (index - first == _KERNELS or rows + num_configs > _ROWS):
            chunk = slice(first, index)
            yield table_of(shard.columns.pack(kernels[chunk], configs[chunk]), application)
            first, rows = index, 0
        rows += num_configs
    if first < len(kernels):
        yield table_of(shard.columns.pack(kernels[first:], configs[first:]), application)


def program_tables(shard: FeatureShard) -> Iterator[KernelTable]:
    """Yields all decisions of all kernels of a program, in tables of bounded size, in the shard's order."""
    chunks = [
        (kernel, np.arange(start, min(start + _ROWS, count)))
        for kernel, count in enumerate(shard.num_configs().tolist())
        for start in range(0, count, _ROWS)
    ]
    kernels = np.array([kernel for kernel, _ in chunks], np.int64)
    yield from read_tables(shard, kernels, [configs for _, configs in chunks])


def sample_kernels(
    paths: Sequence[Path], spec: SampleSpec, seed: int, *, min_configs: int = 1, estimate: str = ""
) -> KernelTable:
    """Returns `sample_table` of the feature shards at some paths, with estimates of a quality."""
    shards = [FeatureShard(path, estimate) for path in paths]
    return sample_table(shards, spec, seed, min_configs=min_configs)


def sample_table(
    shards: Sequence[FeatureShard], spec: SampleSpec, seed: int, *, min_configs: int = 1
) -> KernelTable:
    """Returns decisions of kernels that have a choice of tile sizes, drawn evenly from all applications.

    The analytical model was not made for kernels without a choice, and evaluation leaves them out.

    Args:
        shards: features of some programs.
        spec: number of kernels and decisions.
        seed: seed of the draws; of an application, the kernels depend on others by their number alone, while
            decisions are drawn from one stream, shard after shard.
        min_configs: number of decisions below which kernels are left out (2 for a loss over pairs).

    Returns:
        Kernels in the order of the shards.

    Raises:
        DataError: for damaged shards, or if no kernel is left.
    """
    by_application: dict[str, list[tuple[int, int]]] = {}
    counts = [shard.num_configs() for shard in shards]
    for number, shard in enumerate(shards):
        usable = shard.comparable & (counts[number] >= min_configs)
        kernels = [(number, kernel) for kernel in np.flatnonzero(usable).tolist()]
        by_application.setdefault(shard.application, []).extend(kernels)
    by_application = {name: kernels for name, kernels in sorted(by_application.items()) if kernels}
    quota = quotas({name: len(kernels) for name, kernels in by_application.items()}, spec.kernels)
    kernels_of_shards: list[list[int]] = [[] for _ in shards]
    for name, kernels in by_application.items():
        order = rng.stream(seed, "baseline kernels", name).permutation(len(kernels))[: quota[name]]
        for number, kernel in (kernels[index] for index in np.sort(order).tolist()):
            kernels_of_shards[number].append(kernel)
    generator = rng.stream(seed, "baseline decisions")
    parts: list[KernelTable] = []
    applications = sorted(by_application)
    for number, (shard, chosen) in enumerate(zip(shards, kernels_of_shards, strict=True)):
        if chosen:
            configs = [draw(generator, int(counts[number][kernel]), spec.configs) for kernel in chosen]
            application = applications.index(shard.application)
            parts.extend(read_tables(shard, np.array(chosen, np.int64), configs, application))
    if not parts:
        raise DataError(
            f"none of {sum(map(len, shards))} kernels has {min_configs} or more decisions", field="kernels"
        )
    return KernelTable.join(parts)


def quotas(available: Mapping[str, int], budget: int) -> dict[str, int]:
    """Returns how many kernels to take of each application: all of small ones, equally many of the others.

    The number of the others is the largest with which the sum is at most `budget`, but at least 1.
    """
    remaining, quota = budget, dict.fromkeys(available, 0)
    for rank, (name, count) in enumerate(sorted(available.items(), key=lambda item: (item[1], item[0]))):
        quota[name] = max(1, min(count, remaining // (len(available) - rank)))
        remaining -= quota[name]
    return quota


def draw(generator: np.random.Generator, available: int, wanted: int) -> I64:
    """Returns `wanted` different positions below `available`, ascending; all if there are no more."""
    if available <= wanted:
        return np.arange(available)
    return np.sort(generator.choice(available, size=wanted, replace=False)).astype(np.int64)
