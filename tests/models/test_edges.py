"""Edges of a diamond, by hand: 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.synthetic_kernels import kernel_graph, kernel_samples
from costbench.errors import DataError
from costbench.models.edges import (
    Edges,
    even_size,
    first_neighbors,
    pad_nodes,
    random_neighbors,
    sort_topologically,
    topological_order,
)
from costbench.models.graph_batch import pack_samples

INCOMING = np.array([[1, 2, 3, 3], [0, 0, 1, 2]])
OUTGOING = np.array([[0, 0, 1, 2], [1, 2, 3, 3]])


def diamond() -> Edges:
    return Edges.build(INCOMING, OUTGOING, num_nodes=4)


def test_only_nodes_with_producers_send_messages_back() -> None:
    assert diamond().with_producers.tolist() == [1, 2, 3]


def test_shares_are_of_a_receiver_and_a_direction() -> None:
    edges = diamond()
    assert edges.receiver.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert edges.backwards.tolist() == [True, True, False, True, False, True, False, False]
    assert edges.share.tolist() == [0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5]


def test_edge_indices_are_those_of_pyg() -> None:
    edges = diamond()
    assert edges.to_consumers.tolist() == [[0, 0, 1, 2], [1, 2, 3, 3]]
    assert edges.to_producers.tolist() == [[1, 2, 3, 3], [0, 0, 1, 2]]


@pytest.mark.parametrize(
    ("size", "expected"), [(0, 0), (1, 1), (15, 15), (16, 16), (17, 18), (60, 60), (61, 64), (129, 144)]
)
def test_sizes_are_rounded_up_to_eighths_of_an_octave(size: int, expected: int) -> None:
    assert even_size(size) == expected
    assert even_size(expected) == expected


def test_padding_sends_no_message() -> None:
    """17 nodes that all read node 0, so that 17 have producers, and one more to come to 18 rows."""
    leaves = np.arange(1, 18)
    incoming, outgoing = np.stack([leaves, 0 * leaves]), np.stack([0 * leaves, leaves])
    exact, even = (Edges.build(incoming, outgoing, 20, even=padded) for padded in (False, True))
    assert exact.with_producers.tolist() == leaves.tolist()
    assert even.with_producers.tolist() == [*leaves.tolist(), 19]
    assert torch.equal(even.message, exact.message)


def chain(*places: int) -> np.ndarray:
    """Nodes read one another in the order of `places`."""
    return np.array([places[:-1], places[1:]])


def test_nodes_come_after_their_producers() -> None:
    assert topological_order(chain(2, 0, 3, 1), 4).tolist() == [2, 0, 3, 1]
    # 2 and 3 are sources, the first of them first; 1 reads both, 0 reads 1.
    assert topological_order(np.array([[3, 2, 1], [1, 1, 0]]), 4).tolist() == [2, 3, 1, 0]


def test_sorted_nodes_keep_their_order() -> None:
    for seed in range(5):
        assert topological_order(kernel_graph(seed, 30).edges, 30).tolist() == list(range(30))
    assert topological_order(np.zeros((2, 0), np.int64), 1).tolist() == [0]


def test_a_cycle_is_refused() -> None:
    with pytest.raises(DataError, match="edges form a cycle"):
        topological_order(chain(0, 1, 2, 0), 3)


def test_only_kernels_out_of_order_are_reordered() -> None:
    first, second, third = (kernel_samples(seed, 4, 2) for seed in range(3))
    second = replace(second, graph=replace(second.graph, edges=chain(2, 0, 3, 1)))
    kernels = pack_samples([first, second, third])
    found = sort_topologically(kernels)
    order = np.array([0, 1, 2, 3, 4 + 2, 4 + 0, 4 + 3, 4 + 1, 8, 9, 10, 11])
    np.testing.assert_array_equal(found.opcodes, kernels.opcodes[order])
    np.testing.assert_array_equal(found.node_features, kernels.node_features[order])
    own = (found.edges[1] >= 4) & (found.edges[1] < 8)
    assert found.edges[:, own].tolist() == [[4, 5, 6], [5, 6, 7]]
    np.testing.assert_array_equal(found.edges[:, ~own], kernels.edges[:, ~own])


def test_kernels_in_order_are_left_alone() -> None:
    kernels = pack_samples([kernel_samples(0, 4, 2)])
    assert sort_topologically(kernels) is kernels


def test_first_neighbors_are_cut_in_order() -> None:
    node, neighbor = np.array([2, 0, 2, 2, 0]), np.array([5, 3, 1, 4, 0])
    assert first_neighbors(node, neighbor, 9).tolist() == [[0, 0, 2, 2, 2], [0, 3, 1, 4, 5]]
    assert first_neighbors(node, neighbor, 2).tolist() == [[0, 0, 2, 2], [0, 3, 1, 4]]
    assert first_neighbors(node[:0], neighbor[:0], 2).shape == (2, 0)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40), st.integers(1, 4))
def test_first_neighbors_are_the_least_ones(pairs: list[tuple[int, int]], limit: int) -> None:
    by_node = {node: sorted(other for of, other in pairs if of == node)[:limit] for node in range(10)}
    node, neighbor = np.array(pairs, np.int64).reshape(-1, 2).T
    expected = [(node, other) for node, others in by_node.items() for other in others]
    assert list(map(tuple, first_neighbors(node, neighbor, limit).T.tolist())) == expected


def test_drawn_neighbors_are_others_and_the_same_wherever_the_kernel_lies() -> None:
    node = np.repeat([40, 41], [30, 2])
    neighbor = np.concatenate([np.arange(30), [3, 5]])
    kept = random_neighbors(node, neighbor, 10)
    assert (kept[0] == 40).sum() == 10
    assert kept[1][kept[0] == 40].tolist() != list(range(10))
    # A node with few neighbours keeps them all.
    assert sorted(kept[1][kept[0] == 41].tolist()) == [3, 5]
    moved = random_neighbors(node + 7, neighbor + 7, 10)
    assert (moved - 7).tolist() == kept.tolist()
    assert random_neighbors(node, neighbor, 30).shape == first_neighbors(node, neighbor, 30).shape


def test_padding_is_a_kernel_of_nodes_alone() -> None:
    kernels = pack_samples([kernel_samples(0, 4, 2)])
    node, static = np.full((1, 140), 7, np.float32), np.full((1, 4), 8, np.float32)
    found = pad_nodes(kernels, 7, node, static)
    assert found.node_counts.tolist() == [4, 3]
    assert found.config_counts.tolist() == [2, 0]
    assert found.node_features.shape[0] == len(found.opcodes) == 7
    assert found.edges is kernels.edges
    assert (found.node_features[4:] == 7).all()
    assert (found.static_features[1:] == 8).all()
    assert pad_nodes(kernels, 4, node, static) is kernels
