"""Learning curves as a figure: validation value, test error and tau against the steps of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from costbench.reports.figures.canvas import PALETTE, save, styled
from costbench.reports.tables.learning import Curves, Point
from costbench.tasks import LEARNED

_MARKERS = "osD^vP"


def write_learning_figure(curves: Curves, ceilings: Mapping[str, float], folder: Path) -> tuple[Path, ...]:
    """Draws a panel each for validation value, test error and test tau, a line for each network.

    The budget of the ablations is a vertical line, ceilings of tau are horizontal ones. Writes
    `curves_<task>_<split>_<chip>.svg` and `.png`.

    Args:
        curves: of a task, split and chip.
        ceilings: mean tau of what no model can pass, by title.
        folder: where to.

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
        drawn = figure.subplots(1, len(panels))
        for axes, (title, value) in zip(drawn, panels, strict=True):
            _panel(axes, curves, value)
            axes.set_ylabel(title)
        for (title, height), style in zip(sorted(ceilings.items()), ("--", ":"), strict=False):
            drawn[-1].axhline(height, color="#444444", linestyle=style, linewidth=1.0, label=title)
        handles, labels = drawn[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(6, len(labels)), frameon=False)
        return save(figure, folder / f"curves_{curves.name}")


def _panel(axes: Axes, curves: Curves, value: Callable[[Point], float | None]) -> None:
    steps = sorted({point.steps for points in curves.networks.values() for point in points})
    for place, (network, points) in enumerate(curves.networks.items()):
        pairs = [(point.steps, found) for point in points if (found := value(point)) is not None]
        axes.plot(
            [pair[0] for pair in pairs],
            [pair[1] for pair in pairs],
            marker=_MARKERS[place % len(_MARKERS)],
            markersize=4,
            color=PALETTE[place % len(PALETTE)],
            label=network,
        )
    if curves.ablations is not None:
        axes.axvline(curves.ablations, color="#888888", linewidth=1.0, label="budget of the ablations")
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(steps, [f"{one:,}" for one in steps])
    axes.set_xlabel("steps")
