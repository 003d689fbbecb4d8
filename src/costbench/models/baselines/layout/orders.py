"""Orders of layout configs that nothing is fitted for: by chance, and near the compiler's default first."""

from __future__ import annotations

import numpy as np

from costbench import rng
from costbench.arrays import F64
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.models.baselines.layout.features import changed_nodes


def random_order(graph: LayoutGraph, seed: int) -> F64:
    """Returns costs of the configs drawn from (0, 1), float64 [c]: tau is 0 on average.

    Args:
        graph: the program and its configs.
        seed: each seed gives another order; the same seed and program always the same.
    """
    return rng.stream(seed, "random layout order", graph.collection, graph.name).random(graph.num_configs)


def default_first(graph: LayoutGraph) -> F64:
    """Returns how many nodes of each config leave the compiler's default layout, float64 [c].

    So the default comes first and what differs from it least comes next, which is what somebody does who
    trusts the compiler.
    """
    return changed_nodes(graph).astype(np.float64)
