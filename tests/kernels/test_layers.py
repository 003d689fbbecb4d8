"""Compiled passes against the same in plain torch, on whole numbers: sums are exact in any order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costbench_kernels.layers import join, join_gradient, stack_backward, stack_forward
from tests.kernels.examples import whole_numbers, with_inactive_units


@pytest.mark.parametrize(("width", "count"), [(16, 1), (16, 3), (80, 1)])
@pytest.mark.parametrize(("num_nodes", "configs"), [(1, 1), (5, 1), (131, 2), (3, 16), (4, 33), (2, 150)])
def test_stacks_and_their_gradients_are_torchs(width: int, count: int, num_nodes: int, configs: int) -> None:
    num_rows = num_nodes * configs
    rows = with_inactive_units(whole_numbers(0, num_nodes, configs, width)).flatten(0, 1).requires_grad_()
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


COUNTS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def test_joining_by_hand() -> None:
    own = np.array([[1.0, -2.0], [0.0, 5.0]], np.float32)
    joined = np.array([[[1.0, 1.0], [-3.0, 2.0]]], np.float32)
    out = np.empty((2, 2, 2), np.float32)
    join(own, joined, np.array([0, 0]), out)
    assert out.tolist() == [[[2.0, 0.0], [0.0, 0.0]], [[1.0, 6.0], [0.0, 7.0]]]


@given(counts=COUNTS, configs=st.integers(1, 3), width=st.integers(1, 20))
def test_joining_and_its_gradient_are_torchs(counts: list[int], configs: int, width: int) -> None:
    kernel_of_node = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    own = whole_numbers(0, sum(counts), width).requires_grad_()
    joined = whole_numbers(1, len(counts), configs, width).requires_grad_()
    pull = whole_numbers(2, sum(counts), configs, width)
    expected = torch.relu(own[:, None] + joined[kernel_of_node])
    expected.backward(pull)
    out = torch.empty_like(pull)
    join(own.detach().numpy(), joined.detach().numpy(), kernel_of_node.numpy(), out.numpy())
    assert torch.equal(out, expected)
    d_own, d_joined = torch.zeros_like(own), torch.zeros_like(joined)
    join_gradient(
        pull.numpy(),
        out.numpy(),
        kernel_of_node.numpy(),
        d_own.detach().numpy(),
        d_joined.detach().numpy(),
    )
    assert torch.equal(d_own, own.grad)
    assert torch.equal(d_joined, joined.grad)
