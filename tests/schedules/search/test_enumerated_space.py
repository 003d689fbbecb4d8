"""A list of configurations as a search space: nothing else is ever proposed."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.rng import stream
from costbench.search.space import Seen
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.search.problems import EnumeratedSpace
from costbench_schedules.spaces.space import ScheduleSpace
from costbench_schedules.spaces.sub_spaces import recorded_space


@pytest.fixture(scope="module")
def space() -> ScheduleSpace:
    return recorded_space(parse_operator("matmul:m=32,n=32,k=32"), 600)


def test_only_what_is_listed_is_drawn_and_legal(space: ScheduleSpace) -> None:
    listed = EnumeratedSpace(space, space.rows([3, 5, 8]))
    assert listed.numbers(listed.draw(stream(0, "t"), 9, Seen(space.rows([5])))) in ([3, 8], [8, 3])
    assert listed.legal(space.rows([3, 4, 8])).tolist() == [True, False, True]
    assert listed.size == space.size


def test_steps_change_one_knob_within_the_list(space: ScheduleSpace) -> None:
    drawn = stream(0, "t").permutation(space.size)[: space.size // 2]
    listed = EnumeratedSpace(space, space.rows(drawn.tolist()))
    rows = listed.draw(stream(1, "t"), 40, Seen())
    moves = listed.step(rows, stream(2, "t"))
    assert listed.legal(moves).all()
    assert set((moves != rows).sum(axis=1).tolist()) <= {0, 1}
    alone = EnumeratedSpace(space, rows[:1])
    assert np.array_equal(alone.step(rows[:1], stream(2, "t")), rows[:1])


def test_children_that_are_not_listed_are_the_first_parent(space: ScheduleSpace) -> None:
    first, last = space.rows([0]), space.rows([space.size - 1])
    both = EnumeratedSpace(space, np.concatenate([first, last]))
    children = both.cross(np.repeat(first, 30, axis=0), np.repeat(last, 30, axis=0), stream(3, "t"))
    assert both.legal(children).all()
    whole = EnumeratedSpace(space, space.rows(range(space.size)))
    assert len(np.unique(whole.cross(first.repeat(30, 0), last.repeat(30, 0), stream(3, "t")), axis=0)) > 2
