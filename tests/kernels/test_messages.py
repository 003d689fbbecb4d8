from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from costbench.models.edges import Edges
from costbench_kernels.messages import MessageMatrix, aggregate, closed_groups, transpose, undirected
from tests.kernels.examples import build, csr_matrix

TWO_KERNELS = np.array([[0, 0, 3], [1, 2, 4]])
"""Producers above consumers: 0 -> 1, 0 -> 2, and apart from these 3 -> 4."""


def test_transposed_matrix() -> None:
    matrix = np.array([[0.0, 2.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 5.0, 0.0]], np.float32)
    transposed, expected = transpose(csr_matrix(matrix), 4), csr_matrix(np.ascontiguousarray(matrix.T))
    for mine, other in zip(transposed, expected, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_messages_of_two_kernels_by_hand() -> None:
    edges = build(TWO_KERNELS, 5)
    graph = MessageMatrix(edges, mean=False).graph(configs=512)
    # Nodes 0 and 3 have consumers, 1, 2 and 4 producers.
    assert graph.nodes.tolist() == [0, 3, 5]
    assert (graph.to_consumers.nodes.tolist(), graph.to_consumers.starts.tolist()) == ([0, 3], [0, 1, 2])
    assert (graph.to_producers.nodes.tolist(), graph.to_producers.starts.tolist()) == ([1, 2, 4], [0, 2, 3])
    # Messages: of 0 to consumers, of 1 and 2 to producer 0; of 3 to consumers, of 4 to producers.
    assert graph.matrix.starts.tolist() == [0, 2, 3, 4, 5, 6]
    assert graph.matrix.columns.tolist() == [1, 2, 0, 0, 4, 3]
    assert graph.transposed.columns.tolist() == [1, 2, 0, 0, 4, 3]


def test_few_decisions_make_one_group_in_which_all_nodes_send() -> None:
    graph = MessageMatrix(build(TWO_KERNELS, 5), mean=False).graph(configs=1)
    assert graph.nodes.tolist() == [0, 5]
    assert graph.to_consumers.nodes.tolist() == [0, 1, 2, 3, 4]
    assert graph.to_producers.nodes.tolist() == [1, 2, 4]
    assert graph.matrix.columns.tolist() == [5, 6, 0, 0, 7, 3]


@pytest.mark.parametrize("configs", [1, 512])
def test_padding_sends_nothing(configs: int) -> None:
    edges = build(TWO_KERNELS, 5)
    padded = replace(edges, with_producers=torch.tensor([1, 2, 4, 4, 4]))
    graph = MessageMatrix(padded, mean=False).graph(configs)
    assert graph.to_producers.nodes.tolist() == [1, 2, 4]
    for mine, other in zip(graph.matrix, MessageMatrix(edges, mean=False).graph(configs).matrix, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_an_edge_over_other_kernels_joins_their_groups() -> None:
    edges = np.array([[0, 1, 2], [3, 2, 4]])
    graph = MessageMatrix(build(edges, 6), mean=False).graph(configs=512)
    assert graph.nodes.tolist() == [0, 5, 6]


INCOMING = np.array([[1, 2, 3, 3], [0, 0, 1, 2]])
OUTGOING = np.array([[0, 0, 1, 2], [1, 2, 3, 3]])


def diamond() -> Edges:
    return Edges.build(INCOMING, OUTGOING, num_nodes=4)


def table(to_consumers: list[float], to_producers: list[float]) -> torch.Tensor:
    """Messages of width 1 for one decision."""
    return torch.tensor([*to_consumers, *to_producers]).view(-1, 1, 1)


def test_means_of_both_directions_are_added() -> None:
    messages = table([1.0, 2.0, 4.0, 8.0], [10.0, 20.0, 40.0])
    aggregated = aggregate(messages, MessageMatrix(diamond(), mean=True))
    # 0 has consumers 1 and 2: (10 + 20) / 2. 1 has producer 0 and consumer 3: 1 + 40.
    # 2 the same. 3 has producers 1 and 2: (2 + 4) / 2.
    assert aggregated.flatten().tolist() == [15.0, 41.0, 41.0, 3.0]


def test_sums() -> None:
    messages = table([1.0, 2.0, 4.0, 8.0], [10.0, 20.0, 40.0])
    aggregated = aggregate(messages, MessageMatrix(diamond(), mean=False))
    assert aggregated.flatten().tolist() == [30.0, 41.0, 41.0, 6.0]


def test_undirected_nodes_send_both_sides_the_same() -> None:
    matrix = MessageMatrix(undirected(diamond()), mean=True)
    # 0 has 1 and 2, 1 has 0 and 3, 3 has 1 and 2.
    assert aggregate(table([1.0, 2.0, 4.0, 8.0], []), matrix).flatten().tolist() == [3.0, 9.0, 9.0, 3.0]


@pytest.mark.parametrize("mean", [True, False])
def test_transposed_matrix_is_the_transpose(mean: bool) -> None:
    matrix = MessageMatrix(diamond(), mean=mean)
    assert torch.equal(matrix.transposed_times(torch.eye(4)), matrix.times(torch.eye(7)).t())


def test_gradient() -> None:
    matrix = MessageMatrix(diamond(), mean=False)
    messages = torch.rand(7, 2, 3, dtype=torch.float32, requires_grad=True)
    aggregate(messages, matrix).sum().backward()
    # A message counts as often as it is received: to consumers 2, 1, 1, 0 times, to producers 1, 1, 2.
    assert messages.grad is not None
    assert messages.grad[:, 0, 0].tolist() == [2.0, 1.0, 1.0, 0.0, 1.0, 1.0, 2.0]


def test_a_node_alone_receives_nothing() -> None:
    none = np.zeros((2, 0), np.int64)
    edges = Edges.build(none, none, num_nodes=1)
    aggregated = aggregate(torch.ones(1, 2, 3), MessageMatrix(edges, mean=True))
    assert torch.equal(aggregated, torch.zeros(1, 2, 3))


@pytest.mark.parametrize(
    ("edges", "num_nodes", "min_nodes", "starts"),
    [
        ([], 0, 1, [0]),
        ([], 3, 1, [0, 1, 2, 3]),
        ([], 5, 2, [0, 2, 4, 5]),
        ([(0, 1), (2, 0), (4, 3)], 5, 1, [0, 3, 5]),
        ([(0, 1), (2, 0), (4, 3)], 5, 4, [0, 5]),
        # An edge over nodes that have none.
        ([(1, 3)], 6, 1, [0, 1, 4, 5, 6]),
        ([(3, 1), (2, 4)], 6, 1, [0, 1, 5, 6]),
    ],
)
def test_groups_by_hand(
    edges: list[tuple[int, int]], num_nodes: int, min_nodes: int, starts: list[int]
) -> None:
    receiver, sender = np.array(edges, np.int64).reshape(-1, 2).T.copy()
    assert closed_groups(receiver, sender, num_nodes, min_nodes).tolist() == starts
