from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from costbench import rng
from costbench_schedules.models import trees
from costbench_schedules.models.learner import Samples, samples_of
from costbench_schedules.models.training import rank_loss
from costbench_schedules.models.trees import Pairs

INF = math.inf


def equation_2(costs: list[float], samples: Samples) -> float:
    """Half the sum over all ordered pairs of a group of different runtimes, term by term, by n - 1."""
    total = 0.0
    c, groups = samples.runtime_ns.tolist(), samples.groups.tolist()
    for i in range(len(c)):
        for j in range(len(c)):
            if groups[i] == groups[j] and c[i] != c[j]:
                sign = 1.0 if c[i] > c[j] else -1.0
                term = math.log(1.0 + math.exp(-sign * (costs[i] - costs[j])))
                total += 0.5 * term / (groups.count(groups[i]) - 1)
    return total


def some(count: int = 9) -> tuple[np.ndarray, Samples]:
    draws = rng.stream(0, "rank", "test")
    runtimes = draws.integers(1, 5, size=count).astype(np.float64)
    runtimes[0] = INF
    return draws.normal(size=count), samples_of(runtimes, draws.integers(2, size=count))


def test_the_loss_is_equation_2() -> None:
    costs, samples = some()
    assert Pairs(samples, 0).loss(costs) == pytest.approx(equation_2(costs.tolist(), samples))


def test_two_schedules_by_hand() -> None:
    pairs = Pairs(samples_of(np.array([30.0, 10.0])), 0)
    assert pairs.loss(np.array([2.0, 1.0])) == pytest.approx(math.log(1.0 + math.exp(-1.0)))
    first, second = pairs.derivatives(np.zeros(2))
    # At a tie the slower one is pulled up and the faster one down, each by half.
    assert first.tolist() == [-0.5, 0.5]
    assert second.tolist() == [0.25, 0.25]


def test_derivatives_are_those_of_the_loss() -> None:
    costs, samples = some()
    pairs = Pairs(samples, 0)
    first, second = pairs.derivatives(costs)
    step = 1e-4
    for place in range(len(costs)):
        moved = [costs + step * direction * (np.arange(len(costs)) == place) for direction in (-1, 0, 1)]
        low, here, high = (pairs.loss(point) for point in moved)
        assert first[place] == pytest.approx((high - low) / (2 * step), abs=1e-6)
        assert second[place] == pytest.approx((high - 2 * here + low) / step**2, abs=1e-5)


def test_equal_runtimes_and_other_groups_are_no_pairs() -> None:
    samples = samples_of(np.array([5.0, 5.0, INF, INF, 7.0]), np.array([0, 0, 1, 1, 2]))
    first, second = Pairs(samples, 0).derivatives(np.arange(5.0))
    assert not first.any()
    assert not second.any()


def test_large_groups_are_divided_into_parts_of_even_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "_LARGEST_GROUP", 4)
    parts = trees._divide_groups(np.array([0] * 9 + [1] * 3 + [2]), seed=1)
    assert [len(part) for part in parts] == [3, 3, 3, 3]
    assert sorted(np.concatenate(parts).tolist()) == list(range(12))
    again = trees._divide_groups(np.array([0] * 9 + [1] * 3 + [2]), seed=1)
    assert [part.tolist() for part in again] == [part.tolist() for part in parts]


def test_the_networks_loss_has_the_same_pairs() -> None:
    costs, samples = some()
    ordered = (samples.runtime_ns[:, None] > samples.runtime_ns) & (samples.groups[:, None] == samples.groups)
    terms = [math.log(1.0 + math.exp(costs[j] - costs[i])) for i, j in np.argwhere(ordered).tolist()]
    found = rank_loss(torch.from_numpy(costs), samples)
    assert float(found) == pytest.approx(sum(terms) / len(terms))
    alone = samples.select(np.array([1]))
    assert float(rank_loss(torch.zeros(1), alone)) == 0.0


def test_speeds_are_relative_to_the_fastest_of_the_group() -> None:
    samples = samples_of(np.array([4.0, 2.0, INF, 10.0, INF]), np.array([0, 0, 0, 1, 2]))
    assert samples.speed.tolist() == [0.5, 1.0, 0.0, 1.0, 0.0]
    assert samples.select(np.array([0, 0])).speed.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("runtimes", [[], [1.0, 0.0], [1.0, -2.0], [1.0, math.nan]])
def test_what_are_no_times_is_refused(runtimes: list[float]) -> None:
    with pytest.raises(ValueError, match="runtime"):
        samples_of(np.array(runtimes))
