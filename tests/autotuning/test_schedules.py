from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.schedules import ScheduleEvaluator
from costbench.autotuning.search import Search, TuningProblem
from costbench.autotuning.trace import Subject
from costbench.compiler.schedule.operators import parse_operator
from costbench.compiler.schedule.space import ScheduleSpace
from costbench.datasets.schedule.replay import ReplayDevice
from costbench.datasets.schedule.table import empty_table
from costbench.rng import stream
from costbench.search.space import Vectors
from costbench.search.strategies import STRATEGIES

SPACE = ScheduleSpace(parse_operator("matmul:m=4,n=4,k=2")).sub_space(
    {"order": ["S0 S1 R0 R1 S2 S3"], "unroll": [0]}
)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_strategies_and_budgets_work_on_recorded_schedules(name: str) -> None:
    table = empty_table("small", SPACE, "native", {"processor": "none"}, {})
    ones = np.ones(SPACE.size)
    runtime = 1000 + stream(0, "runtimes").permutation(SPACE.size)
    columns = {"measured": ones.astype(bool), "runtime_ns": runtime, "median_ns": runtime, "clean": ones}
    table = replace(table, columns={**table.columns, **columns, "seconds": ones * 0.5})
    evaluator = ScheduleEvaluator(SPACE, ReplayDevice([table]), "replay")
    space = Vectors(SPACE)
    problem = TuningProblem(Subject("schedule", "native", SPACE.operator.text, "", space.size), space)
    search = Search(problem, evaluator, MeasurementBudget(evaluations=100), name, 0)
    trace = search.follow(STRATEGIES[name](space, stream(0, name), space.rows([])))
    assert len(trace.scores) == len(set(trace.decisions)) == 100
    assert sum(trace.seconds) == 50.0
    rows = space.rows(trace.decisions)
    assert list(trace.scores) == runtime[SPACE.numbers(rows)].tolist()
