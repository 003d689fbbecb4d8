"""Sums along edges, against a diamond worked out by hand: 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from costbench.models.batch.edges import Edges, SumMatrix, even_size, hear_max, hear_sum

INCOMING = np.array([[1, 2, 3, 3], [0, 0, 1, 2]])
OUTGOING = np.array([[0, 0, 1, 2], [1, 2, 3, 3]])


def diamond() -> Edges:
    return Edges.build(INCOMING, OUTGOING, num_nodes=4)


def table(forth: list[float], back: list[float]) -> torch.Tensor:
    """Messages of width 1 for one decision: what nodes tell consumers, then producers."""
    return torch.tensor([*forth, *back]).view(-1, 1, 1)


def test_only_nodes_with_producers_talk_back() -> None:
    edges = diamond()
    assert edges.with_producers.tolist() == [1, 2, 3]
    assert edges.num_messages == 7


def test_means_of_both_directions_are_added() -> None:
    messages = table([1.0, 2.0, 4.0, 8.0], [10.0, 20.0, 40.0])
    heard = hear_sum(messages, SumMatrix(diamond(), mean=True))
    # 0 hears consumers 1 and 2: (10 + 20) / 2. 1 hears producer 0 and consumer 3: 1 + 40.
    # 2 the same. 3 hears producers 1 and 2: (2 + 4) / 2.
    assert heard.flatten().tolist() == [15.0, 41.0, 41.0, 3.0]


def test_sums() -> None:
    messages = table([1.0, 2.0, 4.0, 8.0], [10.0, 20.0, 40.0])
    heard = hear_sum(messages, SumMatrix(diamond(), mean=False))
    assert heard.flatten().tolist() == [30.0, 41.0, 41.0, 6.0]


def test_maximum_per_direction() -> None:
    messages = table([1.0, 2.0, 4.0, 8.0], [10.0, 20.0, 40.0])
    assert hear_max(messages, diamond()).flatten().tolist() == [20.0, 41.0, 41.0, 4.0]


def test_undirected_nodes_tell_both_sides_the_same() -> None:
    messages = table([1.0, 2.0, 4.0, 8.0], [])
    edges = diamond().undirected()
    assert edges.num_messages == 4
    # 0 hears 1 and 2, 1 hears 0 and 3, 3 hears 1 and 2.
    assert hear_sum(messages, SumMatrix(edges, mean=True)).flatten().tolist() == [3.0, 9.0, 9.0, 3.0]
    assert hear_max(messages, edges).flatten().tolist() == [4.0, 9.0, 9.0, 4.0]


@pytest.mark.parametrize("mean", [True, False])
def test_transposed_matrix_is_the_transpose(mean: bool) -> None:
    matrix = SumMatrix(diamond(), mean)
    forwards = matrix.times(torch.eye(7))
    assert torch.equal(matrix.transposed_times(torch.eye(4)), forwards.t())


def test_gradient() -> None:
    matrix = SumMatrix(diamond(), mean=True)
    messages = torch.rand(7, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: hear_sum(values, matrix), messages)


def test_bfloat16_messages_are_summed_as_such() -> None:
    messages = table([1.0, 2.0, 4.0, 8.0], [10.0, 20.0, 40.0]).bfloat16()
    heard = hear_sum(messages, SumMatrix(diamond(), mean=True))
    assert heard.dtype is torch.bfloat16
    assert heard.flatten().tolist() == [15.0, 41.0, 41.0, 3.0]


def test_a_node_alone_hears_nothing() -> None:
    none = np.zeros((2, 0), np.int64)
    edges = Edges.build(none, none, num_nodes=1)
    assert edges.num_messages == 1
    heard = hear_sum(torch.ones(1, 2, 3), SumMatrix(edges, mean=True))
    assert torch.equal(heard, torch.zeros(1, 2, 3))
    assert torch.equal(hear_max(torch.ones(1, 2, 3), edges), torch.zeros(1, 2, 3))


@pytest.mark.parametrize(
    ("size", "expected"), [(0, 0), (1, 1), (15, 15), (16, 16), (17, 18), (60, 60), (61, 64), (129, 144)]
)
def test_sizes_are_rounded_up_to_eighths_of_an_octave(size: int, expected: int) -> None:
    assert even_size(size) == expected
    assert even_size(expected) == expected


def test_padding_talks_to_nobody() -> None:
    """17 nodes that all read node 0, so that 16 have producers... and one more to come to 18 rows."""
    leaves = np.arange(1, 18)
    incoming, outgoing = np.stack([leaves, 0 * leaves]), np.stack([0 * leaves, leaves])
    exact, even = (Edges.build(incoming, outgoing, 20, even=padded) for padded in (False, True))
    assert exact.with_producers.tolist() == leaves.tolist()
    assert even.with_producers.tolist() == [*leaves.tolist(), 19]
    assert even.num_messages == 20 + 18
    assert torch.equal(even.message, exact.message)
    table = torch.randn(38, 1, 3, generator=torch.Generator().manual_seed(0))
    heard = [hear_sum(table[: edges.num_messages], SumMatrix(edges, mean=True)) for edges in (exact, even)]
    assert torch.equal(*heard)
