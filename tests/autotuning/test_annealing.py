from __future__ import annotations

import math

import numpy as np
import pytest

from costbench.autotuning.annealing import NUM_CHAINS, accepts, annealing, spread
from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.tuning import tune
from tests.autotuning.small_spaces import Line, Table, line_problem

NONE = np.zeros(0, dtype=np.int64)


def accepted(old: float, new: float, temperature: float, draw: float) -> bool:
    return bool(accepts(np.array([old]), np.array([new]), temperature, np.array([draw]))[0])


@pytest.mark.parametrize(
    ("old", "new", "temperature", "draw", "expected"),
    [
        (1.0, 2.0, 1.0, 0.36, True),  # exp(-1) = 0.3679
        (1.0, 2.0, 1.0, 0.37, False),
        (-5.0, -3.0, 4.0, 0.60, True),  # exp(-2/4) = 0.6065
        (-5.0, -3.0, 4.0, 0.61, False),
        (2.0, 1.0, 1.0, 0.999, True),
        (1.0, 1.0, 0.0, 0.999, True),
        (1.0, 1.001, 0.0, 0.0, False),
        (1.0, math.inf, 1.0, 0.0, False),
        (math.inf, 1.0, 1.0, 0.999, True),
        (math.inf, math.inf, 1.0, 0.999, True),
    ],
)
def test_metropolis(old: float, new: float, temperature: float, draw: float, expected: bool) -> None:
    assert accepted(old, new, temperature, draw) is expected


def test_spread() -> None:
    # Median 3, distances 2 1 0 1 97, their median 1.
    assert spread(np.array([1.0, 2.0, 3.0, 4.0, 100.0])) == 1.0
    assert spread(np.array([1.0, math.inf, 3.0])) == 1.0
    assert spread(np.array([math.inf])) == 0.0
    assert spread(np.array([4.0])) == 0.0


def test_chains_are_scored_together() -> None:
    table = Table(target=5000)
    tune(line_problem(Line(10_000, frozenset())), "annealing", table, MeasurementBudget(evaluations=200), 0)
    assert len(table.batches[0]) == NUM_CHAINS
    assert np.mean([len(batch) for batch in table.batches[1:6]]) > NUM_CHAINS / 2


def test_chains_set_out_from_the_start() -> None:
    proposals = annealing(Line(100, frozenset()), np.random.default_rng(0), np.array([50]))
    assert next(proposals).tolist() == [50]
    assert proposals.send(np.array([1.0])).tolist() == [49, 51]


def test_walking_downhill_beats_drawing_blindly() -> None:
    # On a smooth valley of 100,000 decisions a walk of 2,000 gets nearer than 2,000 draws, most of the time:
    # draws come within 100,000 / 2,000 / 2 = 25 of the bottom on average.
    problem, budget = line_problem(Line(100_000, frozenset())), MeasurementBudget(evaluations=2000)
    table = Table(target=50_000)
    start = [49_900]
    walked = [tune(problem, "annealing", table, budget, seed, start).best_score for seed in range(5)]
    drawn = [tune(problem, "random", table, budget, seed, start).best_score for seed in range(5)]
    assert np.median(walked) < np.median(drawn)
    assert np.median(walked) <= 1.0
