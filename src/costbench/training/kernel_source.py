"""Training examples from feature shards: one kernel with all its measured decisions.

Kernels are kept up to a budget of bytes, the ones used last, since a `Collator` keeps the scaled graph of
those; everything else stays in memory-mapped shards, so memory does not depend on the size of the data set.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from costbench.features.config import tile_features
from costbench.features.feature_shards import FeatureShard
from costbench.models.graph_batch import KernelSamples

DEFAULT_CACHE_BYTES = 512 * 1024 * 1024
# Headers of the dozen arrays and objects of a kernel.
_OBJECT_BYTES = 3 * 1024


class KernelSource:
    """Kernels of some programs, in the order of the programs.

    Args:
        shards: of features, one a program.
        cache_bytes: memory for kernels, what a `Collator` keeps for each included.

    Raises:
        DataError: if a shard is missing or broken.
    """

    def __init__(self, shards: Sequence[Path], *, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._shards = [FeatureShard(path) for path in shards]
        self._places = [(s, k) for s, shard in enumerate(self._shards) for k in range(len(shard))]
        self._num_configs = [int(n) for shard in self._shards for n in shard.num_configs()]
        self._cache: OrderedDict[int, KernelSamples] = OrderedDict()
        self._cached_bytes = 0
        self._cache_bytes = cache_bytes

    def __len__(self) -> int:
        return len(self._places)

    def application(self, index: int) -> str:
        """Application of a kernel's program."""
        return self._shards[self._places[index][0]].application

    def num_configs(self, index: int) -> int:
        """Measured decisions of a kernel."""
        return self._num_configs[index]

    def __getitem__(self, index: int) -> KernelSamples:
        if index not in self._cache:
            samples = self._read(index)
            self._cache[index] = samples
            self._cached_bytes += _num_bytes(samples)
            while self._cached_bytes > self._cache_bytes and len(self._cache) > 1:
                self._cached_bytes -= _num_bytes(self._cache.popitem(last=False)[1])
        self._cache.move_to_end(index)
        return self._cache[index]

    def _read(self, index: int) -> KernelSamples:
        number, place = self._places[index]
        shard = self._shards[number]
        return KernelSamples(
            graph=shard.graph(place),
            config_features=tile_features(shard.tile_sizes(place)),
            runtime_ns=shard.runtime_ns(place).astype(np.float64),
            group=shard.application,
            analytical_ns=shard.analytical_ns(place),
        )


def _num_bytes(samples: KernelSamples) -> int:
    """Memory that keeping a kernel takes.

    The scaled copy of its graph counts as well: `models.graph_batch.Collator` holds one, with the edges by
    producer and by consumer, for as long as the graph is kept here.
    """
    graph = samples.graph
    return (
        2 * graph.node_features.nbytes
        + 3 * graph.edges.nbytes
        + graph.opcodes.nbytes
        + samples.config_features.nbytes
        + 2 * samples.runtime_ns.nbytes  # and as many estimates
        + _OBJECT_BYTES
    )
