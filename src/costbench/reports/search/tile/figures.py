"""Tile sizes in the compiler and in the autotuner: lpm2021's figure 4, and what more measurements bring."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from costbench.reports.figures.canvas import save, styled
from costbench.reports.search.axes import Groups, draw_speedups
from costbench.reports.search.bars import (
    EXHAUSTIVE,
    FIGURE_4,
    IN_COMPILER,
    TILE_MODELS,
    TILE_TITLES,
    colour,
    there,
)
from costbench.reports.search.results import SECONDS, SLOWDOWN, Bar, Place

_MARKERS = {"learned": "o", "tuned": "s", "hybrid": "D", "alternating": "^", "analytical": "v", "random": "x"}
_PERCENTS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
_HEADERS = {"random": "test programs", "manual": "test programs", "gains": "programs that gain most"}


def write_tile_figure(places: Sequence[Place], folder: Path) -> tuple[Path, ...]:
    """Bars of the speed-up over the analytical model's choice in the compiler, per program.

    Writes `lpm2021_figure4_<split>_<chip>.svg` and `.png`; the paths, or none where no bar of it was run.

    Args:
        places: side by side; the first names the files.
        folder: where to.

    Raises:
        DataError: if a file cannot be written.
    """
    bars = there(FIGURE_4, *places)
    if not bars:
        return ()
    groups = Groups(tuple(places), tuple(_HEADERS.get(place.split, place.split) for place in places))
    with styled():
        size = (max(9.5, 0.95 * len(groups.ticks) + 0.8), 3.9)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        draw_speedups(axes, groups, bars, (IN_COMPILER,), [bar for bar in bars if bar.model == "random"])
        axes.set_ylabel("speed-up over the analytical model\nin the compiler; higher is better")
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False)
        return save(figure, folder / f"lpm2021_figure4_{places[0].name}")


def write_top_k_figure(places: Sequence[Place], folder: Path) -> tuple[Path, ...]:
    """Slow-down against exhaustive search over tile sizes measured per kernel, and over hardware seconds.

    Means over programs, a row of two panels for each place. Writes `tile_search_<split>_<chip>.svg` and
    `.png`; the paths, or none where no budget was run.

    Raises:
        DataError: if a file cannot be written.
    """
    drawn = [place for place in places if any(bar.top_k for bar in place.bars)]
    if not drawn:
        return ()
    with styled():
        figure = Figure(figsize=(8.6, 3.0 * len(drawn) + 0.5), layout="constrained")
        panels = figure.subplots(len(drawn), 2, squeeze=False, sharey="row")
        for row, place in zip(panels, drawn, strict=True):
            _curves(row[0], place, None)
            _curves(row[1], place, SECONDS)
            row[0].set_ylabel(
                f"mean slow-down against exhaustive (%)\n{_HEADERS.get(place.split, place.split)}"
            )
            row[0].set_xlabel("tile sizes measured per kernel")
            row[1].set_xlabel("hardware seconds per program")
        handles, labels = panels[0, 1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False)
        return save(figure, folder / f"tile_search_{drawn[0].name}")


def _curves(axes: Axes, place: Place, metric: str | None) -> None:
    """A line for each model: over k, or over the mean of a metric."""
    for model in TILE_MODELS:
        bars = sorted((b for b in place.bars if b.model == model and b.top_k), key=lambda b: b.top_k or 0)
        points = [(_across(place, bar, metric), place.mean(bar, SLOWDOWN)) for bar in bars]
        known = [(x, 100.0 * y) for x, y in points if x is not None and y is not None and x > 0.0]
        if not known:
            continue
        across, slowdowns = zip(*known, strict=True)
        name = TILE_TITLES.get(model, model)
        axes.plot(
            across,
            slowdowns,
            color=colour(model),
            marker=_MARKERS[model],
            markersize=4,
            linewidth=1.2,
            linestyle="dashed" if model == "random" else "solid",
            label=name,
        )
    if metric is not None:
        seconds = place.mean(EXHAUSTIVE, metric)
        if seconds:
            hue = colour(EXHAUSTIVE.model)
            axes.plot([seconds], [0.0], "*", color=hue, markersize=9, label="exhaustive", clip_on=False)
    axes.set_xscale("log")
    # Good choices differ by tenths of a percent, random ones by hundreds of percent.
    axes.set_yscale("symlog", linthresh=1.0)
    top = 1.4 * axes.dataLim.y1
    axes.set_ylim(-0.03, max(top, 1.0))
    axes.minorticks_off()
    ticks = [tick for tick in _PERCENTS if tick <= axes.get_ylim()[1]]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    if metric is None:
        numbers = sorted({bar.top_k for bar in place.bars if bar.top_k})
        axes.set_xticks(numbers, [str(number) for number in numbers])
    else:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")


def _across(place: Place, bar: Bar, metric: str | None) -> float | None:
    return float(bar.top_k or 0) if metric is None else place.mean(bar, metric)
