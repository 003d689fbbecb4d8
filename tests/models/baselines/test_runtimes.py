"""Formulas of runtimes recover the coefficients that made-up runtimes were computed with."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest

from costbench.models.baselines.kernel_tables import KernelTable
from costbench.models.baselines.runtimes import (
    LaunchAndEstimate,
    LinearInWork,
    ScaledEstimate,
    UnscaledEstimate,
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
