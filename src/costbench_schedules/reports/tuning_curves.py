"""Figures of searches of tuning tables: the best configuration so far against trials, a panel for a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.artist import Artist

from costbench.reports.figures.canvas import PALETTE, label_panels, save
from costbench_schedules.reports.curves import draw_curves, panel_grid

_LOWEST = 50.0
"""Percent of the best speed at which axes begin, unless a curve ends below."""


def write_tuning_curves(curves: pd.DataFrame, strategies: Sequence[str], stem: Path) -> tuple[Path, ...]:
    """Draws the median and quartiles over repeats, in percent of the best speed; writes `.svg` and `.png`.

    Args:
        curves: a row for each point, as `read_curves` returns them; `workload` is the kernel, `target` the
            device.
        strategies: strategies that are drawn, in the order of the legend; at most seven have a colour of
            their own.
        stem: path of the files without suffix.

    Raises:
        DataError: if a file cannot be written.
    """
    tables = [*curves.groupby(["workload", "target"], sort=True)]
    colours = {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(strategies)}
    with panel_grid(max(1, len(tables))) as (figure, grid):
        lines: dict[str, Artist] = {}
        for axes, ((kernel, device), points) in zip(grid.ravel(), tables, strict=False):
            lines |= draw_curves(axes, points, colours, 0.15)
            axes.set_xscale("log")
            axes.set_ylim(min(_LOWEST, float(points["median"].astype(float).max())), 101.0)
            axes.set_title(f"{kernel}, {device}".replace("_", " "), fontsize=8.0)
        label_panels(grid, len(tables), "trials", "% of the best")
        figure.legend([*lines.values()], [*lines], loc="outside upper center", ncols=4, frameon=False)
        return save(figure, stem)
