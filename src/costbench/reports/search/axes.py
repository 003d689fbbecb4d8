"""Draws bars of speed-ups from a base line at 1, so that faster points up and slower points down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from costbench.arrays import F64
from costbench.reports.figures.results import program_labels
from costbench.reports.search.bars import colour, title
from costbench.reports.search.results import SPEEDUP, Bar, Place

_TICKS = tuple(digit * 10.0**power for power in range(-3, 4) for digit in (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
_WIDE = 3.0
"""Largest speed-up over smallest from which on the axis is logarithmic."""
_GAP = 0.35
_WIDTH = 12
_PARTS = re.compile(r"[A-Z]+[^A-Z_]*_*|[^A-Z_]+_*|_+")


@dataclass(frozen=True)
class Groups:
    """Where groups of bars stand: the programs of each place, and behind them their geometric mean.

    Attributes:
        places: one after the other.
        headers: what stands above each; empty for none.
    """

    places: tuple[Place, ...]
    headers: tuple[str, ...]

    @property
    def ticks(self) -> list[float]:
        """Places of all groups on the axis."""
        found: list[float] = []
        start = 0.0
        for place in self.places:
            count = len(place.programs)
            found += [*(start + i for i in range(count)), start + count + _GAP]
            start += count + 1.0 + 2.0 * _GAP
        return found

    @property
    def labels(self) -> list[str]:
        """Below the axis."""
        named = ((*map(_wrapped, program_labels(p.programs)), "geom.\nmean") for p in self.places)
        return [text for labels in named for text in labels]

    def speedups(self, bar: Bar) -> tuple[F64, F64, F64]:
        """Median, lowest and highest over repeats of each group; NaN where there is none."""
        rows: list[tuple[float, float, float]] = []
        for place in self.places:
            for _, program in place.programs:
                found = place.repeats(bar, SPEEDUP, program) or (np.nan,)
                rows.append((float(np.median(found)), min(found), max(found)))
            mean = place.mean(bar, SPEEDUP)
            rows.append((np.nan if mean is None else mean, np.nan, np.nan))
        middle, low, high = np.array(rows, dtype=np.float64).T
        return middle, low, high


def _wrapped(label: str) -> str:
    """Lines of at most `_WIDTH` letters where the parts of names allow it: groups stand close."""
    lines = []
    for line in label.split("\n"):
        lines.append("")
        for part in _PARTS.findall(line):
            if lines[-1] and len(lines[-1] + part) > _WIDTH:
                lines.append("")
            lines[-1] += part
    return "\n".join(lines)


def draw_speedups(
    axes: Axes, groups: Groups, bars: Sequence[Bar], empty: Sequence[Bar] = (), cut: Sequence[Bar] = ()
) -> None:
    """A group of bars for each program and mean, whiskers from the lowest to the highest repeat.

    Args:
        axes: to draw on.
        groups: what is shown.
        bars: from left to right.
        empty: those of them that are not filled.
        cut: those of them that may end beyond the axis, with their number at its edge.
    """
    ticks = np.array(groups.ticks)
    width = 0.86 / max(1, len(bars))
    extremes: list[float] = [1.0]
    for index, bar in enumerate(bars):
        middle, low, high = groups.speedups(bar)
        shown = ~np.isnan(middle)
        if bar not in cut:
            extremes += [float(v) for v in np.concatenate([middle, low, high]) if not np.isnan(v)]
        at = (ticks + (index - (len(bars) - 1) / 2.0) * width)[shown]
        hue = colour(bar.model)
        axes.bar(
            at,
            middle[shown] - 1.0,
            width * 0.9,
            bottom=1.0,
            label=title(bar),
            color="white" if bar in empty else hue,
            edgecolor=hue,
            linewidth=0.9,
        )
        reach = np.stack([middle - low, high - middle])[:, shown]
        whiskers = np.nan_to_num(reach).max(axis=0) > 0.0
        if whiskers.any() and bar not in cut:
            axes.errorbar(
                at[whiskers],
                middle[shown][whiskers],
                yerr=np.nan_to_num(reach[:, whiskers]),
                fmt="none",
                ecolor="#777777" if hue == "#222222" else "#222222",
                elinewidth=0.8,
                capsize=1.5,
                capthick=0.8,
            )
    axes.axhline(1.0, color="#444444", linewidth=0.8)
    _scale(axes, min(extremes), max(extremes))
    _name_cut(axes, groups, bars, cut)
    axes.set_xticks(groups.ticks, groups.labels)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(groups.ticks[0] - 0.6, groups.ticks[-1] + 0.6)
    _part(axes, groups)


def _name_cut(axes: Axes, groups: Groups, bars: Sequence[Bar], cut: Sequence[Bar]) -> None:
    """The numbers of bars that end beyond the axis, at its edge."""
    bottom, top = axes.get_ylim()
    width = 0.86 / max(1, len(bars))
    for bar in cut:
        shift = (list(bars).index(bar) - (len(bars) - 1) / 2.0) * width
        for tick, value in zip(groups.ticks, groups.speedups(bar)[0], strict=True):
            if np.isnan(value) or bottom <= value <= top:
                continue
            up = value > top
            axes.text(
                tick + shift - 0.7 * width,
                0.99 if up else 0.01,
                f"{'↑' if up else '↓'}{value:.2g}",
                transform=axes.get_xaxis_transform(),
                color=colour(bar.model),
                ha="right",
                va="top" if up else "bottom",
                fontsize=7.5,
            )


def _scale(axes: Axes, low: float, high: float) -> None:
    """Logarithmic where speed-ups differ by much, with a margin on both sides."""
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
    """Set means apart from programs, and places from each other."""
    ticks = groups.ticks
    first = 0
    for number, (place, header) in enumerate(zip(groups.places, groups.headers, strict=True)):
        last = first + len(place.programs)
        axes.axvline(ticks[last] - 0.5 - _GAP / 2.0, color="#bbbbbb", linewidth=0.8, linestyle=":")
        if number:
            axes.axvline(ticks[first] - 0.5 - _GAP / 2.0, color="#444444", linewidth=0.8)
        if header:
            middle = (ticks[first] + ticks[last]) / 2.0
            axes.text(
                middle,
                1.01,
                header,
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="bottom",
                fontsize=9.0,
            )
        first = last + 1
