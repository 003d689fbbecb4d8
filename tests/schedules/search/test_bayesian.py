from __future__ import annotations

import numpy as np
import pytest

from costbench.arrays import F64
from costbench.rng import stream
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.search.bayesian import BayesianSearch, costs_on, trend_of
from costbench_schedules.search.replay import run_search
from costbench_schedules.search.table_strategies import TABLE_STRATEGIES
from costbench_schedules.spaces.parameter_space import ParameterSpace

VALUES = {
    "threads": (32, 64, 128, 256, 512),
    "tile": (1, 2, 4, 8, 16),
    "unroll": (1, 2, 4, 8),
    "cache": (0, 1),
}


def bowl(device: str, best: tuple[int, int, int, int], kept: int | None = None) -> TuningTable:
    """Returns a table of which runtimes grow with the distance from a configuration; tiles of 16 fail."""
    grids = np.meshgrid(*[np.arange(len(values)) for values in VALUES.values()], indexing="ij")
    listed = np.stack([grid.ravel() for grid in grids], axis=1)
    listed = stream(0, "listed").permutation(listed)[:kept] if kept else listed
    apart = np.abs(listed - np.array(best)) @ np.array([0.3, 0.4, 0.1, 0.2])
    failed = listed[:, 1] == 4
    runtime: F64 = np.where(failed, np.inf, 1000.0 * np.exp(apart))
    reasons = tuple("too large" if fail else "" for fail in failed)
    zeros = np.zeros(len(listed))
    space = ParameterSpace(VALUES, listed)
    return TuningTable("bowl", device, space, runtime, runtime, zeros, reasons, zeros.astype(np.int64))


def trials_to_best(name: str, table: TuningTable, sources: list[TuningTable]) -> float:
    """Returns the mean trials of ten searches until the best of the table."""
    orders = [
        run_search(TABLE_STRATEGIES[name](), table, 200, stream(5, name, repeat), sources, until_best=True)
        for repeat in range(10)
    ]
    return float(np.mean([len(order) for order in orders]))


def test_it_needs_a_fraction_of_the_trials_of_random_search() -> None:
    table = bowl("here", (3, 1, 2, 1))
    assert trials_to_best("bayesian", table, []) < 0.3 * trials_to_best("random", table, [])


def test_another_device_that_is_alike_saves_most_trials() -> None:
    table, other = bowl("here", (3, 1, 2, 1)), bowl("there", (3, 2, 2, 1))
    assert trials_to_best("bayesian-transfer", table, [other]) <= 10.0


def test_it_recovers_from_a_device_that_misleads() -> None:
    table, other = bowl("here", (4, 0, 0, 0)), bowl("there", (0, 3, 3, 1))
    assert trials_to_best("bayesian-transfer", table, [other]) < trials_to_best("random", table, [])


def test_without_other_devices_transfer_is_the_search_itself() -> None:
    table = bowl("here", (3, 1, 2, 1))
    orders = [
        run_search(BayesianSearch(transfer=transfer), table, 40, stream(1, "same"))
        for transfer in (False, True)
    ]
    np.testing.assert_array_equal(*orders)


def test_first_draws_are_those_of_random_search() -> None:
    table = bowl("here", (3, 1, 2, 1))
    first = [
        run_search(TABLE_STRATEGIES[name](), table, 5, stream(2, "x")) for name in ("random", "bayesian")
    ]
    np.testing.assert_array_equal(*first)


def test_costs_of_another_device_are_shares_of_its_best_speed() -> None:
    other = bowl("there", (0, 0, 0, 0))
    costs = costs_on(other, bowl("here", (1, 1, 1, 1)).space)
    assert costs.min() == -1.0
    np.testing.assert_array_equal(costs[other.failed], 0.0)


def test_configurations_that_another_device_lacks_are_predicted() -> None:
    whole, part = bowl("there", (3, 1, 2, 1)), bowl("there", (3, 1, 2, 1), kept=150)
    space = bowl("here", (0, 0, 0, 0)).space
    missing = part.space.indices_of(space) < 0
    assert missing.sum() == len(whole) - 150
    predicted, real = costs_on(part, space)[missing], costs_on(whole, space)[missing]
    assert np.corrcoef(predicted, real)[0, 1] > 0.8


def test_the_trend_begins_at_the_mean_of_devices_and_is_fitted() -> None:
    others = np.array([[-1.0, -0.2], [-0.5, -0.8], [0.0, -0.4], [-0.7, 0.0]])
    none = np.array([0])
    start = trend_of(others, none, np.array([-0.6]), 1e3)
    np.testing.assert_allclose(start, others.mean(axis=1), atol=1e-4)
    costs = 0.1 + 0.9 * others[:, 0]
    np.testing.assert_allclose(trend_of(others, np.arange(4), costs, 1e-4), costs, atol=1e-3)
    assert trend_of(np.zeros((3, 0)), np.array([0, 1]), np.array([-1.0, -0.5]), 0.2) == pytest.approx(-0.75)
