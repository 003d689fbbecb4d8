"""Aggregation over a diamond, by hand: 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from costbench.models.batch.edges import Edges
from costbench.models.kernels.sage.messages import MessageMatrix, aggregate, undirected

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
