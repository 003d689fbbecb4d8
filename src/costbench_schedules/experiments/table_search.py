"""Searches for schedules on recorded tables (autotvm2018, section 6): the arms, and one search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from costbench import rng
from costbench.arrays import I64
from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.search import Search
from costbench.search.strategies import STRATEGIES, Strategy
from costbench_schedules.experiments.recorded_tables import TableFile, fit_jointly, joint_features, table_of
from costbench_schedules.features.vectors import PrecomputedFeatures
from costbench_schedules.models.learner import ScheduleModel
from costbench_schedules.models.spec import ScheduleModelSpec, learner_of
from costbench_schedules.records.table import ReplayDevice
from costbench_schedules.search.guided import GuidedSpec, ModelGuided
from costbench_schedules.search.problems import ScheduleEvaluator, schedule_problem

_CACHED_MODELS = 8
"""Earlier models that a process keeps."""
Earlier = Literal["", "workloads", "target"]


@dataclass(frozen=True)
class Arm:
    """A way of searching.

    Attributes:
        strategy: key of `costbench.search.strategies.STRATEGIES`; empty where a model guides the search.
        measurements: number of measurements of a trial.
        model: kind of the model that guides the search.
        changes: fields of `GuidedSpec` that differ from the settings.
        earlier: data of a global model that is fitted before the search (section 4): other `workloads` on
            the same target, workloads on another `target`, or nothing.
    """

    strategy: str = ""
    measurements: int = 1
    model: ScheduleModelSpec = field(default_factory=ScheduleModelSpec)
    changes: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    earlier: Earlier = ""


def _trees(representation: str = "relation", **settings: object) -> ScheduleModelSpec:
    return ScheduleModelSpec("gbt", representation, **settings)  # type: ignore[arg-type]


def _bootstrapped(acquisition: str) -> Arm:
    return Arm(model=_trees(objective="regression", models=5, acquisition=acquisition))


ARMS: Mapping[str, Arm] = {
    # Figure 4
    "random": Arm("random"),
    "random-x2": Arm("random", 2),
    "genetic": Arm("genetic"),
    "genetic-x2": Arm("genetic", 2),
    "gbt-rank": Arm(model=_trees()),
    "treegru-rank": Arm(model=ScheduleModelSpec("treegru", "tree")),
    "treegru-context-rank": Arm(model=ScheduleModelSpec("treegru_context", "tree")),
    # Networks of the tile task, which the paper did not have.
    "gnn-rank": Arm(model=ScheduleModelSpec("gnn", "tree")),
    "lstm-rank": Arm(model=ScheduleModelSpec("lstm", "tree")),
    # Figure 5
    "gbt-regression": Arm(model=_trees(objective="regression")),
    "treegru-regression": Arm(model=ScheduleModelSpec("treegru", "tree", "regression")),
    # Figure 6: with lambda = 1 there is nothing to choose from.
    "gbt-rank-plain": Arm(model=_trees(), changes=MappingProxyType({"candidates": 1, "alpha": 0.0})),
    "gbt-rank-lambda4": Arm(model=_trees(), changes=MappingProxyType({"candidates": 4})),
    # Figure 7
    "gbt-mean": _bootstrapped("mean"),
    "gbt-ei": _bootstrapped("ei"),
    "gbt-ucb": _bootstrapped("ucb"),
    # Figures 8 and 9
    "gbt-config": Arm(model=_trees("config")),
    "gbt-flattened": Arm(model=_trees("flattened")),
    "transfer-config": Arm(model=_trees("config"), earlier="workloads"),
    "transfer-flattened": Arm(model=_trees("flattened"), earlier="workloads"),
    "transfer-relation": Arm(model=_trees(), earlier="workloads"),
    "transfer-target": Arm(model=_trees(), earlier="target"),
}
"""Arms by name; reports know them under the same names."""

SCRATCH: Mapping[str, str] = {
    "transfer-config": "gbt-config",
    "transfer-flattened": "gbt-flattened",
    "transfer-relation": "gbt-rank",
    "transfer-target": "gbt-rank",
}
"""Arms with an earlier model -> the same without one."""


@dataclass(frozen=True)
class ScheduleSearch:
    """One search, a work item.

    Attributes:
        table: table that is searched.
        arm: name of the way of searching, a key of `ARMS`.
        repeat: number of the repeat.
        trials: number of trials.
        guided: settings of Algorithm 1, where a model guides the search.
        sources: tables that an earlier model is fitted to; none for most arms.
        samples: number of schedules that are drawn from these.
        seed: seed of the section.
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


def replay_search(task: ScheduleSearch) -> I64:
    """Returns the numbers of the configurations that were measured, in this order, int64 [n].

    Repeat r of every arm starts from the same random numbers, so that the arms which begin with random draws
    begin alike and differences between them are not those of the draws.
    """
    table, arm = table_of(task.table), ARMS[task.arm]
    problem = schedule_problem(table.space, table.target)
    evaluator = ScheduleEvaluator(table.space, ReplayDevice([table]), table.target)
    budget = MeasurementBudget(evaluations=min(task.trials * arm.measurements, table.space.size))
    search = Search(problem, evaluator, budget, task.arm, task.repeat)
    draws = rng.stream(task.seed, "schedule searches", task.table.workload, task.repeat)
    strategy = STRATEGIES[arm.strategy] if arm.strategy else _guided_strategy(task, arm)
    trace = search.follow(strategy(problem.space, draws, problem.space.rows([])))
    return np.array(trace.decisions, dtype=np.int64)


def _guided_strategy(task: ScheduleSearch, arm: Arm) -> Strategy:
    """Returns Algorithm 1 with the arm's model, and with an earlier one where there are sources."""
    settings = replace(task.guided, **dict(arm.changes))  # type: ignore[arg-type]
    space = table_of(task.table).space
    features, earlier = _prepare(task.table, arm.model, task.sources, task.samples, task.seed)
    return ModelGuided(
        PrecomputedFeatures(space, features), learner_of(arm.model), settings, earlier, task.trials
    )


@lru_cache(_CACHED_MODELS)
def _prepare(
    file: TableFile, model: ScheduleModelSpec, sources: tuple[TableFile, ...], samples: int, seed: int
) -> tuple[Any, ScheduleModel[Any] | None]:
    """Returns the features of a table, and the model of the sources that reads them, if there are sources."""
    features, *source_features = joint_features([file, *sources], model)
    if not sources:
        return features, None
    draws = rng.stream(seed, "schedule sources", file.workload)
    return features, fit_jointly(sources, source_features, model, samples, draws, seed)
