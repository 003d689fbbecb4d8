from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from costbench.models.layout.view import aggregations, part_starts, view_of
from tests.models.layout.graphs import chain, random_graph


def test_pruning_keeps_nodes_within_reach() -> None:
    view = view_of(chain(9, [1, 6]), prune_hops=1)
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
    view = view_of(chain(9, [1, 2, 6]), prune_hops=0)
    assert view.nodes.tolist() == [1, 2, 6]
    assert list(zip(view.consumers.tolist(), view.producers.tolist(), strict=True)) == [(1, 0)]


def test_without_limits_all_is_seen() -> None:
    graph = random_graph(0, 60, 10, 4)
    view = view_of(graph)
    assert view.num_nodes == 60
    assert np.array_equal(np.stack([view.consumers, view.producers], 1), graph.edges)


def test_parts_end_at_splits_where_there_is_one() -> None:
    splits = np.array([0, 4, 9, 20])
    assert part_starts(20, splits, 6).tolist() == [0, 4, 9, 15]
    assert part_starts(20, splits, 20).tolist() == [0]
    assert part_starts(20, splits, 0).tolist() == [0]


def test_no_message_crosses_parts() -> None:
    view = view_of(chain(9, [1, 6]), part_nodes=4)
    assert view.starts.tolist() == [0, 4, 8]
    crossing = {(4, 3), (8, 7)}
    kept = set(zip(view.consumers.tolist(), view.producers.tolist(), strict=True))
    assert kept == {(node, node - 1) for node in range(1, 9)} - crossing


def test_graphsage_takes_means_by_direction() -> None:
    # Node 2 reads 0 and 1; 3 reads 2.
    view = view_of(random_graph(1, 40, 5, 3))
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
    view = view_of(random_graph(2, 40, 5, 3))
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
    assert view_of(graph, prune_hops=hops).nodes.tolist() == sorted(near)
