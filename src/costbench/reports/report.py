"""Writes all tables, figures and pages of a run, from what its stages left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from costbench.reports.claims.evaluation import Finding
from costbench.reports.dataset_files import flat_counts, flat_leakage
from costbench.reports.declared_tables import declared_tables
from costbench.reports.extension import RenderedPart
from costbench.reports.figures.canvas import keep_smaller
from costbench.reports.frame import stack
from costbench.reports.inputs import ReportData, ReportInputs, load_report_data
from costbench.reports.machine_searches import flat_machine_searches
from costbench.reports.page import FIRST, Page, Section, glossary, sentence, write_pages
from costbench.reports.rendering import write_numbers, write_tables
from costbench.reports.sections.analytical import analytical_section
from costbench.reports.sections.claims import claims_section, write_claims
from costbench.reports.sections.data import data_section
from costbench.reports.sections.estimates import estimates_section, flat_qualities
from costbench.reports.sections.headline import headline_section
from costbench.reports.sections.models import (
    ablation_section,
    differences_section,
    learning_section,
    scatter_section,
    training_section,
)
from costbench.reports.sections.overview import (
    missing_section,
    overview_section,
    page_lead,
    provenance_section,
)
from costbench.reports.sections.real_machine import flat_real, real_machine_section
from costbench.reports.sections.results import cell_sections, user_programs_section
from costbench.reports.sections.searches import flat_searches, machine_searches_section, search_sections
from costbench.reports.sections.tpugraphs import tpugraphs_section
from costbench.reports.summary import flat_fits, flat_headline, headlines, summarise
from costbench.reports.table import Table
from costbench.reports.tables.tpugraphs import flat_collections
from costbench.reports.training_runs import write_budgets
from costbench.tasks import LEARNED


@dataclass(frozen=True)
class ReportFiles:
    """Files of a report, and what they are made of.

    Attributes:
        pages: pages, the first one first.
        summary: all headline numbers as JSON.
        metrics: the few headline numbers that `dvc metrics` shows.
        budgets: budgets of training runs as JSON.
        claims: verdicts on claims as Markdown and as JSON.
        tables: tables as CSV, and the list of them.
        figures: figures.
        headline: the numbers of `summary`.
        frame: the results that they are made of, those of a user's own programs included.
        findings: findings on claims with the effects of wall times, which no file of the report has.
    """

    pages: tuple[Path, ...]
    summary: Path
    metrics: Path
    budgets: Path
    claims: tuple[Path, ...]
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    headline: Mapping[str, float]
    frame: pd.DataFrame
    findings: tuple[Finding, ...]


SECTIONS: Sequence[Callable[[ReportData], Section | Iterable[Section] | None]] = (
    overview_section,
    user_programs_section,
    cell_sections,
    headline_section,
    real_machine_section,
    differences_section,
    scatter_section,
    search_sections,
    machine_searches_section,
    ablation_section,
    estimates_section,
    learning_section,
    tpugraphs_section,
    lambda data: claims_section(data.printed_findings, data.inputs.params.evidence),
    missing_section,
    analytical_section,
    data_section,
    training_section,
    provenance_section,
)
"""Sections in the order of the report. Those of other packages follow (`costbench.reports.extension`)."""


def write_report(inputs: ReportInputs, folder: Path) -> ReportFiles:
    """Writes `index.html`, `pages/`, `summary.json`, `metrics.json`, `claims.*`, `tables/`, `figures/`.

    Args:
        inputs: files of the stages.
        folder: folder of the report.

    Raises:
        DataError: if an input is missing or malformed, or a file cannot be written.
    """
    data = load_report_data(inputs, folder / "figures")
    parts = {name: part.render(data.printed_findings, data.figures) for name, part in inputs.parts.items()}
    pages = {name: Page(name, part.title, part.lead) for name, part in inputs.parts.items()}
    of_parts = (replace(s, page=pages[name]) for name, part in parts.items() for s in part.sections)
    sections = _complete((*_sections(data), *of_parts), data)
    summary = summarise(data.results, _summary_beside_rows(data, parts))
    only_tiles = all(LEARNED[cell.task].ranks_decisions for cell in data.cells)
    title = sentence("overview", "title", only_tiles=only_tiles)
    first = replace(FIRST, title=title, lead=page_lead(data))
    write_numbers(folder / "summary.json", summary)
    write_numbers(folder / "metrics.json", headlines(data.results))
    write_budgets(data.budgets, folder / "budgets.json")
    return ReportFiles(
        pages=write_pages(folder, first, sections, glossary({cell.task for cell in data.cells})),
        summary=folder / "summary.json",
        metrics=folder / "metrics.json",
        budgets=folder / "budgets.json",
        claims=write_claims(data.printed_findings, folder),
        tables=write_tables([table for section in sections for table in section.tables], folder / "tables"),
        figures=tuple(figure.path for section in sections for figure in section.figures),
        headline=summary,
        frame=stack([data.frame, *data.user_rows]),
        findings=data.findings,
    )


def _sections(data: ReportData) -> Iterable[Section]:
    for make in SECTIONS:
        made = make(data)
        yield from (made,) if isinstance(made, Section) else made or ()


def _summary_beside_rows(data: ReportData, parts: Mapping[str, RenderedPart]) -> dict[str, float]:
    """Returns the headline numbers that are not those of result rows."""
    numbers = flat_leakage(data.leakage) | flat_counts(data.cards)
    numbers |= flat_searches(data.searches) | flat_collections(data.results) | flat_qualities(data.estimates)
    numbers |= flat_real(data.real) | flat_machine_searches(data.inputs.params.machine_searches)
    numbers |= flat_fits(map(Path, data.inputs.scatter)) | flat_headline(data.headline_front)
    packed = {} if data.headline is None else flat_searches(data.headline.searches)
    # Of packed searches those of all programs: there are hundreds of others.
    numbers |= {f"headline/{key}": value for key, value in packed.items() if "/all/" in key}
    for part in parts.values():
        numbers |= part.summary
    return numbers


def _complete(sections: Sequence[Section], data: ReportData) -> tuple[Section, ...]:
    """Returns the sections with the tables that files declare; those of no section have one of their own.

    Of each figure the smaller file is kept.
    """
    anchors = {section.anchor for section in sections}
    declared: dict[str, tuple[Table, ...]] = {}
    for file in data.inputs.params.tables:
        for anchor, tables in declared_tables(Path(file), data.frame, data.seed).items():
            section_anchor = anchor if anchor in anchors else "tables"
            declared[section_anchor] = (*declared.get(section_anchor, ()), *tables)
    rest = declared.pop("tables", ())
    completed = [
        replace(
            section,
            tables=(*section.tables, *declared.get(section.anchor, ())),
            figures=tuple(replace(figure, path=keep_smaller(figure.path)) for figure in section.figures),
        )
        for section in sections
    ]
    if rest:
        completed.append(Section("tables", "More tables", "More tables", tables=rest))
    return tuple(completed)
