"""How good must a hand-written estimate be? Models that read it, for each quality of the estimate.

Rows of the estimate that the chip's own compiler has go by the variant `main`, those of others by the name of
the quality (`costbench.compiler.estimate_quality`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costbench.compiler.estimate_quality import COMPILER, QUALITIES
from costbench.metrics.rows import MAIN
from costbench.reports.declared_tables import fill_table
from costbench.reports.results import Cell, ChipSplit, Results, title_of
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
class QualityScores:
    """Models of a task on one split and chip, for estimates of several qualities.

    Attributes:
        task: the compiler's decision.
        split: split that says which programs were held out.
        chip: the chip that was measured.
        own: quality of the chip's own compiler.
        num_programs: number of test programs.
        by_quality: scores of the models that read the estimate, by quality, from crude to expert, and model.
        without: scores of the models that do not read it.
    """

    task: str
    split: str
    chip: str
    own: str
    num_programs: int
    by_quality: Mapping[str, Mapping[str, Score]]
    without: Mapping[str, Score]

    @property
    def name(self) -> str:
        """Returns `tile_folds_tpu_v3`, which names files."""
        return f"{self.task}_{self.split}_{self.chip}"

    @property
    def where(self) -> str:
        """Returns split and chip for people."""
        return ChipSplit(self.split, self.chip).title


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
