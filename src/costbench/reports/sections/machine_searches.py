"""The section about searches over fusions on a machine that exists."""

from __future__ import annotations

from costbench.reports.declared_tables import fill_table
from costbench.reports.inputs import ReportData
from costbench.reports.machine_searches import TITLES, search_gains
from costbench.reports.page import Section, sentence

_PAGE = "searches"


def machine_searches_section(data: ReportData) -> Section | None:
    """Returns the gains of searches and a row for each of them; None where there are none.

    Raises:
        DataError: for a damaged file of results.
    """
    gains, rows = search_gains(data.inputs.params.machine_searches)
    if gains.empty:
        return None
    kinds = gains.assign(start=gains["start"].replace(TITLES))
    by_program = rows.assign(
        start=rows["start"].astype(str).replace(TITLES),
        own_ms=rows["own_ns"] / 1e6,
        chosen_ms=rows["chosen_ns"] / 1e6,
    )
    tables = (fill_table("machine_searches", kinds), fill_table("machine_searches_programs", by_program))
    return Section(
        anchor="machine-search",
        title="Fusion on a machine that exists: searches with and without a model",
        label="Fusion autotuner, real machine",
        page=_PAGE,
        paragraphs=(sentence(_PAGE, "machine", programs=rows["program"].nunique()),),
        tables=tables,
        folded=(tables[1].name,),
    )
