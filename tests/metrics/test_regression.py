"""Regression errors by hand."""

from __future__ import annotations

import math

import pytest

from costbench.errors import DataError
from costbench.metrics.regression import mape


def test_mape_by_hand() -> None:
    # 50% too much, 25% too little, exact.
    assert mape([150, 75, 10], [100, 100, 10]) == pytest.approx(25.0)


def test_a_perfect_prediction_has_no_error() -> None:
    assert mape([3, 4], [3, 4]) == 0.0


@pytest.mark.parametrize(
    ("predicted", "measured"), [([], []), ([1.0], [0.0]), ([math.nan], [1.0]), ([1.0], [1.0, 2.0])]
)
def test_broken_input_is_refused(predicted: list[float], measured: list[float]) -> None:
    with pytest.raises(DataError):
        mape(predicted, measured)
