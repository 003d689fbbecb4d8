"""Pages of the tasks, a section for each split and chip; and the section about a user's own programs.

Results of these are in no mean, interval or claim of the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from costbench.reports.baseline_comparison import Standings
from costbench.reports.dataset_files import ALL_PROGRAMS
from costbench.reports.figures.programs import MOST_NAMED, write_program_figure
from costbench.reports.frame import select
from costbench.reports.inputs import ReportData
from costbench.reports.losses import SKEWED, spread
from costbench.reports.page import FIRST, Page, Section, page_figure, paragraphs
from costbench.reports.papers.printed import main_table
from costbench.reports.results import TRAINED, UNSEEN, Cell, title_of
from costbench.reports.searches import STARTS
from costbench.reports.sections.searches import figure_4_table, start_table
from costbench.reports.table import Table
from costbench.reports.tables.programs import (
    NEW_STRUCTURE,
    baselines_table,
    comparison_table,
    earlier_tables,
    program_table,
    share_of_structures,
    short_kernels_table,
    structure_table,
    unseen_means,
    unseen_table,
)

_HEADINGS = {"tile": "Tile sizes", "fusion": "Fused kernels", "layout": "Layouts"}
TASK_PAGES = {task: Page(task, heading) for task, heading in _HEADINGS.items()}


def cell_sections(data: ReportData) -> Iterator[Section]:
    """Returns figure, tables and findings of each task, split and chip.

    Raises:
        DataError: if a figure cannot be written.
    """
    return (_cell_section(data, cell) for cell in data.cells)


def _cell_section(data: ReportData, cell: Cell) -> Section:
    results, standing = data.results, data.own_front.standings[cell.name]
    unseen, new = results.part(cell, UNSEEN), results.part(cell, NEW_STRUCTURE)
    paper = main_table(cell.task, cell.split)
    if paper is not None:
        cell = replace(cell, programs=paper.ordered(cell.programs))
    svg, _ = write_program_figure(cell, paper, data.figures)
    error, tau = cell.described.measures
    titles = {"error": error.title.replace(" (%)", ""), "tau": tau.title}
    audit = select(data.leakage, task=cell.task, split=cell.split, chip=cell.chip, program=ALL_PROGRAMS)
    tables = [baselines_table(cell, standing), program_table(cell, paper, standing.strongest)]
    if cell.described.ranks_decisions and unseen is not None and (audit["leaked_kernels"] > 0).any():
        tables.append(unseen_table(cell, unseen))
    if cell.described.short_kernels:
        tables.append(short_kernels_table(cell, standing.strongest))
    tables += [
        *earlier_tables(results, cell),
        comparison_table(cell, data.seed),
        structure_table(cell, new, standing.strongest),
    ]
    shown = tuple(table for table in tables if table.rows)
    # What stands beside the paper's numbers is shown at once.
    beside_paper = paper is not None and paper.chip == cell.chip
    open_tables = {f"baselines_{cell.name}", *([cell.name] if beside_paper else [])}
    name = cell.labels.title
    return Section(
        anchor=cell.name,
        title=f"{name}, {cell.where}",
        label=f"{name}, {cell.split}, {cell.chip}",
        page=TASK_PAGES[cell.task],
        paragraphs=_paragraphs(cell, standing, audit, unseen, new),
        figures=(page_figure(svg, "results", "programs", cell=cell, most_named=MOST_NAMED, **titles),),
        tables=shown,
        folded=tuple(table.name for table in shown if table.name not in open_tables),
        folded_figures=not beside_paper,
    )


def _paragraphs(
    cell: Cell, standing: Standings, audit: pd.DataFrame, unseen: Cell | None, new: Cell | None
) -> tuple[str, ...]:
    """Returns what networks and the strongest baseline reach, and how much training has seen of the tests."""
    compared = (*TRAINED, "analytical", standing.strongest)
    means = [(title_of(model), *cell.means(model)) for model in cell.models if model in compared]
    skewed = SKEWED.get(cell.task)
    spreads = {} if skewed is None else loss_spreads(cell)
    share = share_of_structures(cell, new)
    return paragraphs(
        "results",
        labels=cell.labels,
        programs=len(cell.programs),
        models=[mean for mean in means if None not in mean],
        spreads={title_of(model): averages for model, averages in spreads.items()},
        headroom=None if skewed is None else spreads.get(skewed.default),
        best_of_ten=best_of_ten(cell),
        leakage=audit.to_dict("records"),
        unseen=unseen_means(cell, unseen),
        structures=None if share is None else 100.0 * share,
    )


def loss_spreads(cell: Cell) -> dict[str, dict[str, float]]:
    """Returns arithmetic mean, median and shares of programs above thresholds of each model's error."""
    error = cell.described.measures[0]
    spreads = {model: spread(error, cell.over_programs(model, error.metric)) for model in cell.models}
    return {model: averages for model, averages in spreads.items() if averages}


def best_of_ten(cell: Cell) -> dict[str, float]:
    """Returns the mean loss once a model's ten best decisions were measured, of a skewed task, by title."""
    if cell.task not in SKEWED:
        return {}
    losses = {model: cell.over_programs(model, SKEWED[cell.task].best_of_ten) for model in cell.models}
    return {title_of(model): sum(values) / len(values) for model, values in losses.items() if values}


def user_programs_section(data: ReportData) -> Section | None:
    """Returns a row for each of the user's programs, and averages over them; None where there are none.

    Tables are those of the corpus, by task, split and chip, and those of searches that tuned such programs.
    """
    tables = [
        replace(table, name=f"user_{table.name}", title=f"Your own programs. {table.title}")
        for table in _user_tables(data)
        if table.rows
    ]
    if not tables:
        return None
    programs = {program for cell in data.results.of_user.cells for _, program in cell.programs}
    return Section(
        anchor="user-programs",
        title="Your own programs",
        label="Your own programs",
        page=FIRST,
        paragraphs=paragraphs("results", "user_programs", programs=len(programs)),
        tables=tuple(tables),
        folded=tuple(table.name for table in tables[1:]),
    )


def _user_tables(data: ReportData) -> Iterator[Table]:
    for cell in data.results.of_user.cells:
        standing = data.own_front.standings.get(cell.name)
        yield program_table(cell, None, standing.strongest if standing else None)
    searches = data.searches.of_user
    yield from map(figure_4_table, searches.of("tile"))
    for results in searches.of("fusion"):
        yield from (start_table(results, "lpm2021", start) for start in STARTS)
