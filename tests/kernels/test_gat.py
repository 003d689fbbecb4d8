from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from costbench.models.networks.gat import NEGATIVE_SLOPE
from costbench_kernels.gat import (
    GatGradients,
    GatStates,
    Pairs,
    allocate_states,
    build_pairs,
    count_nodes_and_edge_types,
    gat_backward,
    gat_forward,
    row_offsets,
)

# Node 0 hears 1; 1 hears 0 as a consumer (second edge type), and 2; 2 hears 1; 3 nobody; 4 hears 5.
RECEIVER, SENDER = np.array([0, 1, 1, 2, 4]), np.array([1, 0, 2, 1, 5])
IS_SECOND = np.array([False, True, False, True, False])


def of_slots(pairs: Pairs) -> list[list[int]]:
    return [part.tolist() for part in np.split(pairs.senders, pairs.starts[1:-1])]


def test_two_edge_types_by_hand() -> None:
    pairs = build_pairs(RECEIVER, SENDER, IS_SECOND, 6, 2, 1)
    assert of_slots(pairs) == [[1, 0], [0], [2, 1], [0, 1], [2], [1, 2], [3], [3], [5, 4], [4], [5], [5]]
    assert count_nodes_and_edge_types(pairs) == (6, 2)


def test_one_edge_type_by_hand() -> None:
    pairs = build_pairs(RECEIVER, SENDER, IS_SECOND, 6, 1, 1)
    assert of_slots(pairs) == [[1, 0], [0, 2, 1], [1, 2], [3], [5, 4], [5]]
    assert count_nodes_and_edge_types(pairs) == (6, 1)
    # Node 1 tells 0, itself and 2; these are pairs 0, 4 and 5.
    begin, end = pairs.by_sender_starts[1], pairs.by_sender_starts[2]
    assert pairs.by_sender_pairs[begin:end].tolist() == [0, 4, 5]
    assert pairs.receivers[begin:end].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("min_nodes", "expected"),
    [(1, [0, 3, 4, 6]), (2, [0, 3, 6]), (4, [0, 4, 6]), (5, [0, 6]), (100, [0, 6])],
)
def test_groups_end_where_no_edge_crosses(min_nodes: int, expected: list[int]) -> None:
    pairs = build_pairs(RECEIVER, SENDER, IS_SECOND, 6, 2, min_nodes)
    assert pairs.groups.tolist() == expected


@given(num_nodes=st.integers(1, 7), edge_types=st.integers(1, 2), seed=st.integers(0, 99))
def test_senders_know_their_pairs(num_nodes: int, edge_types: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    receiver = np.sort(draw.integers(0, num_nodes, 9))
    sender, edge_type = draw.integers(0, num_nodes, 9), draw.random(9) < 0.5
    pairs = build_pairs(receiver, sender, edge_type, num_nodes, edge_types, 2)
    slots = np.repeat(np.arange(num_nodes * edge_types), np.diff(pairs.starts))
    tellers = np.repeat(np.arange(num_nodes * edge_types), np.diff(pairs.by_sender_starts))
    assert sorted(pairs.by_sender_pairs.tolist()) == list(range(9 + num_nodes * edge_types))
    np.testing.assert_array_equal(pairs.senders[pairs.by_sender_pairs], tellers // edge_types)
    np.testing.assert_array_equal(slots[pairs.by_sender_pairs] // edge_types, pairs.receivers)
    np.testing.assert_array_equal(slots[pairs.by_sender_pairs] % edge_types, tellers % edge_types)
    group = np.searchsorted(pairs.groups, np.arange(num_nodes), side="right")
    np.testing.assert_array_equal(group[receiver], group[sender])


WIDTH, HEADS = 16, 2


def two_nodes() -> Pairs:
    """Node 0 attends to 1 and to itself, node 1 to itself only."""
    return build_pairs(np.array([0]), np.array([1]), np.array([False]), 2, 1, 1)


def forward(states: np.ndarray, matrices: np.ndarray, vectors: np.ndarray, pairs: Pairs) -> GatStates:
    gat = allocate_states(len(matrices), len(matrices), len(states), WIDTH, HEADS, pairs)
    gat_forward(states, matrices, vectors, pairs, gat)
    return gat


@pytest.mark.parametrize("apart", [0.0, 1.0, 30.0, 200.0])
def test_weights_by_hand(apart: float) -> None:
    # The state's first number is the score of a sender (0, or -apart, leaky: a fifth), by the first head
    # only; its tenth, of the second head, and its second are what is projected.
    states, vectors = np.zeros((2, WIDTH), np.float32), np.zeros((1, 2, WIDTH), np.float32)
    states[1, 0], states[:, 1], states[:, 9] = -apart, [1.0, 3.0], [1.0, 3.0]
    vectors[0, 0, 0] = 1.0
    matrices = np.eye(WIDTH, dtype=np.float32)[None]
    out = forward(states, matrices, vectors, two_nodes()).updated[0]
    share = float(np.exp(-NEGATIVE_SLOPE * apart) / (1.0 + np.exp(-NEGATIVE_SLOPE * apart)))
    np.testing.assert_allclose(out[:, 1], [1.0 - share + 3.0 * share, 3.0], rtol=1e-6)
    np.testing.assert_allclose(out[:, 9], [2.0, 3.0], rtol=1e-6)
    # A ReLU follows.
    assert not out[:, 0].any()


def test_a_nan_stays_one() -> None:
    states = np.ones((2, WIDTH), np.float32)
    states[1, 3] = np.nan
    ones = np.ones((2, WIDTH, WIDTH), np.float32)
    gat = forward(states, ones, np.ones((2, 2, WIDTH), np.float32), two_nodes())
    assert np.isnan(gat.updated).all()


def test_a_score_that_is_nan_is_seen_by_nodes_that_attend_to_none_else() -> None:
    vectors = np.zeros((1, 2, WIDTH), np.float32)
    vectors[0, 1, 0] = np.nan
    gat = forward(
        np.ones((2, WIDTH), np.float32), np.ones((1, WIDTH, WIDTH), np.float32), vectors, two_nodes()
    )
    assert np.isnan(gat.updated[0, 1, : WIDTH // HEADS]).all()


def test_hops_one_after_another() -> None:
    draw = np.random.default_rng(0)
    receiver, sender = np.array([0, 1, 1, 3, 4]), np.array([1, 0, 2, 4, 3])
    pairs = build_pairs(receiver, sender, receiver > sender, 5, 2, 1)
    states = draw.random((5 * 3, WIDTH), np.float32)
    matrices = draw.standard_normal((2, WIDTH, 2 * WIDTH), np.float32)
    vectors = draw.standard_normal((2, 4, WIDTH), np.float32)
    both = forward(states, matrices, vectors, pairs).updated
    first = forward(states, matrices[:1], vectors[:1], pairs).updated[0]
    second = forward(first, matrices[1:], vectors[1:], pairs).updated[0]
    assert first.any()
    np.testing.assert_array_equal(both, [first, second])


def test_offsets_of_values() -> None:
    # Of two nodes and two edge types: slots 0 and 3 hold one node each, slot 1 two, slot 2 none.
    offsets = row_offsets(np.array([1, 0, 1, 0]), np.array([0, 1, 3, 3, 4]), 2, 100, 7)
    assert offsets.tolist() == [100, 7, 107, 7]


def plain_hop(
    states: torch.Tensor, matrix: torch.Tensor, vectors: torch.Tensor, pairs: Pairs
) -> torch.Tensor:
    """The formula, node by node. Shape: states [N, C, H], matrix [edge_types H, H], vectors [., heads, d]."""
    edge_types, width = len(vectors) // 2, states.shape[-1]
    attended = []
    for node in range(len(states)):
        found = torch.zeros_like(states[0])
        for edge_type in range(edge_types):
            projected = states @ matrix[edge_type * width : (edge_type + 1) * width].t()
            projected = projected.view(*projected.shape[:-1], *vectors.shape[1:])
            scores = torch.einsum("nchk,phk->pnch", projected, vectors[2 * edge_type : 2 * edge_type + 2])
            slot = node * edge_types + edge_type
            senders = pairs.senders[pairs.starts[slot] : pairs.starts[slot + 1]].tolist()
            score = nn.functional.leaky_relu(scores[0, senders] + scores[1, node], NEGATIVE_SLOPE)
            found = found + (torch.softmax(score, 0)[..., None] * projected[senders]).sum(0).flatten(-2)
        attended.append(found)
    return torch.relu(torch.stack(attended))


@given(
    num_nodes=st.integers(1, 6),
    configs=st.sampled_from([1, 3, 300]),
    of_heads=st.sampled_from([(4, 16), (8, 16), (2, 32), (4, 8), (3, 16)]),
    edge_types=st.integers(1, 2),
    num_edges=st.sampled_from([0, 5]),
)
def test_hops_and_their_gradients_are_torchs(
    num_nodes: int, configs: int, of_heads: tuple[int, int], edge_types: int, num_edges: int
) -> None:
    heads, depth = of_heads
    width, hops = heads * depth, 2
    draw = np.random.default_rng(num_nodes)
    receiver, sender = np.sort(draw.integers(0, num_nodes, num_edges)), draw.integers(0, num_nodes, num_edges)
    pairs = build_pairs(receiver, sender, draw.random(num_edges) < 0.5, num_nodes, edge_types, 2)
    shapes = (
        (num_nodes, configs, width),
        (hops, edge_types * width, width),
        (hops, 2 * edge_types, heads, depth),
    )
    states, matrices, vectors = (draw.standard_normal(shape).astype(np.float32) / 4.0 for shape in shapes)
    pull = draw.standard_normal(shapes[0]).astype(np.float32)

    exact = [torch.from_numpy(array).double().requires_grad_() for array in (states, matrices, vectors)]
    expected = exact[0]
    for hop in range(hops):
        expected = plain_hop(expected, exact[1][hop], exact[2][hop], pairs)
    torch.autograd.backward(expected, torch.from_numpy(pull).double())

    rows, vectors = states.reshape(-1, width), vectors.reshape(hops, -1, width)
    gat = allocate_states(hops, hops, len(rows), width, heads, pairs)
    gat_forward(rows, np.ascontiguousarray(matrices.swapaxes(1, 2)), vectors, pairs, gat)
    found = GatGradients(np.empty_like(rows), np.zeros_like(matrices), np.zeros_like(vectors))
    gat_backward(pull.reshape(-1, width), rows, matrices, vectors, pairs, gat, found)
    wanted = [expected.detach(), *(tensor.grad for tensor in exact)]
    for mine, other in zip((gat.updated[-1], *found), wanted, strict=True):
        assert other is not None
        away = torch.from_numpy(mine).double().view_as(other) - other
        assert float(away.abs().max()) < 3e-5 * max(1.0, float(other.abs().max()))
