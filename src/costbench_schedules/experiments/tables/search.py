"""Runs one search for schedules on a recorded table, a work item."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from costbench import rng
from costbench.arrays import I64
from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.search import Search
from costbench.search.strategies import STRATEGIES, Strategy
from costbench_schedules.experiments.tables.arms import ARMS, Arm
from costbench_schedules.experiments.tables.joint import fitted_to, joint_features
from costbench_schedules.experiments.tables.tables import TableFile, table_of
from costbench_schedules.features.vectors import Precomputed
from costbench_schedules.models.learner import ScheduleModel
from costbench_schedules.models.spec import ScheduleModelSpec, learner_of
from costbench_schedules.records.replay import ReplayDevice
from costbench_schedules.search.guided import GuidedSpec, ModelGuided
from costbench_schedules.search.problems import ScheduleEvaluator, schedule_problem

_GLOBAL = 8
"""Earlier models that a process keeps."""


@dataclass(frozen=True)
class ScheduleSearch:
    """One search.

    Attributes:
        table: that is searched.
        arm: a name of `ARMS`.
        repeat: number of the repeat.
        trials: of the search.
        guided: settings, if a model guides it.
        sources: tables that an earlier model is fitted to; none for most arms.
        samples: schedules drawn from these.
        seed: of the section.
    """

    table: TableFile
    arm: str
    repeat: int
    trials: int
    guided: GuidedSpec
    sources: tuple[TableFile, ...] = ()
    samples: int = 0
    seed: int = 0

    @property
    def name(self) -> str:
        """Key of the work item: names its file and its line in the log."""
        return f"{self.table.target}-{self.table.workload}-{self.arm}-r{self.repeat}"


def searched(task: ScheduleSearch) -> I64:
    """Returns the numbers of the configurations that were measured, in this order, int64 [n].

    Repeat r of every arm starts from the same random numbers, so that the arms which begin with random draws
    begin alike and differences between them are not those of the draws.
    """
    table, arm = table_of(task.table), ARMS[task.arm]
    problem = schedule_problem(table.space, table.target)
    evaluator = ScheduleEvaluator(table.space, ReplayDevice([table]), table.target)
    most = min(task.trials * arm.measurements, table.space.size)
    budget = MeasurementBudget(evaluations=most)
    search = Search(problem, evaluator, budget, task.arm, task.repeat)
    draws = rng.stream(task.seed, "schedule searches", task.table.workload, task.repeat)
    strategy = STRATEGIES[arm.strategy] if arm.strategy else _guided(task, arm)
    trace = search.follow(strategy(problem.space, draws, problem.space.rows([])))
    return np.array(trace.decisions, dtype=np.int64)


def _guided(task: ScheduleSearch, arm: Arm) -> Strategy:
    """Returns Algorithm 1 with the arm's model, and with an earlier one where there are sources."""
    settings = replace(task.guided, **dict(arm.changes))  # type: ignore[arg-type]
    space = table_of(task.table).space
    features, earlier = _prepared(task.table, arm.model, task.sources, task.samples, task.seed)
    return ModelGuided(Precomputed(space, features), learner_of(arm.model), settings, earlier, task.trials)


@lru_cache(_GLOBAL)
def _prepared(
    file: TableFile, model: ScheduleModelSpec, sources: tuple[TableFile, ...], samples: int, seed: int
) -> tuple[Any, ScheduleModel[Any] | None]:
    """Returns the features of a table, and the model of the sources that reads them, if there are sources."""
    own, *others = joint_features([file, *sources], model)
    if not sources:
        return own, None
    draws = rng.stream(seed, "schedule sources", file.workload)
    return own, fitted_to(sources, others, model, samples, (draws, seed))
