from __future__ import annotations

import math
from dataclasses import replace

import pytest

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.search import Plan, Progress, Shortlist, measure_best, tune
from costbench.autotuning.trace import SearchTrace
from costbench.errors import DataError
from tests.autotuning.small_spaces import Line, Table, line_problem

PROBLEM = line_problem(Line())


def first_part(trace: SearchTrace, count: int) -> SearchTrace:
    return replace(
        trace,
        decisions=trace.decisions[:count],
        scores=trace.scores[:count],
        seconds=trace.seconds[:count],
    )


def test_a_search_is_watched() -> None:
    told: list[Progress] = []
    plan = Plan("exhaustive", MeasurementBudget(seconds=3.0), start=(4, 9))
    tune(PROBLEM, Table(broken=frozenset({4, 9})), plan, watch=told.append)
    assert [(p.num_decisions, p.best_score, p.budget.spent_seconds) for p in told] == [
        (2, math.inf, 1.0),
        (6, 1.0, 3.0),
    ]


def test_what_is_recorded_is_recalled_and_not_scored() -> None:
    plan = Plan("exhaustive", start=(4, 9))
    whole = tune(PROBLEM, Table(), plan)
    table = Table()
    assert tune(PROBLEM, table, plan, first_part(whole, 4)) == whole
    assert table.recalled == [4, 9, 1, 2]
    assert table.batches == [[3, 6, 7, 8, 11]]


def test_a_recorded_search_has_to_be_the_same() -> None:
    whole = tune(PROBLEM, Table(), Plan("random", seed=1))
    with pytest.raises(DataError, match=r"by hand.*not the beginning of this search"):
        tune(PROBLEM, Table(), Plan("random", seed=2), whole)
    less = Plan("random", MeasurementBudget(evaluations=3), seed=1)
    with pytest.raises(DataError, match="at least the same budget"):
        tune(PROBLEM, Table(), less, whole)


def test_measuring_goes_on_too() -> None:
    predicted = tune(PROBLEM, Table(target=9, source="model"), Plan("exhaustive"))
    whole = measure_best(PROBLEM, predicted, Table(), Shortlist(4))
    table = Table()
    assert measure_best(PROBLEM, predicted, table, Shortlist(4), first_part(whole, 3)) == whole
    assert table.batches == [[11]]
