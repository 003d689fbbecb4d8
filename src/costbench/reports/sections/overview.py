"""The first page: conclusions and answers with links to the evidence, what was not run, provenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from costbench.metrics.rows import MAIN
from costbench.reports.baseline_comparison import Standings
from costbench.reports.claims.claim import Side
from costbench.reports.claims.evaluation import (
    DECIDED,
    NOT_EVALUATED,
    NOT_TRAINED_ENOUGH,
    UNDECIDED,
    VERDICTS,
    Finding,
)
from costbench.reports.figures.programs import write_hybrid_figure
from costbench.reports.figures.searches import write_tune_figure
from costbench.reports.inputs import HEADLINE_NETWORKS, Front, ReportData
from costbench.reports.losses import SKEWED
from costbench.reports.page import (
    FIRST,
    PageFigure,
    Pointer,
    Section,
    page_figures,
    paragraphs,
    pointer,
    sentence,
)
from costbench.reports.results import (
    ALL,
    FOLDS,
    OWN,
    PRIMARY_CHIP,
    SPLIT_NAMES,
    Cell,
    split_order,
    title_of,
)
from costbench.reports.searches import (
    BEST_OF_ALL,
    EXHAUSTIVE,
    SLOWDOWN,
    SPEEDUP,
    TOP_K,
    Bar,
    Searches,
    SearchResults,
)
from costbench.reports.sections.claims import (
    STRONGEST_TABLE,
    claims_of_papers,
    shown_verdict,
    sides_in_words,
)
from costbench.reports.sections.headline import shift_pointer
from costbench.reports.sections.real_machine import (
    compare_machines,
    machine_pointer,
)
from costbench.reports.sections.results import best_of_ten, loss_spreads
from costbench.reports.sections.tpugraphs import tpugraphs_pointer
from costbench.reports.tables.machines import agreement_of, machines_table, recorded_runs_table
from costbench.reports.tables.variants import BASE as PAPERS_MODEL
from costbench.reports.tables.variants import differences_tables, known_differences, tables_without_results
from costbench.reports.training_guard import ModelBudget
from costbench.tasks import LEARNED, labels_of

_TEMPLATE = "overview"
_ABSTRACT_MODELS = {
    "hybrid": "hybrid",
    "learned": "learned",
    "lpm2021": "the paper's network",
    "trees_analytical": "trees with the estimate",
    "trees": "trees without",
    "analytical": "the estimate",
    "default_first": "the compiler's own layouts",
}
"""Models of the abstract, by names that explain themselves there."""
_FIGURE_SPLITS = (FOLDS, "random")
"""Splits of the figures of models and of searches, the first that was run: folds test every program."""


def overview_section(data: ReportData) -> Section:
    """Returns what is simulated, how our model differs from the paper's, conclusions and their evidence.

    Raises:
        DataError: if a figure cannot be written.
        ParamsError: if the package's data of the papers are broken.
    """
    section = Section(
        anchor="overview",
        title="At a glance",
        label="At a glance",
        page=FIRST,
        paragraphs=_paragraphs(data.cells),
        more=_questions(data),
    )
    if data.inputs.params.demo:
        return section
    page = data.inputs.params.evidence
    preview = (pointer(_TEMPLATE, "preview", "overview", page=page),) if page else ()
    chips = _simulated_chips(data.cells)
    of_machines = (make(chip) for make in (recorded_runs_table, machines_table) for chip in chips)
    machine_figures, machine_tables = compare_machines(data)
    of_headline: tuple[Pointer, ...] = ()
    if data.headline is not None:
        tasks = [cell.labels.title for cell in data.headline_front.cells]
        leads = pointer(_TEMPLATE, "headline", "headline", tasks=tasks, missing=data.headline.missing)
        of_headline = (leads, *shift_pointer(data.headline.results))
    hybrid_figure = _hybrid_figure(data)
    return replace(
        section,
        opens_with_figure=bool(hybrid_figure),
        figures=(*hybrid_figure, *machine_figures, *_tune_figure(data.front_searches, data.figures)),
        pointers=(
            *preview,
            *conclusions(data.front, data.printed_findings),
            *machine_pointer(data),
            *of_headline,
            *loss_pointers(data.cells),
            *tpugraphs_pointer(data.variants.results),
        ),
        tables=(*machine_tables, *(table for table in of_machines if table.rows)),
    )


def _simulated_chips(cells: Sequence[Cell]) -> list[str]:
    return sorted({cell.chip for cell in cells if not cell.is_imported})


def _paragraphs(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Returns what is simulated, and what the model `learned` has and lpm2021's has not, task by task."""
    chips = _simulated_chips(cells)
    imported = any(cell.is_imported for cell in cells)
    differences = {
        labels_of(task).title: [
            difference.text for difference in known_differences() if task in difference.tasks
        ]
        for task in LEARNED
        if any(cell.task == task for cell in cells)
    }
    papers_model = any(PAPERS_MODEL in cell.seeds for cell in cells)
    return paragraphs(
        _TEMPLATE,
        simulated=bool(chips) or not imported,
        chips=chips,
        agreements=[agreement for chip in chips if (agreement := agreement_of(chip)) is not None],
        imported=SPLIT_NAMES[OWN] if imported else "",
        differences={task: texts for task, texts in differences.items() if texts},
        papers_model=title_of(PAPERS_MODEL) if papers_model else "",
    )


def primary_cell(cells: Sequence[Cell], task: str, model: str) -> Cell | None:
    """Returns the results that a conclusion about a model is drawn from; None where it was not evaluated.

    Folds where there are any, as they test every program, else the random split; of their chips the one
    whose timing was fitted to measurements, if there is one.
    """
    evaluated = [cell for cell in cells if cell.task == task and model in cell.seeds]
    return min(
        evaluated,
        key=lambda c: (c.split != FOLDS, split_order(c.split), c.chip != PRIMARY_CHIP, c.chip),
        default=None,
    )


def _cell_of_network(cells: Sequence[Cell], task: str) -> Cell | None:
    """Returns the results that what is said of a task is drawn from; None without a network."""
    tested = (primary_cell(cells, task, model) for model in HEADLINE_NETWORKS)
    return next((cell for cell in tested if cell is not None), None)


def conclusions(front: Callable[[str], Front], findings: Sequence[Finding] = ()) -> tuple[Pointer, ...]:
    """Returns a conclusion for each learned task and each of network and hybrid that was evaluated.

    It is the verdict on the statement that holds the network against the strongest baseline, like with like;
    where that was not evaluated, how the network stands to the strongest baseline of its split.

    Args:
        front: function that returns the results that the first page says of a task.
        findings: findings on all comparisons.
    """
    pointers = []
    for task in LEARNED:
        results = front(task)
        for model in HEADLINE_NETWORKS:
            cell = primary_cell(results.cells, task, model)
            if cell is None:
                continue
            words: dict[str, Any] = {
                "task": cell.labels.title,
                "where": f"{cell.where}{cell.labels.kernels}",
                "decimals": cell.described.measures[0].decimals,
            }
            finding, ranking = _against_strongest(findings, cell, model), results.standings[cell.name]
            standing, strongest = ranking.of(model), ranking.of(ranking.strongest or "")
            if finding is not None:
                words |= {
                    "words": finding.claim.statement,
                    "finding": finding,
                    "verdict": shown_verdict(finding),
                    "compared": sides_in_words(finding, finding.claim.left),
                    "held_against": sides_in_words(finding, finding.claim.right),
                    "won": _won(ranking, model, finding),
                }
                pointers.append(pointer(_TEMPLATE, "statement", STRONGEST_TABLE, **words))
            elif standing is not None and strongest is not None and standing.difference is not None:
                words |= {"baseline": title_of(strongest.model), "error": cell.labels.short_error}
                words |= {"standing": standing, "strongest": strongest}
                table = f"{'headline' if results.profile else 'baselines'}_{cell.name}"
                pointers.append(pointer(_TEMPLATE, "conclusion", table, **words))
    return tuple(pointers)


def _won(ranking: Standings, model: str, finding: Finding) -> float | None:
    """Returns the share of programs that a network wins, in percent.

    None if it is held against another baseline than the strongest, or on a collection of programs alone.
    """
    standing = ranking.of(model)
    held_against = {(side.model, side.kernels) for side in finding.claim.left}
    if standing is None or standing.won is None or held_against != {(ranking.strongest, ALL)}:
        return None
    return 100.0 * standing.won


def _against_strongest(findings: Sequence[Finding], cell: Cell, model: str) -> Finding | None:
    """Returns the finding on the error of a model of a cell against the strongest baseline; None without."""
    return next(
        (
            finding
            for finding in findings
            if finding.claim.set == "strongest"
            and finding.verdict != NOT_EVALUATED
            and (finding.claim.task, finding.claim.metric) == (cell.task, cell.described.measures[0].metric)
            and [(side.model, side.split) for side in finding.claim.right] == [(model, cell.split)]
        ),
        None,
    )


def loss_pointers(cells: Sequence[Cell]) -> tuple[Pointer, ...]:
    """Returns, for each task with skewed losses, what there is to gain, and what models lose of it.

    Args:
        cells: main results of learned tasks.
    """
    pointers = []
    for task, skewed in SKEWED.items():
        cell = _cell_of_network(cells, task)
        if cell is None:
            continue
        spreads = loss_spreads(cell)
        words = pointer(
            _TEMPLATE,
            "losses",
            f"baselines_{cell.name}",
            task=cell.labels.title,
            decisions=cell.labels.decisions,
            headroom=spreads.get(skewed.default),
            spreads={title_of(model): averages for model, averages in spreads.items()},
            best_of_ten=best_of_ten(cell),
            where=cell.where,
            programs=len(cell.programs),
        )
        pointers.append(words)
    return tuple(pointers)


def _hybrid_figure(data: ReportData) -> list[PageFigure]:
    """Returns the figure of the hybrid beside its parts, if a hybrid was evaluated."""
    shown, budgets = [], {}
    for task in LEARNED:
        front = data.front(task)
        cell = primary_cell(front.cells, task, "hybrid")
        if cell is not None and cell.split in _FIGURE_SPLITS:
            strongest = front.standings[cell.name].strongest
            shown.append((cell, strongest))
            budgets[cell.labels.title] = _budgets(front, cell, ("hybrid", strongest or ""))
    paths = write_hybrid_figure(shown, data.figures)
    where = "; ".join(dict.fromkeys(cell.where for cell, _ in shown))
    return page_figures(paths, _TEMPLATE, "hybrid", where=where, budgets=budgets)


def _budgets(front: Front, cell: Cell, models: Iterable[str]) -> dict[str, ModelBudget]:
    """Returns what models of a cell were given, by title; those of which nothing is known are left out."""
    sides = {model: Side(model, MAIN, cell.split, cell.chip) for model in models}
    given = {title_of(model): front.guard.budget_of(cell.task, side) for model, side in sides.items()}
    return {title: budget for title, budget in given.items() if budget is not None}


def _tune_figure(searches: Searches, folder: Path) -> list[PageFigure]:
    """Returns the figure of what tuning with a model gains, if there were searches."""
    shown = []
    for task in LEARNED:
        of_task = [results for results in searches.of(task) if results.split in _FIGURE_SPLITS]
        if of_task:
            order = _FIGURE_SPLITS.index
            shown.append(min(of_task, key=lambda one: (order(one.split), one.chip != PRIMARY_CHIP, one.chip)))
    return page_figures(write_tune_figure(shown, folder), _TEMPLATE, "tune", k=TOP_K)


def _questions(data: ReportData) -> tuple[Pointer, ...]:
    verdicts = Counter(finding.verdict for finding in claims_of_papers(data.printed_findings))
    # Without wall times, which differ from run to run.
    main = {budget.task: budget for budget in reversed(data.budgets) if budget.variant == MAIN}
    lines = paragraphs(
        _TEMPLATE,
        "questions",
        differences=bool(differences_tables(data.results, data.seed, data.budgets)),
        tile=_tile_search(next(iter(data.front_searches.of("tile")), None)),
        fusion=_fusion_search(next(iter(data.front_searches.of("fusion")), None)),
        claims={verdict: verdicts[verdict] for verdict in VERDICTS if verdicts[verdict]},
        cards=data.cards,
        models=len(data.budgets),
        budgets={task: main[task] for task in LEARNED if task in main},
    )
    parts = (line.split(" | ", 2) for line in lines)
    return tuple(Pointer(question, answer, anchor) for anchor, question, answer in parts)


def _tile_search(results: SearchResults | None) -> dict[str, object] | None:
    """Returns the cost of ten measurements per kernel, and their loss against exhaustive search."""
    if results is None:
        return None
    learned, analytical = (Bar(model, f"top{TOP_K}") for model in ("learned", "analytical"))
    return {
        "k": TOP_K,
        "fewer": results.fewer_seconds(learned, EXHAUSTIVE),
        "slowdown": results.mean(learned, SLOWDOWN),
        "analytical": results.mean(analytical, SLOWDOWN),
        "where": f"{results.split} split, {results.chip}",
    }


def _fusion_search(results: SearchResults | None) -> dict[str, object] | None:
    """Returns what searches gain over the compiler's default, in percent."""
    if results is None:
        return None
    bars = {
        "model": Bar("model and hardware", "default-1m"),
        "analytical": Bar("analytical and hardware", "default-1m"),
        "hardware": Bar("hardware", "default-10m"),
        "best": BEST_OF_ALL,
    }
    means = {name: results.mean(bar, SPEEDUP) for name, bar in bars.items()}
    gains = {name: 100.0 * (mean - 1.0) for name, mean in means.items() if mean is not None}
    return {"gains": gains, "where": f"{results.split} split, {results.chip}"}


def page_lead(data: ReportData) -> str:
    """Returns the abstract, a line a paragraph: what was asked, errors and budgets by task, what is open."""
    simulated, imported = (
        _scope([cell for cell in data.front_cells if cell.is_imported == kind]) for kind in (False, True)
    )
    if data.inputs.params.demo:
        return sentence(_TEMPLATE, "demo_lead", simulated=simulated)
    verdicts = Counter(finding.verdict for finding in data.printed_findings)
    lines = paragraphs(
        _TEMPLATE,
        "lead",
        simulated=simulated,
        imported=imported,
        tasks=list(_abstract_of_tasks(data)),
        decided=sum(verdicts[verdict] for verdict in DECIDED),
        untrained=verdicts[NOT_TRAINED_ENOUGH],
        undecided=verdicts[UNDECIDED],
    )
    return "\n".join(lines)


def _abstract_of_tasks(data: ReportData) -> Iterator[dict[str, object]]:
    """Yields where each task was tested, the networks' least budgets and the errors, the least first."""
    for task in LEARNED:
        front = data.front(task)
        cell = _cell_of_network(front.cells, task)
        if cell is None:
            continue
        measure = cell.described.measures[0]
        # Of losses that are far from alike the geometric mean would hide the few large ones.
        is_skewed = task in SKEWED
        errors = {
            _ABSTRACT_MODELS[standing.model]: float(
                np.mean(cell.over_programs(standing.model, measure.metric))
            )
            if is_skewed
            else standing.error.value
            for standing in front.standings[cell.name].models
            if standing.model in _ABSTRACT_MODELS
        }
        steps = [
            steps
            for (of_task, side), steps in front.guard.trained.items()
            if (of_task, side.split, side.chip, side.variant) == (task, cell.split, cell.chip, MAIN)
        ]
        yield {
            "title": cell.labels.title,
            "error": f"{'mean ' if is_skewed else ''}{cell.labels.short_error}",
            "decimals": measure.decimals,
            "errors": dict(sorted(errors.items(), key=lambda error: error[1])),
            "steps": min(steps, default=0),
            "seeds": max(len(cell.seeds[model]) for model in HEADLINE_NETWORKS if model in cell.seeds),
            "network": front.guard.budget_of(task, Side("hybrid", MAIN, cell.split, cell.chip)),
            "trees": front.guard.budget_of(task, Side("trees_analytical", MAIN, cell.split, cell.chip)),
        }


def _scope(cells: Sequence[Cell]) -> dict[str, object]:
    """Returns chips, number of test programs and goals of the tasks of some cells."""
    tasks = {cell.task for cell in cells}
    return {
        "chips": sorted({cell.chip for cell in cells}),
        "programs": len({program for cell in cells for _, program in cell.programs}),
        "goals": [labels_of(task).goal for task in LEARNED if task in tasks],
    }


def missing_section(data: ReportData) -> Section | None:
    """Returns which of the papers' tables are left out, and why; None if they are all there.

    Raises:
        ParamsError: if the package's data of the papers are broken.
    """
    lines = paragraphs(_TEMPLATE, "missing", **tables_without_results(data.results))
    title = "Tables of the papers without results here"
    return Section("missing", title, "Not run", lines, page=FIRST) if lines else None


def provenance_section(data: ReportData) -> Section:
    """Returns the digests of parameters, samples and code."""
    # Not the revision: a report that is committed would always name the commit before its own.
    names = {"parameters": "params_digest", "samples": "data_digest"}
    digests = {label: ", ".join(data.results.identities(column)) for label, column in names.items()}
    if len(data.searches.frame):
        every = sorted(data.searches.frame["params_digest"].unique())
        digests["parameters, searches included"] = ", ".join(every)
    return Section(
        "provenance",
        "Where the numbers come from",
        "Provenance",
        paragraphs(_TEMPLATE, "provenance"),
        facts=(*digests.items(), *data.inputs.provenance.items()),
        page=FIRST,
    )
