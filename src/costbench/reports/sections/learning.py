"""The part of the page about budgets: learning curves, and the learning rates chosen on validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from costbench.reports.data.budgets import Budget
from costbench.reports.data.selected import Selected, rises
from costbench.reports.figures.learning import write_learning_figure
from costbench.reports.page import PageFigure, Section
from costbench.reports.results import CEILINGS, Results, title_of
from costbench.reports.tables.learning import Curves, curves_table, learning_curves, settled_after
from costbench.reports.tables.rates import rates_of, rates_table
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
        paragraphs=tuple(map(budget_sentence, curves)),
        figures=tuple(drawn),
        tables=tables,
        folded=tuple(table.name for table in tables),
    )


def budget_sentence(curves: Curves) -> str:
    """Returns from which budget on the networks keep their order, and how that compares with the ablations'.

    Args:
        curves: of a task, split and chip.
    """
    said = []
    steps = []
    for basis, value, rising in (
        ("on validation programs", lambda point: point.validation, rises(curves.column)),
        ("by test error", lambda point: point.error, False),
    ):
        least, order = settled_after(curves, value, rising)
        if order:
            named = ", ".join(order)
            since = f"the same from {least:,} steps on" if least else "not settled by the last budget"
            said.append(f"{basis} the order of the networks is {since} ({named}, the best first)")
            steps.append(least)
    text = f"{labels_of(curves.task).heading}, {curves.split} split, {curves.chip}: {'; '.join(said)}."
    if curves.ablations is None:
        return text
    settled = bool(steps) and all(one is not None and one <= curves.ablations for one in steps)
    verdict = "so their order is not one of short training" if settled else "which may be too short for it"
    return f"{text} The ablations see the samples of {curves.ablations:,.0f} such steps, {verdict}."


def _ceilings(results: Results, curves: Curves) -> dict[str, float]:
    """Returns the mean tau of each ceiling on the test programs, by title."""
    cell = results.cell(curves.task, curves.split, curves.chip)
    if cell is None:
        return {}
    tau = cell.described.measures[1]
    means = {name: tau.mean(cell.over_programs(name, tau.metric)) for name in CEILINGS}
    return {title_of(name): mean for name, mean in means.items() if mean is not None}
