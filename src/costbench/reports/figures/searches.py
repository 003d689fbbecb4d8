"""Draws bars of speed-ups from a base line at 1, so that faster points up and slower points down.

Of tile sizes, the networks of a model are the repeats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from costbench.arrays import F64
from costbench.reports.figures.canvas import drawing, legend_above, save, write_beside_edge
from costbench.reports.figures.programs import MOST_NAMED, draw_shares, program_labels
from costbench.reports.searches import (
    EXHAUSTIVE,
    FIGURE_4,
    IN_COMPILER,
    MINUTES,
    SECONDS,
    SLOWDOWN,
    SPEEDUP,
    STARTS,
    TILE_MODELS,
    TILE_TITLES,
    TOP_K,
    Bar,
    SearchResults,
    bars_with_results,
    best_known,
    colour,
    figure_5,
    title,
)
from costbench.tasks import labels_of

_TICKS = tuple(digit * 10.0**power for power in range(-3, 4) for digit in (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
_WIDE = 3.0
"""Largest speed-up over smallest from which on the axis is logarithmic."""
_GAP = 0.35
_WIDTH = 12
_PARTS = re.compile(r"[A-Z]+[^A-Z_]*_*|[^A-Z_]+_*|_+")


@dataclass(frozen=True)
class Groups:
    """Where groups of bars stand: the programs of each split, and behind them their geometric mean.

    Attributes:
        results: results whose programs stand one after the other.
        headers: what stands above each; empty for none.
    """

    results: tuple[SearchResults, ...]
    headers: tuple[str, ...]

    @property
    def ticks(self) -> list[float]:
        """Returns positions of all groups on the axis."""
        ticks: list[float] = []
        start = 0.0
        for results in self.results:
            count = len(results.programs)
            ticks += [*(start + i for i in range(count)), start + count + _GAP]
            start += count + 1.0 + 2.0 * _GAP
        return ticks

    @property
    def labels(self) -> list[str]:
        """Below the axis."""
        named = ((*map(_wrapped, program_labels(p.programs)), "geom.\nmean") for p in self.results)
        return [text for labels in named for text in labels]

    def speedups(self, bar: Bar) -> tuple[F64, F64, F64]:
        """Returns the score, the lowest and the highest repeat of each group; NaN where there is none."""
        rows: list[tuple[float, float, float]] = []
        for results in self.results:
            for _, program in results.programs:
                speedups, score = results.repeats(bar, SPEEDUP, program), results.score(bar, SPEEDUP, program)
                rows.append((np.nan,) * 3 if score is None else (score, min(speedups), max(speedups)))
            mean = results.mean(bar, SPEEDUP)
            rows.append((np.nan if mean is None else mean, np.nan, np.nan))
        middle, low, high = np.array(rows, dtype=np.float64).T
        return middle, low, high


def _wrapped(label: str) -> str:
    """Returns lines of at most `_WIDTH` letters where the parts of names allow it: groups stand close."""
    lines = []
    for line in label.split("\n"):
        lines.append("")
        for part in _PARTS.findall(line):
            if lines[-1] and len(lines[-1] + part) > _WIDTH:
                lines.append("")
            lines[-1] += part
    return "\n".join(lines)


@dataclass(frozen=True)
class Row:
    """A row of panels.

    Attributes:
        bars: from left to right, and in the order of the legend.
        label: label of the axis.
        empty: bars that are not filled, whose curve is dashed.
        cut: bars that may end beyond the axis, with their number at its edge, or curves that leave it.
    """

    bars: Sequence[Bar]
    label: str
    empty: Sequence[Bar] = ()
    cut: Sequence[Bar] = ()


def draw_speedups(axes: Axes, groups: Groups, row: Row) -> None:
    """Draws a group of bars for each program and mean, whiskers from the lowest to the highest repeat."""
    ticks = np.array(groups.ticks)
    width = 0.86 / max(1, len(row.bars))
    extremes: list[float] = [1.0]
    for index, bar in enumerate(row.bars):
        middle, low, high = groups.speedups(bar)
        shown = ~np.isnan(middle)
        if bar not in row.cut:
            extremes += [float(v) for v in np.concatenate([middle, low, high]) if not np.isnan(v)]
        at = (ticks + (index - (len(row.bars) - 1) / 2.0) * width)[shown]
        hue = colour(bar.model)
        axes.bar(
            at,
            middle[shown] - 1.0,
            width * 0.9,
            bottom=1.0,
            label=title(bar),
            color="white" if bar in row.empty else hue,
            edgecolor=hue,
            linewidth=0.9,
        )
        reach = np.nan_to_num(np.stack([middle - low, high - middle]))[:, shown]
        whiskers = reach.max(axis=0) > 0.0
        if whiskers.any() and bar not in row.cut:
            contrast, size = "#777777" if hue == "#222222" else "#222222", reach[:, whiskers]
            style: dict[str, Any] = {"elinewidth": 0.8, "capsize": 1.5, "capthick": 0.8, "ecolor": contrast}
            axes.errorbar(at[whiskers], middle[shown][whiskers], size, fmt="none", **style)
    axes.axhline(1.0, color="#444444", linewidth=0.8)
    _scale(axes, min(extremes), max(extremes))
    _name_cut(axes, groups, row)
    axes.set_xticks(groups.ticks, groups.labels)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(groups.ticks[0] - 0.6, groups.ticks[-1] + 0.6)
    _part(axes, groups)


def _name_cut(axes: Axes, groups: Groups, row: Row) -> None:
    """Writes the numbers of bars that end beyond the axis, at its edge."""
    bottom, top = axes.get_ylim()
    width = 0.86 / max(1, len(row.bars))
    for bar in row.cut:
        shift = (row.bars.index(bar) - (len(row.bars) - 1) / 2.0) * width
        for tick, value in zip(groups.ticks, groups.speedups(bar)[0], strict=True):
            if np.isnan(value) or bottom <= value <= top:
                continue
            arrow, height, edge = ("↑", 0.99, "top") if value > top else ("↓", 0.01, "bottom")
            style = {"color": colour(bar.model), "ha": "right", "va": edge}
            write_beside_edge(axes, tick + shift - 0.7 * width, height, f"{arrow}{value:.2g}", **style)


def _scale(axes: Axes, low: float, high: float) -> None:
    """Makes the axis logarithmic where speed-ups differ by much, with a margin on both sides."""
    if high / low <= _WIDE:
        margin = max(0.08 * (high - low), 0.002)
        axes.set_ylim(low - margin, high + margin)
        return
    axes.set_yscale("log")
    axes.minorticks_off()
    reach = (high / low) ** 0.06
    low, high = low / reach, high * reach
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(low, high)


def _part(axes: Axes, groups: Groups) -> None:
    """Sets means apart from programs, and results of other splits from each other."""
    ticks = groups.ticks
    first = 0
    for number, (results, header) in enumerate(zip(groups.results, groups.headers, strict=True)):
        last = first + len(results.programs)
        axes.axvline(ticks[last] - 0.5 - _GAP / 2.0, color="#bbbbbb", linewidth=0.8, linestyle=":")
        if number:
            axes.axvline(ticks[first] - 0.5 - _GAP / 2.0, color="#444444", linewidth=0.8)
        if header:
            middle = (ticks[first] + ticks[last]) / 2.0
            write_beside_edge(axes, middle, 1.01, header, va="bottom", fontsize=9.0)
        first = last + 1


_MARKERS = {"learned": "o", "tuned": "s", "hybrid": "D", "alternating": "^", "analytical": "v", "random": "x"}
_PERCENTS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
_HEADERS = {
    "gains": "programs that gain most",
    **dict.fromkeys(("folds", "random", "manual"), "test programs"),
}


def _groups(all_results: Sequence[SearchResults]) -> Groups:
    return Groups(tuple(all_results), tuple(_HEADERS.get(one.split, one.split) for one in all_results))


def write_tile_figure(all_results: Sequence[SearchResults], folder: Path) -> tuple[Path, ...]:
    """Draws bars of the speed-up over the analytical model's choice in the compiler, per program, or curves.

    Writes `lpm2021_figure4_<split>_<chip>.svg` and `.png`; the paths, or none where no bar of it was run.

    Args:
        all_results: results shown side by side; the first names the files.
        folder: folder of the figures.

    Raises:
        DataError: if a file cannot be written.
    """
    bars = bars_with_results(FIGURE_4, *all_results)
    if not bars:
        return ()
    cut = tuple(bar for bar in bars if bar.model == "random")
    label = "speed-up over the analytical model\nin the compiler; higher is better"
    row = Row(bars, label, empty=(IN_COMPILER,), cut=cut)
    stem = folder / f"lpm2021_figure4_{all_results[0].name}"
    return _draw_rows(all_results, [row], stem, height=3.0, columns=4)


def has_curves(all_results: Sequence[SearchResults]) -> bool:
    """Returns whether there are too many programs for the names of all below bars."""
    return max(len(results.programs) for results in all_results) > MOST_NAMED


def _draw_rows(
    all_results: Sequence[SearchResults], rows: Sequence[Row], stem: Path, *, height: float, columns: int
) -> tuple[Path, ...]:
    """Draws bars where names of all programs fit below them, else curves, a panel for each split and chip.

    Args:
        all_results: results shown side by side.
        rows: rows of panels.
        stem: path of the files without ending.
        height: height of a row in inches.
        columns: number of columns of the legend, at most.
    """
    groups = _groups(all_results)
    named = not has_curves(all_results)
    across = 1 if named else len(all_results)
    width = max(9.5, 0.95 * len(groups.ticks) + 0.8 if named else 4.4 * across)
    with drawing((width, height * len(rows) + 0.9), len(rows), across, sharex=named) as (figure, panels):
        if named:
            plain = replace(groups, headers=tuple("" for _ in all_results))
            for number, (row, (axes,)) in enumerate(zip(rows, panels, strict=True)):
                draw_speedups(axes, plain if number else groups, row)
        else:
            for row, line in zip(rows, panels, strict=True):
                for axes, results, header in zip(line, all_results, groups.headers, strict=True):
                    draw_speedup_curves(axes, results, row)
                    axes.set_title(header if row is rows[0] else "", fontsize=9.0)
        for row, line in zip(rows, panels, strict=True):
            line[0].set_ylabel(row.label)
        legend_above(figure, panels[0, 0], columns)
        return save(figure, stem)


def draw_speedup_curves(axes: Axes, results: SearchResults, row: Row) -> None:
    """Draws the scores of each bar from least to largest over the share of programs."""
    groups = Groups((results,), ("",))
    extremes = [1.0]
    for bar in row.bars:
        speedups = groups.speedups(bar)[0][:-1]
        if bar not in row.cut:
            extremes += [float(speedup) for speedup in speedups if not np.isnan(speedup)]
        line = "dashed" if bar in row.empty else "solid"
        draw_shares(axes, list(speedups), color=colour(bar.model), linestyle=line, label=title(bar))
    axes.axhline(1.0, color="#444444", linewidth=0.8)
    _scale(axes, min(extremes), max(extremes))
    axes.set_xlabel(f"programs (%), from the least of each; {len(results.programs)} programs")


def write_top_k_figure(all_results: Sequence[SearchResults], folder: Path) -> tuple[Path, ...]:
    """Draws the slow-down against exhaustive search over measured tile sizes and over hardware seconds.

    Means over programs, a row of two panels for each split and chip. Writes
    `tile_search_<split>_<chip>.svg` and `.png`; the paths, or none where no budget was run.

    Raises:
        DataError: if a file cannot be written.
    """
    with_budgets = [results for results in all_results if any(bar.top_k for bar in results.bars)]
    if not with_budgets:
        return ()
    size = (8.6, 3.0 * len(with_budgets) + 0.5)
    with drawing(size, len(with_budgets), columns=2, sharey="row") as (figure, panels):
        for row, results in zip(panels, with_budgets, strict=True):
            _curves(row[0], results, None)
            _curves(row[1], results, SECONDS)
            row[0].set_ylabel(
                f"mean slow-down against exhaustive (%)\n{_HEADERS.get(results.split, results.split)}"
            )
            row[0].set_xlabel("tile sizes measured per kernel")
            row[1].set_xlabel("hardware seconds per program")
        legend_above(figure, panels[0, 1], 4)
        return save(figure, folder / f"tile_search_{with_budgets[0].name}")


def _curves(axes: Axes, results: SearchResults, metric: str | None) -> None:
    """Draws a line for each model: over k, or over the mean of a metric."""
    for model in TILE_MODELS:
        bars = sorted((b for b in results.bars if b.model == model and b.top_k), key=lambda b: b.top_k or 0)
        across = [float(bar.top_k or 0) if metric is None else results.mean(bar, metric) for bar in bars]
        points = zip(across, (results.mean(bar, SLOWDOWN) for bar in bars), strict=True)
        shown = [(x, 100.0 * y) for x, y in points if x is not None and y is not None and x > 0.0]
        if shown:
            name, line = TILE_TITLES.get(model, model), "dashed" if model == "random" else "solid"
            (drawn,) = axes.plot(*zip(*shown, strict=True), color=colour(model), linestyle=line, label=name)
            drawn.set(marker=_MARKERS[model], markersize=4, linewidth=1.2)
    if metric is not None:
        seconds = results.mean(EXHAUSTIVE, metric)
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
        numbers = sorted({bar.top_k for bar in results.bars if bar.top_k})
        axes.set_xticks(numbers, [str(number) for number in numbers])
    else:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")


FIGURES = {"lpm2021": "figure5", "lpm2020": "figure4"}


def write_fusion_figure(all_results: Sequence[SearchResults], paper: str, folder: Path) -> tuple[Path, ...]:
    """Draws bars of the speed-up over the default configuration, per program, from either start.

    Bars are medians over repeats, whiskers go from the lowest to the highest. Writes
    `lpm2021_figure5_<split>_<chip>.svg` (`lpm2020_figure4_...`) and `.png`; the paths, or none where neither
    start was run with the paper's minutes.

    Args:
        all_results: results shown side by side; the first names the files.
        paper: `lpm2021` or `lpm2020`.
        folder: folder of the figures.

    Raises:
        DataError: if a file cannot be written.
    """
    bars = {start: bars_with_results(figure_5(start, paper), *all_results) for start in STARTS}
    starts = [start for start in STARTS if bars[start]]
    if not starts:
        return ()
    known = tuple(dict.fromkeys(bar for results in all_results for bar in best_known(results)))
    least = min(MINUTES[paper])
    rows = [
        Row(
            (*bars[start], *known),
            f"from {STARTS[start]}\nspeed-up over the default",
            empty=[bar for bar in bars[start] if bar.minutes == least and len(MINUTES[paper]) > 1],
        )
        for start in starts
    ]
    stem = folder / f"{paper}_{FIGURES[paper]}_{all_results[0].name}"
    return _draw_rows(all_results, rows, stem, height=2.9, columns=3)


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
_TUNE_MARKERS = "o^svD"
_MOST_ROWS = 16
"""Programs of a panel; of more, as many evenly spaced in the order of what can be gained."""


def write_tune_figure(all_results: Sequence[SearchResults], folder: Path) -> tuple[Path, ...]:
    """Draws the gain in percent over the compiler's own choice, a panel a split and chip, a row a program.

    Writes `tune_gains.svg` and `.png`; the paths, or none without searches.

    Raises:
        DataError: if a file cannot be written.
    """
    shown = [results for results in all_results if bars_with_results(_bars(results), results)]
    if not shown:
        return ()
    height = 1.3 + 0.33 * min(_MOST_ROWS, max(len(results.programs) for results in shown))
    with drawing((5.2 * len(shown), height), columns=len(shown)) as (figure, (panels,)):
        for axes, results in zip(panels, shown, strict=True):
            _panel(axes, results)
        return save(figure, folder / "tune_gains")


def _bars(results: SearchResults) -> tuple[Bar, ...]:
    return (*_BARS.get(results.task, ()), *best_known(results))


def _panel(axes: Axes, results: SearchResults) -> None:
    bars = bars_with_results(_bars(results), results)

    def gain(bar: Bar, program: str) -> float:
        speedup = results.score(bar, SPEEDUP, program)
        return float("nan") if speedup is None else 100.0 * (speedup - 1.0)

    ordered = sorted(results.programs, key=lambda pair: (gain(bars[-1], pair[1]), pair))
    if len(ordered) > _MOST_ROWS:
        ordered = [ordered[index] for index in np.linspace(0, len(ordered) - 1, _MOST_ROWS).astype(int)]
    for bar, marker in zip(bars, _TUNE_MARKERS, strict=False):
        gains, hue = [gain(bar, program) for _, program in ordered], colour(bar.model)
        (drawn,) = axes.plot(gains, range(len(ordered)), marker, markersize=6.0, color=hue, label=title(bar))
        if bar == IN_COMPILER or bar.minutes == 1.0:
            drawn.set_markerfacecolor("none")
    axes.axvline(0.0, color="#444444", linewidth=0.8)
    axes.grid(visible=True, axis="both")
    axes.set_yticks(range(len(ordered)), [name.replace("\n", " ") for name in program_labels(ordered)])
    axes.set_xlabel("gain over the compiler's own choice (%)")
    axes.set_title(f"{labels_of(results.task).searches}, {results.split} split, {results.chip}", fontsize=9.0)
    axes.legend(fontsize=7.5, frameon=False, loc="lower right")
