from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.compiler.kernel import kernel_from_module
from costbench.compiler.tile_space import TileSpace, tile_space
from costbench.search.space import NumberedSearchSpace, Seen, VectorSearchSpace, keys
from costbench.target import load_target
from tests.autotuning.small_spaces import Dials, Line
from tests.hlo.builder import ModuleBuilder


def dot_tiles() -> TileSpace:
    b = ModuleBuilder("dot")
    b.op("tanh", b.dot(b.parameter("f32[4096,4096]"), b.parameter("f32[4096,2048]")))
    return tile_space(kernel_from_module(b.build()), load_target("tpu_v2").architecture)


def test_seen_tells_repetitions() -> None:
    line = NumberedSearchSpace(Line())
    seen = Seen(line.rows([4]))
    assert seen.fresh(line.rows([1, 4, 2, 1])).tolist() == [True, False, True, False]
    assert len(seen) == 1


def test_long_rows_are_remembered_by_digests() -> None:
    rows = VectorSearchSpace(Dials(1000)).rows([0, 1, 1 << 1999])
    assert [len(key) for key in keys(rows)] == [16] * 3
    assert len(set(keys(rows))) == 3
    assert keys(rows) == keys(rows.copy())


def test_numbers_of_vectors_by_hand() -> None:
    # Two bits a place: 2 0 1 is 10 00 01.
    space = VectorSearchSpace(Dials(3))
    assert space.size == 64
    assert space.numbers(np.array([[2, 0, 1], [0, 0, 2]], dtype=np.int16)) == [33, 2]
    assert space.rows([33, 2]).tolist() == [[2, 0, 1], [0, 0, 2]]


@given(st.lists(st.lists(st.integers(0, 2), min_size=7, max_size=7), max_size=4))
def test_numbers_and_vectors_are_inverse(choices: list[list[int]]) -> None:
    space = VectorSearchSpace(Dials(7))
    rows = np.array(choices, dtype=np.int16).reshape(-1, 7)
    assert (space.rows(space.numbers(rows)) == rows).all()


def test_a_program_without_choices_has_one_decision() -> None:
    space = VectorSearchSpace(Dials(0))
    assert space.size == 1
    assert space.rows([0]).shape == (1, 0)
    assert space.numbers(space.rows([0])) == [0]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_draw_finds_what_is_left(count: int) -> None:
    line = NumberedSearchSpace(Line())
    seen = Seen(line.rows([1, 2, 3, 4, 6, 7, 8]))
    numbers = line.numbers(line.draw(np.random.default_rng(count), count, seen))
    assert len(numbers) == min(count, 2)
    assert set(numbers) <= {9, 11}
    seen.add(line.rows([9, 11]))
    assert len(line.draw(np.random.default_rng(0), count, seen)) == 0


def test_the_last_vector_of_a_small_space_is_found() -> None:
    space = VectorSearchSpace(Dials(5))
    everything = space.draw(np.random.default_rng(0), 1000, Seen())
    while len(more := space.draw(np.random.default_rng(1), 1000, Seen(everything))):
        everything = np.concatenate([everything, more])
    # Of 3^5 vectors one more is even than odd, since each 1 counts -1: (3^5 + 1^5) / 2.
    assert len(everything) == 122
    last = space.draw(np.random.default_rng(2), 3, Seen(everything[:-1]))
    assert (last == everything[-1:]).all()


def test_steps_of_numbers_are_neighbours() -> None:
    line = NumberedSearchSpace(Line())
    rng = np.random.default_rng(0)
    moves = [line.numbers(line.step(line.rows([1, 7, 11]), rng)) for _ in range(20)]
    assert {move[0] for move in moves} == {2}
    assert {move[1] for move in moves} == {6, 8}
    assert {move[2] for move in moves} == {11}


def test_children_of_tiles_have_each_extent_of_a_parent() -> None:
    tiles = dot_tiles()
    space, rng = NumberedSearchSpace(tiles, tiles.radices), np.random.default_rng(0)
    first, second = (space.draw(rng, 200, Seen()) for _ in range(2))
    children = space.cross(first, second, rng)
    assert space.legal(children).all()
    extents = [tiles.extents(rows[:, 0]) for rows in (children, first, second)]
    assert ((extents[0] == extents[1]) | (extents[0] == extents[2])).all()
    assert (children != first).any()
    # Some mixtures do not fit the scratchpad, and are not made.
    assert not space.legal(space.rows([space.size - 1])).any()


def test_numbers_outside_are_not_legal() -> None:
    assert NumberedSearchSpace(Line()).legal(NumberedSearchSpace(Line()).rows([-1, 1, 12])).tolist() == [
        False,
        True,
        False,
    ]
