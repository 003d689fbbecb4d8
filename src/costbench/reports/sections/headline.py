"""The page of the headline: networks and trees at or near their plateau, and who leads at which budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from costbench.compiler.estimate_quality import QUALITIES
from costbench.datasets.splits import RANDOM_FOLDS
from costbench.metrics.rows import MAIN
from costbench.reports.baseline_comparison import Standings, estimate_difference, rank_models
from costbench.reports.claims.claim import Side
from costbench.reports.claims.evaluation import MIN_SEEDS
from costbench.reports.declared_tables import fill_table
from costbench.reports.figures.canvas import drawing, legend_above, save
from costbench.reports.frame import select, split_by
from costbench.reports.inputs import Front, ReportData
from costbench.reports.page import Page, PageFigure, Pointer, Section, page_figures, paragraphs, pointer
from costbench.reports.results import FOLDS, TRAINED, Cell, Division, Results, title_of
from costbench.reports.scores import STATISTICS, Scores, make_draws, scores_of, share_programs
from costbench.reports.table import Table
from costbench.reports.training_guard import SETTLED
from costbench.tasks import task_order

_PAGE = "headline"
"""Name of the page and of the template of its section."""


def headline_section(data: ReportData) -> Section | None:
    """Returns standings with both budgets, and errors against the time of training; None without a headline.

    Raises:
        DataError: if a figure cannot be written.
    """
    if data.headline is None:
        return None
    front, tables = data.headline_front, []
    drawn: list[PageFigure] = []
    for cell in front.cells:
        of_cell = (data.headline.results.cell(cell.task, cell.split, cell.chip, name) for name in QUALITIES)
        others = {
            c.variant: rank_models(data.headline.results, c, data.seed) for c in of_cell if c is not None
        }
        tables.append(standing_table(front, cell, others))
    for points in points_by_cell(data.headline.points):
        of_points = _division(points)
        words = {"task": of_points.labels.title, "where": of_points.where}
        drawn += page_figures(write_cost_figure(points, data.figures), _PAGE, "cost", **words)
        tables.append(cost_table(points))
    shifts = shifted_cells(data.headline.results)
    tables += [shift_table(data.headline.results, *both, data.seed) for both in shifts]
    seeds = {
        cell.labels.title: min(len(cell.seeds[model]) for model in cell.models if model in TRAINED)
        for cell in front.cells
    }
    return Section(
        anchor="headline",
        title="Networks and boosted trees at or near their plateau",
        label="Headline",
        page=Page(_PAGE, "Budgets of training"),
        paragraphs=paragraphs(
            _PAGE,
            profile=data.headline.profile,
            further=sorted(data.headline.further_runs["experiment"].unique()),
            few={task: number for task, number in seeds.items() if number < MIN_SEEDS},
            min_seeds=MIN_SEEDS,
            missing=data.headline.missing,
            settled=100.0 * SETTLED,
        ),
        figures=tuple(drawn),
        tables=tuple(tables),
        facts=tuple(data.headline.facts.items()),
    )


def _division(points: pd.DataFrame) -> Division:
    """Returns the task, split and chip of points that have one."""
    return Division(*points[["task", "split", "chip"]].iloc[0])


def points_by_cell(points: pd.DataFrame) -> list[pd.DataFrame]:
    """Returns the points of each task, split and chip with several budgets, tasks in the order of reports."""
    by_cell = split_by(points, ["task", "split", "chip"])
    in_order = [by_cell[key] for key in sorted(by_cell, key=lambda key: (task_order(key[0]), *key))]
    return [of_cell for of_cell in in_order if of_cell["model"].duplicated().any()]


def standing_table(front: Front, cell: Cell, others: Mapping[str, Standings] | None = None) -> Table:
    """Returns a row a model, the least error first, with its budget and its lead over the strongest baseline.

    Args:
        front: results of the headline.
        cell: its main results of a task, split and chip.
        others: quality of an estimate that is not that of the chip's compiler -> models that read it; they
            come last.
    """
    standings = front.standings[cell.name]
    rows: list[dict[str, object]] = []
    for quality, of_quality in {MAIN: standings, **(others or {})}.items():
        for standing in of_quality.models:
            side = Side(standing.model, quality, cell.split, cell.chip)
            given = front.guard.budget_of(cell.task, side)
            row = standing.row
            row |= {} if given is None else {name: value or None for name, value in asdict(given).items()}
            row["plateau"] = ""
            if quality != MAIN:
                row["model"] = f"{row['model']}, estimate of quality {quality}"
            elif given is not None:
                row["plateau"] = {True: "yes", False: "no", None: ""}[front.guard.at_plateau(cell.task, side)]
            rows.append(row)
    return fill_table(
        "headline",
        rows,
        name=f"headline_{cell.name}",
        strongest=title_of(standings.strongest or ""),
        **cell.words,
    )


def cost_table(points: pd.DataFrame) -> Table:
    """Returns a row a model and budget: what it was given, its validation value, test error and tau.

    Args:
        points: points of one task, split and chip.
    """
    of_points = _division(points)
    rows = points.assign(
        model=points["model"].map(title_of), chosen=points["is_chosen"].map({True: "*", False: ""})
    )
    amounts = ["steps", "kernels", "trees", "core_seconds"]
    rows[amounts] = rows[amounts].where(rows[amounts] != 0)
    return fill_table(
        "training_cost",
        rows,
        name=f"training_cost_{of_points.name}",
        decimals=3 if of_points.described.ranks_decisions else 1,
        **of_points.words,
    )


def shifted_cells(results: Results) -> list[tuple[Cell, Cell]]:
    """Returns the main results of tasks on folds over programs, and those on folds over applications."""
    known = (cell for cell in results.cells if cell.split == RANDOM_FOLDS)
    unknown = ((cell, results.cell(cell.task, FOLDS, cell.chip)) for cell in known)
    return [(one, other) for one, other in unknown if other is not None]


def shift_pointer(results: Results) -> tuple[Pointer, ...]:
    """Returns what an unknown application costs, in words; none without results on both kinds of folds."""
    answers, chips = {}, []
    for known, unknown in shifted_cells(results):
        error = unknown.described.measures[0]
        answers[unknown.labels.title] = {
            title_of(model): [float(STATISTICS["geometric_mean"](scores.means)[0]) for scores in both]
            for model in unknown.models
            if (both := shifted_scores(results, known, unknown, model, error.metric))[0].programs
        }
        chips.append(unknown.chip)
    return (pointer(_PAGE, "shift", _PAGE, answers=answers, chips=sorted(set(chips))),) if answers else ()


def shifted_scores(
    results: Results, known: Cell, unknown: Cell, model: str, metric: str
) -> tuple[Scores, Scores]:
    """Returns scores of a model on both kinds of folds: of equal programs, and of equally many first runs.

    The mean of runs before a geometric mean over programs is the larger the more runs there are.
    """
    sides = [Side(model, MAIN, cell.split, cell.chip) for cell in (known, unknown)]
    before, after = share_programs(
        {side: scores_of(results.scores, unknown.task, metric, side) for side in sides}
    ).values()
    runs = min(before.runs, after.runs)
    return before.first(runs), after.first(runs)


def shift_table(results: Results, known: Cell, unknown: Cell, seed: int) -> Table:
    """Returns a row a model: means where applications may be in training, where none is, and the difference.

    Args:
        results: results that both are of, with the numbers of each seed.
        known: results on folds over programs.
        unknown: results on folds over applications, of the same programs.
        seed: seed of the bootstrap.
    """
    error, tau = unknown.described.measures
    draws = make_draws(results.scores.applications, seed, "shift", unknown.name)
    rows = []
    for model in (model for model in unknown.models if model in known.models):
        row: dict[str, object] = {"model": title_of(model)}
        for key, measure, statistic in (("error", error, "geometric_mean"), ("tau", tau, "mean")):
            before, after = shifted_scores(results, known, unknown, model, measure.metric)
            row |= {"programs": len(after.programs), "seeds": after.runs}
            for kind, scores in (("known", before), ("unknown", after)):
                row[f"{key}_{kind}"] = float(STATISTICS[statistic](scores.means)[0])
            more = estimate_difference(after, before, draws, statistic)
            row |= {f"{key}_{name}": number for name, number in asdict(more).items()}
        rows.append(row)
    return fill_table(
        "shift",
        rows,
        name=f"shift_{unknown.task}_{unknown.chip}",
        **unknown.words,
    )


_STYLES = {
    "hybrid": ("#CC79A7", "o-"),
    "learned": ("#0072B2", "D-"),
    "lpm2021": ("#56B4E9", "v-"),
    "trees_analytical": ("#009E73", "^--"),
    "trees": ("#444444", "s--"),
}
"""Colour, marker and line of each model; lines of trees are dashed."""


def write_cost_figure(points: pd.DataFrame, folder: Path) -> tuple[Path, ...]:
    """Draws test error and tau against core-seconds of training, a line for each model.

    Writes `training_cost_<task>_<split>_<chip>.svg` and `.png`.

    Args:
        points: models after each budget, of one task, split and chip (`headline.POINT_COLUMNS`).
        folder: folder of the figure.

    Returns:
        the paths; none where fewer than two points have a time and an error.

    Raises:
        DataError: if a file cannot be written.
    """
    timed = points[points["core_seconds"].astype(float).gt(0.0) & points["error"].notna()]
    if len(timed) < 2:
        return ()
    of_points = _division(timed)
    with drawing((9.0, 3.4), columns=2) as (figure, (panels,)):
        for axes, measure, field in zip(panels, of_points.described.measures, ("error", "tau"), strict=True):
            columns = ["core_seconds", field]
            for model, (colour, style) in _STYLES.items():
                shown = select(timed, model=model)[columns].dropna().sort_values(columns)
                if len(shown):
                    values = shown.to_numpy(np.float64).T
                    axes.plot(*values, style, color=colour, markersize=4, label=title_of(model))
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel("core-seconds of a training")
            axes.set_ylabel(measure.title)
        panels[0].set_yscale("log")
        for formatted in (panels[0].yaxis.set_major_formatter, panels[0].yaxis.set_minor_formatter):
            formatted(StrMethodFormatter("{x:g}"))
        legend_above(figure, panels[0], 5)
        return save(figure, folder / f"training_cost_{of_points.name}")
