from __future__ import annotations

import numpy as np

from costbench.search.space import NumberedSearchSpace, VectorSearchSpace
from costbench.search.strategies import enumeration, exhaustive, random_draws
from tests.autotuning.small_spaces import NONE, Dials, Line


def batches(proposals: object) -> list[list[int]]:
    # Neither strategy looks at scores, so plain iteration (which answers None) will do.
    return [batch[:, 0].tolist() for batch in proposals]  # type: ignore[attr-defined]


def test_exhaustive_goes_by_number() -> None:
    rng, line = np.random.default_rng(0), NumberedSearchSpace(Line())
    assert batches(exhaustive(line, rng, NONE)) == [[1, 2, 3, 4, 6, 7, 8, 9, 11]]
    assert batches(exhaustive(line, rng, line.rows([9, 2]))) == [[9, 2], [1, 3, 4, 6, 7, 8, 11]]


def test_exhaustive_goes_in_pieces() -> None:
    proposed = batches(
        exhaustive(NumberedSearchSpace(Line(40_000, frozenset())), np.random.default_rng(0), NONE)
    )
    assert [len(batch) for batch in proposed] == [16384, 16384, 7232]
    assert [i for batch in proposed for i in batch] == list(range(40_000))


def test_enumeration_is_exhaustive_in_small_batches() -> None:
    line = NumberedSearchSpace(Line(40, frozenset()))
    proposed = batches(enumeration(line, np.random.default_rng(0), line.rows([9])))
    assert [len(batch) for batch in proposed] == [1, 16, 16, 7]
    assert [one for batch in proposed for one in batch] == [9, *range(9), *range(10, 40)]


def test_exhaustive_begins_with_the_first_of_more_than_there_could_be() -> None:
    # 10,000 dials of two bits: 2^20,000 numbers, about 52 of them at a time.
    space = VectorSearchSpace(Dials(10_000))
    first = next(exhaustive(space, np.random.default_rng(0), space.rows([])))
    assert space.numbers(first)[:6] == [0, 2, 5, 8, 10, 17]
    assert len(first) < 52


def test_random_batches_double() -> None:
    proposed = batches(
        random_draws(NumberedSearchSpace(Line(400, frozenset())), np.random.default_rng(0), NONE)
    )
    assert [len(batch) for batch in proposed] == [64, 64, 128, 144]
    assert sorted(i for batch in proposed for i in batch) == list(range(400))


def test_the_first_draw_is_uniform() -> None:
    # 900 draws of 9 numbers: 100 each, standard deviation 9.4; four of them are 38.
    line = NumberedSearchSpace(Line())
    first = [next(random_draws(line, np.random.default_rng(seed), NONE))[0, 0] for seed in range(900)]
    counts = np.bincount(first, minlength=12)
    assert counts[[0, 5, 10]].tolist() == [0, 0, 0]
    assert np.abs(counts[[1, 2, 3, 4, 6, 7, 8, 9, 11]] - 100).max() < 38
