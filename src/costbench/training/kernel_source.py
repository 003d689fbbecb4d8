"""Reads training examples, which are kernels with their measured decisions, from feature shards.

Shards are memory-mapped, and a batch reads its kernels from each of its shards, so memory does not depend on
the size of the data set. If all shards together fit into a budget of bytes, a training reads them once,
merges and scales them, and gathers batches from memory. Batches are the same either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from costbench import rng
from costbench.arrays import I64
from costbench.features.feature_shards import FeatureShard
from costbench.features.packed_kernels import FeatureExtremes, KernelColumns, PackedKernels, merge_columns
from costbench.features.roofline import Roofline
from costbench.models.graph_batch import FeatureScaling, KernelSamples
from costbench.training.batches import SampleSource

DEFAULT_CACHE_BYTES = 512 * 1024 * 1024


class KernelSource:
    """Kernels of some programs, in the order of the programs.

    Args:
        shards: feature shards, one per program.
        cache_bytes: budget; if all shards together are larger, they stay on disk when they are `scaled`.
        estimate: quality of the estimates; empty for that of the chip's compiler.
        features: dotted path of further features of nodes; empty for none.
        roofline: formula of the estimates of kernels that a real machine ran; None for the stored ones.

    Raises:
        DataError: if a shard is missing or broken.
    """

    def __init__(
        self,
        shards: Sequence[Path],
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        estimate: str = "",
        features: str = "",
        roofline: Roofline | None = None,
    ) -> None:
        self._shards = [FeatureShard(path, estimate, features, roofline) for path in shards]
        self._locations = [(s, k) for s, shard in enumerate(self._shards) for k in range(len(shard))]
        self._num_configs = [int(n) for shard in self._shards for n in shard.num_configs()]
        self._fits = 0 < sum(path.stat().st_size for path in shards) <= cache_bytes
        self._columns = [shard.columns for shard in self._shards]
        self._starts = np.cumsum([0, *(len(columns) for columns in self._columns)])

    def __len__(self) -> int:
        return len(self._locations)

    def application(self, index: int) -> str:
        """Returns the application of a kernel's program."""
        return self._shards[self._locations[index][0]].application

    def num_configs(self, index: int) -> int:
        """Returns the number of measured decisions of a kernel."""
        return self._num_configs[index]

    def __getitem__(self, index: int) -> KernelSamples:
        shard_number, index_in_shard = self._locations[index]
        shard = self._shards[shard_number]
        return KernelSamples(
            graph=shard.graph(index_in_shard),
            config_features=shard.config_features(index_in_shard),
            runtime_ns=shard.runtime_ns(index_in_shard).astype(np.float64),
            group=shard.application,
            analytical_ns=shard.analytical_ns(index_in_shard),
        )

    def pack(self, kernels: Sequence[int], configs: Sequence[I64]) -> PackedKernels:
        """Reads some kernels with some of their decisions; this is fastest if kernels ascend.

        Args:
            kernels: indices of kernels, one or more.
            configs: for each kernel, indices of the decisions to read.
        """
        indices = np.array(kernels, np.int64)
        shard_of_kernel = np.searchsorted(self._starts, indices, side="right") - 1
        bounds = [0, *(np.flatnonzero(np.diff(shard_of_kernel)) + 1).tolist(), len(indices)]
        return PackedKernels.concatenate(
            [
                self._columns[shard_of_kernel[first]].pack(
                    indices[first:last] - self._starts[shard_of_kernel[first]], configs[first:last]
                )
                for first, last in pairwise(bounds)
            ]
        )

    def scaled(self, scaling: FeatureScaling) -> SampleSource:
        """Returns these kernels, in memory and scaled if they fit into the budget."""
        return MergedSource(self, merge_columns(self._columns, scaling)) if self._fits else self

    def extremes(self) -> Iterator[FeatureExtremes]:
        """Yields the extremes of the features of all kernels, shard by shard."""
        for columns in self._columns:
            yield columns.extremes()


class SubsetSource:
    """Some kernels of a source, in its order.

    Args:
        source: source of the kernels.
        indices: indices of those that stay, ascending.
    """

    def __init__(self, source: SampleSource, indices: I64) -> None:
        self._source, self._indices = source, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> KernelSamples:
        return self._source[int(self._indices[index])]

    def application(self, index: int) -> str:
        """Returns the application of a kernel's program."""
        return self._source.application(int(self._indices[index]))

    def num_configs(self, index: int) -> int:
        """Returns the number of measured decisions of a kernel."""
        return self._source.num_configs(int(self._indices[index]))

    def pack(self, kernels: Sequence[int], configs: Sequence[I64]) -> PackedKernels:
        """Reads some kernels with some of their decisions; see `KernelSource.pack`."""
        return self._source.pack(self._indices[np.array(kernels, np.int64)].tolist(), configs)

    def scaled(self, scaling: FeatureScaling) -> SampleSource:
        """Returns these kernels of the scaled source."""
        return SubsetSource(self._source.scaled(scaling), self._indices)

    def extremes(self) -> Iterator[FeatureExtremes]:
        """Yields the extremes of the features of these kernels."""
        for index in range(len(self)):
            sample = self[index]
            parts = sample.graph.node_features, sample.config_features, sample.graph.static_features[None]
            yield FeatureExtremes(*parts)


def draw_kernels(source: SampleSource, count: int, seed: int) -> SampleSource:
    """Returns `count` kernels of a source, drawn evenly from all applications; all if there are no more.

    Args:
        source: kernels.
        count: number of kernels; 0 for all.
        seed: seed of the draws; the kernels of a smaller number are among those of a larger one.
    """
    if not 0 < count < len(source):
        return source
    by_application: dict[str, list[int]] = {}
    for index in range(len(source)):
        by_application.setdefault(source.application(index), []).append(index)
    orders = {
        name: rng.stream(seed, "training kernels", name).permutation(by_application[name]).tolist()
        for name in sorted(by_application)
    }
    applications = rng.stream(seed, "training kernels").permutation(sorted(orders)).tolist()
    turns = (orders[name][turn] for turn in range(count) for name in applications if turn < len(orders[name]))
    return SubsetSource(source, np.sort(np.fromiter(islice(turns, count), np.int64)))


class MergedSource:
    """The kernels of a source, whose `pack` reads scaled features from memory.

    Args:
        source: source of the kernels.
        columns: scaled columns of all of its kernels.
    """

    def __init__(self, source: KernelSource, columns: KernelColumns) -> None:
        self._source = source
        self._columns = columns
        self.application, self.num_configs = source.application, source.num_configs
        self.scaled, self.extremes = source.scaled, source.extremes

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> KernelSamples:
        return self._source[index]

    def pack(self, kernels: Sequence[int], configs: Sequence[I64]) -> PackedKernels:
        """Reads some kernels with some of their decisions; see `KernelSource.pack`."""
        return self._columns.pack(np.array(kernels, np.int64), configs)
