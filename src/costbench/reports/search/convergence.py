"""Draws the progress of a search: runtime of the program against hardware seconds spent, as a step line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from costbench.reports.figures.canvas import PALETTE, save, styled

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class SearchCurve:
    """Best runtime of a search over time.

    Attributes:
        title: of the program and the task.
        default_ns: runtime under the default decisions.
        seconds: hardware time charged up to each measurement, ascending.
        best_ns: runtime of the program with what was found by then.
        measured_ns: runtime of the program with what was measured just then, where that makes sense.
    """

    title: str
    default_ns: float
    seconds: Sequence[float]
    best_ns: Sequence[float]
    measured_ns: Sequence[float] = ()


def draw_search(curve: SearchCurve, stem: Path) -> tuple[Path, ...]:
    """Write `<stem>.svg` and `<stem>.png`; the paths.

    Raises:
        DataError: if one cannot be written.
    """
    with styled():
        figure = Figure(figsize=(6.0, 3.2), layout="constrained")
        axes = figure.add_subplot()
        axes.axhline(curve.default_ns / _NS_PER_MS, color=PALETTE[-1], linewidth=0.8, linestyle="--")
        if curve.measured_ns:
            times = [time / _NS_PER_MS for time in curve.measured_ns]
            axes.plot(curve.seconds, times, ".", color=PALETTE[4], markersize=3, label="measured")
        times = [curve.default_ns / _NS_PER_MS, *(time / _NS_PER_MS for time in curve.best_ns)]
        axes.step([0.0, *curve.seconds], times, where="post", color=PALETTE[0], label="best so far")
        axes.annotate(
            "default", (1.0, curve.default_ns / _NS_PER_MS), xycoords=("axes fraction", "data"),
            ha="right", va="bottom", fontsize=8,
        )  # fmt: skip
        axes.set_xlabel("hardware time charged (s)")
        axes.set_ylabel("runtime of the program (ms)")
        axes.set_title(curve.title, loc="left")
        figure.legend(frameon=False, loc="outside lower center", ncols=2)
        return save(figure, stem)
