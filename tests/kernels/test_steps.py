from __future__ import annotations

import numpy as np
import pytest
import torch

from costbench.arrays import F32
from costbench_kernels.steps import FusedKernel, as_array, run_fused, run_steps


class Scale(FusedKernel):
    """x w, and the same weight once more that it leaves out."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weights = [weight, None]

    def forward(self, states: F32, keep: bool) -> F32:
        self.kept = keep
        self._states, self._factor = states, as_array(self.weights[0])
        return states * self._factor

    def backward(self, gradient: F32) -> tuple[F32, list[F32]]:
        return gradient * self._factor, [np.sum(gradient * self._states, keepdims=True)[0, 0], self._factor]


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values).requires_grad_()


def test_no_steps_leave_the_states() -> None:
    states = torch.ones(2, 1, 3)
    assert run_steps(states, []) is states


def test_torch_runs_between_kernels() -> None:
    first, second, states = leaf(2.0), leaf(5.0), torch.tensor([[[3.0, -1.0]]], requires_grad=True)
    output = run_steps(states, [Scale(first), torch.relu, Scale(second)])
    assert output.tolist() == [[[30.0, 0.0]]]
    output.sum().backward()
    assert states.grad is not None
    assert states.grad.tolist() == [[[10.0, 0.0]]]
    assert [first.grad, second.grad] == [torch.tensor([15.0]), torch.tensor([6.0])]


def test_gradients_reach_states_and_weights_through_all_kernels() -> None:
    first, second, states = leaf(2.0), leaf(5.0), torch.tensor([[[3.0, 1.0]]], requires_grad=True)
    found = run_fused(states, [Scale(first), Scale(second)])
    assert found.tolist() == [[[30.0, 10.0]]]
    found.backward(torch.tensor([[[1.0, 100.0]]]))
    # d (x a b): by x a b g, by a sum x b g = 3 5 + 1 5 100, by b sum x a g = 3 2 + 1 2 100.
    assert states.grad is not None
    assert states.grad.tolist() == [[[10.0, 1000.0]]]
    assert [weight.grad.tolist() for weight in (first, second) if weight.grad is not None] == [
        [515.0],
        [206.0],
    ]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_changed_meanwhile_is_refused(place: int) -> None:
    weight, states = leaf(2.0), torch.ones(1, 1, 2)
    found = run_fused(states, [Scale(weight)])
    with torch.no_grad():
        (weight, states, found)[place].mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.sum().backward()


def test_nothing_is_kept_without_gradients() -> None:
    kept = []
    for weight in (leaf(2.0), torch.tensor([2.0])):
        part = Scale(weight)
        assert run_fused(torch.ones(1, 1, 1), [part]).requires_grad == weight.requires_grad
        kept.append(part.kept)
    part = Scale(leaf(2.0))
    with torch.inference_mode():
        assert run_fused(torch.ones(1, 1, 1), [part]).item() == 2.0
    assert [*kept, part.kept] == [True, False, False]


def test_states_may_lie_apart() -> None:
    states = torch.arange(6.0).view(1, 2, 3).transpose(1, 2)
    assert run_fused(states, [Scale(torch.tensor([2.0]))]).tolist() == (2.0 * states).tolist()
