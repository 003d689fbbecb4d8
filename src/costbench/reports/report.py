"""All tables, figures and pages of a run, from what its stages left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from pathlib import Path

import pandas as pd

from costbench.artifacts import write_json
from costbench.reports.baseline_comparison import Standings
from costbench.reports.claims.claim import load_claims
from costbench.reports.claims.evaluation import Finding, derived_rows, evaluate_claims
from costbench.reports.claims.restatement import on_folds, restated
from costbench.reports.dataset_files import (
    Audit,
    Card,
    SplitCounts,
    flat_counts,
    flat_leaks,
    read_audits,
    read_cards,
    read_counts,
)
from costbench.reports.declarations import declared_tables
from costbench.reports.extension import RenderedPart, ReportPart
from costbench.reports.figures.canvas import keep_smaller
from costbench.reports.figures.search_curves import read_paths
from costbench.reports.frame import frame_of
from costbench.reports.overhead import overhead_rows, without_wall_times
from costbench.reports.page import FIRST, Section, write_pages
from costbench.reports.rendering import write_tables
from costbench.reports.results import Cell, Results, load_results
from costbench.reports.searches import Searches, load_searches
from costbench.reports.sections.claims import claims_section, write_claims
from costbench.reports.sections.data import data_section
from costbench.reports.sections.models import (
    ablation_section,
    differences_section,
    learning_section,
    scatter_section,
    training_section,
)
from costbench.reports.sections.overview import (
    Overview,
    missing_section,
    overview_figures,
    overview_section,
    page_lead,
    page_title,
    provenance_section,
)
from costbench.reports.sections.results import Evidence, all_standings, analytical_section, cell_section
from costbench.reports.sections.searches import flat_searches, search_sections
from costbench.reports.sections.tpugraphs import TpuGraphsInputs, tpugraphs_pointer, tpugraphs_section
from costbench.reports.summary import headlines, summarise
from costbench.reports.table import Table
from costbench.reports.tables.hyperparameters import Settings
from costbench.reports.tables.learning_curves import is_curve, is_rate
from costbench.reports.tables.tpugraphs import flat_collections
from costbench.reports.training_guard import equal_steps, undertrained
from costbench.reports.training_runs import Budget, read_budgets, read_selected, write_budgets
from costbench.tasks import LEARNED


@dataclass(frozen=True)
class ReportInputs:
    """Files that a report is made of.

    Attributes:
        rows: result rows, a file an experiment.
        split: folder of the stage `split`, whose `leakage.json`, `counts.json` and `card.json` describe the
            simulated samples; None where all results are of imported ones.
        histories: name of a training run -> its curve as CSV; names begin with the task.
        curves: task -> column of its curves that is drawn.
        provenance: what else says where the numbers come from, name -> value.
        scatter: files `scatter.json`, predicted and measured times.
        settings: section -> its parameters, for the tables of hyper-parameters (see `settings_tables`).
        trained: folders of the trained cells, each below that of its experiment.
        sweep: folder of the sweep; None where there is none.
        searches: rows of the stage `autotune`; None where it was not run.
        search_paths: its `search.json`, likewise.
        tpugraphs: what is shown beside the rows in the section about tpugraphs2023.
        tables: files that declare further tables (see `costbench.reports.declarations`).
        evidence: path of the page whose verdicts count, from that of this report; empty if it is this one.
        parts: what other packages add, by name.
    """

    rows: tuple[Path, ...]
    split: Path | None
    histories: Mapping[str, Path]
    curves: Mapping[str, str]
    provenance: Mapping[str, str]
    scatter: tuple[Path, ...] = ()
    settings: Settings = field(default_factory=dict)
    trained: tuple[Path, ...] = ()
    sweep: Path | None = None
    searches: Path | None = None
    search_paths: Path | None = None
    tpugraphs: TpuGraphsInputs = field(default_factory=TpuGraphsInputs)
    tables: tuple[Path, ...] = ()
    evidence: str = ""
    parts: Mapping[str, ReportPart] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportFiles:
    """What was written: pages, headline numbers (all; for `dvc metrics`), budgets, claims, tables, figures.

    `frame` has the results that they are made of; `findings` are those on claims, with the effects of wall
    times, which no file of the report has.
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
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Samples:
    """What the stage `split` says of the simulated samples."""

    audits: tuple[Audit, ...] = ()
    counts: tuple[SplitCounts, ...] = ()
    cards: tuple[Card, ...] = ()


def _samples(split: Path | None) -> Samples:
    if split is None:
        return Samples()
    audits, counts, cards = (split / name for name in ("leakage.json", "counts.json", "card.json"))
    return Samples(read_audits(audits), read_counts(counts), read_cards(cards))


@dataclass(frozen=True)
class Report:
    """What the sections of a report are made of.

    Attributes:
        inputs: files, and what other packages add.
        results: of evaluation.
        searches: of the stage `autotune`.
        samples: what the stage `split` says of the simulated samples.
        budgets: of the training runs.
        standings: by name of cell, how its models stand to the strongest baseline.
        findings: on all claims, without the effects of wall times.
        figures: folder that figures go to.
        seed: seed of the bootstrap.
    """

    inputs: ReportInputs
    results: Results
    searches: Searches
    samples: Samples
    budgets: tuple[Budget, ...]
    standings: Mapping[str, Standings]
    findings: tuple[Finding, ...]
    figures: Path
    seed: int

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Main results of learned tasks."""
        return tuple(cell for cell in self.results.cells if cell.task in LEARNED)


def _overview(report: Report) -> Section:
    cells, searches = report.cells, report.searches
    return overview_section(
        Overview(
            cells=cells,
            found=report.standings,
            searches=searches,
            findings=report.findings,
            cards=report.samples.cards,
            budgets=report.budgets,
            differences=differences_section(report.results, report.seed, report.budgets) is not None,
            tpugraphs=tpugraphs_pointer(report.results),
            figures=overview_figures(cells, report.standings, searches, report.figures),
            evidence=report.inputs.evidence,
        )
    )


def _cells(report: Report) -> Iterable[Section]:
    evidence = Evidence(report.samples.audits, report.figures, report.seed)
    for cell in report.cells:
        yield cell_section(report.results, cell, evidence, report.standings[cell.name])


def _learning(report: Report) -> Section | None:
    own = report.inputs
    points = read_selected(
        own.trained, report.budgets, own.curves, lambda variant: is_curve(variant) or is_rate(variant)
    )
    return learning_section(report.results, points, report.budgets, own.curves, report.figures)


def _data(report: Report) -> Section | None:
    samples = report.samples
    if not samples.cards:
        return None
    return data_section(samples.cards, samples.counts, samples.audits, report.figures)


def _training(report: Report) -> Section | None:
    own = report.inputs
    return training_section(
        own.histories, own.curves, report.budgets, own.settings, own.sweep, report.figures
    )


SECTIONS: Sequence[Callable[[Report], Section | Iterable[Section] | None]] = (
    _overview,
    _cells,
    lambda it: differences_section(it.results, it.seed, it.budgets),
    lambda it: scatter_section(it.inputs.scatter, it.figures),
    lambda it: search_sections(it.searches, read_paths(it.inputs.search_paths), it.findings, it.figures),
    lambda it: ablation_section(it.results, it.figures, it.budgets),
    _learning,
    lambda it: tpugraphs_section(it.results, it.inputs.tpugraphs, it.samples.cards, it.findings, it.figures),
    lambda it: claims_section(it.findings),
    lambda it: missing_section(it.results),
    lambda it: analytical_section(it.results),
    _data,
    _training,
    lambda it: provenance_section(it.results, it.searches, it.inputs.provenance),
)
"""In the order of the report. Those of other packages follow (`costbench.reports.extension`)."""


def write_report(inputs: ReportInputs, folder: Path, seed: int) -> ReportFiles:
    """Write `index.html`, `pages/`, `summary.json`, `metrics.json`, `claims.*`, `tables/`, `figures/`.

    Args:
        inputs: results and evidence.
        folder: folder of the report.
        seed: seed of the bootstrap.

    Raises:
        DataError: if an input is missing or malformed, or a file cannot be written.
    """
    results, searches = load_results(*inputs.rows), load_searches(inputs.searches)
    budgets = read_budgets(inputs.trained)
    more = frame_of((row for part in inputs.parts.values() for row in part.rows), "autotune")
    frame = pd.concat([results.frame, searches.frame, more], ignore_index=True)
    decided = _findings(results, frame, budgets, inputs, seed)
    report = Report(
        inputs,
        results,
        searches,
        _samples(inputs.split),
        budgets,
        all_standings(results, seed),
        without_wall_times(decided),
        folder / "figures",
        seed,
    )
    parts = {name: part.render(report.findings, report.figures) for name, part in inputs.parts.items()}
    sections = _completed((*_sections(report), *_sections_of_parts(parts)), inputs.tables, frame)
    summary = summarise(results, _summary(report, parts))
    title, lead = page_title(report.cells), page_lead(report.cells)
    leads = {name: (part.title, part.lead) for name, part in inputs.parts.items()}
    write_json(folder / "summary.json", summary)
    write_json(folder / "metrics.json", headlines(results))
    write_budgets(budgets, folder / "budgets.json")
    tables = write_tables([table for section in sections for table in section.tables], folder / "tables")
    return ReportFiles(
        pages=write_pages(folder, {FIRST: (title, lead), **leads}, sections),
        summary=folder / "summary.json",
        metrics=folder / "metrics.json",
        budgets=folder / "budgets.json",
        claims=write_claims(report.findings, folder),
        tables=tables,
        figures=tuple(figure.path for section in sections for figure in section.figures),
        headline=summary,
        frame=frame,
        findings=decided,
    )


def _sections(report: Report) -> Iterable[Section]:
    for make in SECTIONS:
        made = make(report)
        yield from (made,) if isinstance(made, Section) else made or ()


def _sections_of_parts(parts: Mapping[str, RenderedPart]) -> Iterable[Section]:
    """Returns the sections of other packages, each on the page of its part."""
    for name, part in parts.items():
        yield from (replace(section, page=name) for section in part.sections)


def _summary(report: Report, parts: Mapping[str, RenderedPart]) -> dict[str, float]:
    """Returns the headline numbers that are not those of result rows."""
    found = flat_leaks(report.samples.audits) | flat_counts(report.samples.cards)
    found |= flat_searches(report.searches) | flat_collections(report.results)
    for part in parts.values():
        found |= part.summary
    return found


def _completed(
    sections: Sequence[Section], files: Sequence[Path], frame: pd.DataFrame
) -> tuple[Section, ...]:
    """Returns the sections with the tables that files declare; those of no section have one of their own.

    Of each figure the smaller file is kept.
    """
    more: dict[str, tuple[Table, ...]] = {}
    for file in files:
        for anchor, tables in declared_tables(file, frame).items():
            known = anchor if anchor in {section.anchor for section in sections} else "tables"
            more[known] = (*more.get(known, ()), *tables)
    own = more.pop("tables", ())
    shown = [
        replace(
            section,
            tables=(*section.tables, *more.get(section.anchor, ())),
            figures=tuple(replace(one, path=keep_smaller(one.path)) for one in section.figures),
        )
        for section in sections
    ]
    return (*shown, *([Section("tables", "More tables", "More tables", tables=own)] if own else []))


def _findings(
    results: Results, frame: pd.DataFrame, budgets: Sequence[Budget], inputs: ReportInputs, seed: int
) -> tuple[Finding, ...]:
    """On the papers' claims, then on those restated against the strongest baseline or on folds."""
    parts = inputs.parts.values()
    printed = (*load_claims(), *(claim for part in parts for claim in part.claims))
    # Wall times of inference are no results that a file keeps.
    timed = frame_of(overhead_rows(inputs.tpugraphs.overheads))
    return evaluate_claims(
        (*printed, *restated(printed), *on_folds(printed, results.scores)),
        pd.concat([frame, derived_rows(results.frame), timed], ignore_index=True),
        seed,
        undertrained=reduce(or_, (part.undertrained for part in parts), undertrained(results, budgets)),
        steps=equal_steps(budgets),
    )
