"""Compiled hops against the same in plain torch, on whole numbers: sums are exact in any order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costbench.models.edges import Edges
from costbench_kernels.graphsage import (
    SageMatrices,
    are_consecutive,
    multiply_row,
    sage_backward,
    sage_forward,
)
from costbench_kernels.messages import CsrMatrix, MessageMatrix, undirected
from tests.kernels.examples import build, csr_matrix, whole_numbers, with_inactive_units

MATRIX = np.array([[0.0, 2.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 5.0, 0.0]], np.float32)


@pytest.mark.parametrize("first_column", [0, 10])
def test_rows_of_sparse_products_by_hand(first_column: int) -> None:
    table = np.array([[1.0], [10.0], [100.0], [1000.0]], np.float32)
    matrix = csr_matrix(MATRIX)
    out, products = np.empty(1, np.float32), []
    for row in range(3):
        shifted = CsrMatrix(matrix.starts, matrix.columns + first_column, matrix.weights)
        multiply_row(shifted, row, table, first_column, out)
        products.append(out.tolist())
    assert products == [[3020.0], [0.0], [501.0]]


@pytest.mark.parametrize(("nodes", "expected"), [([3], True), ([3, 4, 5], True), ([3, 5], False)])
def test_consecutive_nodes(nodes: list[int], expected: bool) -> None:
    assert are_consecutive(np.array(nodes)) == expected


@pytest.mark.parametrize("configs", [1, 16, 40])
@pytest.mark.parametrize("keep", [False, True])
def test_a_hop_by_hand(configs: int, keep: bool) -> None:
    """0 -> 1: unit 0 is sent as it is to consumers and twice to producers, and added to the node's own."""
    edges = build(np.array([[0], [1]]), 2)
    graph = MessageMatrix(edges, mean=False).graph(configs)
    one = np.zeros((16, 16), np.float32)
    one[0, 0] = 1.0
    weights = SageMatrices(one[None], 2.0 * one[None], np.concatenate([one, one], axis=1)[None])
    states = np.zeros((2 * configs, 16), np.float32)
    states[:configs, 0], states[configs:, 0], states[:, 1] = 3.0, 5.0, 7.0
    found = sage_forward(states, weights, graph, keep)
    assert (found.updated[0, :configs, 0] == 3.0 + 2.0 * 5.0).all()
    assert (found.updated[0, configs:, 0] == 5.0 + 3.0).all()
    assert not found.updated[0, :, 1:].any()


WIDTH = 16


def by_torch(states: torch.Tensor, weights: SageMatrices, matrix: MessageMatrix, hop: int) -> torch.Tensor:
    """One hop. Shape: [N, C, H] kept."""
    to_consumers, to_producers, update = (weight[hop] for weight in weights)
    senders = states[matrix.edges.with_producers]
    messages = torch.relu(torch.cat([states @ to_consumers.t(), senders @ to_producers.t()])).flatten(1)
    aggregated = (matrix.times(torch.eye(len(messages))) @ messages).view_as(states)
    return torch.relu(torch.cat([states, aggregated], dim=2) @ update.t())


@given(
    num_nodes=st.integers(1, 9),
    configs=st.sampled_from([1, 3, 16, 20, 200, 600]),
    share=st.sampled_from([0.0, 0.2, 0.6]),
    directed=st.booleans(),
    hops=st.integers(1, 2),
)
def test_hops_and_their_gradients_are_torchs(
    num_nodes: int, configs: int, share: float, directed: bool, hops: int
) -> None:
    draw = np.random.default_rng(num_nodes)
    chosen = np.triu(draw.random((num_nodes, num_nodes)) < share, 1)
    edges = build(np.stack(np.nonzero(chosen)), num_nodes)
    check_hops(edges if directed else undirected(edges), configs, hops)


def check_hops(edges: Edges, configs: int, hops: int) -> None:
    matrix, num_nodes = MessageMatrix(edges, mean=False), edges.num_nodes
    states = with_inactive_units(whole_numbers(0, num_nodes, configs, WIDTH)).requires_grad_()
    pull = whole_numbers(4, num_nodes, configs, WIDTH)
    weights = SageMatrices(
        *(
            whole_numbers(seed, hops, WIDTH, columns).requires_grad_()
            for seed, columns in enumerate((WIDTH, WIDTH, 2 * WIDTH), start=1)
        )
    )
    expected = states
    for hop in range(hops):
        expected = by_torch(expected, weights, matrix, hop)
    expected.backward(pull)

    graph = matrix.graph(configs)
    rows = states.detach().numpy().reshape(-1, WIDTH)
    matrices = SageMatrices(*(weight.detach().numpy() for weight in weights))
    computed = sage_forward(rows, matrices, graph, True)
    again = sage_forward(rows, matrices, graph, False)
    for found in (computed, again):
        np.testing.assert_array_equal(found.updated[-1], expected.detach().numpy().reshape(-1, WIDTH))
    assert (len(computed.aggregated), len(again.aggregated)) == (hops, 1)
    d_states, d_weights = sage_backward(pull.numpy().reshape(-1, WIDTH), rows, matrices, graph, computed)
    assert states.grad is not None
    np.testing.assert_array_equal(d_states, states.grad.numpy().reshape(-1, WIDTH))
    for mine, weight in zip(d_weights, weights, strict=True):
        np.testing.assert_array_equal(
            mine, np.zeros_like(mine) if weight.grad is None else weight.grad.numpy()
        )


@pytest.mark.parametrize(("num_nodes", "configs"), [(700, 1), (150, 5)])
@pytest.mark.parametrize("directed", [False, True])
def test_many_nodes_of_few_decisions(num_nodes: int, configs: int, directed: bool) -> None:
    """Several groups of several blocks; the last node pads what talks to producers."""
    first = np.arange(num_nodes)
    pairs = np.concatenate([np.stack([first, first + further]) for further in (1, 2, 3)], axis=1)
    pairs = pairs[:, (pairs[0] // 40 == pairs[1] // 40) & (pairs[1] < num_nodes) & (pairs[0] % 7 > 0)]
    edges = Edges.build(pairs[::-1].copy(), pairs, num_nodes, even=True)
    assert len(set(edges.with_producers.tolist())) < len(edges.with_producers)
    check_hops(edges if directed else undirected(edges), configs, hops=2)
