"""Losses of a few decisions, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from costbench.training.losses import (
    LOSSES,
    kernel_log_mse,
    log_huber,
    log_mse,
    pairwise_hinge,
    pairwise_logistic,
)

ALL = torch.ones(1, 3, dtype=torch.bool)
RUNTIME = torch.tensor([[30.0, 10.0, 20.0]], dtype=torch.float64)


def test_hinge_by_hand() -> None:
    # Slower minus faster: (0, 1): 2.5 - 0 -> 0; (0, 2): 2.5 - 1.75 -> 0.25; (2, 1): 1.75 -> 0.
    assert pairwise_hinge(torch.tensor([[2.5, 0.0, 1.75]]), RUNTIME, ALL).item() == pytest.approx(0.25 / 3)
    # All in the wrong order: (0, 1): -2 -> 3; (0, 2): -1 -> 2; (2, 1): -1 -> 2; seven over three pairs.
    assert pairwise_hinge(torch.tensor([[0.0, 2.0, 1.0]]), RUNTIME, ALL).item() == pytest.approx(7.0 / 3)


def test_logistic_by_hand() -> None:
    costs = torch.tensor([[0.0, 2.0, 1.0]])
    expected = (math.log1p(math.exp(2.0)) + 2.0 * math.log1p(math.exp(1.0))) / 3.0
    assert pairwise_logistic(costs, RUNTIME, ALL).item() == pytest.approx(expected)


def test_tied_runtimes_give_no_term_but_count_as_a_pair() -> None:
    runtime = torch.tensor([[10.0, 10.0, 20.0]])
    # Pairs (2, 0) and (2, 1): margins -1 and 0 -> 2 and 1; three pairs in all.
    assert pairwise_hinge(torch.tensor([[1.0, 0.0, 0.0]]), runtime, ALL).item() == pytest.approx(1.0)
    assert pairwise_hinge(torch.tensor([[1.0, 0.0, 5.0]]), torch.full((1, 3), 7.0), ALL).item() == 0.0


def test_runtimes_that_fp32_cannot_tell_apart_are_not_tied() -> None:
    runtime = torch.tensor([[1e9, 1e9 + 1]], dtype=torch.float64)
    assert pairwise_hinge(torch.zeros(1, 2), runtime, ALL[:, :2]).item() == 1.0


def test_padding_takes_no_part() -> None:
    mask = torch.tensor([[True, True, False]])
    for loss in (pairwise_hinge, pairwise_logistic, log_mse, kernel_log_mse, log_huber):
        costs = [torch.tensor([[0.0, 2.0, padding]]) for padding in (-100.0, 100.0)]
        runtimes = [torch.tensor([[30.0, 10.0, padding]]) for padding in (1.0, 500.0)]
        found = {loss(c, r, mask).item() for c in costs for r in runtimes}
        assert len(found) == 1
    assert pairwise_hinge(costs[0], runtimes[0], mask).item() == 3.0


def test_kernels_count_alike_and_are_never_compared() -> None:
    runtime = torch.tensor([[30.0, 10.0, 20.0], [1.0, 2.0, 1.0]])
    costs = torch.tensor([[0.0, 2.0, 1.0], [0.0, 0.0, 0.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    # 7 / 3 of the first kernel, 1 / 1 of the second.
    assert pairwise_hinge(costs, runtime, mask).item() == pytest.approx((7.0 / 3 + 1.0) / 2)


def test_one_decision_ranks_nothing() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    costs = torch.tensor([[3.0, 0.0], [0.0, 0.0]], requires_grad=True)
    loss = pairwise_hinge(costs, torch.tensor([[5.0, 1.0], [1.0, 2.0]]), mask)
    assert loss.item() == 1.0
    loss.backward()
    assert costs.grad is not None
    assert costs.grad.tolist() == [[0.0, 0.0], [1.0, -1.0]]


@pytest.mark.parametrize("loss", [pairwise_hinge, pairwise_logistic])
def test_a_batch_without_pairs_has_no_loss_and_no_gradient(loss: object) -> None:
    costs = torch.tensor([[3.0]], requires_grad=True)
    value = loss(costs, torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool))  # type: ignore[operator]
    value.backward()
    assert value.item() == 0.0
    assert costs.grad is not None
    assert costs.grad.tolist() == [[0.0]]


def test_mse_of_log_runtime_by_hand() -> None:
    runtime = torch.tensor([[1.0, math.e**2, 5.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]])
    # Errors 1 - 0 and 5 - 2.
    assert log_mse(torch.tensor([[1.0, 5.0, 9.0]]), runtime, mask).item() == pytest.approx(5.0)


def test_huber_is_smooth_near_zero_and_absolute_beyond() -> None:
    runtime = torch.ones(1, 4)
    mask = torch.tensor([[True, True, True, False]])
    # Log runtimes are 0. 0.05^2 / 0.2 = 0.0125, then 0.1 - 0.05, 2 - 0.05; the last does not count.
    loss = log_huber(torch.tensor([[0.05, -0.1, 2.0, 9.0]]), runtime, mask)
    assert loss.item() == pytest.approx((0.0125 + 0.05 + 1.95) / 3)


def test_weighted_mse_counts_kernels_alike() -> None:
    runtime = torch.tensor(
        [[1.0, math.e**2, math.e], [math.e, 1.0, 1.0], [1.0, 1.0, 1.0]], dtype=torch.float64
    )
    mask = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
    costs = torch.tensor([[1.0, 5.0, 0.0], [5.0, 0.0, 0.0], [9.0, 9.0, 9.0]], requires_grad=True)
    # Errors 1, 3, -1 of the first kernel: 11 / 3; 4 of the second: 16; the third has no decisions.
    loss = kernel_log_mse(costs, runtime, mask)
    assert loss.item() == pytest.approx((11.0 / 3 + 16.0) / 2)
    # Over decisions the first kernel weighs three times the second: (11 + 16) / 4.
    assert log_mse(costs, runtime, mask).item() == pytest.approx(27.0 / 4)
    loss.backward()
    assert costs.grad is not None
    # 2 error / 3 / 2 and 2 error / 1 / 2.
    assert costs.grad.flatten().tolist() == pytest.approx([1 / 3, 1.0, -1 / 3, 4.0, 0, 0, 0, 0, 0])


def test_weighted_mse_of_nothing_is_nothing() -> None:
    assert (
        kernel_log_mse(torch.ones(1, 1), torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.bool)).item() == 0.0
    )


def test_table_says_what_a_network_predicts() -> None:
    assert {name: (loss.predicts, loss.min_configs) for name, loss in LOSSES.items()} == {
        "hinge": ("score", 2),
        "huber": ("log_runtime_ns", 1),
        "kernel-mse": ("log_runtime_ns", 1),
        "logistic": ("score", 2),
        "mse": ("log_runtime_ns", 1),
    }


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_costs_in_the_right_order_lose_less(name: str) -> None:
    right = LOSSES[name].function(RUNTIME.log().float(), RUNTIME, ALL)
    wrong = LOSSES[name].function(RUNTIME.log().flip(1).float(), RUNTIME, ALL)
    assert float(right) < float(wrong)
