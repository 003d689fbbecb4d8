"""tpugraphs2023's Figure 5, and rank correlations of layout models by collection."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from costbench.reports.figures.canvas import PALETTE, BarSeries, draw_grouped_bars, legend_above, save, styled
from costbench.reports.papers.printed import printed_table
from costbench.reports.results import ChipSplit, Results
from costbench.reports.tables.tpugraphs import (
    COLLECTIONS,
    LAYOUT_BEST,
    LAYOUT_VARIANTS,
    LOSSES,
    NETWORKS,
    PAPER,
    TAU,
    TILE,
    TOP_K,
    kernel_mean,
    layout_mean,
)

_COLOURS = {"listmle": PALETTE[0], "mse": PALETTE[1]}
# Of errors in percent, on a logarithmic axis: what is smaller is drawn as this.
_LEAST = 0.1


def write_tile_figure(results: Results, chip_split: ChipSplit, folder: Path) -> tuple[Path, ...]:
    """Draws top-1, top-5 and top-10 errors of tile models by network and loss, a panel for each k.

    Filled bars are ours, hatched ones the paper's of validation programs. Writes
    `tpugraphs2023_figure5_<split>_<chip>.svg` and `.png`; returns the paths.

    Raises:
        DataError: if a file cannot be written.
    """
    with styled():
        figure = Figure(figsize=(10.5, 3.6), layout="constrained")
        panels = figure.subplots(1, 3, sharey=True)
        for axes, metric, key in zip(panels, TOP_K[TILE], ("k1", "k2", "k3"), strict=True):
            _tile_panel(axes, results, chip_split, metric, key)
            axes.set_title(f"top-{metric.rsplit('_', 1)[1]}", fontsize=9.0)
        panels[0].set_ylabel("error (%), lower is better")
        legend_above(figure, panels[0], 4)
        return save(figure, folder / f"tpugraphs2023_figure5_{chip_split.name}")


def _tile_panel(axes: Axes, results: Results, chip_split: ChipSplit, metric: str, key: str) -> None:
    paper = printed_table(PAPER, "tile_variants")
    positions = np.arange(len(NETWORKS), dtype=np.float64)
    series = []
    for loss, name in LOSSES.items():
        labels = [f"{network}-{loss}" for network in NETWORKS]
        ours = [kernel_mean(results, chip_split, label, metric) for label in labels]
        theirs = [paper.value(label, f"{key}_val") for label in labels]
        for who, values in (("ours", ours), ("paper", theirs)):
            heights = np.array([np.nan if value is None else max(value, _LEAST) for value in values])
            series.append(BarSeries(f"{name}, {who}", _COLOURS[loss], heights, hatched=who == "paper"))
    draw_grouped_bars(axes, positions, series, 0.2)
    axes.set_yscale("log")
    axes.set_ylim(bottom=_LEAST)
    axes.set_xticks(positions, list(NETWORKS.values()), fontsize=7.5)
    axes.tick_params(axis="x", length=0)


def write_layout_figure(results: Results, chip_split: ChipSplit, folder: Path) -> tuple[Path, ...]:
    """Draws Kendall's tau of layout models on each collection; the paper's Table 2 as marks.

    Writes `layout_tau_<split>_<chip>.svg` and `.png`; returns the paths.

    Raises:
        DataError: if a file cannot be written.
    """
    paper = printed_table(PAPER, "best")
    positions = np.arange(len(COLLECTIONS), dtype=np.float64)
    width = 0.8 / len(LAYOUT_VARIANTS)
    with styled():
        figure = Figure(figsize=(7.5, 3.4), layout="constrained")
        axes = figure.subplots()
        for index, (label, variant) in enumerate(LAYOUT_VARIANTS.items()):
            values = [layout_mean(results, chip_split, variant, name, TAU) for name in COLLECTIONS]
            heights = [np.nan if value is None else value for value in values]
            shift = (index - (len(LAYOUT_VARIANTS) - 1) / 2.0) * width
            axes.bar(positions + shift, heights, 0.92 * width, label=f"{label}, ours", color=PALETTE[index])
        printed = [paper.value(f"layout:{name}", "tau_test") for name in COLLECTIONS]
        marks = [np.nan if value is None else value for value in printed]
        named = f"{LAYOUT_BEST}, paper"
        axes.hlines(
            marks, positions - 0.46, positions + 0.46, colors="#222222", linestyles="dashed", label=named
        )
        axes.axhline(0.0, color="#444444", linewidth=0.8)
        axes.set_xticks(positions, [f"layout:{name}" for name in COLLECTIONS])
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel("Kendall's τ, test programs")
        figure.legend(loc="outside upper center", ncols=3, frameon=False)
        return save(figure, folder / f"layout_tau_{chip_split.name}")
