"""Compiled passes against the same in plain torch, on whole numbers: sums are exact in any order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from costbench.models.kernels.feed_forward import (
    aligned,
    aligned_zeros,
    mask,
    stack_backward,
    stack_forward,
    turned_all,
)
from tests.models.examples import some_units_off, whole_numbers


def test_rows_begin_at_whole_lines() -> None:
    assert all(aligned(rows, 16).ctypes.data % 64 == 0 for rows in (1, 3, 100))
    assert aligned(3, 16).shape == (3, 16)


def test_zeros_and_transposed_copies_are_aligned() -> None:
    matrices = np.arange(96, dtype=np.float32).reshape(3, 2, 16)
    turned = turned_all(matrices), matrices.transpose(0, 2, 1)
    for array, expected in ((aligned_zeros(3, 16), np.zeros((3, 16))), turned):
        np.testing.assert_array_equal(array, expected)
        assert array.ctypes.data % 64 == 0


def test_masked_rows_by_hand() -> None:
    d = np.arange(6, dtype=np.float32).reshape(3, 2) + 1.0
    seen = np.array([[0.0, 1.0], [-1.0, 2.0]], np.float32)
    out = np.empty((2, 2), np.float32)
    mask(d, 1, seen, 0, 2, out)
    assert out.tolist() == [[0.0, 4.0], [0.0, 6.0]]


@pytest.mark.parametrize(("width", "count"), [(16, 1), (16, 3), (80, 1)])
@pytest.mark.parametrize(("num_nodes", "configs"), [(1, 1), (5, 1), (131, 2), (3, 16), (4, 33), (2, 150)])
def test_stacks_and_their_gradients_are_torchs(width: int, count: int, num_nodes: int, configs: int) -> None:
    num_rows = num_nodes * configs
    rows = some_units_off(whole_numbers(0, num_nodes, configs, width)).flatten(0, 1).requires_grad_()
    weights = whole_numbers(1, count, width, width).requires_grad_()
    pull = whole_numbers(2, num_rows, width)
    expected = [rows]
    for weight in weights:
        expected.append(torch.relu(expected[-1] @ weight.t()))
    expected[-1].backward(pull)
    given_rows, matrices = rows.detach().numpy(), weights.detach().numpy()
    outputs = stack_forward(given_rows, matrices, configs)
    np.testing.assert_array_equal(outputs, torch.stack(expected[1:]).detach().numpy())
    d_rows, d_weights = stack_backward(pull.numpy(), given_rows, outputs, matrices, configs)
    assert weights.grad is not None
    assert rows.grad is not None
    np.testing.assert_array_equal(d_weights, weights.grad.numpy())
    np.testing.assert_array_equal(d_rows, rows.grad.numpy())
