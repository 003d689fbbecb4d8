"""The part of the page about variants of the learned model, and the list of what was not run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from costbench.reports.data.budgets import Budget
from costbench.reports.figures.variants import write_heat_map, write_scaling_figure
from costbench.reports.page import FIRST, PageFigure, Section
from costbench.reports.results import Results
from costbench.reports.tables.variants import ablation_tables, differences_tables, left_out, places


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
    for place in places(results):
        paths = write_heat_map(results, place, figures)
        if paths:
            alt = (
                f"Heat map of the errors of graph networks by reductions, {place.split} split, {place.chip}."
            )
            caption = (
                f"Mean error of each graph network (row) with each reduction (column), {place.split} split, "
                f"{place.chip}; the lowest of a panel is bold. Colours: logarithmic, each panel by itself."
            )
            drawn.append(PageFigure(paths[0], alt, caption))
        paths = write_scaling_figure(results, place, figures)
        if paths:
            alt = f"Error against the share of the training programs, {place.split} split, {place.chip}."
            caption = (
                "Error after training on a share of the training programs, with equal budgets; dots are test "
                f"programs, the line is their geometric mean. {place.split} split, {place.chip}."
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


def missing_section(results: Results) -> Section | None:
    """Which of the papers' tables are left out, and why; None if they are all there.

    Raises:
        ParamsError: if the package's data of the papers are broken.
    """
    lines = left_out(results)
    title = "Tables of the papers without results here"
    return Section("missing", title, "Not run", lines, page=FIRST) if lines else None
