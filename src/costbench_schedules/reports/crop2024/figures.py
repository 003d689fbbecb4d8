"""Figures about the analytical model: data demand, curves over tile sizes, where a program's time goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.artist import Artist

from costbench.reports.figures.canvas import PALETTE, drawing, label_panels, save
from costbench.reports.frame import select, split_by
from costbench_schedules.reports.crop2024.results import TILES, NetworkResults
from costbench_schedules.reports.curves import panel_grid

_LABELS = {
    "mlp": "MLP",
    "gbt": "boosted trees",
    "hybrid": "trees on Crop",
    "gbt-uniform": "trees, records drawn at random",
    "gbt-informative": "trees, records chosen",
}


def write_demand(results: NetworkResults, folder: Path) -> tuple[Path, ...]:
    """Draws the top-1 score against target records; writes `crop_data_demand.svg` and `.png`.

    Raises:
        DataError: if a file cannot be written.
    """
    with drawing((5.2, 3.2)) as (figure, ((axes,),)):
        for (model, label), colour in zip(_LABELS.items(), PALETTE, strict=False):
            points = sorted(
                (records, score)
                for name, variant in results.models
                if name == model
                and (records := results.over_networks(model, variant, "records")) is not None
                and (score := results.over_networks(model, variant, "top_1_score")) is not None
            )
            if points:
                axes.plot(*np.array(points).T, marker="o", markersize=3.5, color=colour, label=label)
        crop_score = results.over_networks("crop", "main", "top_1_score")
        if crop_score is not None:
            axes.axhline(
                crop_score, color="#444444", linewidth=1.0, linestyle="dashed", label="Crop, no records"
            )
        axes.set_xscale("symlog", linthresh=100.0)
        axes.set_xlabel("programs measured on the target")
        axes.set_ylabel("top-1 score")
        axes.legend(frameon=False, fontsize=8.0)
        return save(figure, folder / "crop_data_demand")


def write_tiles(results: NetworkResults, folder: Path) -> tuple[Path, ...]:
    """Draws Figure 6; writes `crop2024_figure6.svg` and `.png`, nothing without curves.

    Raises:
        DataError: if a file cannot be written.
    """
    curves = tile_curves(results)
    if not len(curves):
        return ()
    panels = split_by(curves, ["program"])
    with panel_grid(len(panels)) as (figure, grid):
        lines: dict[str, Artist] = {}
        for axes, ((name,), points) in zip(grid.ravel(), panels.items(), strict=False):
            for ((kind,), line), colour in zip(split_by(points, ["kind"]).items(), PALETTE, strict=False):
                line = line.sort_values("tile")
                (lines[kind],) = axes.plot(
                    line["tile"], line["value"], marker="o", markersize=3.0, color=colour
                )
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_title(name, fontsize=7.0)
        label_panels(grid, len(panels), "innermost tile", "µs")
        figure.legend([*lines.values()], [*lines], loc="outside upper center", ncols=2, frameon=False)
        return save(figure, folder / "crop2024_figure6")


def tile_curves(results: NetworkResults) -> pd.DataFrame:
    """Returns operators (`program`), `kind`, `measured` or `predicted`, `tile` size and microseconds."""
    rows = select(results.frame, split=TILES)
    parts = rows["metric"].str.extract(r"^(?P<kind>.*)_us:(?P<tile>\d+)$").dropna()
    return rows.loc[parts.index, ["program", "value"]].join(parts).astype({"tile": "int64"})


def write_time_parts(bars: Mapping[str, Mapping[str, float]], title: str, stem: Path) -> tuple[Path, ...]:
    """Writes a figure of parts of a time.

    Args:
        bars: microseconds by processor and part; negative parts go left of zero.
        title: title of the figure.
        stem: path without suffix.

    Returns:
        `<stem>.svg` and `<stem>.png`.

    Raises:
        DataError: if a file cannot be written.
    """
    with drawing((6.4, 1.4 + 0.4 * len(bars))) as (figure, ((axes,),)):
        parts = list(dict.fromkeys(part for bar in bars.values() for part in bar))
        right, left = dict.fromkeys(bars, 0.0), dict.fromkeys(bars, 0.0)
        for part, colour in zip(parts, PALETTE, strict=False):
            for index, (name, bar) in enumerate(bars.items()):
                value = bar.get(part, 0.0)
                ends = right if value >= 0 else left
                axes.barh(index, value, left=ends[name], color=colour, label=part if not index else None)
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
