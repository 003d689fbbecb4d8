"""The twelve combinations of graph network and reduction as a heat map, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from costbench.arrays import F64
from costbench.reports.figures.canvas import PALETTE, legend_above, save, styled
from costbench.reports.papers.printed import PrintedTable, printed_table
from costbench.reports.results import ChipSplit, Results
from costbench.reports.tables.learning_curves import Curves, Point
from costbench.reports.tables.variants import MODEL
from costbench.tasks import KERNEL_TASKS, LEARNED

ENCODERS = {"none": "no GNN", "graphsage": "GraphSAGE", "gat": "GAT"}
REDUCTIONS = {
    "per-node": "per-node",
    "column-wise": "column-wise",
    "lstm": "LSTM",
    "transformer": "Transformer",
}


def write_heat_map(results: Results, chip_split: ChipSplit, folder: Path) -> tuple[Path, ...]:
    """Draws the mean error of each combination, a panel for each task; ours above, the paper's below.

    Writes `networks_<split>_<chip>.svg` and `.png`; the paths, or none where no combination was run.

    Raises:
        DataError: if a file cannot be written.
        ParamsError: if the package's data of the paper are broken.
    """
    ours = {task: _ours(results, task, chip_split) for task in KERNEL_TASKS}
    tasks = [task for task in KERNEL_TASKS if not np.isnan(ours[task]).all()]
    if not tasks:
        return ()
    paper = printed_table("lpm2021", "networks")
    beside = (paper.split, paper.chip) == (chip_split.split, chip_split.chip)
    with styled():
        size = (4.6 * len(tasks) + 0.6, 2.9 * (2 if beside else 1))
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(2 if beside else 1, len(tasks), squeeze=False)
        for column, task in enumerate(tasks):
            title = KERNEL_TASKS[task].measures[0].title
            _panel(panels[0, column], ours[task], f"{title}, ours")
            if beside:
                _panel(panels[1, column], _theirs(paper, task), f"{title}, {paper.paper}")
        return save(figure, folder / f"networks_{chip_split.split}_{chip_split.chip}")


def _ours(results: Results, task: str, chip_split: ChipSplit) -> F64:
    measure = KERNEL_TASKS[task].measures[0]
    grid = np.full((len(ENCODERS), len(REDUCTIONS)), np.nan)
    for i, encoder in enumerate(ENCODERS):
        for j, reduction in enumerate(REDUCTIONS):
            cell = results.cell(task, chip_split.split, chip_split.chip, f"{encoder}-{reduction}")
            mean = None if cell is None else measure.mean(cell.over_programs(MODEL, measure.metric))
            grid[i, j] = np.nan if mean is None else mean
    return grid


def _theirs(paper: PrintedTable, task: str) -> F64:
    means = [[paper.value(f"{e}-{r}", f"{task}_mean") for r in REDUCTIONS] for e in ENCODERS]
    return np.array(means, dtype=np.float64)


def _panel(axes: Axes, grid: F64, title: str) -> None:
    low, high = float(np.nanmin(grid)), float(np.nanmax(grid))
    # Ratios matter: an error of 4 is to 8 what 8 is to 16.
    norm = LogNorm(max(low, 1e-3), max(high, 1.05 * max(low, 1e-3)))
    axes.imshow(grid, cmap="cividis_r", norm=norm, aspect="auto")
    axes.set_xticks(range(len(REDUCTIONS)), list(REDUCTIONS.values()))
    axes.set_yticks(range(len(ENCODERS)), list(ENCODERS.values()))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(title, fontsize=9.0)
    for (i, j), value in np.ndenumerate(grid):
        if np.isnan(value):
            axes.text(j, i, "not run", ha="center", va="center", color="#777777", fontsize=8)
            continue
        dark = norm(value) > 0.55
        weight = "bold" if value == low else "normal"
        colour = "white" if dark else "black"
        axes.text(j, i, f"{value:.1f}", ha="center", va="center", color=colour, fontweight=weight)


SHARES = {25: "scale-25", 50: "scale-50", 100: "scale-100"}


def write_scaling_figure(results: Results, chip_split: ChipSplit, folder: Path) -> tuple[Path, ...]:
    """Draws the mean error over test programs, a panel for each task, a point for each share.

    Dots are the programs. Writes `scaling_<split>_<chip>.svg` and
    `.png`; the paths, or none where fewer than two shares were run.

    Raises:
        DataError: if a file cannot be written.
    """
    panels: dict[str, list[tuple[int, list[float]]]] = {}
    for task in LEARNED:
        error = LEARNED[task].measures[0]
        for share, variant in SHARES.items():
            cell = results.cell(task, chip_split.split, chip_split.chip, variant)
            values = [] if cell is None else cell.over_programs(MODEL, error.metric)
            if values:
                panels.setdefault(task, []).append((share, values))
    panels = {task: points for task, points in panels.items() if len(points) > 1}
    if not panels:
        return ()
    with styled():
        figure = Figure(figsize=(3.6 * len(panels) + 0.4, 3.2), layout="constrained")
        axes_of_tasks = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (task, points) in zip(axes_of_tasks, panels.items(), strict=True):
            error = LEARNED[task].measures[0]
            shares = [share for share, _ in points]
            axes.plot(shares, [error.mean(values) for _, values in points], "o-", color="#0072B2")
            for share, values in points:
                axes.plot([share] * len(values), values, ".", color="#0072B2", alpha=0.35, markersize=5)
            axes.set_xscale("log")
            axes.minorticks_off()
            axes.set_xticks(shares, [f"{share}%" for share in shares])
            axes.set_xlabel("share of the training programs")
            axes.set_ylabel(error.title)
            axes.set_ylim(bottom=0.0)
        return save(figure, folder / f"scaling_{chip_split.split}_{chip_split.chip}")


_MARKERS = "osD^vP"


def write_learning_figure(curves: Curves, ceilings: Mapping[str, float], folder: Path) -> tuple[Path, ...]:
    """Draws a panel each for validation value, test error and test tau, a line for each network.

    The budget of the ablations is a vertical line, ceilings of tau are horizontal ones. Writes
    `curves_<task>_<split>_<chip>.svg` and `.png`.

    Args:
        curves: learning curves of a task, split and chip.
        ceilings: mean tau of what no model can pass, by title.
        folder: folder of the figure.

    Returns:
        the paths.

    Raises:
        DataError: if a file cannot be written.
    """
    error, tau = LEARNED[curves.task].measures
    panels: tuple[tuple[str, Callable[[Point], float | None]], ...] = (
        (curves.column.replace("/", " ").replace("_", " "), lambda point: point.validation),
        (f"{error.title}, test", lambda point: point.error),
        (f"{tau.title}, test", lambda point: point.tau),
    )
    with styled():
        figure = Figure(figsize=(11.0, 3.4), layout="constrained")
        all_axes = figure.subplots(1, len(panels))
        for axes, (title, value) in zip(all_axes, panels, strict=True):
            _learning_panel(axes, curves, value)
            axes.set_ylabel(title)
        for (title, height), style in zip(sorted(ceilings.items()), ("--", ":"), strict=False):
            all_axes[-1].axhline(height, color="#444444", linestyle=style, linewidth=1.0, label=title)
        legend_above(figure, all_axes[-1], 6)
        return save(figure, folder / f"curves_{curves.name}")


def _learning_panel(axes: Axes, curves: Curves, value: Callable[[Point], float | None]) -> None:
    steps = sorted({point.steps for points in curves.networks.values() for point in points})
    for index, (network, points) in enumerate(curves.networks.items()):
        shown = {point.steps: height for point in points if (height := value(point)) is not None}
        axes.plot(
            list(shown),
            list(shown.values()),
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=4,
            color=PALETTE[index % len(PALETTE)],
            label=network,
        )
    if curves.ablations is not None:
        axes.axvline(curves.ablations, color="#888888", linewidth=1.0, label="budget of the ablations")
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(steps, [f"{count:,}" for count in steps])
    axes.set_xlabel("steps")
