"""A perceptron of rows: ranks that are learned within groups, constant columns, equal fits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from costbench.metrics.ranking import kendall_tau
from costbench.rng import stream
from costbench_schedules.models.learner import samples_of
from costbench_schedules.models.perceptron import Perceptron, PerceptronLearner

COUNT = 96


def test_ranks_within_groups_are_learned() -> None:
    """The first column decides within a group; runtimes of the groups are a thousand times apart."""
    rows = stream(0, "perceptron").random((COUNT, 4)).astype(np.float32)
    groups = np.arange(COUNT) % 2
    runtime = np.exp(3.0 * rows[:, 0]) * 1000.0**groups
    learner = PerceptronLearner(steps=150, hidden=32, layers=1)
    costs = learner.fit(rows, samples_of(runtime, groups), 0).predict(rows)
    for group in (0, 1):
        of_group = groups == group
        assert kendall_tau(costs[of_group], runtime[of_group]) > 0.8
    np.testing.assert_array_equal(learner.fit(rows, samples_of(runtime, groups), 0).predict(rows), costs)
    assert not np.array_equal(learner.fit(rows, samples_of(runtime, groups), 1).predict(rows), costs)


def test_columns_are_scaled_and_constant_ones_stay() -> None:
    net = Perceptron(2, 8, 0)
    net.scale_like(torch.tensor([[1.0, 2.0], [1.0, 4.0], [1.0, 6.0]]))
    assert net.mean.tolist() == [1.0, 4.0]
    assert net.deviation.tolist() == [1.0, pytest.approx((8 / 3) ** 0.5)]


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"groups": 0}, {"learning_rate": 0.0}])
def test_numbers_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        PerceptronLearner(**wrong)  # type: ignore[arg-type]
