"""How good must a hand-written estimate be? Models that read it, for each quality of the estimate.

Rows of the estimate that the chip's own compiler has go by the variant `main`, those of others by the name of
the quality (`costbench.compiler.estimate_quality`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from costbench.compiler.estimate_quality import COMPILER, QUALITIES
from costbench.metrics.rows import MAIN
from costbench.reports.declared_tables import fill_table
from costbench.reports.figures.canvas import legend_above, save, styled
from costbench.reports.inputs import ReportData
from costbench.reports.page import Section, page_figure, paragraphs
from costbench.reports.results import Cell, Division, Results, title_of
from costbench.reports.table import Table
from costbench.target import available_targets, load_target
from costbench.tasks import KERNEL_TASKS, labels_of

WITH_ESTIMATE = ("analytical", "hybrid", "trees_analytical")
WITHOUT = ("learned", "trees")


@dataclass(frozen=True)
class Score:
    """Mean error in percent and mean tau of a model over the test programs; None without any."""

    error: float | None = None
    tau: float | None = None


@dataclass(frozen=True)
class QualityScores(Division):
    """Models of a task on one split and chip, for estimates of several qualities.

    Attributes:
        own: quality of the chip's own compiler.
        num_programs: number of test programs.
        by_quality: scores of the models that read the estimate, by quality, from crude to expert, and model.
        without: scores of the models that do not read it.
    """

    own: str
    num_programs: int
    by_quality: Mapping[str, Mapping[str, Score]]
    without: Mapping[str, Score]


def quality_scores(results: Results) -> tuple[QualityScores, ...]:
    """Returns the scores of every task, split and chip with two qualities or more, in the order of cells."""
    scores = []
    for cell in results.cells:
        if cell.task not in KERNEL_TASKS:
            continue
        of_chip = (
            load_target(cell.chip).architecture.estimate if cell.chip in available_targets() else COMPILER
        )
        by_quality = {}
        for quality in QUALITIES:
            variant = MAIN if quality == of_chip else quality
            of_models = {model: _score(results, cell, variant, model) for model in WITH_ESTIMATE}
            of_models = {model: score for model, score in of_models.items() if score.error is not None}
            if of_models:
                by_quality[quality] = of_models
        if len(by_quality) < 2:
            continue
        without = {model: _score(results, cell, MAIN, model) for model in WITHOUT if model in cell.models}
        count = len(cell.programs)
        scores.append(QualityScores(cell.task, cell.split, cell.chip, of_chip, count, by_quality, without))
    return tuple(scores)


def _score(results: Results, main: Cell, variant: str, model: str) -> Score:
    cell = results.cell(main.task, main.split, main.chip, variant)
    if cell is None:
        return Score()
    return Score(*(m.mean(cell.over_programs(model, m.metric)) for m in cell.described.measures))


def quality_table(scores: QualityScores) -> Table:
    """Returns a row for each quality, and one for the models that read no estimate."""
    error, tau = KERNEL_TASKS[scores.task].measures
    rows: list[dict[str, object]] = []
    for quality, of_models in scores.by_quality.items():
        row: dict[str, object] = {"quality": quality + (", in use" if quality == scores.own else "")}
        for model, score in of_models.items():
            row |= {f"error_{model}": score.error, f"tau_{model}": score.tau}
        rows.append(row)
    rows.extend(
        {"quality": f"no estimate: {title_of(model)}", "error_none": score.error, "tau_none": score.tau}
        for model, score in scores.without.items()
    )
    return fill_table(
        "estimate_quality",
        rows,
        name=f"estimates_{scores.name}",
        heading=labels_of(scores.task).heading,
        where=scores.where,
        programs=scores.num_programs,
        error=error.title,
        tau=tau.title,
    )


def flat_qualities(results: Results) -> dict[str, float]:
    """Returns the scores as numbers of the summary: `estimates/<task>/<split>/<chip>/<quality>/<model>/`."""
    numbers: dict[str, float] = {}
    for scores in quality_scores(results):
        for quality, of_models in scores.by_quality.items():
            for model, score in of_models.items():
                key = f"estimates/{scores.task}/{scores.split}/{scores.chip}/{quality}/{model}"
                values = {"error_mean": score.error, "tau_mean": score.tau}
                numbers |= {f"{key}/{name}": value for name, value in values.items() if value is not None}
    return numbers


_LINES = {"analytical": ("#E69F00", "s"), "hybrid": ("#CC79A7", "o"), "trees_analytical": ("#009E73", "^")}
_LEVELS = {"learned": ("#0072B2", "--"), "trees": ("#444444", ":")}


def write_quality_figure(scores: QualityScores, folder: Path) -> tuple[Path, ...]:
    """Draws error and tau, a panel each, against the quality; models without estimate are level lines.

    Writes `estimates_<task>_<split>_<chip>.svg` and `.png`; the paths.

    Raises:
        DataError: if a file cannot be written.
    """
    error, tau = KERNEL_TASKS[scores.task].measures
    positions = range(len(scores.by_quality))
    with styled():
        figure = Figure(figsize=(9.0, 3.4), layout="constrained")
        panels = figure.subplots(1, 2)
        for axes, measure, field in zip(panels, (error, tau), ("error", "tau"), strict=True):
            for model, (colour, marker) in _LINES.items():
                values = [getattr(own.get(model), field, None) for own in scores.by_quality.values()]
                points = [(x, y) for x, y in zip(positions, values, strict=True) if y is not None]
                if points:
                    axes.plot(*zip(*points, strict=True), color=colour, marker=marker, label=title_of(model))
            for model, (colour, style) in _LEVELS.items():
                level = getattr(scores.without.get(model), field, None)
                if level is not None:
                    axes.axhline(level, color=colour, linestyle=style, label=title_of(model))
            labels = [f"{name}\n(in use)" if name == scores.own else name for name in scores.by_quality]
            axes.set_xticks(positions, labels)
            axes.set_xlabel("quality of the estimate")
            axes.set_ylabel(measure.title)
        panels[0].set_yscale("log")
        legend_above(figure, panels[0], 5)
        return save(figure, folder / f"estimates_{scores.name}")


_PAGE = "models"
"""Name of the page and of the template of its sections."""


def estimates_section(data: ReportData) -> Section | None:
    """Returns error against the quality of the estimate, for each task; None without several qualities.

    Raises:
        DataError: if a figure cannot be written.
    """
    scored = quality_scores(data.estimates)
    if not scored:
        return None
    drawn = []
    for scores in scored:
        svg, _ = write_quality_figure(scores, data.figures)
        words = {"task": labels_of(scores.task).title, "where": scores.where, "own": scores.own}
        drawn.append(page_figure(svg, _PAGE, "estimates", **words))
    return Section(
        anchor="estimates",
        title="How good must the compiler's estimate be?",
        label="Quality of the estimate",
        page=_PAGE,
        paragraphs=paragraphs(_PAGE, "estimates", gains=[_gain_over_learned(scores) for scores in scored]),
        figures=tuple(drawn),
        tables=tuple(map(quality_table, scored)),
    )


def _gain_over_learned(scores: QualityScores) -> dict[str, object]:
    """Returns the qualities with which a hybrid, and the estimate itself, err less than the network alone."""
    learned = scores.without.get("learned")
    level = None if learned is None else learned.error
    better = {
        model: [
            quality
            for quality, of_models in scores.by_quality.items()
            if level is not None
            and (score := of_models.get(model)) is not None
            and score.error is not None
            and score.error < level
        ]
        for model in ("hybrid", "analytical")
    }
    return {"task": labels_of(scores.task).title, "where": scores.where, "learned": level, **better}
