from __future__ import annotations

import itertools

import numpy as np
import pytest

from costbench.errors import DataError
from costbench.rng import stream
from costbench.search.space import Seen
from costbench_schedules.operators.operators import WORKLOADS, parse_operator
from costbench_schedules.spaces.space import ScheduleSpace, factorisations
from costbench_schedules.spaces.sub_spaces import recorded_space

SMALL = parse_operator("matmul:m=4,n=6,k=3")


def test_factorisations_are_all_ordered_products() -> None:
    brute = [f for f in itertools.product(range(1, 13), repeat=3) if np.prod(f) == 12]
    assert list(factorisations(12, 3)) == brute
    # 256 = 2^8 in four places: 8 twos among 3 bars.
    assert len(factorisations(256, 4)) == 165


def test_size_is_the_product_of_choices() -> None:
    # Tiles of 4: 10, of 6: 16, of 3 in two: 2; then order, cache, vectorize, unroll, parallel.
    assert ScheduleSpace(SMALL).size == 10 * 16 * 2 * 4 * 3 * 2 * 4 * 4


def test_numbers_and_choices_lead_back_to_rows() -> None:
    space = ScheduleSpace(SMALL)
    numbers = [0, 1, 77, space.size - 1]
    rows = space.rows(numbers)
    assert space.numbers(rows) == numbers
    assert np.array_equal(space.row_of(space.choices(rows[2])), rows[2])
    assert space.legal(rows).all()
    assert not space.legal(rows[-1:] + 1).any()


def test_a_restricted_space_names_the_same_schedules() -> None:
    space = ScheduleSpace(SMALL)
    part = space.sub_space({"order": [space.knobs[3].values[2]], "unroll": [64, 0]})
    assert part.size == space.size // 8
    rows = part.rows(range(part.size))
    for row, full in zip(rows[::97], part.full_rows(rows)[::97], strict=True):
        assert part.choices(row) == space.choices(full)


@pytest.mark.parametrize(
    "wanted", [{"colour": [1]}, {"unroll": [17]}, {"tile i": [(2, 2)]}, {"tile i": [(1, 1, 3, 1)]}]
)
def test_unknown_choices_are_named(wanted: dict[str, list[int]]) -> None:
    with pytest.raises(DataError) as error:
        ScheduleSpace(SMALL).sub_space(wanted)
    assert error.value.field in wanted


def test_neighbours_differ_in_one_knob() -> None:
    space = ScheduleSpace(SMALL)
    rng = stream(0, "neighbours")
    start = np.repeat(space.sample(rng, 1), 200, axis=0)
    moved = space.step(start, rng)
    assert space.legal(moved).all()
    assert np.all(np.count_nonzero(moved != start, axis=1) == 1)
    # Every knob with a choice moves at some time.
    assert set(np.nonzero(moved != start)[1].tolist()) == set(np.flatnonzero(space.sizes > 1).tolist())


def test_one_configuration_has_no_neighbours() -> None:
    space = ScheduleSpace(SMALL)
    one = ScheduleSpace(SMALL, {knob.name: [0] for knob in space.knobs})
    assert one.size == 1
    assert np.array_equal(one.step(one.rows([0]), stream(0, "one")), one.rows([0]))


def test_search_strategies_can_use_the_space() -> None:
    space = recorded_space(SMALL)
    rows = space.draw(stream(0, "draw"), 50, Seen())
    assert len(rows) == 50
    assert space.legal(space.step(rows, stream(0, "step"))).all()
    assert np.array_equal(space.rows(space.numbers(rows)), rows)


@pytest.mark.parametrize("name", WORKLOADS)
def test_recorded_spaces_are_small_and_contain_smaller_ones(name: str) -> None:
    operator = parse_operator(name)
    large, small = recorded_space(operator), recorded_space(operator, 1200)
    assert 600 <= small.size <= 1200 < large.size <= 4000
    for mine, others in zip(small.chosen, large.chosen, strict=True):
        assert others.tolist()[: len(mine)] == mine.tolist()


@pytest.mark.parametrize(
    "text", ["matmul:m=1,n=1,k=64", "dense:n=1,ci=1,co=1", "conv2d:n=1,h=1,w=1,ci=8,co=1,kh=1,kw=1"]
)
def test_outputs_of_one_number_have_a_space(text: str) -> None:
    operator = parse_operator(text)
    space = recorded_space(operator)
    assert {axis.name for axis in operator.axes} == {
        knob.name.removeprefix("tile ") for knob in space.knobs if knob.name.startswith("tile ")
    }
    assert all(knob.values == ((1, 1, 1, 1),) for knob in space.knobs[: len(operator.spatial)])


def test_a_limit_below_what_the_rules_keep_is_refused() -> None:
    with pytest.raises(DataError, match="at least"):
        recorded_space(parse_operator("C6"), 10)
