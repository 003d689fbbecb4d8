from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch

from costbench.training.layout.losses import layout_loss, listmle_per_config, margin_hinge
from costbench.training.layout.spec import LayoutTrainSpec
from costbench.training.losses import pairwise_hinge

RUNTIMES = torch.tensor([[30.0, 10.0, 20.0]])
MASK = torch.ones(1, 3, dtype=torch.bool)


def test_listmle_is_the_likelihood_of_the_measured_order() -> None:
    costs = torch.tensor([[0.3, -0.5, 1.0]])
    strength = (-costs[0]).exp().tolist()

    def likelihood(order: tuple[int, ...]) -> float:
        left, product = list(range(3)), 1.0
        for place in order:
            product *= strength[place] / sum(strength[other] for other in left)
            left.remove(place)
        return product

    # Plackett-Luce: the likelihoods of all orders sum to 1.
    assert sum(likelihood(order) for order in permutations(range(3))) == pytest.approx(1.0)
    assert float(listmle_per_config(costs, RUNTIMES, MASK)) == pytest.approx(
        -math.log(likelihood((1, 2, 0))) / 3
    )


def test_listmle_leaves_out_padding_and_graphs_of_one_config() -> None:
    costs = torch.tensor([[0.3, -0.5, 1.0, 9.0], [1.0, 2.0, 3.0, 4.0]])
    runtimes = torch.tensor([[30.0, 10.0, 20.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    assert listmle_per_config(costs, runtimes, mask) == listmle_per_config(costs[:1, :3], RUNTIMES, MASK)
    assert float(listmle_per_config(costs[1:], runtimes[1:], mask[1:])) == 0.0


def test_a_margin_of_one_is_the_pairwise_hinge_loss() -> None:
    costs = torch.tensor([[0.3, -0.5, 1.0]])
    assert margin_hinge(costs, RUNTIMES, MASK) == pairwise_hinge(costs, RUNTIMES, MASK)


def test_margins_by_hand() -> None:
    costs = torch.tensor([[0.3, -0.5, 1.0]])
    # Slower minus faster: 0.3 + 0.5, 0.3 - 1, 1 + 0.5; margin 2 lacks 1.2, 2.7 and 0.5 over three pairs.
    assert float(margin_hinge(costs, RUNTIMES, MASK, 2.0)) == pytest.approx((1.2 + 2.7 + 0.5) / 3)
    logs = RUNTIMES[0].log()
    spread = float(logs.std(correction=0))
    lacks = [
        max(0.0, 0.5 * float(logs[slow] - logs[fast]) / spread - float(costs[0, slow] - costs[0, fast]))
        for slow, fast in ((0, 1), (0, 2), (2, 1))
    ]
    assert float(margin_hinge(costs, RUNTIMES, MASK, 0.5, grows=True)) == pytest.approx(sum(lacks) / 3)


def test_equal_runtimes_have_no_margin_to_grow_with() -> None:
    costs = torch.tensor([[0.3, -0.5, 1.0]])
    assert float(margin_hinge(costs, torch.ones(1, 3), MASK, grows=True)) == 0.0


@pytest.mark.parametrize("loss", ["hinge", "listmle", "logistic", "mse"])
def test_every_loss_is_least_for_the_right_order(loss: str) -> None:
    found = layout_loss(LayoutTrainSpec(loss=loss))
    right = RUNTIMES.log()
    wrong = right[:, [1, 0, 2]]
    assert found.function(right, RUNTIMES, MASK) < found.function(wrong, RUNTIMES, MASK)
