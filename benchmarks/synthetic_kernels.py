"""Random kernels with measured tile sizes, made without a compiler: for benchmarks and tests of models.

Sizes and shapes follow real kernels: node counts are log-normal (median 26, mean about 40), four nodes in
ten have no operand, there are about as many edges as nodes, and feature widths are those of the data set.
Runtimes depend on the decision and on the kernel, so a model has something to learn.
"""

from __future__ import annotations

import numpy as np

from costbench import rng
from costbench.features.graph_tensors import KernelGraph
from costbench.models.graph_batch import KernelSamples

NODE_FEATURES = 140
CONFIG_FEATURES = 28
STATIC_FEATURES = 4
_MEDIAN_NODES = 26
_NODES_SIGMA = 0.9
_UNITS = 32
_SOURCE_SHARE = 0.4
_OPCODES = np.array([2, 13, 34, 46, 56, 63, 67, 76])


def node_counts(seed: int, num_kernels: int) -> list[int]:
    """Returns log-normal node counts, 1 to 600."""
    logs = rng.stream(seed, "node counts").normal(np.log(_MEDIAN_NODES), _NODES_SIGMA, num_kernels)
    return [int(count) for count in np.clip(np.exp(logs), 1, 600)]


def kernel_graph(seed: int, num_nodes: int) -> KernelGraph:
    """Returns a random kernel: sources first, then instructions that read the one before and others."""
    draw = rng.stream(seed, "graph", num_nodes)
    sources = max(1, round(_SOURCE_SHARE * num_nodes))
    edges = []
    for node in range(sources, num_nodes):
        earlier = draw.choice(node, size=min(node, 1 + int(draw.random() < 0.6)), replace=False)
        previous = [node - 1] if node > sources else []
        operands = sorted({*earlier.tolist()[: 2 - len(previous)], *previous})
        edges.extend((operand, node) for operand in operands)
    opcodes = draw.choice(_OPCODES, num_nodes)
    opcodes[:sources] = _OPCODES[5]
    return KernelGraph(
        opcodes=opcodes,
        node_features=np.floor(draw.exponential(40.0, (num_nodes, NODE_FEATURES))).astype(np.float32),
        edges=np.array(edges, np.int64).reshape(-1, 2).T,
        static_features=draw.exponential(1e6, STATIC_FEATURES).astype(np.float32),
    )


def kernel_samples(seed: int, num_nodes: int, num_configs: int, application: str = "zoo") -> KernelSamples:
    """Returns a random kernel with `num_configs` random tile sizes.

    The runtime is best at a tile volume that depends on the kernel and grows away from it: by the distance
    in doublings, 15% each.
    """
    graph = kernel_graph(seed, num_nodes)
    draw = rng.stream(seed, "tile sizes", num_nodes)
    bounds = draw.integers(1, _UNITS + 1, (num_configs, 3)).astype(np.float64)
    volume = bounds.prod(axis=1)
    features = np.zeros((num_configs, CONFIG_FEATURES), np.float32)
    features[:, 8:11], features[:, 14], features[:, 15] = bounds, bounds.sum(axis=1), volume
    trips = np.ceil(_UNITS / bounds)
    features[:, 24], features[:, 26] = trips.prod(axis=1), (bounds * trips / _UNITS).prod(axis=1)
    features[:, [25, 27]] = 1.0
    favourite = 4.0 + 8.0 * float((graph.opcodes == _OPCODES[0]).mean())
    away = np.abs(np.log2(volume) - favourite)
    runtime_ns = np.round(1000.0 * num_nodes * (1.0 + 0.15 * away))
    return KernelSamples(graph, features, runtime_ns, application)


def kernels(seed: int, num_kernels: int, num_configs: int) -> list[KernelSamples]:
    """Returns random kernels of realistic sizes, spread over three applications of unequal size."""
    names = ("often", "often", "often", "sometimes", "sometimes", "rarely")
    return [
        kernel_samples(seed + 1000 * place, count, num_configs, names[place % len(names)])
        for place, count in enumerate(node_counts(seed, num_kernels))
    ]
