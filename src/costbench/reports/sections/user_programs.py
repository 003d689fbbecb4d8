"""The section about a user's own programs, whose results are in no mean, interval or claim of the corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from costbench.reports.inputs import ReportData
from costbench.reports.page import FIRST, Section, paragraphs
from costbench.reports.searches import STARTS
from costbench.reports.sections.searches import figure_4_table, start_table
from costbench.reports.table import Table
from costbench.reports.tables.programs import program_table

_PAPER = "lpm2021"


def user_programs_section(data: ReportData) -> Section | None:
    """Returns a row for each of the user's programs, and averages over them; None where there are none.

    Tables are those of the corpus, by task, split and chip, and those of searches that tuned such programs.
    """
    tables = [
        replace(table, name=f"user_{table.name}", title=f"Your own programs. {table.title}")
        for table in _tables(data)
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


def _tables(data: ReportData) -> Iterator[Table]:
    for cell in data.results.of_user.cells:
        standing = data.own_front.standings.get(cell.name)
        yield program_table(cell, None, standing.strongest if standing else None)
    searches = data.searches.of_user
    yield from map(figure_4_table, searches.of("tile"))
    for results in searches.of("fusion"):
        yield from (start_table(results, _PAPER, start) for start in STARTS)
