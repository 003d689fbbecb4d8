"""Compiled hops against the same in plain torch, on whole numbers: sums are exact in any order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costbench.models.batch.edges import Edges
from costbench.models.kernels.sage.backward import sage_backward
from costbench.models.kernels.sage.forward import SageMatrices, sage_forward
from costbench.models.kernels.sage.messages import MessageMatrix, undirected
from tests.models.examples import build, some_units_off, whole_numbers

WIDTH = 16


def by_torch(states: torch.Tensor, weights: SageMatrices, matrix: MessageMatrix, hop: int) -> torch.Tensor:
    """One hop. Shape: [N, C, H] kept."""
    forth, back, update = (weight[hop] for weight in weights)
    speaking = states[matrix.edges.with_producers]
    messages = torch.relu(torch.cat([states @ forth.t(), speaking @ back.t()])).flatten(1)
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
    states = some_units_off(whole_numbers(0, num_nodes, configs, WIDTH)).requires_grad_()
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
