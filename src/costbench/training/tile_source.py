"""Training examples from tile shards: one kernel with all its measured tiles, featurised on demand.

Featurised kernels are kept up to a budget of bytes, the ones used last; everything else stays in
memory-mapped shards, so memory does not depend on the size of the data set.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from costbench.datasets.tile_kernels import CompiledPrograms, TileShard, shard_path
from costbench.features.config import tile_features
from costbench.features.graph_tensors import ProgramFeatureCache, kernel_graph
from costbench.models.graph_batch import KernelSamples
from costbench.target import Architecture

DEFAULT_CACHE_BYTES = 512 * 1024 * 1024
_PROGRAMS_KEPT = 8
# Headers of the dozen arrays and objects of a kernel.
_OBJECT_BYTES = 3 * 1024


class TileSource:
    """Kernels of some programs on one chip, in the order of the programs.

    Args:
        folder: of the data set.
        programs: names, each with a shard.
        chip: name of the chip.
        architecture: of the chip.
        cache_bytes: memory for featurised kernels, what a `Collator` keeps for each included.

    Raises:
        DataError: if a shard is missing or broken.
    """

    def __init__(
        self,
        folder: Path,
        programs: Sequence[str],
        chip: str,
        architecture: Architecture,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        modules = CompiledPrograms(folder, _PROGRAMS_KEPT)
        self._shards = [TileShard(shard_path(folder, chip, name), modules, architecture) for name in programs]
        self._features = ProgramFeatureCache(_PROGRAMS_KEPT)
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
        """Measured tiles of a kernel."""
        return self._num_configs[index]

    def __getitem__(self, index: int) -> KernelSamples:
        if index not in self._cache:
            samples = self._featurise(index)
            self._cache[index] = samples
            self._cached_bytes += _num_bytes(samples)
            while self._cached_bytes > self._cache_bytes and len(self._cache) > 1:
                self._cached_bytes -= _num_bytes(self._cache.popitem(last=False)[1])
        self._cache.move_to_end(index)
        return self._cache[index]

    def read_ahead(self) -> None:
        """Featurises kernels program by program, until the budget is used up.

        A program is parsed once for all of its kernels; in the order in which training draws kernels, it
        would be parsed again and again.
        """
        for index in range(len(self)):
            if self._cached_bytes >= self._cache_bytes:
                return
            self[index]

    def _featurise(self, index: int) -> KernelSamples:
        shard, place = self._places[index]
        measured = self._shards[shard].kernel(place)
        return KernelSamples(
            graph=kernel_graph(measured.kernel, self._features),
            config_features=tile_features(measured.tile_sizes),
            runtime_ns=measured.runtime_ns.astype(np.float64),
            group=self._shards[shard].application,
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
        + samples.runtime_ns.nbytes
        + _OBJECT_BYTES
    )
