"""The page of the headline: networks and trees at their plateau, and who leads at which budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby

from costbench.metrics.rows import MAIN
from costbench.reports.claims.claim import Side
from costbench.reports.claims.evaluation import MIN_SEEDS
from costbench.reports.declared_tables import fill_table
from costbench.reports.figures.training_cost import write_cost_figure
from costbench.reports.headline import CostPoint
from costbench.reports.inputs import Front, ReportData
from costbench.reports.page import Section, page_figure, paragraphs
from costbench.reports.results import TRAINED, Cell, ChipSplit, title_of
from costbench.reports.table import Table
from costbench.reports.training_guard import SETTLED
from costbench.tasks import LEARNED, labels_of, task_order

_PAGE = "headline"
"""Name of the page and of the template of its section."""


def headline_section(data: ReportData) -> Section | None:
    """Returns standings with both budgets, and errors against the time of training; None without a headline.

    Raises:
        DataError: if a figure cannot be written.
    """
    if data.headline is None:
        return None
    front, figures, tables = data.headline_front, [], []
    tables += [standing_table(front, cell) for cell in front.cells]
    for points in points_by_cell(data.headline.points):
        task, where = points[0].task, ChipSplit(points[0].split, points[0].chip).title
        paths = write_cost_figure(points, data.figures)
        if paths:
            figures.append(page_figure(paths[0], _PAGE, "cost", task=labels_of(task).title, where=where))
        tables.append(cost_table(points))
    seeds = {
        cell.labels.title: min(len(cell.seeds[model]) for model in cell.models if model in TRAINED)
        for cell in front.cells
    }
    return Section(
        anchor="headline",
        title="Networks and boosted trees at their plateau",
        label="Headline",
        page=_PAGE,
        paragraphs=paragraphs(
            _PAGE,
            profile=data.headline.profile,
            seeds=seeds,
            few={task: number for task, number in seeds.items() if number < MIN_SEEDS},
            min_seeds=MIN_SEEDS,
            missing=data.headline.missing,
            settled=100.0 * SETTLED,
        ),
        figures=tuple(figures),
        tables=tuple(tables),
        facts=tuple(data.headline.facts.items()),
    )


def points_by_cell(points: Sequence[CostPoint]) -> list[list[CostPoint]]:
    """Returns the points of each task, split and chip, tasks in the order of reports."""

    def key(point: CostPoint) -> tuple[tuple[int, str] | int, str, str]:
        return task_order(point.task), point.split, point.chip

    return [list(of_cell) for _, of_cell in groupby(sorted(points, key=key), key)]


def standing_table(front: Front, cell: Cell) -> Table:
    """Returns a row a model, the least error first, with its budget and its lead over the strongest baseline.

    Args:
        front: results of the headline.
        cell: its main results of a task, split and chip.
    """
    standings, (error, tau) = front.standings[cell.name], cell.described.measures
    rows: list[dict[str, object]] = []
    for standing in standings.models:
        side = Side(standing.model, MAIN, cell.split, cell.chip)
        given = front.guard.budget_of(cell.task, side)
        difference = standing.difference
        row = asdict(standing) | asdict(standing.error) | {"error": standing.error.value}
        row |= {} if given is None else {name: value or None for name, value in asdict(given).items()}
        row["model"] = title_of(standing.model)
        row["plateau"] = "" if given is None else "no" if front.guard.is_unsettled(cell.task, side) else "yes"
        row["won"] = None if standing.won is None else 100.0 * standing.won
        row["difference"] = None if difference is None else difference.value
        row["difference_low"] = None if difference is None else difference.low
        row["difference_high"] = None if difference is None else difference.high
        rows.append(row)
    return fill_table(
        "headline",
        rows,
        name=f"headline_{cell.name}",
        heading=cell.labels.heading,
        where=ChipSplit(cell.split, cell.chip).title,
        kernels=cell.labels.kernels,
        strongest=title_of(standings.strongest or ""),
        error=error.title,
        tau=tau.title,
    )


def cost_table(points: Sequence[CostPoint]) -> Table:
    """Returns a row a model and budget: what it was given, its validation value, test error and tau.

    Args:
        points: points of one task, split and chip.
    """
    first = points[0]
    error, tau = LEARNED[first.task].measures
    rows = [
        asdict(point)
        | {name: value or None for name, value in asdict(point.budget).items()}
        | {"model": title_of(point.model), "chosen": "*" if point.is_chosen else ""}
        for point in points
    ]
    return fill_table(
        "training_cost",
        rows,
        name=f"training_cost_{first.task}_{first.split}_{first.chip}",
        heading=labels_of(first.task).heading,
        where=ChipSplit(first.split, first.chip).title,
        decimals=3 if LEARNED[first.task].ranks_decisions else 1,
        error=error.title,
        tau=tau.title,
    )
