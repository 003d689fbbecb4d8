"""The section of the page about CPU schedules, with the table of models that are tested without a search.

A part of the section is a function of the results and the folder of figures. To add one, write such a
function and add it to `PARTS`; where claims are decided on numbers of its own, add a function that returns
them as rows to `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from costbench.metrics.rows import MetricRow
from costbench.reports.page import Section
from costbench.reports.table import Column, Table, Value
from costbench_schedules.reports.autotvm2018.library import library_part, library_rows, resnet_part
from costbench_schedules.reports.autotvm2018.results import Part, ScheduleResults, in_order, time_rows
from costbench_schedules.reports.autotvm2018.searches import searches_part

_SPLITS = {"transfer": "from C1 to C6 to other workloads", "folds": "folds over workloads"}
_MODEL_METRICS = ("kendall_tau", "top_1", "top_5", "top_10", "failed_in_10")
_MODEL_COLUMNS = (
    Column("model", "Model"),
    Column("workloads", "Workloads", count=True),
    Column("kendall_tau", "Kendall's τ", "", 3, "higher"),
    Column("top_1", "1", "Slowdown of the best of the top (%)", 1, "lower"),
    Column("top_5", "5", "Slowdown of the best of the top (%)", 1, "lower"),
    Column("top_10", "10", "Slowdown of the best of the top (%)", 1, "lower"),
    Column("failed_in_10", "failed, of the top 10", "", 1, "lower"),
)
_Values = Mapping[tuple[str, str, str], Mapping[str, Mapping[str, list[float]]]]


def models_part(results: ScheduleResults, figures: Path) -> Part | None:
    """Returns a table for each split and target, of means over workloads; None without tests of models."""
    values = _model_values(results)
    divisions = sorted(
        {(split, target) for split, target, _ in values}, key=lambda division: (division[1], division[0])
    )
    tables = [models_table(results, split, target) for split, target in divisions]
    return Part(tables=tuple(tables), shown=len(tables)) if tables else None


def models_table(results: ScheduleResults, split: str, target: str) -> Table:
    """Returns what each model's predictions are worth: means over workloads of means over seeds."""
    values = _model_values(results)
    models = {
        model: by_metric for (*division, model), by_metric in values.items() if division == [split, target]
    }
    rows: list[tuple[Value, ...]] = []
    for model, by_metric in models.items():
        by_workload = by_metric["kendall_tau"]
        means = [
            float(np.mean([np.mean(v) for v in by_metric[metric].values()])) for metric in _MODEL_METRICS
        ]
        rows.append((model, len(by_workload), *means))
    rows.sort(key=lambda row: -float(row[2] or 0.0))
    names = sorted({name for by_metric in models.values() for name in by_metric["kendall_tau"]}, key=in_order)
    notes = (
        f"Tested on {', '.join(names)}; no model has seen the workload that it is tested on. `traffic` are "
        "the bytes that enter a cache of 32 KiB, by the loops alone. A schedule that failed counts as the "
        "slowest.",
    )
    title = f"Models of schedules without a search, {_SPLITS.get(split, split)}, {target}"
    return Table(f"schedule_models_{split}_{target}", title, _MODEL_COLUMNS, tuple(rows), 0, notes)


def _model_values(results: ScheduleResults) -> _Values:
    """Returns split, target and model -> metric -> workload -> a value a seed."""
    by_model: dict[tuple[str, str, str], dict[str, dict[str, list[float]]]] = {}
    for row in results.rows:
        if row.split in _SPLITS and row.metric in _MODEL_METRICS:
            by_metric = by_model.setdefault((row.split, row.chip, row.model), {})
            by_metric.setdefault(row.metric, {}).setdefault(row.program, []).append(row.value)
    return by_model


def flat_models(results: ScheduleResults) -> dict[str, float]:
    """Returns `schedule/models/{split}/{target}/{model}/{metric}_mean`, means over workloads."""
    return {
        f"schedule/models/{split}/{target}/{model}/{metric}_mean": float(
            np.mean([np.mean(values) for values in by_workload.values()])
        )
        for (split, target, model), by_metric in _model_values(results).items()
        for metric, by_workload in by_metric.items()
    }


ANCHOR = "schedules"
PARTS: Sequence[Callable[[ScheduleResults, Path], Part | None]] = (
    searches_part,
    models_part,
    library_part,
    resnet_part,
)
"""In the order of the page."""
ROWS: Sequence[Callable[[ScheduleResults], tuple[MetricRow, ...]]] = (
    lambda results: results.rows,
    time_rows,
    library_rows,
)
"""What claims are decided on."""


def schedule_rows(results: ScheduleResults) -> tuple[MetricRow, ...]:
    """Returns all rows that claims about schedules are decided on, wall times included."""
    return tuple(row for rows in ROWS for row in rows(results))


def schedule_section(results: ScheduleResults, figures: Path) -> Section | None:
    """Returns the section, or None where no schedules were searched.

    Args:
        results: results of the stage `schedules`.
        figures: folder that figures are written to.

    Raises:
        DataError: if a figure cannot be written.
    """
    parts = [part for make in PARTS if (part := make(results, figures)) is not None]
    if not parts:
        return None
    return Section(
        anchor=ANCHOR,
        title="CPU schedules: AutoTVM on a real processor",
        label="CPU schedules",
        paragraphs=tuple(text for part in parts for text in part.paragraphs),
        figures=tuple(figure for part in parts for figure in part.figures),
        tables=tuple(table for part in parts for table in part.tables),
        folded=tuple(table.name for part in parts for table in part.tables[part.shown :]),
    )
