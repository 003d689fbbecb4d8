"""The page about models: ablations, differences to the paper's, learning curves, predictions, trainings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from costbench.arrays import F64
from costbench.reports.baseline_comparison import strongest_baseline
from costbench.reports.claims.claim import Side
from costbench.reports.figures.canvas import PALETTE, drawing, legend_above, save
from costbench.reports.figures.programs import (
    UNSCALED,
    read_scatter,
    write_curve_figure,
    write_scatter_figures,
)
from costbench.reports.inputs import ReportData
from costbench.reports.page import Page, PageFigure, Section, page_figure, page_figures, paragraphs
from costbench.reports.papers.printed import printed_table
from costbench.reports.results import CEILINGS, ChipSplit, Results, title_of
from costbench.reports.tables.hyperparameters import settings_tables, trials_table
from costbench.reports.tables.learning_curves import (
    Curves,
    column_name,
    curves_table,
    rates_tables,
    settled_after,
)
from costbench.reports.tables.variants import MODEL, ablation_tables, differences_tables, variant_splits
from costbench.reports.training_runs import budget_table, read_history, rises
from costbench.tasks import KERNEL_TASKS, LEARNED

_PAGE = "models"
"""Name of the page and of the template of its sections."""
MODELS = Page(_PAGE, "Architectures, features and estimates")


def ablation_section(data: ReportData) -> Section | None:
    """Returns heat maps, scaling curves and tables of variants; None without variants.

    Raises:
        DataError: if a figure cannot be written.
        ParamsError: if the package's data of the papers are broken.
    """
    variants = data.variants
    tables = ablation_tables(variants.results, variants.budgets, data.inputs.labels, variants.reasons)
    if not tables:
        return None
    drawn: list[PageFigure] = []
    for chip_split in variant_splits(variants.results):
        where = f"{chip_split.split} split, {chip_split.chip}"
        for name, write in (("networks", write_heat_map), ("shares", write_scaling_figure)):
            paths = write(variants.results, chip_split, data.figures)
            drawn += page_figures(paths, _PAGE, name, where=where)
    return Section(
        anchor="ablations",
        title="What the learned model needs",
        label="Ablations",
        page=MODELS,
        paragraphs=paragraphs(_PAGE, "ablations"),
        figures=tuple(drawn),
        tables=tables,
        folded=tuple(table.name for table in tables if table.name.startswith("variants_")),
    )


def differences_section(data: ReportData) -> Section | None:
    """Returns how ours differs from lpm2021's model, and what each difference is worth; None if not measured.

    Raises:
        ParamsError: if the package's data of the papers are broken.
    """
    tables = differences_tables(data.results, data.seed, data.budgets)
    if not tables:
        return None
    return Section(
        anchor="differences",
        title="How ours differs from the paper's model",
        label="Differences",
        page=MODELS,
        paragraphs=paragraphs(_PAGE, "differences"),
        tables=tables,
    )


def learning_section(data: ReportData) -> Section | None:
    """Returns a figure and a table for each task with learning curves, and tables of rates; None without any.

    Raises:
        DataError: if a figure cannot be written.
    """
    tables = (*map(curves_table, data.curves), *rates_tables(data.selected, data.inputs.params.curves))
    if not tables:
        return None
    drawn = []
    for curve in data.curves:
        svg, _ = write_learning_figure(curve, _ceilings(data.results, curve), data.figures)
        words = {"task": curve.labels.title, "where": f"{curve.split} split, {curve.chip}"}
        drawn.append(page_figure(svg, _PAGE, "curves", **words, networks=len(curve.networks)))
    summaries = [summarise_curves(data.results, curve) for curve in data.curves]
    return Section(
        anchor="learning-curves",
        title="How much training is enough?",
        label="Learning curves",
        page=MODELS,
        paragraphs=paragraphs(_PAGE, "curves", curves=summaries),
        figures=tuple(drawn),
        tables=tables,
        folded=tuple(table.name for table in tables),
    )


def summarise_curves(results: Results, curves: Curves) -> dict[str, object]:
    """Returns from which budget on the networks keep their order, and their errors beside the baseline's.

    The order on validation programs decides whether the budget of the ablations is enough.

    Args:
        results: results of all variants on test programs.
        curves: learning curves of a task, split and chip.
    """
    settled, order = settled_after(curves, "validation", rising=rises(curves.column))
    settled_by_test, _ = settled_after(curves, "error", rising=False)
    baseline, baseline_error = None, None
    cell = results.cell(curves.task, curves.split, curves.chip)
    if cell is not None:
        side = Side(split=curves.split, chip=curves.chip)
        metric = cell.described.measures[0].metric
        baseline = strongest_baseline(results.scores, curves.task, metric, side)
        baseline_error = cell.means(baseline or "")[0]
    return {
        "where": f"{curves.labels.heading}, {curves.split} split, {curves.chip}",
        "settled": settled,
        "settled_by_test": settled_by_test,
        "order": order,
        "ablations": curves.ablations,
        "enough": settled is not None and curves.ablations is not None and settled <= curves.ablations,
        "errors": {
            name: list(points[["steps", "error"]].dropna().itertuples(index=False, name=None))
            for name, points in curves.networks.items()
        },
        "baseline": None if baseline is None or baseline_error is None else title_of(baseline),
        "baseline_error": baseline_error,
    }


def _ceilings(results: Results, curves: Curves) -> dict[str, float]:
    """Returns the mean tau of each ceiling on the test programs, by title."""
    cell = results.cell(curves.task, curves.split, curves.chip)
    means = {} if cell is None else {name: cell.means(name)[1] for name in CEILINGS}
    return {title_of(name): mean for name, mean in means.items() if mean is not None}


def scatter_section(data: ReportData) -> Section | None:
    """Returns predicted against measured runtimes, a figure for each task, split and chip.

    None without any, and for a demonstration.

    Raises:
        DataError: for a file that is something else, or a figure that cannot be written.
    """
    files = () if data.inputs.params.demo else data.inputs.scatter
    scatters = [scatter for path in files for scatter in read_scatter(path) if scatter.model != UNSCALED]
    drawn = tuple(
        page_figure(path, _PAGE, "scatter", where=", ".join(name.removeprefix("predicted_").split("_", 2)))
        for name, path in write_scatter_figures(scatters, data.figures).items()
    )
    title = "Predicted and measured runtimes"
    section = Section("predicted", title, title, page=MODELS, figures=drawn, folded_figures=True)
    return section if drawn else None


def training_section(data: ReportData) -> Section | None:
    """Returns curves of training, budgets, settings and trials of the sweep; None without any.

    Raises:
        DataError: for a curve or trial that cannot be read, or a figure that cannot be written.
    """
    inputs, drawn = data.inputs, []
    for task, column in inputs.params.curves.items():
        curves = {
            name: points
            for name, path in sorted(inputs.histories.items())
            if name.startswith(f"{task}-") and (points := read_history(path, column))
        }
        if curves:
            axis = column.replace("_", " ")
            svg, _ = write_curve_figure(f"training_{task}", curves, axis, data.figures)
            drawn.append(page_figure(svg, _PAGE, "training", column=column, runs=len(curves)))
    trials = (
        () if inputs.sweep is None else (trials_table(task, inputs.sweep) for task in inputs.params.curves)
    )
    tables = (
        *([budget_table(data.budgets)] if data.budgets else []),
        *settings_tables(inputs.settings),
        *(table for table in trials if table is not None),
    )
    if not drawn and not tables:
        return None
    return Section(
        anchor="training",
        title="Training",
        label="Training",
        page=MODELS,
        figures=tuple(drawn),
        tables=tables,
        folded=tuple(table.name for table in tables),
        folded_figures=True,
    )


ENCODERS = {"none": "no GNN", "graphsage": "GraphSAGE", "gat": "GAT"}
REDUCTIONS = {
    "per-node": "per-node",
    "column-wise": "column-wise",
    "lstm": "LSTM",
    "transformer": "Transformer",
}


def write_heat_map(results: Results, chip_split: ChipSplit, folder: Path) -> tuple[Path, ...]:
    """Draws the mean error of each combination, a panel for each task; ours above, the paper's below.

    Writes `networks_<split>_<chip>.svg` and `.png`; the paths, or none where no combination was run.

    Raises:
        DataError: if a file cannot be written.
        ParamsError: if the package's data of the paper are broken.
    """

    def mean(task: str, variant: str) -> float | None:
        cell = results.cell(task, chip_split.split, chip_split.chip, variant)
        return None if cell is None else cell.means(MODEL)[0]

    ours = {task: _grid(partial(mean, task)) for task in KERNEL_TASKS}
    tasks = [task for task in KERNEL_TASKS if not np.isnan(ours[task]).all()]
    if not tasks:
        return ()
    paper = printed_table("lpm2021", "networks")
    beside = (paper.split, paper.chip) == (chip_split.split, chip_split.chip)
    rows = 2 if beside else 1
    with drawing((4.6 * len(tasks) + 0.6, 2.9 * rows), rows, len(tasks)) as (figure, panels):
        for column, task in enumerate(tasks):
            title = KERNEL_TASKS[task].measures[0].title
            _panel(panels[0, column], ours[task], f"{title}, ours")
            if beside:
                theirs = _grid(partial(paper.value, column=f"{task}_mean"))
                _panel(panels[1, column], theirs, f"{title}, {paper.paper}")
        return save(figure, folder / f"networks_{chip_split.split}_{chip_split.chip}")


def _grid(mean: Callable[[str], float | None]) -> F64:
    """Returns the means of combinations, NaN where there is none, [encoders, reductions]."""
    return np.array([[mean(f"{e}-{r}") for r in REDUCTIONS] for e in ENCODERS], dtype=np.float64)


def _panel(axes: Axes, grid: F64, title: str) -> None:
    low, high = float(np.nanmin(grid)), float(np.nanmax(grid))
    # Ratios matter: an error of 4 is to 8 what 8 is to 16.
    norm = LogNorm(max(low, 1e-3), max(high, 1.05 * max(low, 1e-3)))
    axes.imshow(grid, cmap="cividis_r", norm=norm, aspect="auto")
    axes.set_xticks(range(len(REDUCTIONS)), list(REDUCTIONS.values()))
    axes.set_yticks(range(len(ENCODERS)), list(ENCODERS.values()))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(title, fontsize=9.0)
    for (i, j), value in np.ndenumerate(grid):
        if np.isnan(value):
            axes.text(j, i, "not run", ha="center", va="center", color="#777777", fontsize=8)
            continue
        dark = norm(value) > 0.55
        weight = "bold" if value == low else "normal"
        colour = "white" if dark else "black"
        axes.text(j, i, f"{value:.1f}", ha="center", va="center", color=colour, fontweight=weight)


SHARES = {25: "scale-25", 50: "scale-50", 100: "scale-100"}


def write_scaling_figure(results: Results, chip_split: ChipSplit, folder: Path) -> tuple[Path, ...]:
    """Draws the mean error over test programs, a panel for each task, a point for each share.

    Dots are the programs. Writes `scaling_<split>_<chip>.svg` and
    `.png`; the paths, or none where fewer than two shares were run.

    Raises:
        DataError: if a file cannot be written.
    """
    panels: dict[str, list[tuple[int, list[float]]]] = {}
    for task in LEARNED:
        error = LEARNED[task].measures[0]
        for share, variant in SHARES.items():
            cell = results.cell(task, chip_split.split, chip_split.chip, variant)
            values = [] if cell is None else cell.over_programs(MODEL, error.metric)
            if values:
                panels.setdefault(task, []).append((share, values))
    panels = {task: points for task, points in panels.items() if len(points) > 1}
    if not panels:
        return ()
    with drawing((3.6 * len(panels) + 0.4, 3.2), columns=len(panels)) as (figure, (axes_of_tasks,)):
        for axes, (task, points) in zip(axes_of_tasks, panels.items(), strict=True):
            error = LEARNED[task].measures[0]
            shares = [share for share, _ in points]
            axes.plot(shares, [error.mean(values) for _, values in points], "o-", color="#0072B2")
            for share, values in points:
                axes.plot([share] * len(values), values, ".", color="#0072B2", alpha=0.35, markersize=5)
            axes.set_xscale("log")
            axes.minorticks_off()
            axes.set_xticks(shares, [f"{share}%" for share in shares])
            axes.set_xlabel("share of the training programs")
            axes.set_ylabel(error.title)
            axes.set_ylim(bottom=0.0)
        return save(figure, folder / f"scaling_{chip_split.split}_{chip_split.chip}")


_MARKERS = "osD^vP"


def write_learning_figure(curves: Curves, ceilings: Mapping[str, float], folder: Path) -> tuple[Path, ...]:
    """Draws a panel each for validation value, test error and test tau, a line for each network.

    The budget of the ablations is a vertical line, ceilings of tau are horizontal ones. Writes
    `curves_<task>_<split>_<chip>.svg` and `.png`.

    Args:
        curves: learning curves of a task, split and chip.
        ceilings: mean tau of what no model can pass, by title.
        folder: folder of the figure.

    Returns:
        the paths.

    Raises:
        DataError: if a file cannot be written.
    """
    error, tau = LEARNED[curves.task].measures
    panels = {
        "validation": column_name(curves.column),
        "error": f"{error.title}, test",
        "tau": f"{tau.title}, test",
    }
    with drawing((11.0, 3.4), columns=len(panels)) as (figure, (all_axes,)):
        for axes, (column, title) in zip(all_axes, panels.items(), strict=True):
            _learning_panel(axes, curves, column)
            axes.set_ylabel(title)
        for (title, height), style in zip(sorted(ceilings.items()), ("--", ":"), strict=False):
            all_axes[-1].axhline(height, color="#444444", linestyle=style, linewidth=1.0, label=title)
        legend_above(figure, all_axes[-1], 6)
        return save(figure, folder / f"curves_{curves.name}")


def _learning_panel(axes: Axes, curves: Curves, column: str) -> None:
    steps = sorted(curves.points["steps"].unique())
    styles = zip(cycle(_MARKERS), cycle(PALETTE), strict=False)
    for (network, points), (marker, hue) in zip(curves.networks.items(), styles, strict=False):
        shown = points.dropna(subset=column)
        axes.plot(shown["steps"], shown[column], marker=marker, markersize=4, color=hue, label=network)
    if curves.ablations is not None:
        axes.axvline(curves.ablations, color="#888888", linewidth=1.0, label="budget of the ablations")
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(steps, [f"{count:,}" for count in steps])
    axes.set_xlabel("steps")
