"""Predicted against measured runtimes of test kernels, where evaluation left them behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from costbench.arrays import F64
from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench.metrics.checks import paired, positive
from costbench.reports.figures.canvas import save, styled
from costbench.reports.figures.results import COLOURS
from costbench.reports.results import MODELS, title_of

_NAMES = ("task", "split", "chip", "model", "predicted_ns", "measured_ns")
_PANELS_A_ROW = 4
_MOST_POINTS = 3000


@dataclass(frozen=True)
class Scatter:
    """All points of a task, split, chip and model, in nanoseconds, sorted."""

    task: str
    split: str
    chip: str
    model: str
    predicted_ns: F64
    measured_ns: F64


def read_scatter(path: Path) -> tuple[Scatter, ...]:
    """The points in a JSON list of {task, split, chip, model, predicted_ns, measured_ns}.

    The times of an entry are numbers (one kernel) or equally long lists (many).

    Raises:
        DataError: if the file is missing or something else, or a time is not above zero.
    """
    listed = read_json(path)
    if not isinstance(listed, list):
        raise DataError("not a list", where=path, expected="a list of predicted and measured times")
    found: dict[tuple[str, ...], list[tuple[F64, F64]]] = {}
    for number, entry in enumerate(listed):
        if not isinstance(entry, dict) or sorted(entry) != sorted(_NAMES):
            raise DataError("not a point", where=path, field=f"[{number}]", expected=f"the keys {_NAMES}")
        key = tuple(str(entry[name]) for name in _NAMES[:4])
        try:
            times = [np.atleast_1d(np.asarray(entry[name], dtype=np.float64)) for name in _NAMES[4:]]
            predicted, measured = paired(times[0], times[1], ("predicted_ns", "measured_ns"))
            positive(predicted, "predicted_ns")
            positive(measured, "measured_ns")
        except (DataError, TypeError, ValueError) as error:
            raise DataError(f"times of another kind: {error}", where=path, field=f"[{number}]") from error
        found.setdefault(key, []).append((predicted, measured))
    scatters = []
    for key, parts in sorted(found.items()):
        predicted, measured = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        order = np.lexsort((predicted, measured))
        task, split, chip, model = key
        scatters.append(Scatter(task, split, chip, model, predicted[order], measured[order]))
    return tuple(scatters)


def write_scatter_figures(scatters: Sequence[Scatter], folder: Path) -> Mapping[str, Path]:
    """One figure for each task, split and chip, a panel for each model; writes SVG and PNG.

    Returns:
        `predicted_<task>_<split>_<chip>` -> path of the SVG.

    Raises:
        DataError: if a file cannot be written.
    """
    written = {}
    for task, split, chip in dict.fromkeys((one.task, one.split, one.chip) for one in scatters):
        own = [one for one in scatters if (one.task, one.split, one.chip) == (task, split, chip)]
        own.sort(key=lambda one: (MODELS.index(one.model) if one.model in MODELS else len(MODELS), one.model))
        name = f"predicted_{task}_{split}_{chip}"
        with styled():
            columns = min(len(own), _PANELS_A_ROW)
            rows = -(-len(own) // columns)
            figure = Figure(figsize=(3.4 * columns + 0.4, 3.6 * rows), layout="constrained")
            panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
            for axes, one in zip(panels.flat, own, strict=False):
                _panel(axes, one)
            for axes in panels.flat[len(own) :]:
                axes.remove()
            for axes in panels[:, 0]:
                axes.set_ylabel("predicted runtime (µs)")
            written[name], _ = save(figure, folder / name)
    return written


def _panel(axes: Axes, one: Scatter) -> None:
    # Evenly over the sorted points; more would hide each other.
    places = np.unique(np.linspace(0, len(one.measured_ns) - 1, _MOST_POINTS).astype(np.intp))
    measured, predicted = one.measured_ns[places] / 1e3, one.predicted_ns[places] / 1e3
    colour = COLOURS.get(one.model, "#444444")
    axes.plot(measured, predicted, ".", color=colour, markersize=2.5, alpha=0.5, rasterized=True)
    low, high = float(min(measured.min(), predicted.min())), float(max(measured.max(), predicted.max()))
    axes.plot([low, high], [low, high], color="#444444", linewidth=0.8)
    axes.axvline(5.0, color="#999999", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(visible=True, axis="both")
    axes.set_title(f"{title_of(one.model)}, {len(one.measured_ns):,} kernels", fontsize=9.0)
    axes.set_xlabel("measured runtime (µs)")
