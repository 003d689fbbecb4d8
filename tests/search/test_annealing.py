from __future__ import annotations

import math

import numpy as np
import pytest

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.search import Plan, tune
from costbench.search.annealing import Annealing, accept_moves, score_distances, temperature_scale
from costbench.search.space import NumberedSearchSpace, VectorSearchSpace
from tests.autotuning.small_spaces import Dials, Line, Table, line_problem


def accepted(old: float, new: float, temperature: float, draw: float) -> bool:
    return bool(accept_moves(np.array([old]), np.array([new]), temperature, np.array([draw]))[0])


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


def test_scale() -> None:
    # Median of 1 2 100; a move that changes nothing, or does not work, is no distance.
    old = np.array([1.0, 5.0, 7.0, 3.0, math.inf, 2.0])
    new = np.array([2.0, 3.0, 107.0, 3.0, 1.0, math.inf])
    assert score_distances(old, new).tolist() == [1.0, 2.0, 100.0]
    assert temperature_scale(score_distances(old, new)) == 2.0
    assert temperature_scale(np.zeros(0)) == 0.0


@pytest.mark.parametrize(
    "wrong", [{"num_chains": 0}, {"patience": 0}, {"cooling": 0.0}, {"cooling": 1.5}], ids=str
)
def test_impossible_settings(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Annealing(**wrong)  # type: ignore[arg-type]


def test_chains_are_scored_together() -> None:
    table = Table(target=5000)
    tune(
        line_problem(Line(10_000, frozenset())),
        table,
        Plan("annealing", MeasurementBudget(evaluations=200), 0),
    )
    assert len(table.batches[0]) == Annealing().num_chains
    assert np.mean([len(batch) for batch in table.batches[1:6]]) > Annealing().num_chains / 2


def test_chains_set_out_from_the_start() -> None:
    space = NumberedSearchSpace(Line(100, frozenset()))
    proposals = Annealing()(space, np.random.default_rng(0), space.rows([50]))
    assert next(proposals).tolist() == [[50]]
    assert sorted(proposals.send(np.array([1.0])).tolist()) == [[49], [51]]


def test_a_single_start_has_a_temperature() -> None:
    # A step turns one dial, which is worse by 1. A chain that never took a worse move would not get further.
    space = VectorSearchSpace(Dials(40))
    proposals = Annealing(cooling=1.0)(space, np.random.default_rng(0), space.rows([0]))
    turned = (next(proposals) > 0).sum(axis=1)
    for _ in range(5):
        turned = (proposals.send(turned.astype(np.float64)) > 0).sum(axis=1)
    assert turned.max() > 1


def test_walking_downhill_beats_drawing_blindly() -> None:
    # On a smooth valley of 100,000 decisions a walk of 2,000 gets nearer than 2,000 draws, most of the time:
    # draws come within 100,000 / 2,000 / 2 = 25 of the bottom on average.
    problem, budget = line_problem(Line(100_000, frozenset())), MeasurementBudget(evaluations=2000)
    table = Table(target=50_000)
    start = [49_900]
    walked = [
        tune(problem, table, Plan("annealing", budget, seed, tuple(start))).best_score for seed in range(5)
    ]
    random_scores = [
        tune(problem, table, Plan("random", budget, seed, tuple(start))).best_score for seed in range(5)
    ]
    assert np.median(walked) < np.median(random_scores)
    assert np.median(walked) <= 1.0
