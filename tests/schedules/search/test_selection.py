from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from costbench import rng
from costbench_schedules.experiments.repeats import best_by_trial
from costbench_schedules.search.guided import select_diverse


def equation_3(costs: np.ndarray, rows: np.ndarray, chosen: list[int], alpha: float) -> float:
    covered = sum(len(set(rows[chosen, place].tolist())) for place in range(rows.shape[1]))
    return alpha * covered - float(costs[chosen].sum())


def test_by_hand() -> None:
    costs = np.array([-5.0, -4.9, -4.0, -1.0])
    rows = np.array([[0, 0], [0, 0], [0, 1], [1, 2]])
    # Of no worth, values of components leave the cheapest; worth 1, the third covers one and the last two.
    assert select_diverse(costs, rows, 2, 0.0).tolist() == [0, 1]
    assert select_diverse(costs, rows, 2, 1.0).tolist() == [0, 2]
    assert select_diverse(costs, rows, 3, 2.5).tolist() == [0, 2, 3]
    assert select_diverse(costs, rows, 2, 9.0).tolist() == [0, 3]
    assert select_diverse(costs, rows, 9, 1.0).tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize("seed", range(12))
def test_greedy_steps_and_its_bound(seed: int) -> None:
    draws = rng.stream(seed, "diverse")
    costs, rows, alpha = -draws.uniform(size=9), draws.integers(3, size=(9, 4)), 0.4
    chosen = select_diverse(costs, rows, 4, alpha).tolist()
    for count in range(4):
        gains = {
            place: equation_3(costs, rows, [*chosen[:count], place], alpha)
            for place in range(9)
            if place not in chosen[:count]
        }
        assert equation_3(costs, rows, chosen[: count + 1], alpha) == pytest.approx(max(gains.values()))
    best = max(equation_3(costs, rows, list(some), alpha) for some in itertools.combinations(range(9), 4))
    assert equation_3(costs, rows, chosen, alpha) >= (1.0 - 1.0 / math.e) * best


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        select_diverse(np.zeros(2), np.zeros((2, 1), dtype=np.int64), 1, -0.1)


def test_best_by_trial_with_one_and_two_measurements() -> None:
    scores = np.array([math.inf, 5.0, 6.0, 4.0, 4.5, 1.0, 0.5])
    assert best_by_trial(scores).tolist() == [math.inf, 5.0, 5.0, 4.0, 4.0, 1.0, 0.5]
    # The seventh measurement is half a trial.
    assert best_by_trial(scores, 2).tolist() == [5.0, 4.0, 1.0]
    with pytest.raises(ValueError, match="at least 1"):
        best_by_trial(scores, 0)
