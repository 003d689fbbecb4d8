"""Validation scores, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.training.validation import ValidationScores


def test_ranks_of_decisions() -> None:
    """Kernel one is ranked rightly, kernel two the wrong way round: 30 is chosen instead of 10."""
    scores = ValidationScores("score")
    scores.add(np.array([1.0, 2.0]), np.array([100.0, 200.0]))
    scores.add(np.array([3.0, 1.0, 2.0]), np.array([10.0, 30.0, 20.0]))
    scores.add(np.array([5.0]), np.array([1e9]))
    found = scores.metrics()
    assert found["validation/tau"] == pytest.approx((1.0 - 1.0) / 2)
    # One pair of the first kernel and none of three of the second.
    assert found["validation/opa"] == pytest.approx(1 / 4)
    assert found["validation/ape"] == pytest.approx(100 * 20 / 110)
    assert found["validation/slowdown"] == pytest.approx((0.0 + (30.0 / 10.0 - 1.0)) / 2)
    assert "validation/mape" not in found


def test_equal_runtimes_are_no_pairs() -> None:
    scores = ValidationScores("score")
    scores.add(np.array([1.0, 2.0]), np.array([7.0, 7.0]))
    assert scores.metrics()["validation/opa"] == 0.0
    scores.add(np.array([2.0, 1.0, 3.0]), np.array([4.0, 8.0, 8.0]))
    assert scores.metrics()["validation/opa"] == 1 / 2


def test_absolute_runtimes() -> None:
    """e^0 = 1 is right, e^log(2) is 100% too much, e^-log(2) 50% too little."""
    scores = ValidationScores("log_runtime_ns")
    for ratio in (1.0, 2.0, 0.5):
        scores.add(np.array([np.log(1000.0 * ratio)]), np.array([1000.0]))
    assert scores.metrics() == {"validation/mape": pytest.approx(50.0)}


def test_a_prediction_beyond_all_numbers_is_finite() -> None:
    scores = ValidationScores("log_runtime_ns")
    scores.add(np.array([1e6]), np.array([1.0]))
    assert np.isfinite(scores.metrics()["validation/mape"])
