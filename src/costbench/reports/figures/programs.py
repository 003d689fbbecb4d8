"""Results as figures: bars of each test program, curves of training.

Ours and the paper's bars also differ in hatching, so a figure survives a black-and-white print.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from costbench.arrays import F64
from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench.metrics.checks import aligned, positive
from costbench.metrics.measures import Measure
from costbench.reports.figures.canvas import (
    PALETTE,
    BarSeries,
    draw_grouped_bars,
    drawing,
    legend_above,
    save,
    write_beside_edge,
)
from costbench.reports.papers.printed import PrintedTable
from costbench.reports.results import MODELS, Cell, Division, title_of
from costbench.reports.tables.programs import PAPER_MODELS
from costbench.tasks import LEARNED

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
_Line = Literal["solid", "dashed", "dotted", "dashdot"]
MOST_NAMED = 24
"""Number of programs whose names fit below a figure."""
_CEILINGS: Mapping[str, _Line] = {"measured_again": "dotted", "regular_machine": "dashdot"}
"""Line styles of the marks of what a model can reach."""


def write_program_figure(cell: Cell, paper: PrintedTable | None, folder: Path) -> tuple[Path, ...]:
    """Draws error and tau of the test programs: models, ours and the paper's.

    Up to `MOST_NAMED` programs have grouped bars, error above and tau below, with marks for baselines and
    ceilings. Of more, each model has a curve of its values from least to largest, error left and tau right.
    Writes `<cell>.svg` and `<cell>.png`; the paths.

    Raises:
        DataError: if a file cannot be written.
    """
    shown = paper if paper is not None and paper.chip == cell.chip else None
    named = len(cell.programs) <= MOST_NAMED
    return _draw_bars(cell, shown, folder) if named else _draw_curves(cell, folder)


def _draw_bars(cell: Cell, paper: PrintedTable | None, folder: Path) -> tuple[Path, ...]:
    error, tau = cell.described.measures
    size = (max(9.5, 1.0 * (len(cell.programs) + 2)), 6.0)
    with drawing(size, rows=2, sharex=True) as (figure, ((upper,), (lower,))):
        _bars(upper, cell, paper, error)
        _bars(lower, cell, paper, tau)
        upper.set_ylabel(f"{error.title}\nlower is better")
        lower.set_ylabel(f"{tau.title}\nhigher is better")
        _limit(upper, cell, paper, error)
        lower.axhline(0.0, color="#444444", linewidth=0.8)
        lower.set_xticks(*_ticks(cell))
        lower.tick_params(axis="x", length=0)
        # Names of ceilings are long.
        legend_above(figure, lower, 4 if cell.ceilings else 6)
        return save(figure, folder / cell.name)


def _draw_curves(cell: Cell, folder: Path) -> tuple[Path, ...]:
    """Draws without values that a paper prints: those are of other and fewer programs."""
    styles: dict[str, tuple[str, _Line]] = {m: (COLOURS[m], "solid") for m in BARS if m in cell.models}
    styles |= {m: (COLOURS[m], "dashed") for m in BASELINES if m in cell.models}
    styles |= {name: ("#000000", _CEILINGS[name]) for name in cell.ceilings}
    with drawing((9.5, 4.2), columns=2) as (figure, ((left, right),)):
        for axes, measure in zip((left, right), cell.described.measures, strict=True):
            for model, (colour, line) in styles.items():
                values = np.array(_series(cell, model, measure)[: len(cell.programs)])
                shown = np.maximum(values, measure.floor) if axes is left else values
                draw_shares(axes, shown, color=colour, linestyle=line, label=title_of(model))
        left.set_ylabel(f"{cell.described.measures[0].title}\nlower is better")
        right.set_ylabel(f"{cell.described.measures[1].title}\nhigher is better")
        _logarithmic(left)
        for axes in (left, right):
            axes.set_xlabel(f"programs (%), from the least of each model; {len(cell.programs)} programs")
        legend_above(figure, right, 4)
        return save(figure, folder / cell.name)


def draw_shares(axes: Axes, values: Sequence[float] | F64, **style: Any) -> None:
    """Draws values from least to largest over the share of them in percent.

    Args:
        axes: panel to draw on.
        values: one a program; NaN, of a program without a value, comes last and is not drawn.
        style: properties of the line, as matplotlib calls them.
    """
    shares = 100.0 * (np.arange(len(values)) + 0.5) / len(values)
    axes.plot(shares, np.sort(values), **{"linewidth": 1.6, **style})


def _logarithmic(axes: Axes) -> None:
    axes.set_yscale("log")
    for axis_ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis_ticks("{x:g}")
    axes.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))


def _ticks(cell: Cell) -> tuple[list[float], list[str]]:
    """Returns positions and labels of the groups: programs, then median and geometric mean set apart."""
    labels = program_labels(cell.programs)
    count = len(labels)
    return [*map(float, range(count)), count + 0.3, count + 1.3], [*labels, "median", "geom.\nmean"]


def program_labels(programs: Sequence[tuple[str, str]]) -> list[str]:
    """Returns labels for (application, program) pairs: the application, if it occurs once."""
    families = [application for application, _ in programs]
    return [
        application.replace(" ", "\n", 1) if families.count(application) == 1 else _short(program)
        for application, program in programs
    ]


def _short(program: str) -> str:
    """Returns stem and step of a corpus name (`wavernn_1_b8_train_f32`: wavernn_1, train), or the name."""
    match = re.fullmatch(r"(.+)_b\d+_(train|infer)_\w+", program)
    return f"{match[1]}\n{match[2]}" if match else program


def _series(cell: Cell, model: str, measure: Measure) -> list[float]:
    """Returns values per program, then median and geometric mean; NaN where there is none."""
    values = [cell.score(model, measure.metric, program) for _, program in cell.programs]
    defined = [value for value in values if value is not None]
    ends = [measure.average(kind, defined) for kind in ("median", "geometric_mean")]
    return [np.nan if value is None else value for value in (*values, *ends)]


def _paper_series(cell: Cell, paper: PrintedTable, model: str, measure: Measure) -> list[float]:
    column = f"{measure.printed}_{model}"
    values = [paper.value_in(paper.row_for(*program), column) for program in cell.programs]
    values += [paper.average(kind, column) for kind in ("median", "geometric_mean")]
    return [np.nan if value is None else value for value in values]


def _bars(axes: Axes, cell: Cell, paper: PrintedTable | None, measure: Measure) -> None:
    positions = np.array(_ticks(cell)[0])
    series: list[BarSeries] = []
    for model in BARS:
        if model in cell.models:
            heights = np.nan_to_num(_series(cell, model, measure))
            series.append(BarSeries(f"{title_of(model)}, ours", COLOURS[model], heights))
        if paper is not None and model in PAPER_MODELS:
            heights = np.nan_to_num(_paper_series(cell, paper, model, measure))
            series.append(BarSeries(f"{model}, {paper.paper}", COLOURS[model], heights, hatched=True))
    draw_grouped_bars(axes, positions, series, 0.8 / max(1, len(series)))
    marks: dict[str, tuple[str, _Line, float, str]] = {
        model: (COLOURS[model], "dashed" if model == "random" else "solid", 1.8, f"{model}, ours")
        for model in BASELINES
        if model in cell.models
    }
    marks |= {name: ("#000000", _CEILINGS[name], 1.2, title_of(name)) for name in cell.ceilings}
    for name, (colour, style, width, label) in marks.items():
        values, left, right = _series(cell, name, measure), positions - 0.46, positions + 0.46
        axes.hlines(values, left, right, colors=colour, linestyles=style, linewidth=width, label=label)
    axes.axvline(len(cell.programs) - 0.35, color="#bbbbbb", linewidth=0.8, linestyle=":")


def _limit(axes: Axes, cell: Cell, paper: PrintedTable | None, error: Measure) -> None:
    """Scale the error axis to most bars and write the values of longer ones at the upper edge."""
    bars = [(model, _series(cell, model, error)) for model in BARS if model in cell.models]
    if paper is not None:
        bars += [(model, _paper_series(cell, paper, model, error)) for model in PAPER_MODELS]
    heights = sorted(v for _, series in bars for v in series if not np.isnan(v))
    # One bar far above the others would flatten them all.
    usual = [v for v in heights if v <= 4.0 * float(np.quantile(heights, 0.9))] if heights else []
    top = 1.25 * max([*usual, 1.0])
    axes.set_ylim(0.0, top)
    positions = _ticks(cell)[0]
    named = [(m, _series(cell, m, error)) for m in BASELINES if m in cell.models]
    named += [(model, series) for model, series in bars if max(series) > top]
    for row, (model, series) in enumerate(named):
        for position, value in zip(positions, series, strict=True):
            if value > top:
                height, colour = 0.99 - 0.07 * row, COLOURS[model]
                write_beside_edge(axes, position, height, f"↑{value:.0f}", va="top", color=colour)


def write_curve_figure(
    name: str, curves: Mapping[str, Sequence[tuple[float, float]]], axis: str, folder: Path
) -> tuple[Path, ...]:
    """Draws a value against the epoch, a line for each training run; writes `<name>.svg` and `.png`.

    Raises:
        DataError: if a file cannot be written.
    """
    with drawing((6.0, 3.2)) as (figure, ((axes,),)):
        for index, (label, points) in enumerate(sorted(curves.items())):
            epochs, values = zip(*points, strict=True)
            style, colour = ("-", "--", ":", "-.")[index // len(PALETTE) % 4], PALETTE[index % len(PALETTE)]
            axes.plot(epochs, values, style, color=colour, label=label, marker=".", markersize=4)
        axes.set_xlabel("epoch")
        axes.set_ylabel(axis)
        figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)
        return save(figure, folder / name)


_STRONGEST_COLOUR = "#009E73"
_MARKERS = {"analytical": "o", "learned": "D", "hybrid": "^"}
_WIDTH_OF_CURVES = 7


def write_hybrid_figure(cells: Sequence[tuple[Cell, str | None]], folder: Path) -> tuple[Path, ...]:
    """Draws the error of each test program, a panel a task.

    Up to `MOST_NAMED` programs are dots side by side, by the hybrid's error, with their names. Of more, each
    model has a curve: its errors from least to largest, over the share of programs.

    Writes `hybrid_<split>_<chip>.svg` and `.png`, named by the first cell; the paths, or none without results
    of a hybrid.

    Args:
        cells: main results, each with the name of its strongest baseline.
        folder: folder of the figure.

    Raises:
        DataError: if a file cannot be written.
    """
    shown = [(cell, strongest) for cell, strongest in cells if "hybrid" in cell.seeds]
    if not shown:
        return ()
    widths = [min(max(3, len(cell.programs)), _WIDTH_OF_CURVES) for cell, _ in shown]
    size = (max(9.5, 0.7 * sum(widths)), 3.8)
    with drawing(size, columns=len(shown), width_ratios=widths) as (figure, (panels,)):
        for axes, (cell, strongest) in zip(panels, shown, strict=True):
            _draw_panel(axes, cell, strongest)
        named: dict[str, Artist] = {}
        for axes in panels:
            named |= {str(line.get_label()): line for line in axes.get_lines()}
        figure.legend(
            list(named.values()), list(named), loc="outside upper center", ncols=len(named), frameon=False
        )
        first = shown[0][0]
        return save(figure, folder / f"hybrid_{first.split}_{first.chip}")


def _draw_panel(axes: Axes, cell: Cell, strongest: str | None) -> None:
    measure = LEARNED[cell.task].measures[0]

    def score(model: str, program: str) -> float:
        value = cell.score(model, measure.metric, program)
        return np.nan if value is None else max(value, measure.floor)

    ordered = sorted(cell.programs, key=lambda pair: (score("hybrid", pair[1]), pair))
    models = {model: (title_of(model), marker, COLOURS[model]) for model, marker in _MARKERS.items()}
    if strongest is not None and strongest not in models:
        models[strongest] = ("strongest baseline", "s", _STRONGEST_COLOUR)
    are_named = len(ordered) <= MOST_NAMED
    for model, (label, marker, colour) in models.items():
        if model not in cell.seeds:
            continue
        values = [score(model, program) for _, program in ordered]
        if are_named:
            axes.plot(range(len(ordered)), values, marker, markersize=6.0, color=colour, label=label)
        else:
            draw_shares(axes, values, color=colour, label=label)
    if strongest is not None:
        axes.set_title(f"strongest baseline: {title_of(strongest)}", fontsize=9.0)
    _logarithmic(axes)
    if are_named:
        axes.set_xticks(range(len(ordered)), program_labels(ordered), fontsize=7.5)
        axes.tick_params(axis="x", length=0)
    else:
        axes.set_xlabel(f"programs (%), from the least error of each model; {len(ordered)} programs")
    axes.set_ylabel(f"{measure.title}\nlower is better")


_NAMES = ("task", "split", "chip", "model", "predicted_ns", "measured_ns")
_PANELS_A_ROW = 4
_MAX_POINTS = 3000


@dataclass(frozen=True)
class Scatter(Division):
    """All points of a task, split, chip and model, in nanoseconds, sorted."""

    model: str
    predicted_ns: F64
    measured_ns: F64


UNSCALED = "analytical_unscaled"
"""Model of the points of the analytical estimate as it is, which say what it explains and are not drawn."""


def read_scatter(path: Path) -> tuple[Scatter, ...]:
    """Returns the points in a JSON list of {task, split, chip, model, predicted_ns, measured_ns}.

    The times of an entry are numbers (one kernel) or equally long lists (many).

    Raises:
        DataError: if the file is missing or something else, or a time is not above zero.
    """
    entries = read_json(path)
    if not isinstance(entries, list):
        raise DataError("not a list", where=path, expected="a list of predicted and measured times")
    times_by_key: dict[tuple[str, ...], list[tuple[F64, F64]]] = {}
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or sorted(entry) != sorted(_NAMES):
            raise DataError("not a point", where=path, field=f"[{number}]", expected=f"the keys {_NAMES}")
        key = tuple(str(entry[name]) for name in _NAMES[:4])
        try:
            times = [np.atleast_1d(np.asarray(entry[name], dtype=np.float64)) for name in _NAMES[4:]]
            predicted, measured = aligned(predicted_ns=times[0], measured_ns=times[1])
            positive(predicted, "predicted_ns")
            positive(measured, "measured_ns")
        except (DataError, TypeError, ValueError) as error:
            raise DataError(f"times of another kind: {error}", where=path, field=f"[{number}]") from error
        times_by_key.setdefault(key, []).append((predicted, measured))
    scatters = []
    for key, parts in sorted(times_by_key.items()):
        predicted, measured = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        order = np.lexsort((predicted, measured))
        task, split, chip, model = key
        scatters.append(Scatter(task, split, chip, model, predicted[order], measured[order]))
    return tuple(scatters)


def write_scatter_figures(scatters: Sequence[Scatter], folder: Path) -> Mapping[str, Path]:
    """Draws a figure for each task, split and chip, a panel for each model; writes SVG and PNG.

    Returns:
        `predicted_<task>_<split>_<chip>` -> path of the SVG.

    Raises:
        DataError: if a file cannot be written.
    """
    written = {}
    for division in dict.fromkeys(scatter.name for scatter in scatters):
        models = [scatter for scatter in scatters if scatter.name == division]
        models.sort(key=lambda scatter: ((*MODELS, scatter.model).index(scatter.model), scatter.model))
        name = f"predicted_{division}"
        columns = min(len(models), _PANELS_A_ROW)
        rows = -(-len(models) // columns)
        size = (3.4 * columns + 0.4, 3.6 * rows)
        with drawing(size, rows, columns, sharex=True, sharey=True) as (figure, panels):
            for axes, scatter in zip(panels.flat, models, strict=False):
                _scatter_panel(axes, scatter)
            for axes in panels.flat[len(models) :]:
                axes.remove()
            for axes in panels[:, 0]:
                axes.set_ylabel("predicted runtime (µs)")
            written[name], _ = save(figure, folder / name)
    return written


def _scatter_panel(axes: Axes, scatter: Scatter) -> None:
    # Evenly over the sorted points; more would hide each other.
    indices = np.unique(np.linspace(0, len(scatter.measured_ns) - 1, _MAX_POINTS).astype(np.intp))
    measured, predicted = scatter.measured_ns[indices] / 1e3, scatter.predicted_ns[indices] / 1e3
    colour = COLOURS.get(scatter.model, "#444444")
    axes.plot(measured, predicted, ".", color=colour, markersize=2.5, alpha=0.5, rasterized=True)
    low, high = float(min(measured.min(), predicted.min())), float(max(measured.max(), predicted.max()))
    axes.plot([low, high], [low, high], color="#444444", linewidth=0.8)
    axes.axvline(5.0, color="#999999", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(visible=True, axis="both")
    axes.set_title(f"{title_of(scatter.model)}, {len(scatter.measured_ns):,} kernels", fontsize=9.0)
    axes.set_xlabel("measured runtime (µs)")
