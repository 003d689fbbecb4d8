"""Compiled hops against the same in plain torch, on whole numbers: sums are exact in any order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costbench.models.edges import SumMatrix
from costbench.models.listeners import Bags
from costbench.models.sage_passes import SageMatrices, add_up, sage_backward, sage_forward
from tests.models.examples import bags, build, some_units_off

WIDTH = 16
MATRIX = np.array([[0.0, 2.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 5.0, 0.0]], np.float32)


def whole_numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32))


@pytest.mark.parametrize("base", [0, 10])
def test_sums_of_bags_by_hand(base: int) -> None:
    table = np.array([[1.0], [10.0], [100.0], [1000.0]], np.float32)
    sums = bags(MATRIX)
    out, found = np.empty(1, np.float32), []
    for row in range(3):
        add_up(Bags(sums.starts, sums.columns + base, sums.weights), row, table, base, out)
        found.append(out.tolist())
    assert found == [[3020.0], [0.0], [501.0]]


def by_torch(states: torch.Tensor, weights: SageMatrices, matrix: SumMatrix, hop: int) -> torch.Tensor:
    """One hop. Shape: [N, C, H] kept."""
    forth, back, update = (weight[hop] for weight in weights)
    speaking = states[matrix.edges.with_producers]
    messages = torch.relu(torch.cat([states @ forth.t(), speaking @ back.t()])).flatten(1)
    heard = (matrix.times(torch.eye(len(messages))) @ messages).view_as(states)
    return torch.relu(torch.cat([states, heard], dim=2) @ update.t())


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
    matrix = SumMatrix(edges if directed else edges.undirected(), mean=False)
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

    listeners = matrix.listeners(configs)
    rows = states.detach().numpy().reshape(-1, WIDTH)
    matrices = SageMatrices(*(weight.detach().numpy() for weight in weights))
    computed = sage_forward(rows, matrices, listeners, True)
    again = sage_forward(rows, matrices, listeners, False)
    for found in (computed, again):
        np.testing.assert_array_equal(found.updated[-1], expected.detach().numpy().reshape(-1, WIDTH))
    assert (len(computed.heard), len(again.heard)) == (hops, 1)
    d_states, d_weights = sage_backward(pull.numpy().reshape(-1, WIDTH), rows, matrices, listeners, computed)
    assert states.grad is not None
    np.testing.assert_array_equal(d_states, states.grad.numpy().reshape(-1, WIDTH))
    for mine, weight in zip(d_weights, weights, strict=True):
        np.testing.assert_array_equal(
            mine, np.zeros_like(mine) if weight.grad is None else weight.grad.numpy()
        )
