"""Error against the quality of the hand-written estimate, for models that read it and models that do not."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from costbench.reports.figures.canvas import legend_above, save, styled
from costbench.reports.results import title_of
from costbench.reports.tables.estimate_quality import QualityScores
from costbench.tasks import KERNEL_TASKS

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
