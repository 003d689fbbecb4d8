from __future__ import annotations

import numpy as np
import pytest

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.search import Plan, tune
from costbench.search.genetic import Genetic, Population
from costbench.search.space import NumberedSearchSpace, Seen
from tests.autotuning.small_spaces import Dials, Distance, Line, vector_problem


@pytest.mark.parametrize(
    "wrong", [{"population": 1}, {"mutations": 0}, {"crossover": 1.5}, {"tries": -1}], ids=str
)
def test_impossible_settings(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Genetic(**wrong)  # type: ignore[arg-type]


def test_children_are_near_the_best() -> None:
    # On a line a child is one or two steps from its parent, and only the best two parents go on.
    space = NumberedSearchSpace(Line(1000, frozenset()))
    proposals = Genetic(population=2)(space, np.random.default_rng(0), space.rows([100, 500, 505]))
    next(proposals)
    children = set(space.numbers(proposals.send(np.array([9.0, 1.0, 0.0]))))
    assert children <= {498, 499, 501, 502, 503, 504, 506, 507}


@pytest.mark.parametrize("tries", [0, 5])
def test_children_are_new_and_each_is_there_once(tries: int) -> None:
    # One or two steps from 5: 3, 4, 6, 7, of which 4 is known. 12 children at once find all of the others.
    space, seen = NumberedSearchSpace(Line(1000, frozenset())), Seen(np.array([[4], [5]]))
    breeding = Genetic(population=12, tries=tries)
    parents = Population(np.array([[5]]), np.zeros(1))
    children = breeding.children(space, np.random.default_rng(0), parents, 12, seen)
    assert sorted(space.numbers(children)) == [3, 6, 7]
    assert not len(breeding.children(space, np.random.default_rng(1), parents, 12, seen))


def test_survivors_are_the_best_and_of_equals_the_older() -> None:
    old = Population(np.array([[1], [2]]), np.array([5.0, np.inf]))
    young = Population(np.array([[3], [4]]), np.array([4.0, 5.0]))
    survivors = Genetic(population=2).survivors(old, young)
    assert survivors.rows.tolist() == [[3], [1]]
    assert survivors.scores.tolist() == [4.0, 5.0]


def test_parents_that_are_better_are_chosen_more_often() -> None:
    # Of two drawn ones the better: the best of two with probability 3/4. 4000 draws, four deviations 0.027.
    pair = Population(np.array([[0], [1]]), np.array([1.0, 2.0]))
    parents = pair.tournament(np.random.default_rng(0), 4000)
    assert np.mean(parents == 0) == pytest.approx(0.75, abs=0.028)


def test_evolution_beats_drawing_blindly() -> None:
    # 2,000 of 3^40 vectors at random agree with the target at 13 places, hardly ever at 25.
    problem, best = vector_problem(Dials(40)), Distance(np.array([0, 2, 2, 0] * 10, dtype=np.int16))
    plan = Plan("genetic", MeasurementBudget(evaluations=2000), 1)
    assert tune(problem, best, plan).best_score < 8
    assert tune(problem, best, Plan("random", plan.budget, 1)).best_score > 15
