"""Candidates without chains: every configuration of a list, and a draft that another model chooses from."""

from __future__ import annotations

import numpy as np

from costbench.rng import stream
from costbench.search.space import Rows, Seen
from costbench_schedules.search.finders import Draft, Listing

ROWS = np.arange(10, dtype=np.int64)[:, None]


def own_number(rows: Rows) -> np.ndarray:
    return rows[:, 0].astype(np.float64)


def minus(rows: Rows) -> np.ndarray:
    return -own_number(rows)


def test_a_listing_returns_the_cheapest_that_are_left() -> None:
    found = Listing(ROWS).run(own_number, 3, Seen(ROWS[:2]), stream(0, "t"))
    assert found.rows[:, 0].tolist() == [2, 3, 4]
    assert found.costs.tolist() == [2.0, 3.0, 4.0]


def test_equal_costs_come_in_random_order() -> None:
    orders = {
        tuple(Listing(ROWS).run(lambda rows: np.zeros(len(rows)), 10, Seen(), stream(s, "t")).rows[:, 0])
        for s in range(5)
    }
    assert len(orders) > 1


def test_a_draft_is_chosen_from_by_the_other_model() -> None:
    # The draft is 2, 3, 4, 5, as 0 and 1 are measured; the current model finds large numbers cheap.
    found = Draft(Listing(ROWS), own_number, 4).run(minus, 2, Seen(ROWS[:2]), stream(0, "t"))
    assert found.rows[:, 0].tolist() == [5, 4]
    more = Draft(Listing(ROWS), own_number, 1).run(minus, 3, Seen(), stream(0, "t"))
    assert more.rows[:, 0].tolist() == [2, 1, 0]


def test_nothing_is_left_in_the_end() -> None:
    for finder in (Listing(ROWS), Draft(Listing(ROWS), own_number, 4)):
        assert len(finder.run(minus, 3, Seen(ROWS), stream(0, "t")).rows) == 0
