"""Models of schedules that are fitted once and tested on other workloads, without a search."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from costbench.reports.table import Column, Table, Value
from costbench_schedules.reports.autotvm2018.part import Part
from costbench_schedules.reports.autotvm2018.results import ScheduleResults, in_order

_SPLITS = {"transfer": "from C1 to C6 to other workloads", "folds": "folds over workloads"}
_METRICS = ("kendall_tau", "top_1", "top_5", "top_10", "failed_in_10")
_COLUMNS = (
    Column("model", "Model"),
    Column("workloads", "Workloads", count=True),
    Column("kendall_tau", "Kendall's τ", "", 3, "higher"),
    Column("top_1", "1", "Slowdown of the best of the top (%)", 1, "lower"),
    Column("top_5", "5", "Slowdown of the best of the top (%)", 1, "lower"),
    Column("top_10", "10", "Slowdown of the best of the top (%)", 1, "lower"),
    Column("failed_in_10", "failed, of the top 10", "", 1, "lower"),
)
_Values = Mapping[tuple[str, str, str], Mapping[str, Mapping[str, list[float]]]]


def part(results: ScheduleResults, figures: Path) -> Part | None:
    """Returns a table for each split and target, of means over workloads; None without tests of models."""
    values = _values(results)
    places = sorted({(split, target) for split, target, _ in values}, key=lambda one: (one[1], one[0]))
    tables = [table(results, split, target) for split, target in places]
    return Part(tables=tuple(tables), shown=len(tables)) if tables else None


def table(results: ScheduleResults, split: str, target: str) -> Table:
    """Returns what each model's predictions are worth: means over workloads of means over seeds."""
    values = _values(results)
    own = {model: found for (*place, model), found in values.items() if place == [split, target]}
    rows: list[tuple[Value, ...]] = []
    for model, by_metric in own.items():
        by_workload = by_metric["kendall_tau"]
        means = [float(np.mean([np.mean(v) for v in by_metric[metric].values()])) for metric in _METRICS]
        rows.append((model, len(by_workload), *means))
    rows.sort(key=lambda row: -float(row[2] or 0.0))
    names = sorted({name for found in own.values() for name in found["kendall_tau"]}, key=in_order)
    notes = (
        f"Tested on {', '.join(names)}; no model has seen the workload that it is tested on. `traffic` are "
        "the bytes that enter a cache of 32 KiB, by the loops alone. A schedule that failed counts as the "
        "slowest.",
    )
    title = f"Models of schedules without a search, {_SPLITS.get(split, split)}, {target}"
    return Table(f"schedule_models_{split}_{target}", title, _COLUMNS, tuple(rows), 0, notes)


def _values(results: ScheduleResults) -> _Values:
    """Returns split, target and model -> metric -> workload -> a value a seed."""
    found: dict[tuple[str, str, str], dict[str, dict[str, list[float]]]] = {}
    for row in results.rows:
        if row.split in _SPLITS and row.metric in _METRICS:
            by_metric = found.setdefault((row.split, row.chip, row.model), {})
            by_metric.setdefault(row.metric, {}).setdefault(row.program, []).append(row.value)
    return found


def flat_models(results: ScheduleResults) -> dict[str, float]:
    """Returns `schedule/models/{split}/{target}/{model}/{metric}_mean`, means over workloads."""
    return {
        f"schedule/models/{split}/{target}/{model}/{metric}_mean": float(
            np.mean([np.mean(values) for values in by_workload.values()])
        )
        for (split, target, model), by_metric in _values(results).items()
        for metric, by_workload in by_metric.items()
    }
