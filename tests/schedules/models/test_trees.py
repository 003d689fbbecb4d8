"""Boosted trees by each library: the rank loss they share by hand, and what their fits are worth."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
import torch

from costbench import rng
from costbench.errors import ChoiceError, DataError
from costbench.installation import install_line
from costbench_schedules.models import trees
from costbench_schedules.models.learner import Objective, Samples, samples_of
from costbench_schedules.models.training import rank_loss
from costbench_schedules.models.trees import LIBRARIES, BoostedTrees, BoostingSpec, Pairs

INSTALLED = [name for name in LIBRARIES if importlib.util.find_spec(name)]
MISSING = sorted(set(LIBRARIES) - set(INSTALLED))


@pytest.fixture(params=sorted(LIBRARIES))
def library(request: pytest.FixtureRequest) -> str:
    if request.param in MISSING:
        pytest.skip(f"{request.param} is not installed: extra `cpu`")
    return str(request.param)


@pytest.fixture(params=["rank", "regression"])
def objective(request: pytest.FixtureRequest) -> Objective:
    result: Objective = request.param
    return result


def made(count: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Runtimes that depend on two of five features."""
    features = rng.stream(seed, "trees", "test").uniform(size=(count, 5)).astype(np.float32)
    return features, (1.0 + 4.0 * features[:, 0] + 2.0 * (features[:, 3] > 0.5)).astype(np.float64)


def in_order(costs: np.ndarray, runtimes: np.ndarray) -> float:
    """The share of pairs of different runtimes that the costs put in order."""
    slower = runtimes[:, None] > runtimes
    return float((costs[:, None] > costs)[slower].mean())


def test_trees_learn_the_order(library: str, objective: Objective) -> None:
    features, runtimes = made()
    model = BoostedTrees(objective, library).fit(features, samples_of(runtimes), 0)
    unseen, expected = made(200, seed=1)
    costs = model.predict(unseen)
    assert costs.dtype == np.float64
    assert in_order(costs, expected) > 0.95


def test_regression_predicts_minus_the_speed(library: str) -> None:
    features, runtimes = made()
    model = BoostedTrees("regression", library).fit(features, samples_of(runtimes), 0)
    unseen, expected = made(200, seed=1)
    assert np.abs(model.predict(unseen) + runtimes.min() / expected).mean() < 0.05


def test_equal_arguments_give_equal_trees(library: str, objective: Objective) -> None:
    features, runtimes = made(80)
    spec = BoostingSpec(trees=10, feature_share=0.6)
    first, second, other = (
        BoostedTrees(objective, library, spec).fit(features, samples_of(runtimes), seed) for seed in (3, 3, 4)
    )
    assert first.text == second.text
    assert first.text != other.text
    assert np.array_equal(first.predict(features), second.predict(features))


def test_trees_come_back_from_their_text(library: str) -> None:
    features, runtimes = made(80)
    model = BoostedTrees("rank", library, BoostingSpec(trees=10)).fit(features, samples_of(runtimes), 0)
    assert np.array_equal(LIBRARIES[library].restore(model.text)(features), model.predict(features))


def test_rows_of_another_width_are_refused(library: str) -> None:
    features, runtimes = made(20)
    model = BoostedTrees("rank", library, BoostingSpec(trees=2)).fit(features, samples_of(runtimes), 0)
    with pytest.raises(DataError, match=r"4 columns.*5"):
        model.predict(features[:, :4])


def test_a_cost_does_not_depend_on_the_others(library: str) -> None:
    features, runtimes = made()
    model = BoostedTrees("rank", library).fit(features, samples_of(runtimes), 0)
    whole = model.predict(features)
    assert whole[7:8].tolist() == model.predict(features[7:8]).tolist()


def test_failures_are_the_slowest(library: str, objective: Objective) -> None:
    features, runtimes = made()
    failed = features[:, 4] > 0.7
    model = BoostedTrees(objective, library).fit(
        features, samples_of(np.where(failed, math.inf, runtimes)), 0
    )
    costs = model.predict(features)
    assert np.isfinite(costs).all()
    assert costs[failed].min() > np.quantile(costs[~failed], 0.9)


def test_nothing_but_failures_is_no_reason_to_stop(library: str, objective: Objective) -> None:
    features, _ = made(6)
    model = BoostedTrees(objective, library).fit(features, samples_of(np.full(6, math.inf)), 0)
    assert len(set(model.predict(features).tolist())) == 1


def test_runtimes_are_compared_within_a_group_only(library: str) -> None:
    """The second workload takes 100 times as long and has the opposite effect of feature 1."""
    features, _ = made(400)
    groups = (features[:, 4] > 0.5).astype(np.int64)
    runtimes = np.where(groups == 1, 100.0, 1.0) * (1.0 + features[:, 1].astype(np.float64))
    model = BoostedTrees("rank", library).fit(features, samples_of(runtimes, groups), 0)
    costs = model.predict(features)
    for group in (0, 1):
        assert in_order(costs[groups == group], runtimes[groups == group]) > 0.95
    assert abs(np.median(costs[groups == 1]) - np.median(costs[groups == 0])) < 0.5 * costs.std()


def test_trees_are_added_to_the_starting_costs(library: str) -> None:
    """With costs that are right already nothing is left over; from 0 on, all of it is."""
    features, runtimes = made()
    speed = runtimes.min() / runtimes
    left = BoostedTrees("regression", library).fit(features, samples_of(runtimes, start=-speed), 0)
    assert np.abs(left.predict(features)).max() < 1e-6
    half = BoostedTrees("regression", library).fit(features, samples_of(runtimes, start=-0.5 * speed), 0)
    assert half.predict(features) == pytest.approx(-0.5 * speed, abs=0.05)


@pytest.mark.skipif(not MISSING, reason="all libraries are installed")
def test_a_library_that_is_not_installed_is_named() -> None:
    features, runtimes = made(4)
    with pytest.raises(ChoiceError, match="XGBoost is not installed") as refused:
        BoostedTrees(library=MISSING[0]).fit(features, samples_of(runtimes), 0)
    assert f"`{install_line('cpu')}`" in refused.value.expected


def test_an_unknown_library_is_refused() -> None:
    with pytest.raises(ChoiceError, match="lightgbm"):
        BoostedTrees(library="catboost")


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
    for index in range(len(costs)):
        moved = [costs + step * direction * (np.arange(len(costs)) == index) for direction in (-1, 0, 1)]
        low, here, high = (pairs.loss(point) for point in moved)
        assert first[index] == pytest.approx((high - low) / (2 * step), abs=1e-6)
        assert second[index] == pytest.approx((high - 2 * here + low) / step**2, abs=1e-5)


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
    loss = rank_loss(torch.from_numpy(costs), samples)
    assert float(loss) == pytest.approx(sum(terms) / len(terms))
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
