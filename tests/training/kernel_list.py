"""A source of kernels held in a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.synthetic_kernels import kernel_samples
from costbench.arrays import I64
from costbench.features.packed_kernels import FeatureExtremes, PackedKernels
from costbench.models.graph_batch import FeatureScaling, KernelSamples, pack_samples


class KernelList(list[KernelSamples]):
    """Kernels in memory, as a `SampleSource`."""

    def application(self, index: int) -> str:
        return self[index].group

    def pack(self, kernels: Sequence[int], configs: Sequence[I64]) -> PackedKernels:
        pairs = zip(kernels, configs, strict=True)
        return pack_samples([self[kernel].select(places) for kernel, places in pairs])

    def scaled(self, scaling: FeatureScaling) -> KernelList:
        return self

    def extremes(self) -> Iterator[FeatureExtremes]:
        for kernel in self:
            graph = kernel.graph
            yield FeatureExtremes(graph.node_features, kernel.config_features, graph.static_features[None])

    def num_configs(self, index: int) -> int:
        return len(self[index])


def small_kernels(seed: int, num_kernels: int, num_configs: int = 20) -> KernelList:
    """Kernels of 1 to 12 nodes from two applications."""
    return KernelList(
        kernel_samples(100 * seed + place, 1 + 3 * place % 12, num_configs, ("one", "two")[place % 2])
        for place in range(num_kernels)
    )
