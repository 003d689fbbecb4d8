"""The page about models: ablations, differences to the paper's, learning curves, predictions, trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from costbench.reports.baseline_comparison import strongest_baseline
from costbench.reports.claims.claim import Side
from costbench.reports.figures.estimate_quality import write_quality_figure
from costbench.reports.figures.programs import (
    UNSCALED,
    read_scatter,
    write_curve_figure,
    write_scatter_figures,
)
from costbench.reports.figures.variants import write_heat_map, write_learning_figure, write_scaling_figure
from costbench.reports.page import Section, page_figure, paragraphs
from costbench.reports.results import CEILINGS, Results, title_of
from costbench.reports.tables.estimate_quality import QualityScores, quality_scores, quality_table
from costbench.reports.tables.hyperparameters import Settings, settings_tables, trials_table
from costbench.reports.tables.learning_curves import (
    Curves,
    curves_table,
    learning_curves,
    rates_tables,
    settled_after,
)
from costbench.reports.tables.variants import NO_LABELS, ablation_tables, differences_tables, variant_splits
from costbench.reports.training_guard import NetworkKey
from costbench.reports.training_runs import Budget, Selected, budget_table, read_history, rises
from costbench.tasks import labels_of

_PAGE = "models"
"""Name of the page and of the template of its sections."""


def ablation_section(
    results: Results,
    figures: Path,
    budgets: Sequence[Budget] = (),
    labels: Mapping[str, str] = NO_LABELS,
    untrained: Mapping[NetworkKey, str] = MappingProxyType({}),
) -> Section | None:
    """Returns heat maps, scaling curves and tables of variants; None without variants.

    Args:
        results: results of all variants.
        figures: folder that figures go to.
        budgets: budgets of the training runs.
        labels: names of variants for people, by name.
        untrained: networks that were not trained enough, and why.

    Raises:
        DataError: if a figure cannot be written.
        ParamsError: if the package's data of the papers are broken.
    """
    tables = ablation_tables(results, budgets, labels, untrained)
    if not tables:
        return None
    page_figures = []
    for chip_split in variant_splits(results):
        writers = {"networks": write_heat_map, "shares": write_scaling_figure}
        for name, write in writers.items():
            paths = write(results, chip_split, figures)
            if paths:
                where = f"{chip_split.split} split, {chip_split.chip}"
                page_figures.append(page_figure(paths[0], _PAGE, name, where=where))
    return Section(
        anchor="ablations",
        title="What the learned model needs",
        label="Ablations",
        page=_PAGE,
        paragraphs=paragraphs(_PAGE, "ablations"),
        figures=tuple(page_figures),
        tables=tables,
        folded=tuple(table.name for table in tables if table.name.startswith("variants_")),
    )


def differences_section(results: Results, seed: int, budgets: Sequence[Budget] = ()) -> Section | None:
    """Returns how ours differs from lpm2021's model, and what each difference is worth; None if not measured.

    Args:
        results: results of all variants.
        seed: seed of the bootstrap.
        budgets: budgets of the training runs.

    Raises:
        ParamsError: if the package's data of the papers are broken.
    """
    tables = differences_tables(results, seed, budgets)
    if not tables:
        return None
    return Section(
        anchor="differences",
        title="How ours differs from the paper's model",
        label="Differences",
        page=_PAGE,
        paragraphs=paragraphs(_PAGE, "differences"),
        tables=tables,
    )


def learning_section(
    results: Results,
    selected: Sequence[Selected],
    budgets: Sequence[Budget],
    columns: Mapping[str, str],
    figures: Path,
) -> Section | None:
    """Returns a figure and a table for each task with learning curves, and tables of rates; None without any.

    Args:
        results: results of all variants on test programs.
        selected: best validation values of training runs.
        budgets: budgets of all training runs.
        columns: task -> column of histories that is drawn.
        figures: folder that figures go to.

    Raises:
        DataError: if a figure cannot be written.
    """
    curves = learning_curves(results, selected, budgets, columns)
    rates = rates_tables(selected, columns)
    if not curves and not rates:
        return None
    page_figures = []
    for curve in curves:
        svg, _ = write_learning_figure(curve, _ceilings(results, curve), figures)
        page_figures.append(
            page_figure(
                svg,
                _PAGE,
                "curves",
                task=labels_of(curve.task).title,
                where=f"{curve.split} split, {curve.chip}",
                networks=len(curve.networks),
            )
        )
    tables = (*map(curves_table, curves), *rates)
    return Section(
        anchor="learning-curves",
        title="How much training is enough?",
        label="Learning curves",
        page=_PAGE,
        paragraphs=paragraphs(_PAGE, "curves", curves=[summarise_curves(results, curve) for curve in curves]),
        figures=tuple(page_figures),
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
    settled, order = settled_after(curves, lambda point: point.validation, rises(curves.column))
    settled_by_test, _ = settled_after(curves, lambda point: point.error, rising=False)
    baseline, baseline_error = None, None
    cell = results.cell(curves.task, curves.split, curves.chip)
    if cell is not None:
        error = cell.described.measures[0]
        side = Side(split=curves.split, chip=curves.chip)
        baseline = strongest_baseline(results.scores, curves.task, error.metric, side)
    if cell is not None and baseline is not None:
        baseline_error = error.mean(cell.over_programs(baseline, error.metric))
    return {
        "where": f"{labels_of(curves.task).heading}, {curves.split} split, {curves.chip}",
        "settled": settled,
        "settled_by_test": settled_by_test,
        "order": order,
        "ablations": curves.ablations,
        "enough": settled is not None and curves.ablations is not None and settled <= curves.ablations,
        "errors": {
            name: [(point.steps, point.error) for point in points if point.error is not None]
            for name, points in curves.networks.items()
        },
        "baseline": None if baseline is None or baseline_error is None else title_of(baseline),
        "baseline_error": baseline_error,
    }


def _ceilings(results: Results, curves: Curves) -> dict[str, float]:
    """Returns the mean tau of each ceiling on the test programs, by title."""
    cell = results.cell(curves.task, curves.split, curves.chip)
    if cell is None:
        return {}
    tau = cell.described.measures[1]
    means = {name: tau.mean(cell.over_programs(name, tau.metric)) for name in CEILINGS}
    return {title_of(name): mean for name, mean in means.items() if mean is not None}


def estimates_section(results: Results, figures: Path) -> Section | None:
    """Returns error against the quality of the estimate, for each task; None without several qualities.

    Args:
        results: results on test programs.
        figures: folder that figures go to.

    Raises:
        DataError: if a figure cannot be written.
    """
    scored = quality_scores(results)
    if not scored:
        return None
    drawn = []
    for scores in scored:
        svg, _ = write_quality_figure(scores, figures)
        words = {"task": labels_of(scores.task).title, "where": scores.where, "own": scores.own}
        drawn.append(page_figure(svg, _PAGE, "estimates", **words))
    return Section(
        anchor="estimates",
        title="How good must the compiler's estimate be?",
        label="Quality of the estimate",
        page=_PAGE,
        paragraphs=paragraphs(_PAGE, "estimates", gains=[_gain_over_learned(scores) for scores in scored]),
        figures=tuple(drawn),
        tables=tuple(map(quality_table, scored)),
    )


def _gain_over_learned(scores: QualityScores) -> dict[str, object]:
    """Returns the qualities with which a hybrid, and the estimate itself, err less than the network alone."""
    learned = scores.without.get("learned")
    level = None if learned is None else learned.error
    better = {
        model: [
            quality
            for quality, of_models in scores.by_quality.items()
            if level is not None
            and (score := of_models.get(model)) is not None
            and score.error is not None
            and score.error < level
        ]
        for model in ("hybrid", "analytical")
    }
    return {"task": labels_of(scores.task).title, "where": scores.where, "learned": level, **better}


def scatter_section(files: Sequence[Path], figures: Path) -> Section | None:
    """Returns predicted against measured runtimes, a figure for each task, split and chip; None without any.

    Args:
        files: predicted and measured times, `scatter.json` of each experiment.
        figures: folder that figures go to.

    Raises:
        DataError: for a file that is something else, or a figure that cannot be written.
    """
    scatters = [s for path in files for s in read_scatter(path) if s.model != UNSCALED]
    written = write_scatter_figures(scatters, figures)
    if not written:
        return None
    page_figures = []
    for name, path in written.items():
        where = ", ".join(name.removeprefix("predicted_").split("_", 2))
        page_figures.append(page_figure(path, _PAGE, "scatter", where=where))
    title = "Predicted and measured runtimes"
    return Section("predicted", title, title, page=_PAGE, figures=tuple(page_figures), folded_figures=True)


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
        budgets: budgets of all training runs.
        settings: section -> its parameters, for the tables of hyper-parameters (see `settings_tables`).
        sweep: folder of the sweep; None where there is none.
        figures: folder that figures go to.

    Raises:
        DataError: for a curve or trial that cannot be read, or a figure that cannot be written.
    """
    page_figures = []
    for task, column in columns.items():
        curves = {
            name: points
            for name, path in sorted(histories.items())
            if name.startswith(f"{task}-") and (points := read_history(path, column))
        }
        if curves:
            svg, _ = write_curve_figure(f"training_{task}", curves, column.replace("_", " "), figures)
            page_figures.append(page_figure(svg, _PAGE, "training", column=column, runs=len(curves)))
    trials = () if sweep is None else (trials_table(task, sweep) for task in columns)
    tables = (
        *([budget_table(budgets)] if budgets else []),
        *settings_tables(settings),
        *(table for table in trials if table is not None),
    )
    if not page_figures and not tables:
        return None
    return Section(
        anchor="training",
        title="Training",
        label="Training",
        page=_PAGE,
        figures=tuple(page_figures),
        tables=tables,
        folded=tuple(table.name for table in tables),
        folded_figures=True,
    )
