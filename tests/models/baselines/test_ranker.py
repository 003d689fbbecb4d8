"""The linear ranker orders what a weighted sum can order, and minimises its loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import check_grad

from costbench.models.baselines.ranker import LinearRanker, _Pairs
from tests.models.baselines.tables import SPEC, made_up


def test_decisions_that_a_sum_can_order_are_ordered() -> None:
    """Runtimes grow with the last feature less half of the one before, whatever the kernel."""
    train, test = made_up(0, configs=8), made_up(1, configs=8)
    model = LinearRanker.fit(train, train, replace(SPEC, ridge=1e-7), 0)
    costs, runtimes = (values.reshape(-1, 8) for values in (model.predict(test), test.runtime_ns))
    earlier, later = np.triu_indices(8, 1)
    agree = (costs[:, earlier] < costs[:, later]) == (runtimes[:, earlier] < runtimes[:, later])
    assert agree.mean() > 0.97


def test_the_gradient_is_that_of_the_loss() -> None:
    pairs = _Pairs(made_up(2, kernels=5))
    start = np.linspace(-1.0, 1.0, pairs.features.shape[1])
    for ridge in (0.0, 0.1):
        error = check_grad(
            lambda w, r=ridge: pairs.loss(w, r)[0], lambda w, r=ridge: pairs.loss(w, r)[1], start
        )
        assert error < 1e-5


def test_the_loss_by_hand() -> None:
    """Without weights every pair costs log 2, whichever kernels it is of."""
    assert _Pairs(made_up(3)).loss(np.zeros(28), 0.0)[0] == pytest.approx(np.log(2.0))


def test_equal_runtimes_are_no_pair() -> None:
    table = made_up(4, kernels=2)
    flat = replace(table, runtime_ns=np.concatenate([np.full(4, 7.0), table.runtime_ns[4:]]))
    assert _Pairs(flat).loss(np.zeros(28), 0.0)[0] == pytest.approx(np.log(2.0) / 2)


def test_a_feature_that_never_varies_gets_no_weight() -> None:
    table = made_up(5)
    features = table.features.copy()
    features[:, -5] = 3.0
    model = LinearRanker.fit(replace(table, features=features), table, SPEC, 0)
    assert model.weights[-5] == 0.0
    assert model.weights[-1] > 0.0 > model.weights[-2]
