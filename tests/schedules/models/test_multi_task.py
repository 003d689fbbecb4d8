"""Networks of several heads: ranks that are learned, heads that differ, equal fits."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from costbench.metrics.ranking import kendall_tau
from costbench.rng import stream
from costbench_schedules.models.learner import samples_of
from costbench_schedules.models.multi_task import (
    MultiTaskFeatures,
    MultiTaskLearner,
    MultiTaskNet,
    MultiTaskSpec,
)

COUNT = 96


def made_up(kind: str) -> tuple[MultiTaskFeatures, np.ndarray, np.ndarray]:
    """On machine 0 the first column is slow, on machine 1 it is fast."""
    draws = stream(0, "headed", kind)
    shape = (COUNT, 4) if kind == "rows" else (COUNT, 3, 4)
    values = draws.random(shape).astype(np.float32)
    if kind == "primitives":
        values[:, 2] = 0.0
    first = values[:, 0] if kind == "rows" else values[:, :, 0].sum(axis=1)
    machines = np.arange(COUNT) % 2
    runtime = np.exp(np.where(machines == 0, 3.0, -3.0) * first)
    groups = machines + 2 * (np.arange(COUNT) // 48)
    return MultiTaskFeatures(values, machines), runtime, groups


@pytest.mark.parametrize("kind", ["rows", "primitives"])
def test_each_head_learns_its_machine(kind: Literal["rows", "primitives"]) -> None:
    features, runtime, groups = made_up(kind)
    learner = MultiTaskLearner(MultiTaskSpec(kind, hidden=32, layers=1, machines=2), steps=150)
    model = learner.fit(features, samples_of(runtime, groups), 0)
    costs = model.predict(features)
    for machine in (0, 1):
        own = features.machines == machine
        assert kendall_tau(costs[own], runtime[own]) > 0.8
    swapped = model.predict(MultiTaskFeatures(features.values, 1 - features.machines))
    assert kendall_tau(swapped[::2], runtime[::2]) < 0.0
    np.testing.assert_array_equal(
        learner.fit(features, samples_of(runtime, groups), 0).predict(features), costs
    )


def test_lines_of_zeros_count_for_nothing() -> None:
    features, _, _ = made_up("primitives")
    longer = MultiTaskFeatures(np.pad(features.values, ((0, 0), (0, 2), (0, 0))), features.machines)
    costs = []
    for item in (features, longer):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            net = MultiTaskNet(
                MultiTaskSpec("primitives", hidden=16, layers=1, machines=2), item.values.shape[1:]
            )
        net.scale_like(torch.from_numpy(item.values))
        costs.append(net(item).tolist())
    assert costs[1] == pytest.approx(costs[0], rel=1e-4, abs=1e-5)


def test_lines_are_scaled_each_by_itself() -> None:
    net = MultiTaskNet(MultiTaskSpec("primitives", hidden=8), (2, 2))
    # The second sample does not have the second line; the first column is constant where it is there.
    values = torch.tensor([[[1.0, 2.0], [1.0, 10.0]], [[1.0, 4.0], [0.0, 0.0]], [[1.0, 6.0], [1.0, 30.0]]])
    net.scale_like(values)
    assert net.mean.tolist() == [[0.0, 4.0], [0.0, 20.0]]
    assert net.deviation.tolist() == [[1.0, pytest.approx((8 / 3) ** 0.5)], [1.0, 10.0]]


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"groups": 0}, {"learning_rate": 0.0}])
def test_numbers_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        MultiTaskLearner(**wrong)  # type: ignore[arg-type]
