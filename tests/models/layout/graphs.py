"""Small layout graphs for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.synthetic_layouts import random_graph
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.models.layout.inputs import LayoutInputs, LayoutScaling, layout_inputs
from costbench.models.layout.network import LayoutNetwork
from costbench.models.spec import LayoutNetSpec

__all__ = ["chain", "network_on", "random_graph"]


def chain(num_nodes: int, configurable: Sequence[int], num_configs: int = 4) -> LayoutGraph:
    """Returns nodes of which each reads the one before it; configurable ones have two options."""
    count = len(configurable)
    nodes = np.arange(num_nodes)
    options = np.full((2 * count, 18), -1.0, np.float32)
    options[1::2, :2] = [0.0, 1.0]
    return LayoutGraph(
        name="chain",
        program="chain",
        collection="layout:xla:random",
        node_features=np.repeat(nodes[:, None], 140, axis=1).astype(np.float32),
        opcodes=(1 + nodes % 7).astype(np.int32),
        edges=np.stack([nodes[1:], nodes[:-1]], axis=1).astype(np.int32),
        node_config_ids=np.array(configurable, np.int32),
        option_offsets=np.arange(0, 2 * count + 1, 2),
        option_features=options,
        config_options=(np.arange(num_configs)[:, None] >> np.arange(count) & 1).astype(np.int16),
        runtime_ns=1000 + np.arange(num_configs),
        node_splits=np.array([0, num_nodes], np.int64),
    )


def network_on(graph: LayoutGraph, spec: LayoutNetSpec, seed: int = 0) -> tuple[LayoutNetwork, LayoutInputs]:
    """Returns an untrained network and the graph as it reads it."""
    scaling = LayoutScaling.fit([graph])
    net = LayoutNetwork(spec, scaling.node.num_outputs, scaling.option.num_outputs, seed)
    return net, layout_inputs(graph, scaling, spec)
