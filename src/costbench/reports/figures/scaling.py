"""Error against the share of the training programs that a model has seen."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from costbench.reports.figures.canvas import save, styled
from costbench.reports.results import Results
from costbench.reports.tables.ablation import MODEL, Place
from costbench.tasks import LEARNED

SHARES = {25: "scale-25", 50: "scale-50", 100: "scale-100"}


def write_scaling_figure(results: Results, place: Place, folder: Path) -> tuple[Path, ...]:
    """Geometric mean of the error over test programs, a panel for each task, a point for each share.

    Dots are the programs. Writes `scaling_<split>_<chip>.svg` and
    `.png`; the paths, or none where fewer than two shares were run.

    Raises:
        DataError: if a file cannot be written.
    """
    panels: dict[str, list[tuple[int, list[float]]]] = {}
    for task in LEARNED:
        error = LEARNED[task].measures[0]
        for share, variant in SHARES.items():
            cell = results.cell(task, place.split, place.chip, variant)
            values = [] if cell is None else cell.over_programs(MODEL, error.metric)
            if values:
                panels.setdefault(task, []).append((share, values))
    panels = {task: points for task, points in panels.items() if len(points) > 1}
    if not panels:
        return ()
    with styled():
        figure = Figure(figsize=(3.6 * len(panels) + 0.4, 3.2), layout="constrained")
        drawn = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (task, points) in zip(drawn, panels.items(), strict=True):
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
        return save(figure, folder / f"scaling_{place.split}_{place.chip}")
