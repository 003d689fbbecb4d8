"""Absolute runtimes of fused kernels: coefficients and metrics, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.experiments.evaluation.fusion import fusion_metrics, scale_estimates


def test_estimates_are_scaled_to_the_total_of_their_kind() -> None:
    """Dots: measured 2 x 100 + 1 x 300 = 500 over estimated 2 x 10 + 1 x 30 = 50, a coefficient of 10."""
    estimated = np.array([10.0, 30.0, 7.0, 5.0, 2.0])
    measured = np.array([100.0, 300.0, 999.0, 20.0, 8.0])
    runs = np.array([2, 1, 0, 3, 0])
    kinds = ["contraction", "contraction", "contraction", "reduction", "elementwise"]
    scaled = scale_estimates(estimated, measured, runs, kinds)
    assert scaled[:4].tolist() == pytest.approx([100.0, 300.0, 70.0, 20.0])
    # No elementwise kernel runs under the default config.
    assert np.isnan(scaled[4])


def test_short_kernels_are_apart() -> None:
    """Errors 10%, 50% above 5 us, 100% below; the two long ones are ordered rightly."""
    predicted = np.array([11_000.0, 3_000.0, 2_000.0])
    measured = np.array([10_000.0, 6_000.0, 1_000.0])
    found = fusion_metrics(predicted, measured)
    assert found["mape"] == pytest.approx((10 + 50 + 100) / 3)
    assert found["mape_ge5us"] == pytest.approx(30.0)
    assert found["mape_lt5us"] == pytest.approx(100.0)
    assert found["kendall_tau"] == pytest.approx(1.0)
    assert found["kendall_tau_ge5us"] == pytest.approx(1.0)
    # One kernel ranks nothing.
    assert "kendall_tau_lt5us" not in found


def test_five_microseconds_are_not_short() -> None:
    found = fusion_metrics(np.array([5_000.0]), np.array([5_000.0]))
    assert found == {"mape": 0.0, "mape_ge5us": 0.0}
