"""Progress of searches against trials: curves of the stage `schedules`, and how they are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from math import ceil
from pathlib import Path

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from costbench.arrays import AnyArray
from costbench.reports.dataset_files import read_list
from costbench.reports.figures.canvas import PALETTE, drawing, label_panels, save
from costbench.reports.frame import split_by

_POINTS = ["trials", "median", "low", "high"]
_PANELS_ACROSS = 4
_LOWEST = 50.0
"""Percent of the best speed at which axes begin, unless a curve ends below."""


@dataclass(frozen=True)
class Curve:
    """Progress of the searches of one arm: speed of the best schedule so far, over the repeats.

    Attributes:
        target: target that was built for.
        workload: name of the workload.
        arm: name of the way of searching.
        repeats: number of searches.
        trials: numbers of trials after which the values are taken, ascending.
        median: median over repeats.
        low: lower quartile.
        high: upper quartile.
    """

    target: str
    workload: str
    arm: str
    repeats: int
    trials: tuple[int, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.trials or {len(self.median), len(self.low), len(self.high)} != {len(self.trials)}:
            raise ValueError("trials, median, low and high: equally many, at least one")


NO_CURVES = pd.DataFrame(columns=[field.name for field in fields(Curve)])


def in_order(workload: str) -> tuple[str, int, str]:
    """Returns a sort key of workloads: C2 before C10 before matmul-256."""
    head = workload.rstrip("0123456789")
    number = workload[len(head) :]
    return head, int(number) if number else 0, workload


def read_curves(path: Path) -> pd.DataFrame:
    """Returns the curves in a file: a row for each point, with the fields of `Curve`.

    Those of the processor's own target come first, workloads are in order.

    Raises:
        DataError: naming the file, if it is missing or malformed.
    """
    curves = sorted(
        read_list(Curve, path), key=lambda c: (c.target != "native", c.target, in_order(c.workload))
    )
    return pd.DataFrame(map(asdict, curves), columns=NO_CURVES.columns).explode(_POINTS)


def panel_grid(
    count: int, width: float = 2.7, height: float = 2.2, legend: float = 0.7
) -> AbstractContextManager[tuple[Figure, AnyArray]]:
    """Opens a figure with a grid of panels, at most four across (see `drawing`).

    Args:
        count: number of panels.
        width: width of a panel in inches.
        height: height of a panel in inches.
        legend: height of the legend above them.
    """
    across = min(_PANELS_ACROSS, count)
    up = ceil(count / across)
    return drawing((width * across + 0.4, height * up + legend), up, across)


def draw_curves(
    axes: Axes, curves: pd.DataFrame, colours: Mapping[str, str], alpha: float
) -> dict[str, Artist]:
    """Draws the curves of one workload with their quartiles; returns the lines by arm."""
    by_arm = split_by(curves, ["arm"])
    lines: dict[str, Artist] = {}
    for arm, colour in colours.items():
        if (arm,) not in by_arm:
            continue
        trials, median, low, high = by_arm[arm,][_POINTS].to_numpy(dtype=float).T
        (lines[arm],) = axes.step(trials, median, where="post", color=colour, linewidth=1.2)
        axes.fill_between(trials, low, high, step="post", color=colour, alpha=alpha, linewidth=0.0)
    return lines


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
