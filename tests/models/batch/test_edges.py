"""Edges of a diamond, by hand: 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from costbench.models.batch.edges import Edges, even_size

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
