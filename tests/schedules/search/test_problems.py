"""Spaces of schedules as strategies see them: whole ones and parts that are enumerated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.synthetic_schedules import synthetic
from costbench import rng
from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.search import Plan, tune
from costbench.rng import stream
from costbench.search.space import Rows, Seen
from costbench.search.strategies import STRATEGIES
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.search.problems import (
    EnumeratedSpace,
    ScheduleEvaluator,
    schedule_problem,
)
from costbench_schedules.spaces.space import ScheduleSpace
from costbench_schedules.spaces.sub_spaces import recorded_space

WHOLE = ScheduleSpace(parse_operator("matmul-256"))
PART = WHOLE.sub_space(
    {
        "tile i": [(32, 2, 1, 4), (64, 1, 4, 1), (256, 1, 1, 1)],
        "tile j": [(8, 1, 2, 16), (4, 4, 1, 16)],
        "tile r": [(64, 4), (16, 16)],
        "order": ["S0 S1 R0 S2 R1 S3"],
        "cache": ["none"],
        "vectorize": [0, 1],
        "unroll": [16],
        "parallel": ["none"],
    }
)


@pytest.mark.parametrize("space", [WHOLE, PART], ids=["whole", "part"])
def test_a_step_changes_one_knob_that_has_a_choice(space: ScheduleSpace) -> None:
    draws = rng.stream(0, "schedules")
    rows = space.draw(draws, 20, Seen())
    moved = np.zeros(rows.shape, dtype=bool)
    for _ in range(60):
        moves = space.step(rows, draws)
        assert space.legal(moves).all()
        assert ((moves != rows).sum(axis=1) == 1).all()
        moved |= moves != rows
    assert moved.any(axis=0).tolist() == (space.sizes > 1).tolist()


def test_children_have_the_choices_of_their_parents() -> None:
    draws = rng.stream(1, "schedules")
    first, second = WHOLE.draw(draws, 30, Seen()), WHOLE.draw(draws, 30, Seen())
    children = WHOLE.cross(first, second, draws)
    assert ((children == first) | (children == second)).all()
    assert (children != first).any()
    assert (children != second).any()


def test_draws_are_new_until_the_space_is_used_up() -> None:
    seen = Seen()
    assert PART.size == 24
    for expected in (20, 4, 0):
        drawn = PART.draw(rng.stream(2, "schedules"), 20, seen)
        assert len(drawn) == expected
        assert seen.fresh(drawn).all()
        seen.add(drawn)


def test_a_space_of_one_stays_where_it_is() -> None:
    one = WHOLE.sub_space({knob.name: [knob.values[0]] for knob in WHOLE.knobs})
    rows = one.draw(rng.stream(3, "schedules"), 5, Seen())
    assert len(rows) == 1
    assert np.array_equal(one.step(rows, rng.stream(3, "schedules")), rows)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_every_strategy_finds_the_best_of_a_small_space(strategy: str) -> None:
    problem = schedule_problem(PART, "synthetic")
    trace = tune(problem, synthetic(PART), Plan(strategy))
    assert sorted(trace.decisions) == list(range(PART.size))
    everything = synthetic(PART).evaluate(PART.rows(range(PART.size))).scores
    assert trace.best_score == everything.min()


@pytest.mark.parametrize("strategy", ["random", "genetic", "annealing"])
def test_strategies_search_the_whole_space(strategy: str) -> None:
    trace = tune(
        schedule_problem(WHOLE, "synthetic"), synthetic(WHOLE), Plan(strategy, MeasurementBudget(None, 70))
    )
    assert len(set(trace.decisions)) == 70


def test_spaces_have_fingerprints_of_their_own() -> None:
    first, second = (schedule_problem(space, "here").subject for space in (WHOLE, PART))
    assert first.program == second.program == "matmul:m=256,n=256,k=256"
    assert first.fingerprint != second.fingerprint


@dataclass(frozen=True)
class Broken:
    """The first of three fails."""

    runtime_ns: np.ndarray
    failed: np.ndarray
    run_seconds: np.ndarray


class BrokenMachine:
    def measure(self, space: ScheduleSpace, rows: Rows, /) -> Broken:
        return Broken(np.array([0, 30, 20]), np.array([True, False, False]), np.array([0.5, 0.1, 0.2]))


def test_failures_score_infinity_and_are_charged() -> None:
    evaluation = ScheduleEvaluator(PART, BrokenMachine(), "broken").evaluate(PART.rows([0, 1, 2]))
    assert evaluation.scores.tolist() == [np.inf, 30.0, 20.0]
    assert evaluation.seconds.tolist() == [0.5, 0.1, 0.2]


@pytest.fixture(scope="module")
def space() -> ScheduleSpace:
    return recorded_space(parse_operator("matmul:m=32,n=32,k=32"), 600)


def test_only_what_is_listed_is_drawn(space: ScheduleSpace) -> None:
    listed = EnumeratedSpace(space, space.rows([3, 5, 8]))
    assert listed.numbers(listed.draw(stream(0, "t"), 9, Seen(space.rows([5])))) in ([3, 8], [8, 3])
    assert listed.size == space.size
