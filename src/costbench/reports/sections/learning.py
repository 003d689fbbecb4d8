"""The part of the page about budgets: learning curves, and the learning rates chosen on validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from costbench.reports.baseline_comparison import strongest_baseline
from costbench.reports.claims.data import Side
from costbench.reports.data.budgets import Budget
from costbench.reports.data.selected import Selected, rises
from costbench.reports.figures.variants import write_learning_figure
from costbench.reports.page import PageFigure, Section
from costbench.reports.results import CEILINGS, Results, title_of
from costbench.reports.tables.training import (
    Curves,
    curves_table,
    learning_curves,
    rates_of,
    rates_table,
    settled_after,
)
from costbench.tasks import labels_of


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
    rates = rates_of(selected, columns)
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
    tables = (*map(curves_table, curves), *map(rates_table, rates))
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
