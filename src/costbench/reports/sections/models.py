"""The page about models: ablations, differences to the paper's, learning curves, predictions, trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from costbench.reports.baseline_comparison import strongest_baseline
from costbench.reports.claims.claim import Side
from costbench.reports.figures.programs import read_scatter, write_curve_figure, write_scatter_figures
from costbench.reports.figures.variants import write_heat_map, write_learning_figure, write_scaling_figure
from costbench.reports.page import PageFigure, Section
from costbench.reports.results import CEILINGS, Results, title_of
from costbench.reports.tables.hyperparameters import Settings, settings_tables, trials_table
from costbench.reports.tables.learning_curves import (
    Curves,
    curves_table,
    learning_curves,
    rates_tables,
    settled_after,
)
from costbench.reports.tables.variants import ablation_tables, differences_tables, testbeds
from costbench.reports.training_runs import Budget, Selected, budget_table, read_history, rises
from costbench.tasks import labels_of


def ablation_section(results: Results, figures: Path, budgets: Sequence[Budget] = ()) -> Section | None:
    """Heat maps and tables; None without variants.

    Raises:
        DataError: if a figure cannot be written.
        ParamsError: if the package's data of the papers are broken.
    """
    tables = ablation_tables(results, budgets)
    if not tables:
        return None
    drawn = []
    for testbed in testbeds(results):
        where = f"{testbed.split} split, {testbed.chip}"
        paths = write_heat_map(results, testbed, figures)
        if paths:
            alt = f"Heat map of the errors of graph networks by reductions, {where}."
            caption = (
                f"Mean error of each graph network (row) with each reduction (column), {where}; "
                "the lowest of a panel is bold. Colours: logarithmic, each panel by itself."
            )
            drawn.append(PageFigure(paths[0], alt, caption))
        paths = write_scaling_figure(results, testbed, figures)
        if paths:
            alt = f"Error against the share of the training programs, {where}."
            caption = (
                "Error after training on a share of the training programs, with equal budgets; dots are test "
                f"programs, the line is their geometric mean. {where}."
            )
            drawn.append(PageFigure(paths[0], alt, caption))
    text = "Variants of the learned model, alike but for what the name says, on the same test programs."
    title = "What the learned model needs"
    return Section(
        anchor="ablations",
        title=title,
        label="Ablations",
        page="models",
        paragraphs=(text,),
        figures=tuple(drawn),
        tables=tables,
        folded=tuple(table.name for table in tables if table.name.startswith("variants_")),
    )


def differences_section(results: Results, seed: int, budgets: Sequence[Budget] = ()) -> Section | None:
    """How ours differs from lpm2021's model, and what each difference is worth; None where not measured.

    Args:
        results: has the variants.
        seed: of the bootstrap.
        budgets: of the training runs.

    Raises:
        ParamsError: if the package's data of the papers are broken.
    """
    tables = differences_tables(results, seed, budgets)
    if not tables:
        return None
    text = (
        "The model lpm2021 has the paper's inputs, loss and layers and nothing of ours; learned has more. "
        "Each difference was added to the paper's model by itself."
    )
    title = "How ours differs from the paper's model"
    return Section("differences", title, "Differences", (text,), tables=tables, page="models")


def learning_section(
    results: Results,
    selected: Sequence[Selected],
    budgets: Sequence[Budget],
    columns: Mapping[str, str],
    figures: Path,
) -> Section | None:
    """Returns a figure and a table for each task with learning curves, and tables of rates; None without any.

    Args:
        results: has the test results.
        selected: best validation values of training runs.
        budgets: of all training runs.
        columns: task -> column of histories that is drawn.
        figures: where figures go.

    Raises:
        DataError: if a figure cannot be written.
    """
    curves = learning_curves(results, selected, budgets, columns)
    rates = rates_tables(selected, columns)
    if not curves and not rates:
        return None
    drawn = []
    for one in curves:
        svg, _ = write_learning_figure(one, _ceilings(results, one), figures)
        alt = (
            f"Validation value, test error and test tau against training steps of {len(one.networks)} "
            f"networks; {one.split} split, {one.chip}."
        )
        caption = (
            f"{labels_of(one.task).title}, {one.split} split, {one.chip}: what each network reaches with "
            "more training; each point is a training of its own."
        )
        drawn.append(PageFigure(svg, alt, caption))
    tables = (*map(curves_table, curves), *rates)
    return Section(
        anchor="learning-curves",
        title="How much training is enough?",
        label="Learning curves",
        page="models",
        paragraphs=(*map(budget_sentence, curves), *_beside_baselines(results, curves)),
        figures=tuple(drawn),
        tables=tables,
        folded=tuple(table.name for table in tables),
    )


def budget_sentence(curves: Curves) -> str:
    """Returns from which budget on the networks keep their order, and how that compares with the ablations'.

    The order on validation programs decides; that by test error is said beside it.

    Args:
        curves: of a task, split and chip.
    """
    least, order = settled_after(curves, lambda point: point.validation, rises(curves.column))
    by_test, _ = settled_after(curves, lambda point: point.error, rising=False)
    text = (
        f"{labels_of(curves.task).heading}, {curves.split} split, {curves.chip}: on validation programs the "
        f"order of the networks is {_since(least)} ({', '.join(order)}, the best first); by test error it is "
        f"{_since(by_test)}."
    )
    if curves.ablations is None:
        return text
    enough = least is not None and least <= curves.ablations
    verdict = (
        "so their order is not one of short training" if enough else "which may be too few for their order"
    )
    return f"{text} The ablations see the samples of {curves.ablations:,.0f} such steps, {verdict}."


def training_sentence(curves: Curves, baseline: str, error: float) -> str:
    """Returns the test errors of the networks by budget, and that of a baseline.

    Args:
        curves: of a task, split and chip.
        baseline: title of the best model without a network.
        error: its mean error there, in percent.
    """
    by_network = "; ".join(
        f"{name} "
        + ", ".join(f"{point.error:.1f} ({point.steps:,})" for point in points if point.error is not None)
        for name, points in curves.networks.items()
    )
    return (
        f"{labels_of(curves.task).heading}, {curves.split} split, {curves.chip}: test errors in percent, "
        f"with the steps of training: {by_network}; the strongest baseline, {baseline}, has {error:.1f}. "
        "A verdict that a network does no better than a baseline is about the training that it had."
    )


def _beside_baselines(results: Results, curves: Sequence[Curves]) -> list[str]:
    said = []
    for one in curves:
        cell = results.cell(one.task, one.split, one.chip)
        if cell is None:
            continue
        measure = cell.described.measures[0]
        place = Side(split=one.split, chip=one.chip)
        strongest = strongest_baseline(results.scores, one.task, measure.metric, place)
        error = None if strongest is None else measure.mean(cell.over_programs(strongest, measure.metric))
        if strongest is not None and error is not None:
            said.append(training_sentence(one, title_of(strongest), error))
    return said


def _since(least: int | None) -> str:
    return "not settled by the last budget" if least is None else f"the same from {least:,} steps on"


def _ceilings(results: Results, curves: Curves) -> dict[str, float]:
    """Returns the mean tau of each ceiling on the test programs, by title."""
    cell = results.cell(curves.task, curves.split, curves.chip)
    if cell is None:
        return {}
    tau = cell.described.measures[1]
    means = {name: tau.mean(cell.over_programs(name, tau.metric)) for name in CEILINGS}
    return {title_of(name): mean for name, mean in means.items() if mean is not None}


def training_section(
    histories: Mapping[str, Path],
    columns: Mapping[str, str],
    budgets: Sequence[Budget],
    settings: Settings,
    sweep: Path | None,
    figures: Path,
) -> Section | None:
    """Returns curves of training, budgets, settings and trials of the sweep; None without any.

    Args:
        histories: name of a training run -> its curve as CSV; names begin with the task.
        columns: task -> column of its curves that is drawn.
        budgets: of all training runs.
        settings: section -> its parameters, for the tables of hyper-parameters (see `settings_tables`).
        sweep: folder of the sweep; None where there is none.
        figures: folder that figures go to.

    Raises:
        DataError: for a curve or trial that cannot be read, or a figure that cannot be written.
    """
    shown = []
    for task, column in columns.items():
        own = {name: path for name, path in sorted(histories.items()) if name.startswith(f"{task}-")}
        curves = {name: read_history(path, column) for name, path in own.items()}
        curves = {name: points for name, points in curves.items() if points}
        if curves:
            svg, _ = write_curve_figure(f"training_{task}", curves, column.replace("_", " "), figures)
            alt = f"Curves of {column} against the epoch, one line for each of {len(curves)} training runs."
            text = f"{column} on the validation programs after each epoch, one line a run."
            shown.append(PageFigure(svg, alt, text))
    trials = () if sweep is None else (trials_table(task, sweep) for task in columns)
    tables = (
        *([budget_table(budgets)] if budgets else []),
        *settings_tables(settings),
        *(table for table in trials if table is not None),
    )
    if not shown and not tables:
        return None
    return Section(
        anchor="training",
        title="Training",
        label="Training",
        figures=tuple(shown),
        tables=tables,
        folded=tuple(table.name for table in tables),
        folded_figures=True,
        page="models",
    )


def scatter_section(files: Sequence[Path], figures: Path) -> Section | None:
    """Returns predicted against measured runtimes, a figure for each task, split and chip; None without any.

    Args:
        files: predicted and measured times, `scatter.json` of each experiment.
        figures: folder that figures go to.

    Raises:
        DataError: for a file that is something else, or a figure that cannot be written.
    """
    scatters = [scatter for path in files for scatter in read_scatter(path)]
    written = write_scatter_figures(scatters, figures)
    shown = []
    for name, path in written.items():
        where = ", ".join(name.removeprefix("predicted_").split("_", 2))
        alt = f"Predicted against measured runtimes of test kernels, a panel for each model; {where}."
        caption = f"{where}: each dot a test kernel; the line is where predictions are right; dotted: 5 µs."
        shown.append(PageFigure(path, alt, caption))
    title = "Predicted and measured runtimes"
    if not shown:
        return None
    return Section("predicted", title, title, figures=tuple(shown), folded_figures=True, page="models")
