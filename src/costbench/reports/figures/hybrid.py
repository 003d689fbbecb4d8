"""Draws the error of the hybrid beside its parts: analytical model, network and strongest baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from costbench.reports.figures.canvas import save, styled
from costbench.reports.figures.results import COLOURS, program_labels
from costbench.reports.results import Cell, title_of
from costbench.tasks import LEARNED

_STRONGEST_COLOUR = "#009E73"
_MARKERS = {"analytical": "o", "learned": "D", "hybrid": "^"}


def write_hybrid_figure(cells: Sequence[tuple[Cell, str | None]], folder: Path) -> tuple[Path, ...]:
    """Draw the error of each test program as dots, a panel a task; programs by the hybrid's error.

    Writes `hybrid_<split>_<chip>.svg` and `.png`, named by the first cell; the paths, or none without results
    of a hybrid.

    Args:
        cells: main results, each with the name of its strongest baseline.
        folder: where to.

    Raises:
        DataError: if a file cannot be written.
    """
    shown = [(cell, strongest) for cell, strongest in cells if "hybrid" in cell.seeds]
    if not shown:
        return ()
    with styled():
        widths = [max(3, len(cell.programs)) for cell, _ in shown]
        figure = Figure(figsize=(max(9.5, 0.7 * sum(widths)), 3.8), layout="constrained")
        panels = figure.subplots(1, len(shown), squeeze=False, width_ratios=widths)[0]
        for axes, (cell, strongest) in zip(panels, shown, strict=True):
            _panel(axes, cell, strongest)
        named: dict[str, Artist] = {}
        for axes in panels:
            named |= {str(line.get_label()): line for line in axes.get_lines()}
        figure.legend(
            list(named.values()), list(named), loc="outside upper center", ncols=len(named), frameon=False
        )
        first = shown[0][0]
        return save(figure, folder / f"hybrid_{first.split}_{first.chip}")


def _panel(axes: Axes, cell: Cell, strongest: str | None) -> None:
    measure = LEARNED[cell.task].measures[0]

    def score(model: str, program: str) -> float:
        value = cell.score(model, measure.metric, program)
        return np.nan if value is None else max(value, measure.floor)

    ordered = sorted(cell.programs, key=lambda pair: (score("hybrid", pair[1]), pair))
    drawn = {model: (title_of(model), marker, COLOURS[model]) for model, marker in _MARKERS.items()}
    if strongest is not None and strongest not in drawn:
        drawn[strongest] = ("strongest baseline", "s", _STRONGEST_COLOUR)
    for model, (label, marker, colour) in drawn.items():
        if model in cell.seeds:
            values = [score(model, program) for _, program in ordered]
            axes.plot(range(len(ordered)), values, marker, markersize=6.0, color=colour, label=label)
    if strongest is not None:
        axes.set_title(f"strongest baseline: {title_of(strongest)}", fontsize=9.0)
    axes.set_yscale("log")
    for axis_ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis_ticks("{x:g}")
    axes.set_xticks(range(len(ordered)), program_labels(ordered), fontsize=7.5)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(f"{measure.title}\nlower is better")
