"""Where a program's predicted time goes, as one stacked bar for each processor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from costbench.reports.figures.canvas import PALETTE, save, styled


def write_time_parts(bars: Mapping[str, Mapping[str, float]], title: str, stem: Path) -> tuple[Path, ...]:
    """Writes a figure of parts of a time.

    Args:
        bars: by processor, microseconds by part; negative parts go left of zero.
        title: of the figure.
        stem: path without suffix.

    Returns:
        `<stem>.svg` and `<stem>.png`.

    Raises:
        DataError: if a file cannot be written.
    """
    with styled():
        figure = Figure(figsize=(6.4, 1.4 + 0.4 * len(bars)), layout="constrained")
        axes = figure.subplots()
        parts = list(dict.fromkeys(part for bar in bars.values() for part in bar))
        right, left = dict.fromkeys(bars, 0.0), dict.fromkeys(bars, 0.0)
        for part, colour in zip(parts, PALETTE, strict=False):
            for place, (name, bar) in enumerate(bars.items()):
                value = bar.get(part, 0.0)
                ends = right if value >= 0 else left
                axes.barh(place, value, left=ends[name], color=colour, label=part if not place else None)
                ends[name] += value
        axes.set_yticks(range(len(bars)), list(bars))
        axes.set_xlabel("predicted time (µs)")
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        axes.set_title(title, fontsize=9.0)
        axes.legend(
            ncols=len(parts), fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.35)
        )
        return save(figure, stem)
