"""The section of the page about CPU schedules, with the table of models that are tested without a search.

A part of the section is a function of the results and the folder of figures. To add one, write such a
function and add it to `PARTS`; where claims are decided on numbers of its own, add a function that returns
them as rows to `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from costbench.metrics.rows import MetricRow
from costbench.reports.declared_tables import fill_table
from costbench.reports.frame import flatten, means, select
from costbench.reports.page import Section
from costbench.reports.table import Table
from costbench_schedules.reports.autotvm2018.library import library_part, library_rows, resnet_part
from costbench_schedules.reports.autotvm2018.results import Part, ScheduleResults, time_rows
from costbench_schedules.reports.autotvm2018.searches import searches_part
from costbench_schedules.reports.curves import in_order
from costbench_schedules.reports.tables import TABLES

_SPLITS = {"transfer": "from C1 to C6 to other workloads", "folds": "folds over workloads"}
_MODEL_METRICS = ("kendall_tau", "top_1", "top_5", "top_10", "failed_in_10")


def models_part(results: ScheduleResults, figures: Path) -> Part | None:
    """Returns a table for each split and target, of means over workloads; None without tests of models."""
    divisions = model_means(results)[["chip", "split"]].drop_duplicates().sort_values(["chip", "split"])
    tables = [models_table(results, split, target) for target, split in divisions.itertuples(index=False)]
    return Part(tables=tuple(tables), shown=len(tables)) if tables else None


def models_table(results: ScheduleResults, split: str, target: str) -> Table:
    """Returns what each model's predictions are worth: means over workloads of means over seeds."""
    of_division = select(model_means(results), split=split, chip=target)
    by_model = of_division.pivot(index="model", columns="metric", values="value")
    tested = select(results.frame, split=split, chip=target, metric="kendall_tau")
    by_model = by_model.assign(workloads=tested.groupby("model")["program"].nunique())
    rows = by_model.sort_values("kendall_tau", ascending=False, kind="stable").reset_index()
    return fill_table(
        "schedule_models",
        rows,
        TABLES,
        name=f"schedule_models_{split}_{target}",
        division=_SPLITS.get(split, split),
        target=target,
        workloads=", ".join(sorted(tested["program"].unique(), key=in_order)),
    )


def model_means(results: ScheduleResults) -> pd.DataFrame:
    """Returns means over workloads of means over seeds (`value`) by split, chip, model and metric."""
    keys = ["split", "chip", "model", "metric"]
    over_seeds = means(
        select(results.frame, split=[*_SPLITS], metric=_MODEL_METRICS), [*keys, "application", "program"]
    )
    return means(over_seeds.rename("value").reset_index(), keys).rename("value").reset_index()


def flat_models(results: ScheduleResults) -> dict[str, float]:
    """Returns `schedule/models/{split}/{target}/{model}/{metric}_mean`, means over workloads."""
    named = model_means(results)
    numbers = flatten(named, "schedule/models/{split}/{chip}/{model}/{metric}_mean", ["value"])
    return {key.removesuffix("/value"): value for key, value in numbers.items()}


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
