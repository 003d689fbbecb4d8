from __future__ import annotations

import numpy as np
import pytest

from costbench.models.kernels.gat.forward import (
    NEGATIVE_SLOPE,
    GatStates,
    gat_forward,
    gat_states,
    row_places,
)
from costbench.models.kernels.gat.pairs import Pairs, pairs_of

WIDTH, HEADS = 16, 2


def two_nodes() -> Pairs:
    """Node 0 attends to 1 and to itself, node 1 to itself only."""
    return pairs_of(np.array([0]), np.array([1]), np.array([False]), 2, 1, 1)


def forward(states: np.ndarray, matrices: np.ndarray, asks: np.ndarray, pairs: Pairs) -> GatStates:
    gat = gat_states(len(matrices), len(matrices), len(states), WIDTH, HEADS, pairs)
    gat_forward(states, matrices, asks, pairs, gat)
    return gat


@pytest.mark.parametrize("apart", [0.0, 1.0, 30.0, 200.0])
def test_weights_by_hand(apart: float) -> None:
    # The state's first number is the score of a sender (0, or -apart, leaky: a fifth), by the first head
    # only; its tenth, of the second head, and its second are what is projected.
    states, asks = np.zeros((2, WIDTH), np.float32), np.zeros((1, 2, WIDTH), np.float32)
    states[1, 0], states[:, 1], states[:, 9] = -apart, [1.0, 3.0], [1.0, 3.0]
    asks[0, 0, 0] = 1.0
    matrices = np.eye(WIDTH, dtype=np.float32)[None]
    out = forward(states, matrices, asks, two_nodes()).updated[0]
    share = float(np.exp(-NEGATIVE_SLOPE * apart) / (1.0 + np.exp(-NEGATIVE_SLOPE * apart)))
    np.testing.assert_allclose(out[:, 1], [1.0 - share + 3.0 * share, 3.0], rtol=1e-6)
    np.testing.assert_allclose(out[:, 9], [2.0, 3.0], rtol=1e-6)
    # What is below 0 is rectified.
    assert not out[:, 0].any()


def test_a_nan_stays_one() -> None:
    states = np.ones((2, WIDTH), np.float32)
    states[1, 3] = np.nan
    ones = np.ones((2, WIDTH, WIDTH), np.float32)
    gat = forward(states, ones, np.ones((2, 2, WIDTH), np.float32), two_nodes())
    assert np.isnan(gat.updated).all()


def test_a_score_that_is_nan_is_seen_by_nodes_that_attend_to_none_else() -> None:
    asks = np.zeros((1, 2, WIDTH), np.float32)
    asks[0, 1, 0] = np.nan
    gat = forward(np.ones((2, WIDTH), np.float32), np.ones((1, WIDTH, WIDTH), np.float32), asks, two_nodes())
    assert np.isnan(gat.updated[0, 1, : WIDTH // HEADS]).all()


def test_hops_one_after_another() -> None:
    draw = np.random.default_rng(0)
    receiver, sender = np.array([0, 1, 1, 3, 4]), np.array([1, 0, 2, 4, 3])
    pairs = pairs_of(receiver, sender, receiver > sender, 5, 2, 1)
    states = draw.random((5 * 3, WIDTH), np.float32)
    matrices = draw.standard_normal((2, WIDTH, 2 * WIDTH), np.float32)
    asks = draw.standard_normal((2, 4, WIDTH), np.float32)
    both = forward(states, matrices, asks, pairs).updated
    first = forward(states, matrices[:1], asks[:1], pairs).updated[0]
    second = forward(first, matrices[1:], asks[1:], pairs).updated[0]
    assert first.any()
    np.testing.assert_array_equal(both, [first, second])


def test_places_of_rows() -> None:
    # Of two nodes and two ways: slots 0 and 3 hold one node each, slot 1 two, slot 2 none.
    places = row_places(np.array([1, 0, 1, 0]), np.array([0, 1, 3, 3, 4]), 2, (100, 7))
    assert places.tolist() == [100, 7, 107, 7]
