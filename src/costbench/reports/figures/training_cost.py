"""Error against the processor time of training, for networks and for boosted trees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from costbench.reports.figures.canvas import legend_above, save, styled
from costbench.reports.headline import CostPoint
from costbench.reports.results import title_of
from costbench.tasks import LEARNED

_STYLES = {
    "hybrid": ("#CC79A7", "o", "-"),
    "learned": ("#0072B2", "D", "-"),
    "lpm2021": ("#56B4E9", "v", "-"),
    "trees_analytical": ("#009E73", "^", "--"),
    "trees": ("#444444", "s", "--"),
}
"""Colour, marker and line of each model; lines of trees are dashed."""


def write_cost_figure(points: Sequence[CostPoint], folder: Path) -> tuple[Path, ...]:
    """Draws test error and tau against core-seconds of training, a line for each model.

    Writes `training_cost_<task>_<split>_<chip>.svg` and `.png`.

    Args:
        points: models after each budget, of one task, split and chip.
        folder: folder of the figure.

    Returns:
        the paths; none where fewer than two points have a time and an error.

    Raises:
        DataError: if a file cannot be written.
    """
    timed = [point for point in points if point.budget.core_seconds and point.error is not None]
    if len(timed) < 2:
        return ()
    first = timed[0]
    measures = LEARNED[first.task].measures
    with styled():
        figure = Figure(figsize=(9.0, 3.4), layout="constrained")
        panels = figure.subplots(1, 2)
        for axes, measure, field in zip(panels, measures, ("error", "tau"), strict=True):
            for model, (colour, marker, line) in _STYLES.items():
                shown = sorted(
                    (point.budget.core_seconds or 0.0, getattr(point, field))
                    for point in timed
                    if point.model == model and getattr(point, field) is not None
                )
                if shown:
                    axes.plot(
                        *zip(*shown, strict=True),
                        color=colour,
                        marker=marker,
                        markersize=4,
                        linestyle=line,
                        label=title_of(model),
                    )
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel("core-seconds of a training")
            axes.set_ylabel(measure.title)
        panels[0].set_yscale("log")
        for formatted in (panels[0].yaxis.set_major_formatter, panels[0].yaxis.set_minor_formatter):
            formatted(StrMethodFormatter("{x:g}"))
        legend_above(figure, panels[0], 5)
        name = f"{first.task}_{first.split}_{first.chip}"
        return save(figure, folder / f"training_cost_{name}")
