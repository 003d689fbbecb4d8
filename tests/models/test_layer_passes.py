"""Compiled passes against the same in plain torch, on whole numbers: sums are exact in any order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costbench.models.layer_passes import (
    Bags,
    HopGradients,
    HopMatrices,
    HopStates,
    add_up,
    aligned,
    hop_backward,
    hop_forward,
    mask,
    stack_backward,
    stack_forward,
    transposed,
)

WIDTH = 16


def whole_numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32))


def bags(dense: np.ndarray) -> Bags:
    """A dense matrix by its entries that are not zero."""
    rows, columns = np.nonzero(dense)
    starts = np.searchsorted(rows, np.arange(len(dense) + 1))
    return Bags(starts, columns, dense[rows, columns])


MATRIX = np.array([[0.0, 2.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 5.0, 0.0]], np.float32)


def test_rows_begin_at_whole_lines() -> None:
    assert all(aligned(rows, 16).ctypes.data % 64 == 0 for rows in (1, 3, 100))
    assert aligned(3, 16).shape == (3, 16)


def test_sums_of_bags_by_hand() -> None:
    table = np.array([[1.0], [10.0], [100.0], [1000.0]], np.float32)
    out = np.empty(1, np.float32)
    sums = []
    for row in range(3):
        add_up(bags(MATRIX), row, table, out)
        sums.append(out.tolist())
    assert sums == [[3020.0], [0.0], [501.0]]


def test_transposed_bags() -> None:
    turned, expected = transposed(bags(MATRIX), 4), bags(np.ascontiguousarray(MATRIX.T))
    for mine, other in zip(turned, expected, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_masked_rows_by_hand() -> None:
    d = np.arange(6, dtype=np.float32).reshape(3, 2) + 1.0
    seen = np.array([[0.0, 1.0], [-1.0, 2.0]], np.float32)
    out = np.empty((2, 2), np.float32)
    mask(d, 1, seen, 0, 2, out)
    assert out.tolist() == [[0.0, 4.0], [0.0, 6.0]]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("num_rows", [1, 5, 131])
def test_stacks_and_their_gradients_are_torchs(count: int, num_rows: int) -> None:
    rows = whole_numbers(0, num_rows, WIDTH).requires_grad_()
    weights = whole_numbers(1, count, WIDTH, WIDTH).requires_grad_()
    pull = whole_numbers(2, num_rows, WIDTH)
    expected = [rows]
    for weight in weights:
        expected.append(torch.relu(expected[-1] @ weight.t()))
    expected[-1].backward(pull)
    given_rows, matrices = rows.detach(), weights.detach()
    outputs = torch.empty(count, num_rows, WIDTH)
    stack_forward(given_rows.numpy(), matrices.transpose(1, 2).contiguous().numpy(), outputs.numpy())
    assert torch.equal(outputs, torch.stack(expected[1:]))
    d_weights, d_rows = torch.zeros_like(matrices), torch.empty_like(given_rows)
    tensors = pull, given_rows, outputs, matrices, d_weights, d_rows
    stack_backward(*(tensor.numpy() for tensor in tensors))
    assert torch.equal(d_weights, weights.grad)
    assert torch.equal(d_rows, rows.grad)


@given(
    num_nodes=st.integers(1, 6),
    configs=st.sampled_from([1, 3, 200]),
    share=st.sampled_from([0.0, 0.4]),
    talks=st.booleans(),
)
def test_hops_and_their_gradients_are_torchs(num_nodes: int, configs: int, share: float, talks: bool) -> None:
    draw = np.random.default_rng(num_nodes)
    talkers = np.flatnonzero(draw.random(num_nodes) < 0.6) if talks else np.arange(0)
    num_rows, num_messages = num_nodes * configs, num_nodes + len(talkers)
    dense = draw.integers(1, 3, (num_nodes, num_messages)) * (draw.random((num_nodes, num_messages)) < share)
    matrix = torch.from_numpy(dense.astype(np.float32))
    states = whole_numbers(0, num_rows, WIDTH).requires_grad_()
    weights = [whole_numbers(seed, WIDTH, WIDTH).requires_grad_() for seed in (1, 2, 3, 4)]
    pull = whole_numbers(5, num_rows, WIDTH)
    forth, back, own, heard_by = weights
    talking = states.view(num_nodes, configs, WIDTH)[talkers].flatten(0, 1)
    messages = torch.relu(torch.cat([states @ forth.t(), talking @ back.t()]))
    heard = (matrix @ messages.view(num_messages, -1)).view(num_rows, WIDTH)
    updated = torch.relu(states @ own.t() + heard @ heard_by.t())
    updated.backward(pull)

    hop = HopStates(
        states.detach().numpy(),
        *(np.empty((rows, WIDTH), np.float32) for rows in (num_messages * configs, num_rows, num_rows)),
    )
    inputs_first = HopMatrices(*(weight.detach().t().contiguous().numpy() for weight in weights))
    sums = bags(matrix.numpy())
    hop_forward(hop, inputs_first, sums, talkers, configs)
    for mine, other in zip(hop[1:], (messages, heard, updated), strict=True):
        np.testing.assert_array_equal(mine, other.detach().numpy())
    found = HopGradients(
        np.empty_like(hop.states),
        np.empty_like(hop.states),
        HopMatrices(*(np.zeros((WIDTH, WIDTH), np.float32) for _ in weights)),
    )
    outputs_first = HopMatrices(*(weight.detach().numpy() for weight in weights))
    hop_backward(pull.numpy(), hop, outputs_first, transposed(sums, num_messages), talkers, found)
    assert states.grad is not None
    np.testing.assert_array_equal(found.states, states.grad.numpy())
    for mine, weight in zip(found.weights, weights, strict=True):
        grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        np.testing.assert_array_equal(mine, grad.numpy())
