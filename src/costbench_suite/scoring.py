"""Scores predictions: the metrics of costbench's own evaluation and report, by the same functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from costbench.arrays import F64, I64
from costbench.experiments.evaluation.fusion import fusion_metrics
from costbench.experiments.evaluation.layout import order_metrics, over_collections
from costbench.experiments.evaluation.program import ALL_KERNELS, ModelKey
from costbench.experiments.evaluation.tile import EvaluatedKernel, evaluate_program
from costbench.metrics.measures import Measure
from costbench.metrics.ranking import count_pairs, tau_of
from costbench.metrics.rows import MAIN
from costbench.reports.baseline_comparison import Estimate, estimate, estimate_error
from costbench.reports.losses import SKEWED
from costbench.reports.scores import STATISTICS, Draws, Scores, make_draws, score_matrix
from costbench.reports.summary import average_values
from costbench_schedules.experiments import table_scores
from costbench_suite.predictions import Predictions
from costbench_suite.searches import TRIALS, Searches
from costbench_suite.task_data import TaskData
from costbench_suite.tasks import SuiteTask
from costbench_suite.tuning_samples import table_of_rows

_SEED = 0
Costs = Mapping[int, F64]
"""Costs of all decisions of a program by seed."""
BySeed = Mapping[int, Mapping[str, float]]
"""Metrics by seed."""


@dataclass(frozen=True)
class Score:
    """What predictions amount to.

    Attributes:
        numbers: all averages by name, as `summary.json` has them.
        intervals: mean with its 95% interval, the wider of those over programs and over applications, of the
            metrics of the task.
        by_application: mean of the first metric over the programs of each application.
        num_programs: number of programs.
        num_applications: number of applications.
    """

    numbers: Mapping[str, float]
    intervals: Mapping[str, Estimate]
    by_application: Mapping[str, float]
    num_programs: int
    num_applications: int


def score(data: TaskData, entry: Predictions | Searches) -> Score:
    """Returns the metrics of an entry over all programs (tables), each predicted in the fold that tests it.

    Raises:
        DataError: for damaged data.
    """
    frame = score_frame(data, entry)
    applications = dict(data.programs["application"].astype(str))
    draws = make_draws(applications, _SEED, "suite", data.task.name)
    matrices = {str(metric): score_matrix(rows) for metric, rows in frame.groupby("metric")}
    values = {metric: scores.values.mean(axis=1).tolist() for metric, scores in matrices.items()}
    first = _measure_of(data.task, data.task.metrics[0])[0]
    intervals = {}
    for name in data.task.metrics:
        measure, statistic = _measure_of(data.task, name)
        intervals[name] = _estimate(matrices[measure.metric], measure, statistic, draws)
    return Score(
        average_values(values, data.task.measures, skewed=data.task.name in SKEWED),
        intervals,
        _by_application(matrices[first.metric], first, applications),
        frame["program"].nunique(),
        frame["application"].nunique(),
    )


def _estimate(scores: Scores, measure: Measure, statistic: str, draws: Draws) -> Estimate:
    if measure.printed == "error":
        return estimate_error(scores, draws, statistic)
    return estimate(lambda resample: STATISTICS[statistic](resample(scores)), (scores,), draws)


def score_frame(data: TaskData, entry: Predictions | Searches) -> pd.DataFrame:
    """Returns the metrics of an entry on each program for each seed.

    Returns:
        columns `application`, `program`, `seed`, `metric`, `value`.
    """
    rows: list[tuple[str, str, int, str, float]] = []
    for name, application in zip(data.programs.index, data.programs["application"], strict=True):
        program = str(name)
        if isinstance(entry, Searches):
            metrics = _search_metrics(data, program, entry)
        else:
            costs = {seed: of_seed[program] for seed, of_seed in entry.costs.items()}
            metrics = _METRICS[data.task.name](data, program, costs)
        rows += [
            (str(application), program, seed, metric, value)
            for seed, values in metrics.items()
            for metric, value in values.items()
        ]
    return pd.DataFrame(rows, columns=["application", "program", "seed", "metric", "value"])


def _measure_of(task: SuiteTask, name: str) -> tuple[Measure, str]:
    """Returns the measure that an average of a task is of, and its statistic over programs."""
    for measure in task.measures:
        suffix = name.removeprefix(f"{measure.short}_")
        if suffix == "mean":
            return measure, "geometric_mean" if measure.printed == "error" else "mean"
        if suffix == "arithmetic_mean":
            return measure, "mean"
    raise AssertionError(f"{name} is no average of {task.name}")


def _by_application(scores: Scores, measure: Measure, applications: Mapping[str, str]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for program, value in zip(scores.programs, scores.values.mean(axis=1).tolist(), strict=True):
        values.setdefault(applications[program], []).append(value)
    means = {application: measure.mean(of_programs) for application, of_programs in sorted(values.items())}
    return {application: mean for application, mean in means.items() if mean is not None}


def _search_metrics(data: TaskData, program: str, searches: Searches) -> BySeed:
    table = table_of_rows(data.decisions(program))
    return {
        seed: table_scores.score(table, order, TRIALS) for seed, order in searches.orders[program].items()
    }


def _tile_metrics(data: TaskData, program: str, costs: Costs) -> BySeed:
    kernels = data.table("kernels", program, ("id", "runs"))
    runtimes = _by_id(data.table("decisions", program, ("id", "runtime_ns")), "runtime_ns")
    ends = np.cumsum([len(values) for values in runtimes.values()])[:-1]
    of_kernels = {seed: np.split(values, ends) for seed, values in costs.items()}
    evaluated = (
        EvaluatedKernel(
            runtimes[name], int(runs), {_key(seed): parts[index] for seed, parts in of_kernels.items()}
        )
        for index, (name, runs) in enumerate(kernels.itertuples(index=False))
    )
    metrics = evaluate_program(evaluated, (1,), program)[ALL_KERNELS]
    return {seed: metrics[_key(seed)] for seed in costs}


def _key(seed: int) -> ModelKey:
    return "entry", MAIN, seed


def _fusion_metrics(data: TaskData, program: str, costs: Costs) -> BySeed:
    scored = data.table("kernels", program, ("scored",))["scored"].to_numpy()
    measured = data.table("decisions", program, ("runtime_ns",))["runtime_ns"].to_numpy(np.float64)
    if not scored.any():
        return {}
    return {seed: fusion_metrics(values[scored], measured[scored]) for seed, values in costs.items()}


def _layout_metrics(data: TaskData, program: str, costs: Costs) -> BySeed:
    rows = data.table("decisions", program, ("id", "scored", "runtime_ns"))
    is_scored, measured = rows["scored"].to_numpy(), rows["runtime_ns"].to_numpy(np.float64)
    collections = {
        str(name).partition("/")[2]: indices[is_scored[indices]]
        for name, indices in rows.groupby("id", sort=False).indices.items()
    }
    metrics = {
        collection: {
            _key(seed): order_metrics(measured[chosen], values[chosen]) for seed, values in costs.items()
        }
        for collection, chosen in collections.items()
    }
    means = over_collections(metrics)[ALL_KERNELS]
    return {seed: means[_key(seed)] for seed in costs}


def _gpu_metrics(data: TaskData, program: str, costs: Costs) -> BySeed:
    rows = data.table("decisions", program, ("scored", "again_ns"))
    scored = rows["scored"].to_numpy()
    measured = rows["again_ns"].to_numpy()[scored]
    return {seed: order_metrics(measured, values[scored]) for seed, values in costs.items()}


def _schedule_metrics(data: TaskData, program: str, costs: Costs) -> BySeed:
    """Returns the order of what was measured twice, and choices among all that ran."""
    rows = data.table("decisions", program, ("scored", "again_ns", "measured_again"))
    ran, twice = rows["scored"].to_numpy(), rows["measured_again"].to_numpy()
    second = rows["again_ns"].to_numpy()
    return {
        seed: order_metrics(second[ran], values[ran])
        | {"kendall_tau": tau_of(count_pairs(values[twice], second[twice]))}
        for seed, values in costs.items()
    }


_METRICS: Mapping[str, Callable[[TaskData, str, Costs], BySeed]] = {
    "tile": _tile_metrics,
    "fusion": _fusion_metrics,
    "fusion_xla_cpu": _fusion_metrics,
    "layout": _layout_metrics,
    "gpu": _gpu_metrics,
    "schedules": _schedule_metrics,
}


def _by_id(rows: pd.DataFrame, column: str) -> dict[str, I64]:
    """Returns the values of each id, in the order of first appearance."""
    return {str(name): values.to_numpy() for name, values in rows.groupby("id", sort=False)[column]}
