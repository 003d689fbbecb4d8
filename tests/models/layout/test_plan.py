from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import random_array
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from costbench.models.layout.network import plain_states
from costbench.models.layout.plan import SparseMatrix, aggregations, build_view, part_starts, plan_layers
from costbench.models.spec import LayoutNetSpec, Pooling
from tests.models.layout.graphs import chain, network_on, random_graph


def rows_of(num_layers: int, *, pools_all: bool) -> list[tuple[list[int], list[int]]]:
    view = build_view(chain(9, [3]))
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


def test_pruning_keeps_nodes_within_reach() -> None:
    view = build_view(chain(9, [1, 6]), prune_hops=1)
    assert view.nodes.tolist() == [0, 1, 2, 5, 6, 7]
    assert view.configurable.tolist() == [1, 4]
    # Edges 0-1, 1-2, 5-6 and 6-7 are left, in new numbers.
    assert sorted(zip(view.consumers.tolist(), view.producers.tolist(), strict=True)) == [
        (1, 0),
        (2, 1),
        (4, 3),
        (5, 4),
    ]


def test_no_hop_keeps_configurable_nodes_alone() -> None:
    view = build_view(chain(9, [1, 2, 6]), prune_hops=0)
    assert view.nodes.tolist() == [1, 2, 6]
    assert list(zip(view.consumers.tolist(), view.producers.tolist(), strict=True)) == [(1, 0)]


def test_without_limits_all_is_seen() -> None:
    graph = random_graph(0, 60, 10, 4)
    view = build_view(graph)
    assert view.num_nodes == 60
    assert np.array_equal(np.stack([view.consumers, view.producers], 1), graph.edges)


def test_parts_end_at_splits_where_there_is_one() -> None:
    splits = np.array([0, 4, 9, 20])
    assert part_starts(20, splits, 6).tolist() == [0, 4, 9, 15]
    assert part_starts(20, splits, 20).tolist() == [0]
    assert part_starts(20, splits, 0).tolist() == [0]


def test_no_message_crosses_parts() -> None:
    view = build_view(chain(9, [1, 6]), part_nodes=4)
    assert view.starts.tolist() == [0, 4, 8]
    crossing = {(4, 3), (8, 7)}
    kept = set(zip(view.consumers.tolist(), view.producers.tolist(), strict=True))
    assert kept == {(node, node - 1) for node in range(1, 9)} - crossing


def test_graphsage_takes_means_by_direction() -> None:
    # Node 2 reads 0 and 1; 3 reads 2.
    view = build_view(random_graph(1, 40, 5, 3))
    own, producers, consumers = (
        torch.from_numpy(matrix.toarray()) for matrix in aggregations(view, "graphsage", directed=True)
    )
    adjacency = to_dense_adj(torch.from_numpy(np.stack([view.consumers, view.producers])), max_num_nodes=40)[
        0
    ]
    assert torch.equal(own, torch.eye(40))
    for matrix, dense in ((producers, adjacency), (consumers, adjacency.t())):
        counts = dense.sum(dim=1, keepdim=True)
        torch.testing.assert_close(matrix, dense / counts.clamp(min=1))
    undirected = aggregations(view, "graphsage", directed=False)[1].toarray()
    both = adjacency + adjacency.t()
    torch.testing.assert_close(torch.from_numpy(undirected), both / both.sum(1, keepdim=True).clamp(min=1))


def test_gcn_is_normalised_as_in_pyg() -> None:
    view = build_view(random_graph(2, 40, 5, 3))
    (matrix,) = aggregations(view, "gcn", directed=True)
    edges = torch.from_numpy(np.stack([view.producers, view.consumers]))
    index, weight = gcn_norm(torch.cat([edges, edges.flip(0)], dim=1), num_nodes=40)
    dense = torch.zeros(40, 40).index_put((index[1], index[0]), weight, accumulate=True)
    torch.testing.assert_close(torch.from_numpy(matrix.toarray()), dense)


@pytest.mark.parametrize("hops", [0, 1, 3])
def test_pruning_agrees_with_breadth_first_search(hops: int) -> None:
    graph = random_graph(3, 80, 4, 3)
    near = set(graph.node_config_ids.tolist())
    for _ in range(hops):
        near |= {int(b) for a, b in graph.edges if a in near} | {int(a) for a, b in graph.edges if b in near}
    assert build_view(graph, prune_hops=hops).nodes.tolist() == sorted(near)


@pytest.mark.parametrize("shape", [(7, 5), (1, 9), (6, 0), (0, 4)])
def test_products_and_gradients_are_those_of_the_dense_matrix(shape: tuple[int, int]) -> None:
    matrix = random_array(shape, density=0.4, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    dense = torch.from_numpy(matrix.toarray())
    states = torch.randn(shape[1], 3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    product = SparseMatrix(matrix).times(states)
    torch.testing.assert_close(product, torch.einsum("ij,jch->ich", dense, states))
    product.square().sum().backward()
    wanted = torch.einsum("ij,ich->jch", dense, 2 * product.detach())
    torch.testing.assert_close(states.grad, wanted)


def test_results_do_not_depend_on_what_memory_held() -> None:
    """The result is not cleared before the product, so NaN left in its memory must not come through."""
    matrix = random_array((64, 64), density=0.1, rng=np.random.default_rng(1), format="csr", dtype=np.float32)
    product, states = SparseMatrix(matrix), torch.ones(64, 256)
    for _ in range(20):
        torch.full((64, 256), torch.nan)
        assert product.multiply(states).isfinite().all()
        assert product.multiply(states, transposed=True).isfinite().all()
