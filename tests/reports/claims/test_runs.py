"""Verdicts take equal numbers of training runs."""

from __future__ import annotations

import numpy as np

from costbench.reports.claims.claim import Side
from costbench.reports.claims.evaluation import share_runs
from costbench.reports.scores import Scores


def test_sides_with_several_runs_have_as_many_as_the_one_with_the_fewest() -> None:
    six, three, one = Side(), Side("lpm2021"), Side("analytical")
    values = np.arange(12.0).reshape(2, 6)
    programs = ("p1", "p2")
    shared = share_runs(
        {
            six: Scores(programs, (0, 1, 2, 3, 4, 5), values),
            three: Scores(programs, (0, 1, 4), values[:, :3]),
            one: Scores(programs, (0,), values[:, :1]),
        }
    )
    assert {side: scores.seeds for side, scores in shared.items()} == {
        six: (0, 1, 2),
        three: (0, 1, 4),
        one: (0,),
    }
    assert shared[six].values.tolist() == [[0.0, 1.0, 2.0], [6.0, 7.0, 8.0]]
    assert shared[six].values.flags.c_contiguous


def test_all_runs_count_where_one_side_alone_has_several() -> None:
    scores = {
        Side(): Scores(("p1",), (0, 1), np.ones((1, 2))),
        Side("analytical"): Scores(("p1",), (0,), np.ones((1, 1))),
    }
    assert {side: len(of_side.seeds) for side, of_side in share_runs(scores).items()} == {
        side: len(of_side.seeds) for side, of_side in scores.items()
    }


def test_a_network_that_was_trained_once_meets_one_run_of_each() -> None:
    scores = {
        Side(): Scores(("p1",), (0, 1, 2), np.array([[1.0, 2.0, 3.0]])),
        Side(variant="lpm2020-lstm"): Scores(("p1",), (4,), np.ones((1, 1))),
        Side("trees"): Scores(("p1",), (0, 1), np.array([[5.0, 6.0]])),
    }
    shared = share_runs(scores).values()
    assert [of_side.seeds for of_side in shared] == [(0,), (4,), (0,)]
    assert [of_side.values.tolist() for of_side in shared] == [[[1.0]], [[1.0]], [[5.0]]]
