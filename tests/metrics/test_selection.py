"""Costs of choices, worked out by hand."""

from __future__ import annotations

import math

import pytest

from costbench.errors import DataError
from costbench.metrics.selection import best_of_top_k, mape, slowdown_at_k, tile_size_ape, top_k_score


def test_tile_size_ape_by_hand() -> None:
    # Differences 2 + 0 + 1 over best runtimes 8 + 20 + 2.
    assert tile_size_ape([10, 20, 3], [8, 20, 2]) == pytest.approx(100 * 3 / 30)


def test_executions_weigh_kernels() -> None:
    # The third kernel runs ten times: 2 + 0 + 10 over 8 + 20 + 20.
    assert tile_size_ape([10, 20, 3], [8, 20, 2], [1, 1, 10]) == pytest.approx(100 * 12 / 48)
    # Running everything twice changes nothing.
    assert tile_size_ape([10, 3], [8, 2], [2, 2]) == pytest.approx(tile_size_ape([10, 3], [8, 2]))


def test_perfect_choices_cost_nothing() -> None:
    assert tile_size_ape([8, 20], [8, 20]) == 0.0
    assert top_k_score([8, 20], [8, 20]) == 1.0


def test_top_k_score_by_hand() -> None:
    assert top_k_score([10, 20, 3], [8, 20, 2], [1, 1, 10]) == pytest.approx(48 / 60)


@pytest.mark.parametrize(("k", "expected"), [(1, 30), (2, 30), (3, 10), (9, 10)])
def test_best_of_top_k(k: int, expected: int) -> None:
    assert best_of_top_k([0.1, 0.4, 0.2, 0.3], [30, 20, 40, 10], k) == expected


def test_slowdown_is_relative_to_the_best() -> None:
    assert slowdown_at_k([0.1, 0.4, 0.2, 0.3], [30, 20, 40, 10], 1) == pytest.approx(2.0)
    assert slowdown_at_k([0.1, 0.4, 0.2, 0.3], [30, 20, 40, 10], 4) == 0.0


def test_first_of_equal_predictions_is_chosen() -> None:
    assert best_of_top_k([1.0, 1.0, 1.0], [7, 5, 3], 1) == 7
    assert best_of_top_k([1.0, 1.0, 1.0], [7, 5, 3], 2) == 5


@pytest.mark.parametrize(
    ("chosen", "best", "executions"),
    [
        ([], [], None),
        ([1.0], [1.0, 2.0], None),
        ([1.0], [0.0], None),
        ([1.0], [1.0], [0.0]),
        ([1.0], [1.0], [1.0, 1.0]),
    ],
)
def test_broken_input_is_refused(
    chosen: list[float], best: list[float], executions: list[float] | None
) -> None:
    with pytest.raises(DataError):
        tile_size_ape(chosen, best, executions)


def test_at_least_one_decision_is_chosen() -> None:
    with pytest.raises(DataError, match="at least 1"):
        best_of_top_k([1.0], [1.0], 0)
    with pytest.raises(DataError, match="no values"):
        best_of_top_k([], [], 1)


def test_mape_by_hand() -> None:
    # 50% too much, 25% too little, exact.
    assert mape([150, 75, 10], [100, 100, 10]) == pytest.approx(25.0)


def test_a_perfect_prediction_has_no_error() -> None:
    assert mape([3, 4], [3, 4]) == 0.0


@pytest.mark.parametrize(
    ("predicted", "measured"), [([], []), ([1.0], [0.0]), ([math.nan], [1.0]), ([1.0], [1.0, 2.0])]
)
def test_mape_of_broken_input_is_refused(predicted: list[float], measured: list[float]) -> None:
    with pytest.raises(DataError):
        mape(predicted, measured)
