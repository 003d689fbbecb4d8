from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.datasets.histograms import LogHistogram


def test_counts_by_hand() -> None:
    histogram = LogHistogram(1)
    histogram.add([1, 9, 10])
    histogram.add(np.array([[99, 100], [5_000, 1]]))
    assert histogram.to_dict() == {
        "bins_per_decade": 1,
        "first": 0,
        "counts": [3, 2, 1, 1],
        "min": 1,
        "p10": 1,
        "median": 10,
        "p90": 100,
        "max": 5_000,
        "mean": round(5_220 / 7, 6),
    }


def test_empty_bins_before_the_first_are_left_out() -> None:
    histogram = LogHistogram(2)
    histogram.add([1_000, 100_000])
    found = histogram.to_dict()
    # 1,000 is 10^(6/2), 100,000 is 10^(10/2).
    assert (found["first"], found["counts"]) == (6, [1, 0, 0, 0, 1])


def test_nothing_counted() -> None:
    histogram = LogHistogram()
    histogram.add([])
    assert histogram.to_dict() == {"bins_per_decade": 10, "first": 0, "counts": []}
    assert math.isnan(histogram.quantile(0.5))


def test_ratios_are_numbers_too() -> None:
    histogram = LogHistogram()
    histogram.add([1.0, 1.5, 2.25])
    assert histogram.quantile(0.5) == 1.5
    assert histogram.to_dict()["max"] == 2.25


@given(st.lists(st.integers(1, 2**62), min_size=1), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
def test_quantiles_are_those_of_sorting_to_a_thousandth(values: list[int], share: float) -> None:
    histogram = LogHistogram(5)
    half = len(values) // 2
    histogram.add(values[:half])
    histogram.add(values[half:])
    wanted = float(sorted(values)[math.floor(share * (len(values) - 1))])
    assert histogram.quantile(share) == pytest.approx(wanted, rel=1e-3)
    assert sum(histogram.to_dict()["counts"]) == len(values)  # type: ignore[call-overload]


@given(st.lists(st.integers(1, 2_047), min_size=1))
def test_small_whole_numbers_are_exact(values: list[int]) -> None:
    histogram = LogHistogram()
    histogram.add(values)
    assert histogram.quantile(0.5) == sorted(values)[(len(values) - 1) // 2]
    assert histogram.to_dict()["mean"] == round(sum(values) / len(values), 6)
