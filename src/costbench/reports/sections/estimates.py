"""How good must a hand-written estimate be? Models that read it, for each quality of the estimate.

Rows of the estimate that the chip's own compiler has go by the variant `main`, those of others by the name of
the quality (`costbench.compiler.estimate_quality`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from costbench.compiler.estimate_quality import COMPILER, QUALITIES
from costbench.metrics.rows import MAIN
from costbench.reports.declared_tables import fill_table
from costbench.reports.figures.canvas import drawing, legend_above, save
from costbench.reports.frame import flatten, select
from costbench.reports.inputs import ReportData
from costbench.reports.page import PageFigure, Section, page_figures, paragraphs
from costbench.reports.results import Division, Results, title_of
from costbench.reports.sections.models import MODELS
from costbench.reports.table import Table
from costbench.target import available_targets, load_target
from costbench.tasks import KERNEL_TASKS

WITH_ESTIMATE = ("analytical", "analytical_linear", "hybrid", "trees_analytical")
WITHOUT = ("learned", "trees")


@dataclass(frozen=True)
class QualityScores(Division):
    """Models of a task on one split and chip, for estimates of several qualities.

    Attributes:
        own: quality of the chip's own compiler.
        num_programs: number of test programs.
        scores: `quality`, from crude to expert, `model`, and its mean `error` (percent) and `tau` over the
            test programs; models that do not read the estimate have an empty quality, and come last.
    """

    own: str
    num_programs: int
    scores: pd.DataFrame

    @property
    def qualities(self) -> list[str]:
        """Qualities that models were evaluated with, from crude to expert."""
        return [str(quality) for quality in self.scores["quality"].unique() if quality]


def quality_scores(results: Results) -> tuple[QualityScores, ...]:
    """Returns the scores of every task, split and chip with two qualities or more, in the order of cells."""
    scored = []
    for cell in results.cells:
        if cell.task not in KERNEL_TASKS:
            continue
        known = cell.chip in available_targets()
        own = load_target(cell.chip).architecture.estimate if known else COMPILER
        variants = {quality: MAIN if quality == own else quality for quality in QUALITIES} | {"": MAIN}
        rows = []
        for quality, variant in variants.items():
            of_variant = results.cell(cell.task, cell.split, cell.chip, variant)
            if of_variant is None:
                continue
            models = WITH_ESTIMATE if quality else WITHOUT
            rows += [(quality, m, *of_variant.means(m)) for m in models if m in of_variant.models]
        scores = pd.DataFrame(rows, columns=["quality", "model", "error", "tau"])
        scores = scores[scores["error"].notna() | (scores["quality"] == "")]
        of_cell = QualityScores(cell.task, cell.split, cell.chip, own, len(cell.programs), scores)
        if len(of_cell.qualities) > 1:
            scored.append(of_cell)
    return tuple(scored)


def quality_table(scores: QualityScores) -> Table:
    """Returns a row for each quality, and one for the models that read no estimate."""
    rows: dict[str, dict[str, object]] = {}
    for quality, model, mean_error, mean_tau in scores.scores.itertuples(index=False):
        in_use = ", in use" if quality == scores.own else ""
        name = quality + in_use if quality else f"no estimate: {title_of(model)}"
        column = model if quality else "none"
        row = rows.setdefault(name, {"quality": name})
        row |= {f"error_{column}": mean_error, f"tau_{column}": mean_tau}
    return fill_table(
        "estimate_quality",
        rows.values(),
        name=f"estimates_{scores.name}",
        programs=scores.num_programs,
        **scores.words,
    )


def flat_qualities(results: Results) -> dict[str, float]:
    """Returns the scores as numbers of the summary: `estimates/<task>/<split>/<chip>/<quality>/<model>/`."""
    numbers: dict[str, float] = {}
    for of_cell in quality_scores(results):
        key = f"estimates/{of_cell.task}/{of_cell.split}/{of_cell.chip}/{{quality}}/{{model}}"
        with_estimate = of_cell.scores[of_cell.scores["quality"] != ""]
        numbers |= flatten(with_estimate, key, {"error_mean": "error", "tau_mean": "tau"})
    return numbers


_LINES = {
    "analytical": ("#E69F00", "s"),
    "analytical_linear": ("#D55E00", "D"),
    "hybrid": ("#CC79A7", "o"),
    "trees_analytical": ("#009E73", "^"),
}
_LEVELS = {"learned": ("#0072B2", "--"), "trees": ("#444444", ":")}


def write_quality_figure(scores: QualityScores, folder: Path) -> tuple[Path, ...]:
    """Draws error and tau, a panel each, against the quality; models without estimate are level lines.

    Writes `estimates_<task>_<split>_<chip>.svg` and `.png`; the paths.

    Raises:
        DataError: if a file cannot be written.
    """
    positions = {quality: position for position, quality in enumerate(scores.qualities)}
    with drawing((9.0, 3.4), columns=2) as (figure, (panels,)):
        for axes, measure, field in zip(panels, scores.described.measures, ("error", "tau"), strict=True):
            for model, (colour, marker) in _LINES.items():
                line = select(scores.scores, model=model).dropna(subset=field)
                if len(line):
                    across = line["quality"].map(positions)
                    axes.plot(across, line[field], color=colour, marker=marker, label=title_of(model))
            for model, (colour, style) in _LEVELS.items():
                for level in select(scores.scores, model=model)[field].dropna():
                    axes.axhline(level, color=colour, linestyle=style, label=title_of(model))
            labels = [f"{name}\n(in use)" if name == scores.own else name for name in positions]
            axes.set_xticks(range(len(positions)), labels)
            axes.set_xlabel("quality of the estimate")
            axes.set_ylabel(measure.title)
        panels[0].set_yscale("log")
        legend_above(figure, panels[0], 5)
        return save(figure, folder / f"estimates_{scores.name}")


def estimates_section(data: ReportData) -> Section | None:
    """Returns error against the quality of the estimate, for each task; None without several qualities.

    Raises:
        DataError: if a figure cannot be written.
    """
    scored = quality_scores(data.estimates)
    if not scored:
        return None
    given = data.headline.given_estimates if data.headline is not None else {}
    drawn: list[PageFigure] = []
    for scores in scored:
        words = {"task": scores.labels.title, "where": scores.where, "own": scores.own}
        drawn += page_figures(write_quality_figure(scores, data.figures), MODELS.name, "estimates", **words)
    gains = [_gain_over_learned(scores) | {"given": given.get(scores.task)} for scores in scored]
    return Section(
        anchor="estimates",
        title="How good must the compiler's estimate be?",
        label="Quality of the estimate",
        page=MODELS,
        paragraphs=paragraphs(MODELS.name, "estimates", gains=gains),
        figures=tuple(drawn),
        tables=tuple(map(quality_table, scored)),
    )


def _gain_over_learned(scores: QualityScores) -> dict[str, object]:
    """Returns the qualities with which hybrids and estimates, fitted or not, beat the network alone."""
    frame = scores.scores
    learned = next(iter(select(frame, model="learned")["error"].dropna()), None)
    better = {}
    for model in ("hybrid", "analytical", "analytical_linear"):
        rows = select(frame, model=model)
        better[model] = [] if learned is None else rows["quality"][rows["error"] < learned].tolist()
    return {"task": scores.labels.title, "where": scores.where, "learned": learned, **better}
