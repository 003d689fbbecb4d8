"""All tables, figures and the page of a run, from what its stages left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path

from costbench.artifacts import write_json
from costbench.reports.claims.data import load_claims
from costbench.reports.claims.derived import derived_rows
from costbench.reports.claims.restated import on_folds, restated
from costbench.reports.claims.rule import Finding, evaluate_claims
from costbench.reports.claims.section import claims_section, write_claims
from costbench.reports.data.budgets import Budget, budget_table, read_budgets, write_budgets
from costbench.reports.data.dataset_card import Card, flat_counts, read_cards
from costbench.reports.data.evidence import (
    Audit,
    SplitCounts,
    flat_leaks,
    read_audits,
    read_counts,
    read_history,
)
from costbench.reports.data.section import data_section
from costbench.reports.data.selected import read_selected
from costbench.reports.extension import ReportPart
from costbench.reports.figures.results import write_curve_figure
from costbench.reports.figures.scatter import read_scatter, write_scatter_figures
from costbench.reports.page import PageFigure, Section, write_page
from costbench.reports.rendering import write_table
from costbench.reports.results import Cell, Results, load_results
from costbench.reports.search.curves import read_paths
from costbench.reports.search.results import Searches, load_searches
from costbench.reports.search.sections import search_sections
from costbench.reports.search.summary import flat_searches
from costbench.reports.sections.ablation import ablation_section, differences_section, missing_section
from costbench.reports.sections.first_figures import overview_figures
from costbench.reports.sections.learning import learning_section
from costbench.reports.sections.overview import Overview, overview_section
from costbench.reports.sections.results import Evidence, all_standings, analytical_section, cell_section
from costbench.reports.summary import headlines, summarise
from costbench.reports.tables.learning import is_curve
from costbench.reports.tables.rates import is_rate
from costbench.reports.tables.settings import Settings, settings_tables
from costbench.reports.tables.trials import trials_table
from costbench.reports.tpugraphs.overhead import overhead_rows, without_wall_times
from costbench.reports.tpugraphs.section import TpuGraphsInputs, tpugraphs_pointer, tpugraphs_section
from costbench.reports.tpugraphs.variants import flat_collections
from costbench.reports.undertrained import equal_steps, undertrained
from costbench.tasks import LEARNED, labels_of

_TITLE = "How well do cost models choose tile sizes?"
_TITLE_OF_BOTH = "How well do cost models rank tile sizes and predict the runtimes of fused kernels?"


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
    evidence: str = ""
    parts: Mapping[str, ReportPart] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportFiles:
    """What was written: page, headline numbers (all; for `dvc metrics`), budgets, claims, tables, figures.

    `findings` are those on claims, with the effects of wall times, which no file of the report has.
    """

    page: Path
    summary: Path
    metrics: Path
    budgets: Path
    claims: tuple[Path, ...]
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    headline: Mapping[str, float]
    findings: tuple[Finding, ...] = ()


def write_report(inputs: ReportInputs, folder: Path, seed: int) -> ReportFiles:
    """Write `index.html`, `summary.json`, `metrics.json`, `claims.*`, `tables/`, `figures/` into `folder`.

    Args:
        inputs: results and evidence.
        folder: where to.
        seed: of the bootstrap.

    Raises:
        DataError: if an input is missing or malformed, or a file cannot be written.
    """
    results = load_results(*inputs.rows)
    samples = _samples(inputs.split)
    audits, cards = samples.audits, samples.cards
    evidence = Evidence(audits, folder / "figures", seed)
    searches = load_searches(inputs.searches)
    budgets = read_budgets(inputs.trained)
    decided = _findings(results, searches, budgets, inputs, seed)
    findings = without_wall_times(decided)
    cells = [cell for cell in results.cells if cell.task in LEARNED]
    found = all_standings(results, seed)
    differences = differences_section(results, seed, budgets)
    overview = Overview(
        cells=cells,
        found=found,
        searches=searches,
        findings=findings,
        cards=cards,
        budgets=budgets,
        differences=differences is not None,
        tpugraphs=tpugraphs_pointer(results),
        figures=overview_figures(cells, found, searches, folder / "figures"),
        evidence=inputs.evidence,
    )
    sections = [
        overview_section(overview),
        *(cell_section(results, cell, evidence, found[cell.name]) for cell in cells),
        differences,
        _scatter_section(inputs, folder / "figures"),
        *search_sections(searches, read_paths(inputs.search_paths), findings, folder / "figures"),
        ablation_section(results, folder / "figures", budgets),
        _learning_section(results, inputs, budgets, folder / "figures"),
        tpugraphs_section(results, inputs.tpugraphs, cards, findings, folder / "figures"),
        claims_section(findings),
        missing_section(results),
        analytical_section(results),
        data_section(cards, samples.counts, audits, folder / "figures") if cards else None,
        _training_section(inputs, budgets, folder / "figures"),
        _provenance_section(results, searches, inputs.provenance),
    ]
    shown = tuple(section for section in sections if section is not None)
    extra = flat_leaks(audits) | flat_counts(cards) | flat_searches(searches) | flat_collections(results)
    rendered = {name: part.render(findings, folder / "figures") for name, part in inputs.parts.items()}
    for rendered_part in rendered.values():
        extra |= rendered_part.summary
    headline = summarise(results, extra)
    write_json(folder / "summary.json", headline)
    write_json(folder / "metrics.json", headlines(results))
    write_budgets(budgets, folder / "budgets.json")
    every_section = [*shown, *(section for part in rendered.values() for section in part.sections)]
    tables = [table for section in every_section for table in section.tables]
    written = tuple(path for table in tables for path in write_table(table, folder / "tables"))
    svgs = [figure.path for section in every_section for figure in section.figures]
    figures = tuple(path for svg in svgs for path in (svg, svg.with_suffix(".png")))
    claims = write_claims(findings, folder)
    title = _TITLE if all(LEARNED[cell.task].ranks_decisions for cell in cells) else _TITLE_OF_BOTH
    write_page(folder / "index.html", title, _lead(cells), shown)
    for name, rendered_part in rendered.items():
        if rendered_part.sections:
            part = inputs.parts[name]
            write_page(folder / f"{name}.html", part.title, part.lead, rendered_part.sections)
    page, summary, metrics = (folder / n for n in ("index.html", "summary.json", "metrics.json"))
    budgets_file = folder / "budgets.json"
    return ReportFiles(page, summary, metrics, budgets_file, claims, written, figures, headline, decided)


@dataclass(frozen=True)
class _Samples:
    """What the stage `split` says of the simulated samples."""

    audits: tuple[Audit, ...] = ()
    counts: tuple[SplitCounts, ...] = ()
    cards: tuple[Card, ...] = ()


def _samples(split: Path | None) -> _Samples:
    if split is None:
        return _Samples()
    audits, counts, cards = (split / name for name in ("leakage.json", "counts.json", "card.json"))
    return _Samples(read_audits(audits), read_counts(counts), read_cards(cards))


def _findings(
    results: Results, searches: Searches, budgets: Sequence[Budget], inputs: ReportInputs, seed: int
) -> tuple[Finding, ...]:
    """On the papers' claims, then on those restated against the strongest baseline or on folds."""
    parts = inputs.parts.values()
    printed = (*load_claims(), *(claim for part in parts for claim in part.claims))
    return evaluate_claims(
        (*printed, *restated(printed), *on_folds(printed, results.scores)),
        (
            *(*results.rows, *derived_rows(results.rows), *searches.rows),
            *overhead_rows(inputs.tpugraphs.overheads),
            *(row for part in parts for row in part.rows),
        ),
        seed,
        undertrained=reduce(or_, (part.undertrained for part in parts), undertrained(results, budgets)),
        steps=equal_steps(budgets),
    )


def _learning_section(
    results: Results, inputs: ReportInputs, budgets: Sequence[Budget], figures: Path
) -> Section | None:
    def wanted(variant: str) -> bool:
        return is_curve(variant) or is_rate(variant)

    selected = read_selected(inputs.trained, budgets, inputs.curves, wanted)
    return learning_section(results, selected, budgets, inputs.curves, figures)


def _training_section(inputs: ReportInputs, budgets: Sequence[Budget], figures: Path) -> Section | None:
    shown = []
    for task, column in inputs.curves.items():
        own = {name: path for name, path in sorted(inputs.histories.items()) if name.startswith(f"{task}-")}
        curves = {name: read_history(path, column) for name, path in own.items()}
        curves = {name: points for name, points in curves.items() if points}
        if curves:
            svg, _ = write_curve_figure(f"training_{task}", curves, column.replace("_", " "), figures)
            alt = f"Curves of {column} against the epoch, one line for each of {len(curves)} training runs."
            text = f"{column} on the validation programs after each epoch, one line a run."
            shown.append(PageFigure(svg, alt, text))
    trials = () if inputs.sweep is None else (trials_table(task, inputs.sweep) for task in inputs.curves)
    tables = (
        *([budget_table(budgets)] if budgets else []),
        *settings_tables(inputs.settings),
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
    )


def _provenance_section(results: Results, searches: Searches, more: Mapping[str, str]) -> Section:
    # Not the revision: a report that is committed would always name the commit before its own.
    names = {"params_digest": "parameters", "data_digest": "samples"}
    found = tuple((label, ", ".join(results.identities(field))) for field, label in names.items())
    if searches.rows:
        digests = sorted({row.params_digest for row in searches.rows})
        found += (("parameters, searches included", ", ".join(digests)),)
    text = "The same parameters and the same code give the same numbers, byte for byte."
    return Section(
        "provenance", "Where the numbers come from", "Provenance", (text,), facts=found + tuple(more.items())
    )


def _scatter_section(inputs: ReportInputs, figures: Path) -> Section | None:
    scatters = [scatter for path in inputs.scatter for scatter in read_scatter(path)]
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
    return Section("predicted", title, title, figures=tuple(shown), folded_figures=True)


def _lead(cells: Sequence[Cell]) -> str:
    imported = [cell for cell in cells if cell.is_imported]
    simulated = [cell for cell in cells if not cell.is_imported]
    lines = []
    if simulated:
        chips = sorted({cell.chip for cell in simulated})
        lines.append(
            f"A learned and a hand-written cost model {_goals(simulated)} of {_num_programs(simulated)} "
            f"unseen XLA programs on {' and '.join(chips)} (simulated), beside baselines and the paper that "
            "posed the task."
        )
    if imported:
        lines.append(
            f"Learned cost models {_goals(imported)} of {_num_programs(imported)} programs of imported data, "
            "beside baselines."
        )
    return " ".join(lines)


def _goals(cells: Sequence[Cell]) -> str:
    tasks = {cell.task for cell in cells}
    return " and ".join(labels_of(task).goal for task in LEARNED if task in tasks)


def _num_programs(cells: Sequence[Cell]) -> int:
    return len({program for cell in cells for _, program in cell.programs})
