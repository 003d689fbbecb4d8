"""Models that are fitted to recorded workloads once, and tested on others: no search, no measurement.

A model is tested on the fixed split of autotvm2018 (`transfer`: from C1 to C6 to C7, C8, C9 and a matrix
product) and on folds over workloads, where every workload is tested once by a model that has not seen it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costbench import rng
from costbench.arrays import F64
from costbench.metrics.ranking import kendall_tau
from costbench.metrics.selection import slowdown_at_k
from costbench_schedules.experiments.tables.arms import ARMS
from costbench_schedules.experiments.tables.joint import fitted_to, joint_features
from costbench_schedules.experiments.tables.tables import TableFile, runtimes, table_of
from costbench_schedules.features.estimates import traffic_cost
from costbench_schedules.models.spec import ScheduleModelSpec

TRANSFER, FOLDS = "transfer", "folds"
TOP = (1, 5, 10)
FITTED: Mapping[str, ScheduleModelSpec] = {
    name: ARMS[name].model
    for name in (
        *("gbt-rank", "gbt-regression", "gbt-flattened", "gbt-config"),
        *("treegru-rank", "treegru-context-rank"),
        *("gnn-rank", "lstm-rank"),
    )
}
"""Models by the name of the arm that they guide."""
BASELINES = ("random", "traffic")
"""Costs without a fit: random numbers, and the bytes that enter a cache (`features.schedule.traffic`)."""


@dataclass(frozen=True)
class ModelTest:
    """One model of one division into sources and tested workloads, a work item.

    Attributes:
        model: a name of `FITTED`, or of `BASELINES`.
        split: `transfer`, or `fold` and its number.
        target: that all tables were recorded for.
        seed: of the model.
        sources: tables that it is fitted to.
        tested: tables that it is tested on.
        samples: schedules drawn from the sources.
    """

    model: str
    split: str
    target: str
    seed: int
    sources: tuple[TableFile, ...]
    tested: tuple[TableFile, ...]
    samples: int

    @property
    def name(self) -> str:
        """Key of the work item: names its file and its line in the log."""
        return f"{self.split}-{self.target}-{self.model}-s{self.seed}"


def scores(task: ModelTest) -> dict[str, dict[str, float]]:
    """Returns the metrics of each tested workload.

    - `kendall_tau`: between predicted and measured runtimes;
    - `top_1`, `top_5`, `top_10`: how much slower the best of the 1, 5 or 10 that are predicted
      fastest is than the fastest of all, in percent;
    - `failed_in_10`: how many of the ten schedules that are predicted fastest have failed.

    A schedule that failed counts as slow as the slowest that ran.
    """
    costs = _costs(task)
    return {
        file.workload: _metrics(own, runtimes(file)) for file, own in zip(task.tested, costs, strict=True)
    }


def _costs(task: ModelTest) -> list[F64]:
    """Returns the cost of every configuration of each tested table."""
    if task.model in FITTED:
        spec = FITTED[task.model]
        parts = joint_features([*task.sources, *task.tested], spec)
        count = len(task.sources)
        draws = rng.stream(task.seed, "schedule models", task.split, task.target)
        model = fitted_to(task.sources, parts[:count], spec, task.samples, (draws, task.seed))
        return [model.predict(part) for part in parts[count:]]
    return [_unfitted(task, file) for file in task.tested]


def _unfitted(task: ModelTest, file: TableFile) -> F64:
    space = table_of(file).space
    if task.model == "traffic":
        return traffic_cost(space, space.rows(range(space.size)))
    return rng.stream(task.seed, "random schedules", file.workload).random(space.size)


def _metrics(costs: F64, runtime_ns: F64) -> dict[str, float]:
    failed = ~np.isfinite(runtime_ns)
    measured = np.where(failed, runtime_ns[~failed].max(), runtime_ns)
    found = {f"top_{k}": 100.0 * slowdown_at_k(costs, measured, k) for k in TOP}
    found["failed_in_10"] = float(np.count_nonzero(failed[np.argsort(costs, kind="stable")[:10]]))
    tau = kendall_tau(costs, measured)
    # A constant prediction ranks nothing.
    return found | {"kendall_tau": 0.0 if np.isnan(tau) else tau}


def divided(workloads: Sequence[str], folds: int, seed: int) -> list[tuple[str, ...]]:
    """Returns the workloads in folds of even size, drawn at random; no more folds than workloads."""
    names = sorted(workloads)
    order = rng.stream(seed, "folds over workloads").permutation(len(names))
    parts = np.array_split(order, min(folds, len(names)))
    return [tuple(sorted(names[place] for place in part)) for part in parts]


Division = tuple[tuple[TableFile, ...], tuple[TableFile, ...]]
"""Tables that a model is fitted to, and those that it is tested on."""


def fixed_division(tables: Sequence[TableFile], sources: Sequence[str], tested: Sequence[str]) -> Division:
    """Returns the division by name of the workload; one that is on both sides is not tested."""
    aims = set(tested) - set(sources)
    return (
        tuple(one for one in tables if one.workload in sources),
        tuple(one for one in tables if one.workload in aims),
    )


def folded(tables: Sequence[TableFile], folds: int, seed: int) -> dict[str, Division]:
    """Returns a division for every fold, `fold1` and so on; none for fewer than two folds or tables."""
    if folds < 2 or len(tables) < 2:
        return {}
    parts = divided([one.workload for one in tables], folds, seed)
    return {
        f"fold{number}": (
            tuple(one for one in tables if one.workload not in part),
            tuple(one for one in tables if one.workload in part),
        )
        for number, part in enumerate(parts, 1)
    }
