from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.models.kernels.gat.pairs import Pairs, pairs_of, sizes

# Node 0 hears 1; 1 hears 0 as a consumer (second way), and 2; 2 hears 1; 3 nobody; 4 hears 5.
RECEIVER, SENDER = np.array([0, 1, 1, 2, 4]), np.array([1, 0, 2, 1, 5])
WAY = np.array([False, True, False, True, False])


def of_slots(pairs: Pairs) -> list[list[int]]:
    return [part.tolist() for part in np.split(pairs.senders, pairs.starts[1:-1])]


def test_two_ways_by_hand() -> None:
    pairs = pairs_of(RECEIVER, SENDER, WAY, 6, 2, 1)
    assert of_slots(pairs) == [[1, 0], [0], [2, 1], [0, 1], [2], [1, 2], [3], [3], [5, 4], [4], [5], [5]]
    assert sizes(pairs) == (6, 2)


def test_one_way_by_hand() -> None:
    pairs = pairs_of(RECEIVER, SENDER, WAY, 6, 1, 1)
    assert of_slots(pairs) == [[1, 0], [0, 2, 1], [1, 2], [3], [5, 4], [5]]
    assert sizes(pairs) == (6, 1)
    # Node 1 tells 0, itself and 2; these are pairs 0, 4 and 5.
    begin, end = pairs.by_sender_starts[1], pairs.by_sender_starts[2]
    assert pairs.by_sender_pairs[begin:end].tolist() == [0, 4, 5]
    assert pairs.receivers[begin:end].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("least", "expected"),
    [(1, [0, 3, 4, 6]), (2, [0, 3, 6]), (4, [0, 4, 6]), (5, [0, 6]), (100, [0, 6])],
)
def test_groups_end_where_no_edge_crosses(least: int, expected: list[int]) -> None:
    pairs = pairs_of(RECEIVER, SENDER, WAY, 6, 2, least)
    assert pairs.groups.tolist() == expected


@given(num_nodes=st.integers(1, 7), ways=st.integers(1, 2), seed=st.integers(0, 99))
def test_senders_know_their_pairs(num_nodes: int, ways: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    receiver = np.sort(draw.integers(0, num_nodes, 9))
    sender, way = draw.integers(0, num_nodes, 9), draw.random(9) < 0.5
    pairs = pairs_of(receiver, sender, way, num_nodes, ways, 2)
    slots = np.repeat(np.arange(num_nodes * ways), np.diff(pairs.starts))
    tellers = np.repeat(np.arange(num_nodes * ways), np.diff(pairs.by_sender_starts))
    assert sorted(pairs.by_sender_pairs.tolist()) == list(range(9 + num_nodes * ways))
    np.testing.assert_array_equal(pairs.senders[pairs.by_sender_pairs], tellers // ways)
    np.testing.assert_array_equal(slots[pairs.by_sender_pairs] // ways, pairs.receivers)
    np.testing.assert_array_equal(slots[pairs.by_sender_pairs] % ways, tellers % ways)
    group = np.searchsorted(pairs.groups, np.arange(num_nodes), side="right")
    np.testing.assert_array_equal(group[receiver], group[sender])
