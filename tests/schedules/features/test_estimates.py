"""Features of estimates by hand."""

from __future__ import annotations

import numpy as np
import pytest

from costbench_schedules.features.estimates import estimate_features


def test_features_by_hand() -> None:
    estimates = {
        "total": np.array([100.0, 200.0]),
        "compute": np.array([75.0, 50.0]),
        "branches": np.array([25.0, 150.0]),
        "roofline": np.array([49.0, 199.0]),
        "total@other": np.array([99.0, 399.0]),
    }
    lanes = np.array([[7.0, 3.0], [0.0, 1.0]])
    expected = [
        [0.75, 0.25, np.log(0.5), 0.0, 0.0, -1.0],
        [0.25, 0.75, 0.0, np.log(2.0), -1.0, 0.0],
    ]
    assert estimate_features(estimates, lanes) == pytest.approx(np.array(expected), abs=1e-6)


def test_a_unit_of_time_hardly_changes_them() -> None:
    estimates = {name: np.array([3e6, 5e6]) for name in ("total", "compute", "throughput")}
    thousand = {name: 1e3 * values for name, values in estimates.items()}
    one = np.ones((2, 3))
    np.testing.assert_allclose(estimate_features(estimates, one), estimate_features(thousand, one), atol=1e-6)
