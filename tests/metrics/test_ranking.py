"""Pair counts by hand, against SciPy, and at the size of the largest kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from costbench.errors import DataError
from costbench.metrics.ranking import PairCounts, count_pairs, kendall_tau, ordered_pair_accuracy_of, tau_of


def test_pair_counts_by_hand() -> None:
    # Pairs of (1,1) (2,3) (2,2) (4,2): 12 up, 13 up, 14 up, 23 tied in x, 24 down, 34 tied in y.
    assert count_pairs([1, 2, 2, 4], [1, 3, 2, 2]) == PairCounts(3, 1, 1, 1, 6)


def test_tau_b_by_hand() -> None:
    # (3 - 1) / sqrt((6 - 1) (6 - 1)).
    assert kendall_tau([1, 2, 2, 4], [1, 3, 2, 2]) == pytest.approx(2 / 5)


def test_a_pair_tied_in_both_counts_once() -> None:
    # Pairs: (1,2) tied in both; (1,3) and (2,3) concordant. tau = 2 / sqrt(2 * 2).
    assert count_pairs([5, 5, 6], [7, 7, 9]) == PairCounts(2, 0, 1, 1, 3)
    assert kendall_tau([5, 5, 6], [7, 7, 9]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [([1, 2, 3, 4], 1.0), ([4, 3, 2, 1], -1.0), ([1, 2, 4, 3], 4 / 6), ([0, 0, 0, 1], 3 / math.sqrt(18))],
)
def test_known_orders(predicted: list[int], expected: float) -> None:
    assert kendall_tau(predicted, [10, 20, 30, 40]) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[], [3.0], [3.0, 3.0, 3.0]])
def test_tau_is_undefined_where_nothing_is_ranked(values: list[float]) -> None:
    assert math.isnan(kendall_tau(values, values))
    assert math.isnan(tau_of(count_pairs(values, values)))
    assert math.isnan(ordered_pair_accuracy_of(count_pairs(values, values)))


def test_a_constant_prediction_scores_zero_and_a_constant_measurement_is_left_out() -> None:
    assert math.isnan(kendall_tau([1, 1, 1], [1, 2, 3]))
    assert tau_of(count_pairs([1, 1, 1], [1, 2, 3])) == 0.0
    assert math.isnan(tau_of(count_pairs([1, 2, 3], [1, 1, 1])))


def test_ordered_pair_accuracy_by_hand() -> None:
    # Five pairs differ in runtime; three are ordered rightly, one wrongly, one is tied in the prediction.
    assert ordered_pair_accuracy_of(count_pairs([1, 2, 2, 4], [1, 3, 2, 2])) == pytest.approx(3 / 5)


_small_ints = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=40)


@given(_small_ints)
@settings(max_examples=150, deadline=None)
def test_tau_equals_scipy_on_tied_data(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs, dtype=float).T
    expected = kendalltau(x, y).statistic
    assert kendall_tau(x, y) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@given(_small_ints)
@settings(max_examples=50, deadline=None)
def test_tau_depends_on_order_alone(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs, dtype=float).T
    tau = kendall_tau(x, y)
    assert kendall_tau(np.exp(x), 3 * y - 7) == pytest.approx(tau, nan_ok=True)
    assert kendall_tau(y, x) == pytest.approx(tau, nan_ok=True)
    assert kendall_tau(-x, y) == pytest.approx(-tau, nan_ok=True)


@pytest.mark.parametrize("count", [256, 257])
def test_few_and_many_values_are_counted_alike(count: int) -> None:
    """Up to 256 every pair is looked at; more values are sorted."""
    draw = np.random.Generator(np.random.PCG64(count))
    x, y = draw.integers(0, 99, count).astype(float), draw.integers(0, 99, count).astype(float)
    assert kendall_tau(x, y) == pytest.approx(float(kendalltau(x, y).statistic), abs=1e-12)
    pairs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i in range(count) for j in range(i)]
    counts = count_pairs(x, y)
    assert counts.concordant == sum(a * b > 0 for a, b in pairs)
    assert counts.discordant == sum(a * b < 0 for a, b in pairs)
    assert counts.tied_predicted == sum(a == 0 for a, _ in pairs)
    assert counts.tied_measured == sum(b == 0 for _, b in pairs)


def test_half_a_million_decisions_equal_scipy() -> None:
    generator = np.random.default_rng(0)
    measured = generator.standard_normal(500_000).round(4)
    predicted = (measured + generator.standard_normal(500_000)).round(4)
    assert kendall_tau(predicted, measured) == pytest.approx(
        kendalltau(predicted, measured).statistic, abs=1e-12
    )


@pytest.mark.parametrize("broken", [[1.0, math.nan], [1.0, math.inf], [1.0], [[1.0, 2.0]]])
def test_broken_input_is_refused(broken: list[float]) -> None:
    with pytest.raises(DataError):
        kendall_tau(broken, [1.0, 2.0])
