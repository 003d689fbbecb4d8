"""Reads training examples, which are kernels with their measured decisions, from feature shards.

Shards are memory-mapped, and a batch reads its kernels from each of its shards, so memory does not depend on
the size of the data set. If all shards together fit into a budget of bytes, a training reads them once,
merges and scales them, and gathers batches from memory. Batches are the same either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from costbench.arrays import I64
from costbench.features.feature_shards import FeatureShard
from costbench.features.packed_kernels import FeatureExtremes, KernelColumns, PackedKernels, merge_columns
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
    ) -> None:
        self._shards = [FeatureShard(path, estimate, features) for path in shards]
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
