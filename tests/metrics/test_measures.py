"""Averages over programs, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from costbench.errors import DataError
from costbench.metrics.measures import APE_FLOOR_PERCENT, AVERAGES, geometric_mean, mean_without_nan
from costbench.tasks import LEARNED

APE, TAU = LEARNED["tile"].measures


def test_averages_by_hand() -> None:
    averages = {kind: APE.average(kind, [1.0, 4.0, 16.0]) for kind in AVERAGES}
    # Around 7: -6, -3, 9; their squares add up to 126.
    expected = {"median": 4.0, "geometric_mean": 4.0, "mean": 7.0, "standard_deviation": 63.0**0.5}
    assert averages == pytest.approx(expected)


def test_what_does_not_exist_is_none() -> None:
    assert [APE.average(kind, []) for kind in AVERAGES] == [None] * 4
    assert APE.average("standard_deviation", [1.0]) is None
    assert TAU.average("geometric_mean", [0.5, -0.5]) is None


def test_means_are_geometric_for_errors_only() -> None:
    assert APE.mean([0.0, 5.0]) == pytest.approx(0.5)  # 0 counts as 0.05
    assert TAU.mean([0.5, -0.5]) == 0.0


# lpm2021, table 2: Tile-Size APE and tau of the learned model.
PAPERS_APE = [9.7, 1.5, 3.1, 3.9, 8.0, 2.8, 2.7, 3.4]
PAPERS_TAU = [0.75, 0.75, 0.86, 0.82, 0.64, 0.85, 0.87, 0.93]


def test_the_papers_means_are_geometric() -> None:
    assert geometric_mean(PAPERS_APE, APE_FLOOR_PERCENT) == pytest.approx(3.7, abs=0.05)
    assert np.mean(PAPERS_APE) == pytest.approx(4.4, abs=0.05)
    assert geometric_mean(PAPERS_TAU) == pytest.approx(0.80, abs=0.005)


def test_a_program_without_error_does_not_hide_the_others() -> None:
    # Without a floor the mean of 0 and 5 would be 0; with it, sqrt(0.05 * 5).
    assert geometric_mean([0.0, 5.0], 0.05) == pytest.approx(0.5)
    assert geometric_mean([4.0, 9.0], 0.05) == pytest.approx(6.0)


def test_there_is_no_geometric_mean_of_what_is_not_positive() -> None:
    assert math.isnan(geometric_mean([0.0, 5.0]))
    assert math.isnan(geometric_mean([-0.1, 0.5]))


@pytest.mark.parametrize(("values", "floor"), [([], 0.0), ([math.nan], 0.0), ([1.0], -1.0)])
def test_broken_input_is_refused(values: list[float], floor: float) -> None:
    with pytest.raises(DataError):
        geometric_mean(values, floor)


def test_undefined_values_are_left_out_of_the_mean() -> None:
    assert mean_without_nan([1.0, math.nan, 3.0]) == 2.0
    assert math.isnan(mean_without_nan([math.nan]))
    assert math.isnan(mean_without_nan([]))
