"""Draws what tuning with a model gains in each program: nothing measured, a few measurements, all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from costbench.reports.figures.canvas import save, styled
from costbench.reports.figures.results import program_labels
from costbench.reports.search.bars import EXHAUSTIVE, IN_COMPILER, TOP_K, best_known, colour, there, title
from costbench.reports.search.results import SPEEDUP, Bar, Place
from costbench.tasks import labels_of

_TILE = (
    IN_COMPILER,
    *(Bar(model, f"top{TOP_K}") for model in ("learned", "hybrid", "analytical")),
    EXHAUSTIVE,
)
_FUSION = (
    Bar("hardware", "default-1m"),
    Bar("model and hardware", "default-1m"),
    Bar("analytical and hardware", "default-1m"),
    Bar("hardware", "default-10m"),
)
_BARS: Mapping[str, tuple[Bar, ...]] = {"tile": _TILE, "fusion": _FUSION}
_MARKERS = "o^svD"


def write_tune_figure(places: Sequence[Place], folder: Path) -> tuple[Path, ...]:
    """Draw the gain in percent over the compiler's own choice, a panel a place, a row a program.

    Writes `tune_gains.svg` and `.png`; the paths, or none without searches.

    Raises:
        DataError: if a file cannot be written.
    """
    shown = [place for place in places if there(_bars(place), place)]
    if not shown:
        return ()
    with styled():
        height = 1.3 + 0.33 * max(len(place.programs) for place in shown)
        figure = Figure(figsize=(5.2 * len(shown), height), layout="constrained")
        for axes, place in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
            _panel(axes, place)
        return save(figure, folder / "tune_gains")


def _bars(place: Place) -> tuple[Bar, ...]:
    return (*_BARS.get(place.task, ()), *best_known(place))


def _panel(axes: Axes, place: Place) -> None:
    drawn = there(_bars(place), place)

    def gain(bar: Bar, program: str) -> float:
        speedup = place.score(bar, SPEEDUP, program)
        return float("nan") if speedup is None else 100.0 * (speedup - 1.0)

    most = drawn[-1]
    ordered = sorted(place.programs, key=lambda pair: (gain(most, pair[1]), pair))
    for bar, marker in zip(drawn, _MARKERS, strict=False):
        empty = bar == IN_COMPILER or bar.minutes == 1.0
        axes.plot(
            [gain(bar, program) for _, program in ordered],
            range(len(ordered)),
            linestyle="none",
            marker=marker,
            markersize=6.0,
            color=colour(bar.model),
            markerfacecolor="none" if empty else colour(bar.model),
            label=title(bar),
        )
    axes.axvline(0.0, color="#444444", linewidth=0.8)
    axes.grid(visible=True, axis="both")
    axes.set_yticks(range(len(ordered)), [name.replace("\n", " ") for name in program_labels(ordered)])
    axes.set_xlabel("gain over the compiler's own choice (%)")
    axes.set_title(f"{labels_of(place.task).searches}, {place.split} split, {place.chip}", fontsize=9.0)
    axes.legend(fontsize=7.5, frameon=False, loc="lower right")
