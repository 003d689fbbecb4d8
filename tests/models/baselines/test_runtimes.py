"""Formulas for runtimes, and the fits by relative error that they come from."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest
from scipy.optimize import minimize

from costbench.errors import DataError
from costbench.models.baselines.kernel_tables import KernelTable
from costbench.models.baselines.runtimes import (
    LaunchAndEstimate,
    LinearInWork,
    ScaledEstimate,
    UnscaledEstimate,
    least_log_error,
    least_relative_error,
    weighted_median,
)
from tests.models.baselines.tables import SPEC, made_up

TABLE = made_up(0, kernels=40, configs=1)


def measured(runtime: np.ndarray) -> KernelTable:
    return replace(TABLE, runtime_ns=runtime)


def test_the_estimate_as_it_is() -> None:
    np.testing.assert_array_equal(UnscaledEstimate().predict(TABLE), TABLE.analytical_ns)


def test_a_constant_is_recovered() -> None:
    table = measured(1.75 * TABLE.analytical_ns)
    model = ScaledEstimate.fit(table, table, SPEC, 0)
    assert model.factor == pytest.approx(1.75)
    np.testing.assert_allclose(model.predict(TABLE), table.runtime_ns)


def test_a_constant_minimises_the_mean_relative_error() -> None:
    model = ScaledEstimate.fit(TABLE, TABLE, SPEC, 0)

    def error(factor: float) -> float:
        return float(TABLE.row_weights @ np.abs(factor * TABLE.analytical_ns / TABLE.runtime_ns - 1.0))

    assert all(error(model.factor) <= error(model.factor * step) + 1e-12 for step in np.linspace(0.5, 2, 101))


def test_a_launch_and_a_slope_are_recovered() -> None:
    table = measured(3_000.0 + 0.8 * TABLE.analytical_ns)
    model = LaunchAndEstimate.fit(table, table, SPEC, 0)
    assert astuple(model) == pytest.approx((3_000.0, 0.8))
    np.testing.assert_allclose(model.predict(TABLE), table.runtime_ns)


def test_six_coefficients_are_recovered() -> None:
    expected = (1_500.0, 0.5, 1e-3, 2e-3, 4e-3, 1e-2)
    table = measured(1_500.0 + 0.5 * TABLE.analytical_ns + TABLE.static @ np.array(expected[2:]))
    model = LinearInWork.fit(table, table, SPEC, 0)
    assert astuple(model) == pytest.approx(expected)
    np.testing.assert_allclose(model.predict(TABLE), table.runtime_ns)


def test_applications_count_the_same() -> None:
    """39 kernels of one application take 1 x the estimate, the only one of the other 3 x: it counts as much.

    Weights of the ratios are w e / y: 39 / 39 = 1 for a factor of 1, and 1 / 3.
    """
    applications = np.array([0] * 39 + [1])
    factor = np.where(applications == 0, 1.0, 3.0)
    table = replace(TABLE, applications=applications, analytical_ns=np.full(40, 1e4), runtime_ns=1e4 * factor)
    assert ScaledEstimate.fit(table, table, SPEC, 0).factor == 1.0
    assert table.row_weights[:39].sum() == pytest.approx(table.row_weights[39])


def loss(columns: np.ndarray, runtime: np.ndarray, weights: np.ndarray, found: np.ndarray) -> float:
    return float(weights @ np.abs(columns @ found / runtime - 1.0))


def test_the_median_of_equal_weights() -> None:
    assert weighted_median(np.array([9.0, 1.0, 4.0]), np.ones(3)) == 4.0


def test_weights_move_the_median() -> None:
    """Of a total of 10, half is reached at 7 with 1 + 4 = 5."""
    assert weighted_median(np.array([9.0, 7.0, 2.0]), np.array([5.0, 4.0, 1.0])) == 7.0
    assert weighted_median(np.array([9.0, 7.0, 2.0]), np.array([5.1, 4.0, 1.0])) == 9.0


def test_exact_coefficients_are_recovered() -> None:
    """Units as they come: nanoseconds beside picoseconds a FLOP."""
    draw = np.random.Generator(np.random.PCG64(0))
    columns = np.column_stack([np.ones(200), draw.uniform(1e3, 1e6, 200), draw.uniform(1e6, 1e10, 200)])
    expected = np.array([2_000.0, 1.1, 3e-5])
    found = least_relative_error(columns, columns @ expected, draw.uniform(0.1, 3.0, 200))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_an_outlier_does_not_move_a_majority() -> None:
    columns = np.column_stack([np.ones(9), np.arange(1.0, 10.0)])
    runtime = 3.0 + 2.0 * np.arange(1.0, 10.0)
    runtime[4] *= 1000.0
    np.testing.assert_allclose(least_relative_error(columns, runtime, np.ones(9)), [3.0, 2.0], rtol=1e-6)


def test_no_coefficient_is_negative() -> None:
    """Runtimes fall with the second column, so the best is without it: the median of all."""
    columns = np.column_stack([np.ones(5), np.arange(5.0)])
    runtime = 100.0 / np.arange(1.0, 6.0)
    found = least_relative_error(columns, runtime, np.ones(5))
    assert found[1] == 0.0
    assert found[0] == pytest.approx(weighted_median(runtime, 1.0 / runtime))


@pytest.mark.parametrize("seed", range(5))
def test_as_good_as_a_general_solver_and_a_grid(seed: int) -> None:
    draw = np.random.Generator(np.random.PCG64(seed))
    columns = draw.uniform(0.0, 1.0, (12, 2))
    runtime, weights = draw.uniform(0.5, 2.0, 12), draw.uniform(0.1, 2.0, 12)
    found = least_relative_error(columns, runtime, weights)
    least = loss(columns, runtime, weights, found)
    grid = np.linspace(0.0, 4.0, 41)
    assert all(loss(columns, runtime, weights, np.array([a, b])) >= least - 1e-9 for a in grid for b in grid)
    general = minimize(
        lambda c: loss(columns, runtime, weights, np.abs(c)), [1.0, 1.0], method="Nelder-Mead", tol=1e-10
    )
    assert least <= general.fun + 1e-9


def test_nothing_to_fit_to() -> None:
    with pytest.raises(DataError, match="no kernels to fit"):
        weighted_median(np.empty(0), np.empty(0))
    with pytest.raises(DataError, match="no kernels to fit"):
        least_relative_error(np.empty((0, 2)), np.empty(0), np.empty(0))
    with pytest.raises(DataError, match="not finite"):
        least_relative_error(np.ones((2, 1)), np.array([0.0, 1.0]), np.ones(2))


def test_the_least_log_error_is_not_drawn_to_no_time_at_all() -> None:
    """Four of ten kernels take a thousandth of their work's time: by relative errors none takes any."""
    draw = np.random.default_rng(2)
    columns = np.exp(draw.uniform(0.0, 10.0, (300, 2)))
    expected = columns @ np.array([3.0, 0.5])
    runtime = expected.copy()
    for first in range(4):
        runtime[first::10] /= 1000.0
    by_log = least_log_error(columns, runtime, np.ones(300))
    by_relative = least_relative_error(columns, runtime, np.ones(300))
    np.testing.assert_allclose(columns @ by_log, expected, rtol=0.1)
    assert np.median(columns @ by_relative / expected) < 0.01


def test_work_that_no_kernel_has_costs_nothing() -> None:
    columns = np.array([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0]])
    assert least_log_error(columns, np.array([5.0, 10.0, 20.0]), np.ones(3)).tolist() == pytest.approx(
        [5.0, 0.0], rel=0.01
    )
    with pytest.raises(DataError, match="no kernels to fit a baseline to"):
        least_log_error(np.zeros((0, 2)), np.zeros(0), np.zeros(0))
