"""Results as figures: bars of each test program, curves of training.

Ours and the paper's bars also differ in hatching, so a figure survives a black-and-white print.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from costbench.metrics.measures import Measure
from costbench.reports.figures.canvas import PALETTE, save, styled
from costbench.reports.papers.numbers import PaperTable
from costbench.reports.results import Cell, title_of
from costbench.reports.tables.program import PAPER_MODELS

COLOURS = {
    "learned": "#0072B2",
    "tuned": "#56B4E9",
    "hybrid": "#CC79A7",
    "analytical": "#E69F00",
    "iterations": "#009E73",
    "random": "#777777",
}
BARS = ("learned", "tuned", "hybrid", "analytical")
BASELINES = ("iterations", "random")
_CEILINGS: Mapping[str, Literal["dotted", "dashdot"]] = {
    "measured_again": "dotted",
    "regular_machine": "dashdot",
}
"""Line styles of the marks of what a model can reach."""


def write_program_figure(cell: Cell, paper: PaperTable | None, folder: Path) -> tuple[Path, ...]:
    """Grouped bars of the error (above) and tau (below) per program: models, ours and the paper's.

    Baselines and ceilings are marks. Writes `<cell>.svg` and `<cell>.png`; the paths.

    Raises:
        DataError: if a file cannot be written.
    """
    shown = paper if paper is not None and paper.chip == cell.chip else None
    with styled():
        figure = Figure(figsize=(max(9.5, 1.0 * (len(cell.programs) + 2)), 6.0), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        error, tau = cell.described.measures
        _bars(upper, cell, shown, error)
        _bars(lower, cell, shown, tau)
        upper.set_ylabel(f"{error.title}\nlower is better")
        lower.set_ylabel(f"{tau.title}\nhigher is better")
        _limit(upper, cell, shown, error)
        lower.axhline(0.0, color="#444444", linewidth=0.8)
        lower.set_xticks(*_ticks(cell))
        lower.tick_params(axis="x", length=0)
        handles, labels = lower.get_legend_handles_labels()
        # Names of ceilings are long.
        columns = min(4 if cell.ceilings else 6, len(labels))
        figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
        return save(figure, folder / cell.name)


def _ticks(cell: Cell) -> tuple[list[float], list[str]]:
    """Places and labels of the groups: programs, then median and geometric mean set apart."""
    labels = program_labels(cell.programs)
    count = len(labels)
    return [*map(float, range(count)), count + 0.3, count + 1.3], [*labels, "median", "geom.\nmean"]


def program_labels(programs: Sequence[tuple[str, str]]) -> list[str]:
    """Return labels for (application, program) pairs: the application, if it occurs once."""
    families = [application for application, _ in programs]
    return [
        application.replace(" ", "\n", 1) if families.count(application) == 1 else _short(program)
        for application, program in programs
    ]


def _short(program: str) -> str:
    """Stem and step of a corpus name (`wavernn_1_b8_train_f32` -> wavernn_1, train), else the name."""
    match = re.fullmatch(r"(.+)_b\d+_(train|infer)_\w+", program)
    return f"{match[1]}\n{match[2]}" if match else program


def _series(cell: Cell, model: str, measure: Measure) -> list[float]:
    """Values per program, then median and geometric mean; NaN where there is none."""
    values = [cell.score(model, measure.metric, program) for _, program in cell.programs]
    defined = [value for value in values if value is not None]
    ends = [measure.average(kind, defined) for kind in ("median", "geometric_mean")]
    return [np.nan if value is None else value for value in (*values, *ends)]


def _paper_series(cell: Cell, paper: PaperTable, model: str, measure: Measure) -> list[float]:
    rows = [paper.row_for(*program) for program in cell.programs]
    values = [np.nan if row is None else row.score(measure.printed, model) for row in rows]
    ends = (paper.median, paper.geometric_mean)
    return [*values, *(end.score(measure.printed, model) for end in ends)]


def _bars(axes: Axes, cell: Cell, paper: PaperTable | None, measure: Measure) -> None:
    places = np.array(_ticks(cell)[0])
    series: list[tuple[str, str, bool, list[float]]] = []
    for model in BARS:
        if model in cell.models:
            series.append((model, f"{title_of(model)}, ours", False, _series(cell, model, measure)))
        if paper is not None and model in PAPER_MODELS:
            label = f"{model}, {paper.paper}"
            series.append((model, label, True, _paper_series(cell, paper, model, measure)))
    width = 0.8 / max(1, len(series))
    for index, (model, label, hatched, values) in enumerate(series):
        shift = (index - (len(series) - 1) / 2.0) * width
        colour = COLOURS[model]
        axes.bar(
            places + shift,
            np.nan_to_num(values),
            width * 0.92,
            label=label,
            color="white" if hatched else colour,
            edgecolor=colour,
            hatch="////" if hatched else None,
            linewidth=0.9,
        )
    for model in BASELINES:
        if model in cell.models:
            heights = _series(cell, model, measure)
            axes.hlines(
                heights,
                places - 0.46,
                places + 0.46,
                colors=COLOURS[model],
                linestyles="dashed" if model == "random" else "solid",
                linewidth=1.8,
                label=f"{model}, ours",
            )
    for name in cell.ceilings:
        axes.hlines(
            _series(cell, name, measure),
            places - 0.46,
            places + 0.46,
            colors="#000000",
            linestyles=_CEILINGS[name],
            linewidth=1.2,
            label=title_of(name),
        )
    axes.axvline(len(cell.programs) - 0.35, color="#bbbbbb", linewidth=0.8, linestyle=":")


def _limit(axes: Axes, cell: Cell, paper: PaperTable | None, error: Measure) -> None:
    """Scale the error axis to most bars and write the values of longer ones at the upper edge."""
    bars = [(model, _series(cell, model, error)) for model in BARS if model in cell.models]
    if paper is not None:
        bars += [(model, _paper_series(cell, paper, model, error)) for model in PAPER_MODELS]
    heights = sorted(v for _, series in bars for v in series if not np.isnan(v))
    # One bar far above the others would flatten them all.
    usual = [v for v in heights if v <= 4.0 * float(np.quantile(heights, 0.9))] if heights else []
    top = 1.25 * max([*usual, 1.0])
    axes.set_ylim(0.0, top)
    places = _ticks(cell)[0]
    named = [(m, _series(cell, m, error)) for m in BASELINES if m in cell.models]
    named += [(model, series) for model, series in bars if max(series) > top]
    for row, (model, series) in enumerate(named):
        for place, value in zip(places, series, strict=True):
            if value > top:
                text = f"↑{value:.0f}"
                height = 0.99 - 0.07 * row
                axes.text(
                    place,
                    height,
                    text,
                    transform=axes.get_xaxis_transform(),
                    color=COLOURS[model],
                    ha="center",
                    va="top",
                    fontsize=7.5,
                )


def write_curve_figure(
    name: str, curves: Mapping[str, Sequence[tuple[float, float]]], axis: str, folder: Path
) -> tuple[Path, ...]:
    """Lines of a value against the epoch, one a training run; writes `<name>.svg` and `.png`.

    Raises:
        DataError: if a file cannot be written.
    """
    with styled():
        figure = Figure(figsize=(6.0, 3.2), layout="constrained")
        axes = figure.subplots()
        for index, (label, points) in enumerate(sorted(curves.items())):
            epochs, values = zip(*points, strict=True)
            style = ["-", "--", ":", "-."][index // len(PALETTE) % 4]
            axes.plot(
                epochs,
                values,
                style,
                color=PALETTE[index % len(PALETTE)],
                label=label,
                marker=".",
                markersize=4,
            )
        axes.set_xlabel("epoch")
        axes.set_ylabel(axis)
        figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)
        return save(figure, folder / name)
