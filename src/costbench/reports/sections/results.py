"""Parts of the page about results: one for each cell, one about the analytical model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costbench.reports.baseline_comparison import Standings, standings
from costbench.reports.dataset_files import Audit
from costbench.reports.figures.programs import write_program_figure
from costbench.reports.page import PageFigure, Section
from costbench.reports.papers.printed import main_table
from costbench.reports.results import ALL, SPLIT_NAMES, TRAINED, UNSEEN, Cell, Results, title_of
from costbench.reports.tables.analytical import analytical_scores, application_table, findings, kind_table
from costbench.reports.tables.programs import (
    baselines_table,
    comparison_table,
    earlier_tables,
    program_table,
    short_kernels_table,
)
from costbench.reports.tables.seen_kernels import (
    NEW_STRUCTURE,
    structure_sentence,
    structure_table,
    unseen_sentence,
    unseen_table,
)
from costbench.tasks import LEARNED


@dataclass(frozen=True)
class Evidence:
    """What cells are shown with: the audits, where figures go, the seed of the bootstrap."""

    audits: Sequence[Audit]
    figures: Path
    seed: int


def all_standings(results: Results, seed: int) -> dict[str, Standings]:
    """Returns by name how the models of each cell of a learned task stand to its strongest baseline."""
    return {cell.name: standings(results, cell, seed) for cell in results.cells if cell.task in LEARNED}


def cell_section(results: Results, cell: Cell, evidence: Evidence, found: Standings) -> Section:
    """Figure, tables and findings of one task, split and chip.

    Args:
        results: that the cell is of.
        cell: main results.
        evidence: what else is shown.
        found: how the cell's models stand to the strongest baseline.

    Raises:
        DataError: if a figure cannot be written.
    """
    unseen = results.part(cell, UNSEEN)
    paper = main_table(cell.task, cell.split)
    if paper is not None:
        cell = replace(cell, programs=paper.ordered(cell.programs))
    svg, _ = write_program_figure(cell, paper, evidence.figures)
    error, tau = cell.described.measures
    alt = (
        f"Bar chart of {_plain(error.title)} and Kendall's tau per test program, {cell.split} split, "
        f"{cell.chip}; the numbers are in the table below."
    )
    caption = (
        f"{_plain(error.title)} (above, lower is better) and {tau.title} (below, higher is better) per test "
        "program. "
        "Filled bars are ours; hatched bars, where there are any, are printed in the paper. Numbers with an "
        "arrow lie beyond the axis."
    )
    figure = PageFigure(svg, alt, caption)
    audit = _audit_of(cell, evidence.audits)
    leak = "" if audit is None else _leak_sentence(cell, unseen, audit)
    tables = [
        baselines_table(cell, found),
        program_table(cell, paper, found.strongest),
        *earlier_tables(results, cell),
        comparison_table(cell, evidence.seed),
    ]
    task, name = cell.described, cell.labels.title
    if task.short_kernels:
        tables.insert(2, short_kernels_table(cell, found.strongest))
    leaked = audit is not None and audit.test.leaked_kernels > 0
    if task.ranks_decisions and unseen is not None and leaked:
        tables.insert(2, unseen_table(cell, unseen))
    new = results.part(cell, NEW_STRUCTURE)
    tables.append(structure_table(cell, new, found.strongest))
    leak = " ".join(part for part in (leak, structure_sentence(cell, new)) if part)
    title = f"{name}, {SPLIT_NAMES.get(cell.split, cell.split)}, {cell.chip}"
    label = f"{name}, {cell.split}, {cell.chip}"
    shown = tuple(table for table in tables if table.rows)
    beside = paper is not None and paper.chip == cell.chip
    return Section(
        anchor=cell.name,
        title=title,
        label=label,
        page=cell.task,
        paragraphs=tuple(p for p in (_findings(cell, found), leak) if p),
        figures=(figure,),
        tables=shown,
        # What stands beside the paper's numbers is shown at once.
        folded=tuple(
            table.name
            for table in shown
            if table.name != f"baselines_{cell.name}" and not (beside and table.name == cell.name)
        ),
        folded_figures=not beside,
    )


def _findings(cell: Cell, found: Standings) -> str:
    """What the numbers say of networks and the strongest baseline, in words that follow from them."""
    parts = []
    labels = cell.labels
    error, tau = cell.described.measures
    for model in cell.models:
        means = [measure.mean(cell.over_programs(model, measure.metric)) for measure in (error, tau)]
        shown = model in (*TRAINED, "analytical", found.strongest)
        if shown and means[0] is not None and means[1] is not None:
            parts.append(f"{title_of(model)}: {labels.short_error} {means[0]:.1f}%, τ {means[1]:.2f}")
    count = len(cell.programs)
    programs = f"{count} test programs{labels.kernels}"
    over = f"Geometric mean of the {labels.short_error} and mean of τ over {programs}."
    return f"{over} {'; '.join(parts)}."


def _plain(title: str) -> str:
    return title.replace(" (%)", "")


def _audit_of(cell: Cell, audits: Sequence[Audit]) -> Audit | None:
    key = (cell.task, cell.split, cell.chip)
    return next((audit for audit in audits if (audit.task, audit.split, audit.chip) == key), None)


def _leak_sentence(cell: Cell, unseen: Cell | None, audit: Audit) -> str:
    if not audit.test.leaked_kernels:
        return "No test kernel occurs in a training program."
    shares = (100 * audit.test.share_of_kernels, 100 * audit.test.share_of_runtime)
    text = (
        f"{shares[0]:.1f}% of the test kernels, with {shares[1]:.1f}% of the test runtime, occur "
        "in training programs too."
    )
    return " ".join(part for part in (text, unseen_sentence(cell, unseen)) if part)


def analytical_section(results: Results) -> Section | None:
    """Where the hand-written model does well and where not, chip by chip; None without its results."""
    chips = sorted({cell.chip for cell in results.cells if LEARNED[cell.task].ranks_decisions})
    scores = {chip: analytical_scores(results, chip) for chip in chips}
    scores = {chip: found for chip, found in scores.items() if ALL in found}
    if not scores:
        return None
    text = [
        "The hand-written model against the simulated chips, the test programs of all splits together. The "
        "papers' neighbourhood is taken to be a Tile-Size APE of 4 to 12% and a τ of .70 to .85."
    ]
    tables = []
    for chip, found in scores.items():
        text += [f"{chip}: {sentence}" for sentence in findings(found)]
        tables += [application_table(found, chip), kind_table(found, chip)]
    title = "Where the analytical model does well and where not"
    return Section(
        anchor="analytical",
        title=title,
        label="Analytical model",
        page="tile",
        paragraphs=tuple(text),
        tables=tuple(tables),
        folded=tuple(table.name for table in tables),
    )
