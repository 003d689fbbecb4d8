"""The twelve combinations of graph network and reduction as a heat map, ours beside the paper's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from costbench.arrays import F64
from costbench.reports.figures.canvas import save, styled
from costbench.reports.papers.numbers import ablation_of_paper
from costbench.reports.results import Results
from costbench.reports.tables.ablation import MODEL, Place
from costbench.tasks import KERNEL_TASKS

ENCODERS = {"none": "no GNN", "graphsage": "GraphSAGE", "gat": "GAT"}
REDUCTIONS = {
    "per-node": "per-node",
    "column-wise": "column-wise",
    "lstm": "LSTM",
    "transformer": "Transformer",
}


def write_heat_map(results: Results, place: Place, folder: Path) -> tuple[Path, ...]:
    """Geometric mean of the error of each combination, a panel for each task; ours above, the paper's below.

    Writes `networks_<split>_<chip>.svg` and `.png`; the paths, or none where no combination was run.

    Raises:
        DataError: if a file cannot be written.
        ParamsError: if the package's data of the paper are broken.
    """
    ours = {task: _ours(results, task, place) for task in KERNEL_TASKS}
    tasks = [task for task in KERNEL_TASKS if not np.isnan(ours[task]).all()]
    if not tasks:
        return ()
    paper = ablation_of_paper("networks")
    beside = (paper.split, paper.chip) == (place.split, place.chip)
    with styled():
        size = (4.6 * len(tasks) + 0.6, 2.9 * (2 if beside else 1))
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(2 if beside else 1, len(tasks), squeeze=False)
        for column, task in enumerate(tasks):
            title = KERNEL_TASKS[task].measures[0].title
            _panel(panels[0, column], ours[task], f"{title}, ours")
            if beside:
                _panel(panels[1, column], _theirs(task), f"{title}, {paper.paper}")
        return save(figure, folder / f"networks_{place.split}_{place.chip}")


def _ours(results: Results, task: str, place: Place) -> F64:
    measure = KERNEL_TASKS[task].measures[0]
    grid = np.full((len(ENCODERS), len(REDUCTIONS)), np.nan)
    for i, encoder in enumerate(ENCODERS):
        for j, reduction in enumerate(REDUCTIONS):
            cell = results.cell(task, place.split, place.chip, f"{encoder}-{reduction}")
            mean = None if cell is None else measure.mean(cell.over_programs(MODEL, measure.metric))
            grid[i, j] = np.nan if mean is None else mean
    return grid


def _theirs(task: str) -> F64:
    printed = {v.variant: getattr(v, task) for v in ablation_of_paper("networks").variants}
    return np.array([[printed[f"{e}-{r}"].mean for r in REDUCTIONS] for e in ENCODERS], dtype=np.float64)


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
