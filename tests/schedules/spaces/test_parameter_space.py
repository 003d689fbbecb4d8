from __future__ import annotations

import itertools

import numpy as np
import pytest

from costbench.rng import stream
from costbench.search.space import Seen
from costbench_schedules.spaces.parameter_space import ParameterSpace

VALUES = {"block": (16, 32, 64), "tile": ((1, 4), (2, 2)), "padding": ("none", "full"), "size": (7,)}


def space() -> ParameterSpace:
    """All combinations but those of a block of 64 with full padding, and one more."""
    rows = [
        row for row in itertools.product(range(3), range(2), range(2), range(1)) if row[::2][:2] != (2, 1)
    ]
    rows.remove((1, 1, 1, 0))
    return ParameterSpace(VALUES, np.array(rows[::-1]))


def test_rows_and_numbers_invert_each_other() -> None:
    table = space()
    assert table.size == 9
    assert table.numbers(table.rows(range(9))) == list(range(9))
    missing = np.array([[2, 0, 1, 0], [1, 1, 1, 0], [-1, 0, 0, 0], [9, 0, 0, 0]])
    assert not table.legal(missing).any()


def test_neighbours_are_all_that_differ_in_one_parameter() -> None:
    table = space()
    offsets, numbers = table.neighbours
    for index, row in enumerate(table.listed):
        expected = np.flatnonzero((table.listed != row).sum(axis=1) == 1)
        assert sorted(numbers[offsets[index] : offsets[index + 1]].tolist()) == expected.tolist()


def test_steps_and_children_are_legal() -> None:
    table = space()
    draws = stream(0, "steps")
    parents = table.rows(draws.integers(9, size=200))
    moves = table.step(parents, draws)
    assert np.all((moves != parents).sum(axis=1) == 1)
    assert table.legal(moves).all()
    children = table.cross(parents, moves[::-1], draws)
    assert table.legal(children).all()
    assert np.all((children == parents) | (children == moves[::-1]))


def test_a_configuration_without_neighbours_stays() -> None:
    alone = ParameterSpace({"a": (1, 2), "b": (1, 2)}, np.array([[0, 0], [1, 1]]))
    np.testing.assert_array_equal(alone.step(alone.listed, stream(0, "alone")), alone.listed)


def test_draws_leave_out_what_is_seen() -> None:
    table = space()
    rows = table.draw(stream(0, "draw"), 100, Seen(table.rows([0, 4])))
    assert sorted(table.numbers(rows)) == [1, 2, 3, 5, 6, 7, 8]
    assert len(table.draw(stream(0, "draw"), 3, Seen())) == 3


def test_columns_are_numbers_that_vary() -> None:
    names, columns = space().columns
    assert names == ("block", "tile[0]", "tile[1]", "padding=none", "padding=full")
    first = space().choices(space().listed[0])
    assert first == {"block": 64, "tile": (2, 2), "padding": "none", "size": 7}
    assert columns[0].tolist() == [64.0, 2.0, 2.0, 1.0, 0.0]


def test_other_spaces_are_translated_by_value() -> None:
    other = ParameterSpace(
        {"padding": ("full", "none"), "block": (64, 16, 128), "tile": ((1, 4), (2, 2))},
        np.array([[1, 0, 1], [0, 1, 0], [1, 2, 0]]),
    )
    translated = space().indices_of(other)
    assert translated[2] == -1
    assert [space().choices(space().listed[number])["block"] for number in translated[:2]] == [64, 16]


def test_impossible_lists_are_refused() -> None:
    for rows in ([[0, 0], [0, 0]], [[0, 2]], [[-1, 0]], np.zeros((0, 2))):
        with pytest.raises(ValueError, match="configuration"):
            ParameterSpace({"a": (1, 2), "b": (1, 2)}, np.array(rows))


def test_more_values_than_indices_can_name_are_refused() -> None:
    values = range(1 << 15)
    space = ParameterSpace({"a": values}, np.arange(1 << 15)[:, None])
    assert space.choices(space.listed[-1]) == {"a": values[-1]}
    with pytest.raises(ValueError, match="a has 32,769 values"):
        ParameterSpace({"a": [*values, -1]}, np.arange(1 + (1 << 15))[:, None])
