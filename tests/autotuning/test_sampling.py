from __future__ import annotations

import numpy as np
import pytest

from costbench.autotuning.sampling import exhaustive, random_draws, unseen
from tests.autotuning.small_spaces import Line

NONE = np.zeros(0, dtype=np.int64)


def batches(proposals: object) -> list[list[int]]:
    # Neither strategy looks at scores, so plain iteration (which answers None) will do.
    return [batch.tolist() for batch in proposals]  # type: ignore[attr-defined]


def test_exhaustive_goes_by_number() -> None:
    rng = np.random.default_rng(0)
    assert batches(exhaustive(Line(), rng, NONE)) == [[1, 2, 3, 4, 6, 7, 8, 9, 11]]
    assert batches(exhaustive(Line(), rng, np.array([9, 2]))) == [[9, 2], [1, 3, 4, 6, 7, 8, 11]]


def test_exhaustive_goes_in_pieces() -> None:
    found = batches(exhaustive(Line(40_000, frozenset()), np.random.default_rng(0), NONE))
    assert [len(batch) for batch in found] == [16384, 16384, 7232]
    assert [i for batch in found for i in batch] == list(range(40_000))


def test_random_batches_double() -> None:
    found = batches(random_draws(Line(400, frozenset()), np.random.default_rng(0), NONE))
    assert [len(batch) for batch in found] == [64, 64, 128, 144]
    assert sorted(i for batch in found for i in batch) == list(range(400))


def test_the_first_draw_is_uniform() -> None:
    # 900 draws of 9 numbers: 100 each, standard deviation 9.4; four of them are 38.
    first = [next(random_draws(Line(), np.random.default_rng(seed), NONE))[0] for seed in range(900)]
    counts = np.bincount(first, minlength=12)
    assert counts[[0, 5, 10]].tolist() == [0, 0, 0]
    assert np.abs(counts[[1, 2, 3, 4, 6, 7, 8, 9, 11]] - 100).max() < 38


@pytest.mark.parametrize("count", [1, 2, 5])
def test_unseen_finds_what_is_left(count: int) -> None:
    seen = np.array([1, 2, 3, 4, 6, 7, 8])
    found = unseen(Line(), np.random.default_rng(count), seen, count).tolist()
    assert len(found) == min(count, 2)
    assert set(found) <= {9, 11}
    assert unseen(Line(), np.random.default_rng(0), np.array([*seen, 9, 11]), count).tolist() == []
