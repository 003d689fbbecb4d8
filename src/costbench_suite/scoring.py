"""Scores predictions: the metrics of costbench's own evaluation and report, by the same functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from costbench.arrays import F64
from costbench.experiments.evaluation.fusion import fusion_metrics
from costbench.experiments.evaluation.layout import order_metrics, over_collections
from costbench.experiments.evaluation.program import ALL_KERNELS, ModelKey
from costbench.experiments.evaluation.tile import EvaluatedKernel, evaluate_program
from costbench.metrics.measures import Measure
from costbench.metrics.rows import MAIN, RowOrigin
from costbench.reports.baseline_comparison import Estimate, estimate
from costbench.reports.frame import frame_of, select
from costbench.reports.results import FOLDS, Cell, Results
from costbench.reports.scores import (
    STATISTICS,
    Draws,
    Resample,
    Scores,
    applications_of,
    make_draws,
    score_matrix,
)
from costbench.reports.summary import averages
from costbench_suite.predictions import Predictions
from costbench_suite.task_data import TaskData
from costbench_suite.tasks import CHIP

_SEED = 0
Costs = Mapping[ModelKey, F64]
ByModel = dict[ModelKey, dict[str, float]]


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


def score(data: TaskData, predictions: Predictions, model: str = "entry") -> Score:
    """Returns the metrics of predictions over all programs, each predicted in the fold that tests it.

    Raises:
        DataError: for damaged data.
    """
    cell = score_cell(data, predictions, model)
    numbers = averages(cell, model)
    draws = make_draws(applications_of(cell.frame), _SEED, "suite", data.task.name)
    intervals = {}
    for name in data.task.metrics:
        measure, statistic = _measure(cell, name)
        scores = score_matrix(select(cell.frame, model=model, metric=measure.metric))
        intervals[name] = _estimate(scores, STATISTICS[statistic], draws)
    return Score(
        numbers,
        intervals,
        _by_application(cell, model, _measure(cell, data.task.metrics[0])[0]),
        len(cell.programs),
        len({application for application, _ in cell.programs}),
    )


def _estimate(scores: Scores, statistic: Callable[[F64], F64], draws: Draws) -> Estimate:
    def effect(resample: Resample) -> F64:
        return statistic(resample(scores))

    return estimate(effect, (scores,), draws)


def score_cell(data: TaskData, predictions: Predictions, model: str) -> Cell:
    """Returns the results of predictions as the report has those of a model."""
    rows = []
    metrics_of = _METRICS[data.task.name]
    for program, application in data.programs["application"].items():
        costs = {(model, MAIN, seed): of_seed[str(program)] for seed, of_seed in predictions.costs.items()}
        origin = RowOrigin(data.task.name, FOLDS, CHIP, str(application), str(program), "", "", "")
        by_model = {
            key: values for key, values in metrics_of(data, str(program), costs).items() if key in costs
        }
        rows += list(origin.rows(ALL_KERNELS, by_model))
    (cell,) = Results(frame_of(rows)).cells
    return cell


def _measure(cell: Cell, name: str) -> tuple[Measure, str]:
    """Returns the measure that an average of `summary.json` is of, and its statistic over programs."""
    for measure in cell.described.known_measures:
        suffix = name.removeprefix(f"{measure.short}_")
        if suffix == "mean":
            return measure, "geometric_mean" if measure.printed == "error" else "mean"
        if suffix == "arithmetic_mean":
            return measure, "mean"
    raise AssertionError(f"{name} is no average of {cell.task}")


def _by_application(cell: Cell, model: str, measure: Measure) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for application, program in cell.programs:
        value = cell.score(model, measure.metric, program)
        if value is not None:
            values.setdefault(application, []).append(value)
    means = {application: measure.mean(of_programs) for application, of_programs in values.items()}
    return {application: mean for application, mean in means.items() if mean is not None}


def _tile_metrics(data: TaskData, program: str, costs: Costs) -> ByModel:
    kernels = data.table("kernels", program, ("id", "runs"))
    runtimes = _by_id(data.table("decisions", program, ("id", "runtime_ns")), "runtime_ns")
    ends = np.cumsum([len(values) for values in runtimes.values()])[:-1]
    of_kernels = {key: np.split(values, ends) for key, values in costs.items()}
    evaluated = (
        EvaluatedKernel(runtimes[name], int(runs), {key: of_kernels[key][index] for key in costs})
        for index, (name, runs) in enumerate(kernels.itertuples(index=False))
    )
    return evaluate_program(evaluated, (1,), program)[ALL_KERNELS]


def _fusion_metrics(data: TaskData, program: str, costs: Costs) -> ByModel:
    scored = data.table("kernels", program, ("scored",))["scored"].to_numpy()
    measured = data.table("decisions", program, ("runtime_ns",))["runtime_ns"].to_numpy(np.float64)
    if not scored.any():
        return {}
    return {key: fusion_metrics(values[scored], measured[scored]) for key, values in costs.items()}


def _layout_metrics(data: TaskData, program: str, costs: Costs) -> ByModel:
    rows = data.table("decisions", program, ("id", "scored", "runtime_ns"))
    groups = {
        str(name).partition("/")[2]: indices[rows["scored"].to_numpy()[indices]]
        for name, indices in rows.groupby("id", sort=False).indices.items()
    }
    measured = rows["runtime_ns"].to_numpy(np.float64)
    metrics = {
        collection: {key: order_metrics(measured[chosen], values[chosen]) for key, values in costs.items()}
        for collection, chosen in groups.items()
    }
    return over_collections(metrics)[ALL_KERNELS]


_METRICS: Mapping[str, Callable[[TaskData, str, Costs], ByModel]] = {
    "tile": _tile_metrics,
    "fusion": _fusion_metrics,
    "layout": _layout_metrics,
}


def _by_id(rows: pd.DataFrame, column: str) -> dict[str, np.ndarray]:
    """Returns the values of each id, in the order of first appearance."""
    return {str(name): values.to_numpy() for name, values in rows.groupby("id", sort=False)[column]}
