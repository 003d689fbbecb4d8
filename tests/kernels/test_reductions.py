"""Statistics over kernels of nodes (1, 2), (3, 4) and (5, 0), and attention, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costbench.models.execution import apply_execution
from costbench.models.networks.layers import initialize
from costbench.models.networks.transformer import KernelTransformer
from costbench.models.spec import Execution, NetSpec
from costbench_kernels.reductions import (
    attend,
    segment_statistics,
    sum_and_max,
    sum_and_max_gradient,
)
from tests.kernels.examples import whole_numbers


def test_attention_by_hand() -> None:
    # One head of width 1, keys 0 and log 3: the query 1 weighs the values 1 : 3, the query 0 alike.
    queries, keys, values = (
        torch.tensor(numbers).view(1, 1, 2, 1) for numbers in ([1.0, 0.0], [0.0, math.log(3.0)], [4.0, 8.0])
    )
    torch.testing.assert_close(attend(queries, keys, values).flatten(), torch.tensor([7.0, 6.0]))


def test_gradient_does_not_depend_on_the_matrix_library() -> None:
    parts = torch.randn(3, 2, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    gradients = []
    for onednn in (True, False):
        inputs = [tensor.clone().requires_grad_() for tensor in parts]
        with apply_execution(Execution(onednn_matmul=onednn)):
            attend(*inputs).square().sum().backward()
        gradients.append(torch.stack([tensor.grad for tensor in inputs if tensor.grad is not None]))
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0


def test_the_gradients_of_a_layer_are_those_of_torchs_attention() -> None:
    net = KernelTransformer(NetSpec(hidden=8, transformer_heads=2, transformer_layers=2)).double()
    initialize(net, 0)
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(9, 3, 8, generator=draw, dtype=torch.float64).requires_grad_()
    pull = torch.randn(3, 3, 8, generator=draw, dtype=torch.float64)
    leaves = [states, *net.parameters()]
    outputs = [net(states, (5, 1, 3), attend), net(states, (5, 1, 3))]
    torch.testing.assert_close(*outputs)
    ours, theirs = (torch.autograd.grad((out * pull).sum(), leaves) for out in outputs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


STATES = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]]).view(3, 1, 2)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("mean",), [[2.0, 3.0], [5.0, 0.0]]),
        (("max",), [[3.0, 4.0], [5.0, 0.0]]),
        (("sum",), [[4.0, 6.0], [5.0, 0.0]]),
        (("sum", "mean", "max"), [[4.0, 6.0, 2.0, 3.0, 3.0, 4.0], [5.0, 0.0] * 3]),
    ],
)
def test_statistics_of_columns(names: tuple[str, ...], expected: list[list[float]]) -> None:
    both = segment_statistics(torch.cat([STATES, -STATES], dim=1), (2, 1), names)
    assert both[:, 0].tolist() == expected
    torch.testing.assert_close(both[:, 1:], segment_statistics(-STATES, (2, 1), names))


@pytest.mark.parametrize("num_decisions", [1, 2])
def test_gradient_by_hand(num_decisions: int) -> None:
    # Kernels of (-1, -1, -2) and of (4). The maximum's gradient 6 is shared by two nodes, 3 each; those of
    # sum and mean are 10 and 9 / 3 for every node of the first kernel, 1 and 2 for the second's.
    states = torch.tensor([-1.0, -1.0, -2.0, 4.0]).view(4, 1, 1).repeat(1, num_decisions, 1)
    states.requires_grad_()
    pull = torch.tensor([[6.0, 10.0, 9.0], [5.0, 1.0, 2.0]]).view(2, 1, 3)
    (segment_statistics(states, (3, 1), ("max", "sum", "mean")) * pull).sum().backward()
    assert states.grad is not None
    assert states.grad[:, -1, 0].tolist() == [16.0, 16.0, 13.0, 8.0]


COUNTS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


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
