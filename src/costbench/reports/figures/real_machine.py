"""Models on the simulated chip and on a machine that exists, side by side; errors after transfer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from costbench.baselines import BASELINES
from costbench.reports.figures.canvas import BarSeries, draw_grouped_bars, legend_above, save, styled
from costbench.reports.real_machine import ModelScores, TransferPoint
from costbench.reports.results import title_of

_MACHINES = (("simulated", "#56B4E9"), ("real", "#D55E00"))
_SHOWN = ("learned", "hybrid", "lpm2021", "trees", "trees_analytical", "analytical", "analytical_linear")
_STARTS = {
    "nothing": ("from nothing", "#444444", "s"),
    "simulated": ("trained on simulated kernels before", "#0072B2", "o"),
}


def write_machines_figure(
    scores: Sequence[ModelScores], simulated: str, real: str, folder: Path
) -> tuple[Path, ...]:
    """Draws error and tau of each model on the simulated chip and on the real machine.

    Writes `real_machine.svg` and `.png`.

    Args:
        scores: models.
        simulated: name of the simulated chip.
        real: name of the real machine.
        folder: folder of the figure.

    Returns:
        the paths; none without models.

    Raises:
        DataError: if a file cannot be written.
    """
    shown = [model for model in scores if model.model in _SHOWN and "mape_ge5us_mean" in model.real]
    if not shown:
        return ()
    positions = np.arange(len(shown), dtype=np.float64)
    panels_of = (("mape_ge5us_mean", "MAPE (%), kernels from 5 µs"), ("tau_mean", "Kendall's τ"))
    with styled():
        figure = Figure(figsize=(9.5, 3.6), layout="constrained")
        panels = figure.subplots(1, 2)
        for axes, (name, label) in zip(panels, panels_of, strict=True):
            series = [
                BarSeries(
                    chip,
                    colour,
                    np.array([getattr(model, machine).get(name, np.nan) for model in shown]),
                )
                for (machine, colour), chip in zip(_MACHINES, (simulated, real), strict=True)
            ]
            draw_grouped_bars(axes, positions, series, 0.4)
            for model in scores:
                if _is_ceiling(model.model) and name in model.real:
                    title = f"{title_of(model.model)}, {real}"
                    axes.axhline(model.real[name], color="#D55E00", linestyle="dotted", label=title)
            axes.set_xticks(positions, [title_of(model.model) for model in shown], rotation=35, ha="right")
            axes.set_ylabel(label)
        _scale_errors(panels[0])
        legend_above(figure, panels[0], 4)
        return save(figure, folder / "real_machine")


def _scale_errors(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _is_ceiling(model: str) -> bool:
    return model in BASELINES and BASELINES[model].is_ceiling


def write_transfer_figure(points: Sequence[TransferPoint], folder: Path) -> tuple[Path, ...]:
    """Draws error and tau against the number of real kernels, a line for each start.

    Writes `transfer.svg` and `.png`.

    Args:
        points: networks after some real kernels.
        folder: folder of the figure.

    Returns:
        the paths; none without points.

    Raises:
        DataError: if a file cannot be written.
    """
    if not points:
        return ()
    with styled():
        figure = Figure(figsize=(9.0, 3.2), layout="constrained")
        panels = figure.subplots(1, 2)
        labels = (("error", "MAPE (%), kernels from 5 µs"), ("tau", "Kendall's τ"))
        for axes, (field, label) in zip(panels, labels, strict=True):
            for start, (title, colour, marker) in _STARTS.items():
                line = [(point.kernels, getattr(point, field)) for point in points if point.start == start]
                if line:
                    axes.plot(*zip(*line, strict=True), color=colour, marker=marker, label=title)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel("real kernels trained on")
            axes.set_ylabel(label)
        _scale_errors(panels[0])
        legend_above(figure, panels[0], 2)
        return save(figure, folder / "transfer")
