"""The part of the page about trainings: their curves, budgets, settings, and the trials of the sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from costbench.reports.data.budgets import Budget, budget_table
from costbench.reports.data.evidence import read_history
from costbench.reports.figures.programs import write_curve_figure
from costbench.reports.page import PageFigure, Section
from costbench.reports.tables.training import Settings, settings_tables, trials_table


def training_section(
    histories: Mapping[str, Path],
    columns: Mapping[str, str],
    budgets: Sequence[Budget],
    settings: Settings,
    sweep: Path | None,
    figures: Path,
) -> Section | None:
    """Returns curves of training, budgets, settings and trials of the sweep; None without any.

    Args:
        histories: name of a training run -> its curve as CSV; names begin with the task.
        columns: task -> column of its curves that is drawn.
        budgets: of all training runs.
        settings: section -> its parameters, for the tables of hyper-parameters (see `settings_tables`).
        sweep: folder of the sweep; None where there is none.
        figures: folder that figures go to.

    Raises:
        DataError: for a curve or trial that cannot be read, or a figure that cannot be written.
    """
    shown = []
    for task, column in columns.items():
        own = {name: path for name, path in sorted(histories.items()) if name.startswith(f"{task}-")}
        curves = {name: read_history(path, column) for name, path in own.items()}
        curves = {name: points for name, points in curves.items() if points}
        if curves:
            svg, _ = write_curve_figure(f"training_{task}", curves, column.replace("_", " "), figures)
            alt = f"Curves of {column} against the epoch, one line for each of {len(curves)} training runs."
            text = f"{column} on the validation programs after each epoch, one line a run."
            shown.append(PageFigure(svg, alt, text))
    trials = () if sweep is None else (trials_table(task, sweep) for task in columns)
    tables = (
        *([budget_table(budgets)] if budgets else []),
        *settings_tables(settings),
        *(table for table in trials if table is not None),
    )
    if not shown and not tables:
        return None
    return Section(
        anchor="training",
        title="Training",
        label="Training",
        figures=tuple(shown),
        tables=tables,
        folded=tuple(table.name for table in tables),
        folded_figures=True,
        page="models",
    )
