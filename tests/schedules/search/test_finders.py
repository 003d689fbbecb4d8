"""Annealing chains whose energy changes, listings and drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from costbench.rng import stream
from costbench.search.space import NumberedSearchSpace, Rows, Seen
from costbench_schedules.search.finders import Chains, ChainSpec, Draft, Listing
from tests.autotuning.small_spaces import Line

RNG = np.random.default_rng
NOTHING = Seen()


class Ladder:
    """The numbers from 0 up; the neighbour of a number is the next one; draws give 0, 10, 20 and so on."""

    size = 1_000_000

    def __init__(self) -> None:
        self.drawn = 0

    def legal(self, rows: Rows) -> np.ndarray:
        return np.ones(len(rows), dtype=bool)

    def decode(self, rows: Rows) -> Rows:
        return rows

    def rows(self, numbers: Sequence[int]) -> Rows:
        return np.array(numbers, dtype=np.int64).reshape(-1, 1)

    def numbers(self, rows: Rows) -> list[int]:
        return [int(number) for number in rows[:, 0]]

    def draw(self, rng: np.random.Generator, count: int, seen: Seen) -> Rows:
        self.drawn += count
        return self.rows([10 * index for index in range(self.drawn - count, self.drawn)])

    def step(self, rows: Rows, rng: np.random.Generator) -> Rows:
        return rows + 1

    def cross(self, first: Rows, second: Rows, rng: np.random.Generator) -> Rows:
        raise AssertionError("chains do not cross decisions")


class Recorded:
    """An energy that keeps what it was asked."""

    def __init__(self, sign: float) -> None:
        self.sign = sign
        self.asked: list[list[int]] = []

    def __call__(self, rows: Rows) -> np.ndarray:
        self.asked.append(rows[:, 0].tolist())
        return self.sign * rows[:, 0].astype(np.float64)


def test_chains_go_on_where_they_were_when_the_energy_changes() -> None:
    chains = Chains(Ladder(), ChainSpec(chains=2, steps=3, patience=9))
    falling = Recorded(-1.0)
    result = chains.run(falling, 3, NOTHING, RNG(0))
    assert falling.asked == [[0, 10], [1, 11], [2, 12], [3, 13]]
    assert result.rows[:, 0].tolist() == [13, 12, 11]
    assert result.costs.tolist() == [-13.0, -12.0, -11.0]
    assert chains.states[:, 0].tolist() == [3, 13]
    # The next model likes other decisions better. It is asked about the states first.
    other = Recorded(-2.0)
    chains.run(other, 3, NOTHING, RNG(0))
    assert other.asked == [[3, 13], [4, 14], [5, 15], [6, 16]]
    assert chains.states[:, 0].tolist() == [6, 16]


def test_chains_that_do_not_persist_draw_again() -> None:
    chains = Chains(Ladder(), ChainSpec(chains=2, steps=3, patience=9, persistent=False))
    chains.run(Recorded(-1.0), 3, NOTHING, RNG(0))
    second = Recorded(-1.0)
    chains.run(second, 3, NOTHING, RNG(0))
    assert second.asked[0] == [20, 30]


def test_a_move_that_costs_more_is_refused_when_it_is_cold() -> None:
    """Only the last step, at a fortieth of the scale, is cold; of exp(-40) none is accepted."""
    chains = Chains(Ladder(), ChainSpec(chains=200, steps=40, patience=40))
    chains.states = np.zeros((200, 1), dtype=np.int64)
    steep = lambda rows: 2.0 ** rows[:, 0].astype(np.float64)  # noqa: E731
    chains.run(steep, 1, NOTHING, RNG(0))
    # Every accepted step doubles the cost, and the temperature is the median of these differences.
    assert 0 < chains.states.max() < 40


def test_a_run_ends_when_nothing_better_is_found() -> None:
    rising = Recorded(1.0)
    Chains(Ladder(), ChainSpec(chains=1, steps=500, patience=5)).run(rising, 1, NOTHING, RNG(0))
    # The first step shows the second decision, which is no better than the first.
    assert 1 <= len(rising.asked) <= 1 + 5


def test_measured_decisions_are_passed_through_and_not_proposed() -> None:
    measured = Seen(np.array([[2], [3]]))
    chains = Chains(Ladder(), ChainSpec(chains=1, steps=4, patience=9))
    result = chains.run(Recorded(-1.0), 9, measured, RNG(0))
    assert result.rows[:, 0].tolist() == [4, 1, 0]


def test_a_decision_is_priced_once_per_run() -> None:
    space = NumberedSearchSpace(Line(40, frozenset()))
    asked = Recorded(1.0)
    Chains(space, ChainSpec(chains=8, steps=60, patience=60)).run(asked, 5, NOTHING, RNG(1))
    numbers = [number for batch in asked.asked for number in batch]
    assert len(numbers) == len(set(numbers))


def test_an_empty_space_has_no_candidates() -> None:
    space = NumberedSearchSpace(Line(3, frozenset({0, 1, 2})))
    result = Chains(space, ChainSpec(chains=4)).run(Recorded(1.0), 5, NOTHING, RNG(0))
    assert len(result.rows) == len(result.costs) == 0


@pytest.mark.parametrize("changes", [{"chains": 0}, {"steps": 0}, {"patience": 0}])
def test_sizes_are_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ChainSpec(**changes)


ROWS = np.arange(10, dtype=np.int64)[:, None]


def own_number(rows: Rows) -> np.ndarray:
    return rows[:, 0].astype(np.float64)


def minus(rows: Rows) -> np.ndarray:
    return -own_number(rows)


def test_a_listing_returns_the_cheapest_that_are_left() -> None:
    result = Listing(ROWS).run(own_number, 3, Seen(ROWS[:2]), stream(0, "t"))
    assert result.rows[:, 0].tolist() == [2, 3, 4]
    assert result.costs.tolist() == [2.0, 3.0, 4.0]


def test_equal_costs_come_in_random_order() -> None:
    orders = {
        tuple(Listing(ROWS).run(lambda rows: np.zeros(len(rows)), 10, Seen(), stream(s, "t")).rows[:, 0])
        for s in range(5)
    }
    assert len(orders) > 1


def test_a_draft_is_chosen_from_by_the_other_model() -> None:
    # The draft is 2, 3, 4, 5, as 0 and 1 are measured; the current model finds large numbers cheap.
    result = Draft(Listing(ROWS), own_number, 4).run(minus, 2, Seen(ROWS[:2]), stream(0, "t"))
    assert result.rows[:, 0].tolist() == [5, 4]
    more = Draft(Listing(ROWS), own_number, 1).run(minus, 3, Seen(), stream(0, "t"))
    assert more.rows[:, 0].tolist() == [2, 1, 0]


def test_nothing_is_left_in_the_end() -> None:
    for finder in (Listing(ROWS), Draft(Listing(ROWS), own_number, 4)):
        assert len(finder.run(minus, 3, Seen(ROWS), stream(0, "t")).rows) == 0
