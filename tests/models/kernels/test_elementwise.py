from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from costbench.models.kernels.elementwise import join, join_gradient, sum_and_max, sum_and_max_gradient

COUNTS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def whole_numbers(seed: int, *shape: int) -> torch.Tensor:
    """Small ones: sums are exact in any order, and maxima have ties."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32))


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


@given(counts=COUNTS, width=st.integers(1, 20))
def test_statistics_and_their_gradient(counts: list[int], width: int) -> None:
    states = whole_numbers(0, sum(counts), width)
    starts = np.cumsum([0, *counts])
    total, largest, ties = (np.empty((len(counts), width), np.float32) for _ in range(3))
    sum_and_max(states.numpy(), starts, total, largest, ties)
    parts = torch.split(states, counts)
    for k, part in enumerate(parts):
        assert total[k].tolist() == part.sum(0).tolist()
        assert largest[k].tolist() == part.amax(0).tolist()
        assert ties[k].tolist() == (part == part.amax(0)).sum(0).tolist()
    evenly, shared = (whole_numbers(seed, len(counts), width) for seed in (1, 2))
    out = torch.empty_like(states)
    sum_and_max_gradient(states.numpy(), starts, largest, evenly.numpy(), shared.numpy(), out.numpy())
    expected = [evenly[k] + (part == part.amax(0)) * shared[k] for k, part in enumerate(parts)]
    assert torch.equal(out, torch.cat(expected))


def test_a_nan_is_the_maximum() -> None:
    states = np.array([[1.0, np.nan], [np.nan, 2.0], [3.0, 3.0]], np.float32)
    total, largest, ties = (np.empty((1, 2), np.float32) for _ in range(3))
    sum_and_max(states, np.array([0, 3]), total, largest, ties)
    assert np.isnan(largest).all()
    assert np.isnan(total).all()
