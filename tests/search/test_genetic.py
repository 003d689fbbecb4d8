from __future__ import annotations

import numpy as np
import pytest

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.tuning import Plan, tune
from costbench.search.genetic import Genetic
from costbench.search.space import Numbered
from tests.autotuning.small_spaces import Dials, Distance, Line, vector_problem


@pytest.mark.parametrize("wrong", [{"population": 1}, {"mutations": 0}, {"crossover": 1.5}], ids=str)
def test_impossible_settings(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Genetic(**wrong)  # type: ignore[arg-type]


def test_children_are_near_the_best() -> None:
    # On a line a child is one or two steps from its parent, and only the best two parents go on.
    space = Numbered(Line(1000, frozenset()))
    proposals = Genetic(population=2)(space, np.random.default_rng(0), space.rows([100, 500, 505]))
    next(proposals)
    children = set(space.numbers(proposals.send(np.array([9.0, 1.0, 0.0]))))
    assert children <= {498, 499, 501, 502, 503, 504, 506, 507}


def test_parents_that_are_better_are_chosen_more_often() -> None:
    # Of two drawn ones the better: the best of two with probability 3/4. 4000 draws, four deviations 0.027.
    drawn = Genetic(population=4000)._parents(np.random.default_rng(0), np.array([1.0, 2.0]))
    assert np.mean(drawn == 0) == pytest.approx(0.75, abs=0.028)


def test_evolution_beats_drawing_blindly() -> None:
    # 2,000 of 3^40 vectors at random agree with the target at 13 places, hardly ever at 25.
    problem, best = vector_problem(Dials(40)), Distance(np.array([0, 2, 2, 0] * 10, dtype=np.int16))
    plan = Plan("genetic", MeasurementBudget(evaluations=2000), 1)
    assert tune(problem, best, plan).best_score < 8
    assert tune(problem, best, Plan("random", plan.budget, 1)).best_score > 15
