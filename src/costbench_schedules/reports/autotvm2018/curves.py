"""Figures 4 to 9 of autotvm2018: GFLOPS of the best schedule so far against the number of trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from costbench.reports.figures.canvas import PALETTE, label_panels, save, styled
from costbench_schedules.reports.autotvm2018.results import BEST, ScheduleResults

_COLUMNS = 4
LEAST = 0.4
"""Share of the fastest speed at which the axes of speed begin."""


@dataclass(frozen=True)
class CurveFigure:
    """One of the paper's figures.

    Attributes:
        number: in the paper.
        name: of the file, after `autotvm2018_`.
        title: what is compared.
        arms: name of the arm -> label; a workload has a panel if at least two of them were run.
        needs: an arm without which a workload has no panel; empty for none.
        targets: whether it is drawn for the processor's own target or for the other ones.
        note: end of the caption.
    """

    number: str
    name: str
    title: str
    arms: Mapping[str, str]
    needs: str = ""
    targets: Literal["native", "others"] = "native"
    note: str = ""


FIGURES = (
    CurveFigure(
        "4",
        "figure4",
        "cost models, genetic algorithm, random search",
        {
            "random": "random",
            "random-x2": "random x2",
            "genetic": "genetic",
            "genetic-x2": "genetic x2",
            "gbt-rank": "boosted trees",
            "treegru-rank": "TreeGRU",
            "treegru-context-rank": "TreeGRU, context",
        },
        needs="random",
    ),
    CurveFigure(
        "4",
        "figure4_networks",
        "boosted trees and networks",
        {
            "random": "random",
            "gbt-rank": "boosted trees",
            "treegru-rank": "TreeGRU",
            "treegru-context-rank": "TreeGRU, context",
            "gnn-rank": "GraphSAGE",
            "lstm-rank": "LSTM",
        },
        needs="gnn-rank",
        note="GraphSAGE and LSTM are the networks of the tile task, which the paper did not try.",
    ),
    CurveFigure(
        "5",
        "figure5",
        "rank and regression objective",
        {
            "gbt-rank": "trees, rank",
            "gbt-regression": "trees, regression",
            "treegru-rank": "TreeGRU, rank",
            "treegru-regression": "TreeGRU, regression",
        },
        needs="gbt-regression",
    ),
    CurveFigure(
        "6",
        "figure6",
        "diversity of a batch",
        {"gbt-rank-plain": "λ = 1 (none)", "gbt-rank": "λ = 2", "gbt-rank-lambda4": "λ = 4"},
        needs="gbt-rank-plain",
    ),
    CurveFigure(
        "7",
        "figure7",
        "uncertainty of five bootstrapped models",
        {"gbt-mean": "mean", "gbt-ei": "expected improvement", "gbt-ucb": "upper confidence bound"},
        needs="gbt-mean",
    ),
    CurveFigure(
        "8",
        "figure8",
        "transfer from earlier workloads",
        {"gbt-rank": "from scratch", "transfer-relation": "transfer"},
        needs="transfer-relation",
    ),
    CurveFigure(
        "9a",
        "figure9a",
        "representations in one domain",
        {"gbt-config": "configuration", "gbt-flattened": "flattened loops", "gbt-rank": "context relations"},
        needs="gbt-config",
    ),
    CurveFigure(
        "9b and c",
        "figure9bc",
        "representations in transfer",
        {
            "transfer-config": "configuration",
            "transfer-flattened": "flattened loops",
            "transfer-relation": "context relations",
            "gbt-rank": "from scratch",
        },
        needs="transfer-config",
        note="Earlier workloads are convolutions, without the one that is tuned.",
    ),
    CurveFigure(
        "9d",
        "figure9d",
        "transfer from one target to another",
        {"gbt-rank": "from scratch", "transfer-target": "transfer from native"},
        needs="transfer-target",
        targets="others",
        note="Both targets are instruction sets of one processor.",
    ),
)
"""In the order of the paper."""


def panels(results: ScheduleResults, figure: CurveFigure) -> tuple[tuple[str, str], ...]:
    """Returns the targets and workloads that a figure has panels for."""
    found = []
    for target in results.targets:
        if (target == "native") != (figure.targets == "native"):
            continue
        for name in results.workloads(target):
            ran = [arm for arm in figure.arms if results.curve(target, name, arm) is not None]
            if len(ran) > 1 and (not figure.needs or figure.needs in ran):
                found.append((target, name))
    return tuple(found)


def write_curves(results: ScheduleResults, figure: CurveFigure, folder: Path) -> tuple[Path, ...]:
    """Draws the curves of the figure's arms, a panel for each workload.

    Writes `autotvm2018_<name>.svg` and `.png`; returns the paths.

    Raises:
        DataError: if a file cannot be written.
    """
    shown = panels(results, figure)
    width = min(_COLUMNS, len(shown))
    height = ceil(len(shown) / width)
    colours = dict(zip(figure.arms, PALETTE, strict=False))
    with styled():
        drawn = Figure(figsize=(2.7 * width + 0.4, 2.2 * height + 0.7), layout="constrained")
        grid = drawn.subplots(height, width, squeeze=False)
        handles = {}
        for place, (target, name) in enumerate(shown):
            axes = grid[place // width][place % width]
            for arm, label in figure.arms.items():
                curve = results.curve(target, name, arm)
                if curve is None:
                    continue
                (handles[label],) = axes.step(
                    curve.trials, curve.median, where="post", color=colours[arm], linewidth=1.2, label=label
                )
                axes.fill_between(
                    *(curve.trials, curve.low, curve.high),
                    step="post",
                    color=colours[arm],
                    alpha=0.15,
                    linewidth=0.0,
                )
            best = results.median(target, name, BEST, "gflops_best")
            if best is not None:
                axes.axhline(best, color="#444444", linewidth=0.8, linestyle="dotted")
                axes.set_ylim(LEAST * best, 1.04 * best)
            axes.set_xscale("log")
            axes.set_title(name if target == "native" else f"{name}, {target}", fontsize=9.0)
        label_panels(grid, len(shown), "trials", "GFLOPS")
        drawn.legend(
            list(handles.values()), list(handles), loc="outside upper center", ncols=4, frameon=False
        )
        return save(drawn, folder / f"autotvm2018_{figure.name}")
