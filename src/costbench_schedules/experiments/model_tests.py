"""Models that are fitted to recorded workloads once, and tested on others: no search, no measurement.

A model is tested on the fixed split of autotvm2018 (`transfer`: from C1 to C6 to C7, C8, C9 and a matrix
product) and on folds over workloads, where every workload is tested once by a model that has not seen it.
Wall times of models are facts of the machine at hand (docs/decisions/0034).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from costbench import rng
from costbench.arrays import F64
from costbench.metrics.ranking import kendall_tau
from costbench.metrics.selection import slowdown_at_k
from costbench_schedules.experiments.recorded_tables import (
    TableFile,
    features_of,
    fit_jointly,
    joint_features,
    runtimes,
    table_of,
)
from costbench_schedules.experiments.table_search import ARMS
from costbench_schedules.features.estimates import traffic_cost
from costbench_schedules.metrics import ModelTime
from costbench_schedules.models.learner import samples_of
from costbench_schedules.models.spec import ScheduleModelSpec, learner_of

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
"""Costs without a fit: random numbers, and the bytes that enter a cache (`traffic_cost`)."""
TIMED = ("gbt-rank", "treegru-rank", "gnn-rank", "lstm-rank")
"""Models whose wall times are taken."""
_TIMED_ROUNDS = 2


@dataclass(frozen=True)
class ModelTest:
    """One model of one division into sources and tested workloads, a work item.

    Attributes:
        model: name of the model, a key of `FITTED` or one of `BASELINES`.
        split: `transfer`, or `fold` and its number.
        target: target that all tables were recorded for.
        seed: seed of the model.
        sources: tables that the model is fitted to.
        tested: tables that it is tested on.
        samples: number of schedules that are drawn from the sources.
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


def evaluate_model(test: ModelTest) -> dict[str, dict[str, float]]:
    """Returns the metrics of each tested workload.

    - `kendall_tau`: between predicted and measured runtimes;
    - `top_1`, `top_5`, `top_10`: how much slower the best of the 1, 5 or 10 that are predicted
      fastest is than the fastest of all, in percent;
    - `failed_in_10`: how many of the ten schedules that are predicted fastest have failed.

    A schedule that failed counts as slow as the slowest that ran.
    """
    if test.model in FITTED:
        spec, count = FITTED[test.model], len(test.sources)
        parts = joint_features([*test.sources, *test.tested], spec)
        draws = rng.stream(test.seed, "schedule models", test.split, test.target)
        model = fit_jointly(test.sources, parts[:count], spec, test.samples, draws, test.seed)
        costs = [model.predict(part) for part in parts[count:]]
    else:
        costs = [_baseline_costs(test, file) for file in test.tested]
    return {
        file.workload: _metrics(file_costs, runtimes(file))
        for file, file_costs in zip(test.tested, costs, strict=True)
    }


def _baseline_costs(test: ModelTest, file: TableFile) -> F64:
    space = table_of(file).space
    if test.model == "traffic":
        return traffic_cost(space, space.rows(range(space.size)))
    return rng.stream(test.seed, "random schedules", file.workload).random(space.size)


def _metrics(costs: F64, runtime_ns: F64) -> dict[str, float]:
    failed = ~np.isfinite(runtime_ns)
    measured = np.where(failed, runtime_ns[~failed].max(), runtime_ns)
    metrics = {f"top_{k}": 100.0 * slowdown_at_k(costs, measured, k) for k in TOP}
    metrics["failed_in_10"] = float(np.count_nonzero(failed[np.argsort(costs, kind="stable")[:10]]))
    tau = kendall_tau(costs, measured)
    # A constant prediction ranks nothing.
    return metrics | {"kendall_tau": 0.0 if np.isnan(tau) else tau}


def divide_workloads(workloads: Sequence[str], folds: int, seed: int) -> list[tuple[str, ...]]:
    """Returns the workloads in folds of even size, drawn at random; no more folds than workloads."""
    names = sorted(workloads)
    order = rng.stream(seed, "folds over workloads").permutation(len(names))
    parts = np.array_split(order, min(folds, len(names)))
    return [tuple(sorted(names[index] for index in part)) for part in parts]


Division = tuple[tuple[TableFile, ...], tuple[TableFile, ...]]
"""Tables that a model is fitted to, and those that it is tested on."""


def fixed_division(tables: Sequence[TableFile], sources: Sequence[str], tested: Sequence[str]) -> Division:
    """Returns the division by name of the workload; one that is on both sides is not tested."""
    only_tested = set(tested) - set(sources)
    return (
        tuple(table for table in tables if table.workload in sources),
        tuple(table for table in tables if table.workload in only_tested),
    )


def fold_divisions(tables: Sequence[TableFile], folds: int, seed: int) -> dict[str, Division]:
    """Returns a division for every fold, `fold1` and so on; none for fewer than two folds or tables."""
    if folds < 2 or len(tables) < 2:
        return {}
    parts = divide_workloads([table.workload for table in tables], folds, seed)
    return {
        f"fold{number}": (
            tuple(table for table in tables if table.workload not in part),
            tuple(table for table in tables if table.workload in part),
        )
        for number, part in enumerate(parts, 1)
    }


def time_models(files: Iterable[TableFile], samples: int, seed: int) -> list[ModelTime]:
    """Returns the times of fitting models to random schedules of each table and of predicting all of it.

    Each is the fastest of two rounds, after both libraries have been loaded. All features of a model's
    representation are read, as a search on the machine itself would.

    Args:
        files: recorded tables.
        samples: number of schedules that are fitted to.
        seed: seed of the draw.
    """
    return [_time_model(file, arm, samples, seed) for file in files for arm in TIMED]


def _time_model(file: TableFile, arm: str, samples: int, seed: int) -> ModelTime:
    spec = ARMS[arm].model
    learner = learner_of(spec)
    features: Any = features_of(file, spec.representation)
    runtime_ns = runtimes(file)
    chosen = rng.stream(seed, "schedule times", file.workload).permutation(len(runtime_ns))[:samples]
    fitted, measured = features[chosen], samples_of(runtime_ns[chosen])
    first = np.arange(min(8, len(chosen)))
    learner.fit(fitted[first], measured.select(first), seed).predict(fitted[first])
    fit_s, predict_s = [], []
    for _ in range(_TIMED_ROUNDS):
        begun = time.perf_counter()
        model = learner.fit(fitted, measured, seed)
        fit_s.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        model.predict(features)
        predict_s.append(time.perf_counter() - begun)
    return ModelTime(
        file.target,
        file.workload,
        file.operator,
        arm,
        min(fit_s),
        min(predict_s),
        len(chosen),
        len(runtime_ns),
    )
