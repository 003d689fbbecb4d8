from __future__ import annotations

import numpy as np
import pytest
import torch

from costbench.models.layout.net_spec import LayoutNetSpec, Pooling
from costbench.models.layout.plain import plain_states
from costbench.models.layout.plan import plan_layers
from costbench.models.layout.view import aggregations, view_of
from tests.models.layout.graphs import chain, network_on, random_graph


def rows_of(num_layers: int, *, pools_all: bool) -> list[tuple[list[int], list[int]]]:
    view = view_of(chain(9, [3]))
    matrices = aggregations(view, "graphsage", directed=True)
    plan = plan_layers(matrices, view.configurable, num_layers, pools_all=pools_all)
    return [(rows.varying.tolist(), rows.fixed.tolist()) for rows in plan.rows]


def test_what_varies_spreads_by_one_hop_a_layer() -> None:
    assert rows_of(2, pools_all=True) == [
        ([3], [0, 1, 2, 4, 5, 6, 7, 8]),
        ([3, 2, 4], [0, 1, 5, 6, 7, 8]),
        ([3, 2, 4, 1, 5], [0, 6, 7, 8]),
    ]


def test_only_what_is_read_is_computed() -> None:
    # The last layer is read at node 3 only, the one before it at 2, 3, 4.
    assert rows_of(2, pools_all=False) == [([3], [1, 2, 4, 5]), ([3, 2, 4], []), ([3], [])]


@pytest.mark.parametrize("pooling", [("mean",), ("configurable-mean",)])
def test_fixed_rows_are_those_that_do_not_change(pooling: tuple[Pooling, ...]) -> None:
    """Brute force: states of all nodes for two configs that differ everywhere."""
    graph = random_graph(4, 70, 5, 40)
    spec = LayoutNetSpec(hidden=8, opcode_embedding=4, pooling=pooling)
    net, inputs = network_on(graph, spec)
    for layers in range(4):
        net.layers = net.layers[:layers]
        with torch.no_grad():
            states = plain_states(net, inputs, inputs.option_rows(np.arange(40)))
        changed = (states - states[:, :1]).abs().amax(dim=(1, 2)).numpy() > 0
        rows = inputs.plan.rows[layers]
        assert not changed[rows.fixed].any()
        if pooling == ("mean",):
            # Units may be inactive for all configs, so a row that may vary need not.
            assert set(np.flatnonzero(changed)) <= set(rows.varying)
            assert changed[graph.node_config_ids].any()
        net, inputs = network_on(graph, spec)
