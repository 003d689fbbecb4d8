"""A program, as its features tell it from others, is a candidate once."""

from __future__ import annotations

import numpy as np

from costbench.rng import stream
from costbench.search.space import Rows, Seen
from costbench_schedules.models.learner import Samples
from costbench_schedules.search.finders import ChainSpec, Listing
from costbench_schedules.search.guided import (
    DistinctFinder,
    DistinctGuided,
    GuidedSpec,
    LastFeatures,
    ModelGuided,
)
from tests.autotuning.small_spaces import Line, line_problem

LINE = line_problem(Line(1000, frozenset()))
SPEC = GuidedSpec(batch=8, epsilon=0.0, alpha=0.0, chains=ChainSpec(8, 30, 30))


def tens(rows: Rows) -> np.ndarray:
    """Ten numbers in a row are one program."""
    return (rows // 10).astype(np.float32)


def own_number(rows: Rows) -> np.ndarray:
    return rows[:, 0].astype(np.float64)


class FromAbove:
    """A model to which large numbers are cheap, by tens, and a learner of it."""

    def fit(self, features: np.ndarray, samples: Samples, seed: int, /) -> FromAbove:
        return self

    def predict(self, features: np.ndarray, /) -> np.ndarray:
        return -features[:, 0].astype(np.float64)


def batches(strategy: ModelGuided[np.ndarray] | DistinctGuided, count: int) -> list[list[int]]:
    proposals = strategy(LINE.space, stream(0, "distinct"), LINE.space.rows([]))
    values = [next(proposals)]
    while len(values) < count:
        values.append(proposals.send(1.0 + own_number(values[-1])))
    return [rows[:, 0].tolist() for rows in values]


def test_a_finder_offers_each_program_once() -> None:
    rows = np.arange(60, dtype=np.int64)[:, None]
    # 0 to 9 are the program of 7, which was measured; 20 was, but not with its features.
    finder = DistinctFinder(Listing(rows), tens, Seen(tens(rows[7:8])))
    result = finder.run(own_number, 3, Seen(rows[[7, 20]]), stream(0, "t"))
    assert (result.rows[:, 0] // 10).tolist() == [1, 2, 3]
    # Remembered is what was measured, not what was offered.
    again = finder.run(own_number, 9, Seen(), stream(0, "t"))
    assert (again.rows[:, 0] // 10).tolist() == [1, 2, 3, 4, 5]


def test_batches_hold_programs_that_no_batch_before_had() -> None:
    everything = Listing(LINE.space.rows(range(1000)))
    search = ModelGuided(tens, FromAbove(), SPEC, finder=lambda space, chains: everything)
    first, *guided = batches(DistinctGuided(search, tens), 5)
    met = {number // 10 for number in first}
    for batch in guided:
        programs = {number // 10 for number in batch}
        assert len(programs) == 8
        assert not programs & met
        met |= programs
    # Without it, a batch is full of copies.
    assert {number // 10 for number in batches(search, 2)[1]} == {99}


def test_nothing_changes_where_all_programs_differ() -> None:
    search = ModelGuided(tens, FromAbove(), SPEC)
    alone = DistinctGuided(search, lambda rows: rows.astype(np.float32))
    assert batches(alone, 5) == batches(search, 5)


def test_a_search_ends_with_its_trials() -> None:
    search = ModelGuided(tens, FromAbove(), SPEC, trials=20)
    proposals = DistinctGuided(search, tens)(LINE.space, stream(0, "distinct"), LINE.space.rows([3]))
    sizes, answer = [], None
    try:
        while True:
            rows = proposals.send(answer) if answer is not None else next(proposals)
            sizes.append(len(rows))
            answer = np.ones(len(rows))
    except StopIteration:
        assert sizes == [8, 8, 4]


def test_features_of_the_last_rows_are_kept() -> None:
    asked: list[Rows] = []

    def features(rows: Rows) -> np.ndarray:
        asked.append(rows)
        return tens(rows)

    last, rows = LastFeatures(features), np.array([[1], [25]])
    assert last(rows).tolist() == [[0.0], [2.0]]
    assert last(rows.copy()).tolist() == [[0.0], [2.0]]
    assert len(asked) == 1
    rows[0] = 47
    assert last(rows).tolist() == [[4.0], [2.0]]
    assert len(asked) == 2
