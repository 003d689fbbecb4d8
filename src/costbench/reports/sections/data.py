"""The part of the page about the data: sets and their sizes, distributions, leaks."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from costbench.reports.dataset_files import PARTS, QUANTILES, Audit, Card, Counts, SplitCounts
from costbench.reports.declarations import fill_table
from costbench.reports.figures.dataset import write_application_figure, write_histogram_figure
from costbench.reports.page import PageFigure, Section, sentence
from costbench.reports.papers.printed import PAPERS, PaperCorpus, corpus_of_paper
from costbench.reports.table import Column, Table, Value
from costbench.tasks import TASKS

_INTRODUCTION = (
    "Real XLA programs, compiled by the project's own compiler and measured on simulated chips: each sample "
    "three times, with noise, the minimum kept. A test kernel that also occurs in training makes the test "
    "easier, so these are counted."
)


def data_section(
    cards: Sequence[Card], counts: Sequence[SplitCounts], audits: Sequence[Audit], figures: Path
) -> Section:
    """Table 1, the card and the audit.

    Args:
        cards: of every task and chip with samples.
        counts: of every split.
        audits: where samples are kernels.
        figures: folder for figures.

    Raises:
        DataError: if a figure cannot be written.
    """
    paragraphs, drawn = [_INTRODUCTION], []
    for task in TASKS:
        own = [card for card in cards if card.task == task and card.counts.configs]
        if not own:
            continue
        paragraphs.append(_words(task, own[0]))
        svg, _ = write_application_figure(task, own[0], figures)
        alt = f"Bars of the programs, kernels and samples of each application, {task} data."
        caption = (
            f"Who the {task} data are from ({own[0].chip}). Numbers of samples lie on a logarithmic axis: "
            "without balancing, training would see few applications."
        )
        drawn.append(PageFigure(svg, alt, caption))
        svg, _ = write_histogram_figure(task, own, figures)
        alt = f"Histograms of the {task} data; their quantiles are in the table below."
        caption = f"How the {task} data are distributed; bins have equal widths on a logarithmic axis."
        drawn.append(PageFigure(svg, alt, caption))
    tables = (*corpus_tables(counts), *dataset_tables(cards), leakage_table(audits))
    shown = tuple(table for table in tables if table.rows)
    title = "Data set, splits and leakage audit"
    return Section(
        anchor="data",
        title=title,
        label="Data set",
        paragraphs=tuple(paragraphs),
        figures=tuple(drawn),
        tables=shown,
        folded=tuple(table.name for table in shown if table.name != "dataset"),
        folded_figures=True,
    )


def _words(task: str, card: Card) -> str:
    """Returns what the card of a task says, in words; the template of each takes what it needs."""
    families = sorted((name, one.configs) for name, one in card.applications.items())
    families.sort(key=itemgetter(1))
    return sentence("data", task, card=card, families=families, paper=corpus_of_paper(PAPERS[0]))


_DISTRIBUTIONS = {
    "tile_space_size": "tile sizes in a kernel's space",
    "configs_per_kernel": "tile sizes measured per kernel",
    "configs_per_program": "layout configurations per program",
    "nodes_per_kernel": "nodes per kernel",
    "runs_per_program": "executions of a kernel in a program",
    "default_runtime_ns": "runtime with the default tile size (ns)",
    "runtime_ns": "runtime of all samples (ns)",
    "runtime_spread": "slowest / fastest sample of a kernel (layout: of a program)",
}


def leakage_table(audits: Sequence[Audit]) -> Table:
    """Per task, split, chip and test program: kernels, and the shares of them that training has seen."""
    rows: list[tuple[Value, ...]] = []
    for audit in audits:
        for program, leak in (*sorted(audit.by_program.items()), ("all", audit.test)):
            shares = (100.0 * leak.share_of_kernels, 100.0 * leak.share_of_runtime)
            where = (audit.task, audit.split, audit.chip, program)
            rows.append((*where, leak.kernels, leak.leaked_kernels, *shares))
    return fill_table("leakage", rows)


def dataset_tables(cards: Sequence[Card]) -> tuple[Table, Table]:
    """What was measured: counts per task and chip, and how sizes and runtimes are distributed."""
    rows = []
    for card in cards:
        c = card.counts
        kernels = (c.kernels, c.unique_kernels)
        rows.append(
            (
                card.task,
                card.chip,
                c.programs,
                c.applications,
                *kernels,
                c.configs,
                c.failed,
                c.device_seconds,
            )
        )
    spread: list[tuple[Value, ...]] = []
    for card in cards:
        for key, label in _DISTRIBUTIONS.items():
            found = card.distributions.get(key)
            if found is not None:
                values = (getattr(found, name) for name in QUANTILES)
                spread.append((card.task, card.chip, label, *values))
    return fill_table("dataset", rows), fill_table("dataset_distributions", spread)


_SUMMED = ("train", "validation", "test")
# Task -> what the papers call its samples, the fields of their rows for programs and samples, and a note.
_TASKS = {
    "tile": ("tile-size samples", "tile_programs", "tile_samples", ""),
    "fusion": (
        "fusion kernels",
        "fusion_programs",
        "fusion_kernels",
        "Fusion kernels: different ones of each program, over all fusion configurations tried.",
    ),
}


def corpus_tables(counts: Sequence[SplitCounts]) -> tuple[Table, ...]:
    """One table a chip; tasks without samples have no columns.

    Raises:
        ParamsError: if the package's data of the papers are broken.
    """
    papers = [corpus_of_paper(name) for name in PAPERS]
    shown = [one for one in counts if one.task in _TASKS]
    return tuple(
        _table(chip, [one for one in shown if one.chip == chip], papers)
        for chip in sorted({one.chip for one in shown})
    )


def _table(chip: str, counts: Sequence[SplitCounts], papers: Sequence[PaperCorpus]) -> Table:
    tasks = [task for task in _TASKS if any(one.task == task for one in counts)]
    splits = list(dict.fromkeys(one.split for one in counts))
    columns = [Column("split", "Split"), Column("set", "Set")]
    for task in tasks:
        columns += _columns(task, papers)
    rows = []
    for split in splits:
        by_task = {one.task: one for one in counts if one.split == split}
        parts = [*_SUMMED, "all"]
        if any(one.sets["dropped"].programs for one in by_task.values()):
            parts.append("dropped")
        for part in parts:
            row: list[Value] = [split, part]
            for task in tasks:
                row += _cells(by_task.get(task), task, part, papers)
            rows.append(tuple(row))
    title = f"Programs and samples of each set on {chip}, beside Table 1 of {' and '.join(PAPERS)}"
    return Table(f"corpus_{chip}", title, tuple(columns), tuple(rows), 0, _notes(tasks))


def _columns(task: str, papers: Sequence[PaperCorpus]) -> list[Column]:
    name = _TASKS[task][0]
    columns = [Column(f"{task}_programs", "ours", f"Programs, {task}", count=True)]
    columns += [
        Column(f"{task}_programs_{p.paper}", p.paper, f"Programs, {task}", count=True) for p in papers
    ]
    if TASKS[task].counts_kernels:
        columns.append(Column(f"{task}_kernels", "ours", f"Kernels, {task}", count=True))
    group = name.capitalize()
    columns.append(Column(f"{task}_samples", "ours", group, count=True))
    return columns + [Column(f"{task}_samples_{p.paper}", p.paper, group, count=True) for p in papers]


def _cells(counts: SplitCounts | None, task: str, part: str, papers: Sequence[PaperCorpus]) -> list[Value]:
    _, programs, samples, _ = _TASKS[task]
    split = "" if counts is None else counts.split
    ours = None if counts is None else _ours(counts, part)
    cells: list[Value] = [None if ours is None else ours.programs]
    cells += [_theirs(paper, split, part, programs) for paper in papers]
    if TASKS[task].counts_kernels:
        cells.append(None if ours is None else ours.kernels)
    cells.append(None if ours is None else ours.samples)
    return cells + [_theirs(paper, split, part, samples) for paper in papers]


def _ours(counts: SplitCounts, part: str) -> Counts:
    if part in PARTS:
        return counts.sets[part]
    sets = [counts.sets[name] for name in _SUMMED]
    return Counts(*(sum(getattr(one, f) for one in sets) for f in ("programs", "kernels", "samples")))


def _theirs(paper: PaperCorpus, split: str, part: str, field: str) -> int | None:
    if part == "all":
        rows = [row for name in _SUMMED if (row := paper.row_for(split, name)) is not None]
        return sum(getattr(row, field) for row in rows) if rows else None
    row = paper.row_for(split, part)
    return None if row is None else int(getattr(row, field))


def _notes(tasks: Sequence[str]) -> tuple[str, ...]:
    notes = [
        "A tile-size sample is a kernel at one tile size; the papers print these under “Kernels”. Ours are "
        "counted once per program. “all” is the sum of the three sets, summed by us for the papers too: "
        "their random split has 109 programs with tile sizes, though their text speaks of 104 in all.",
        "Dropped programs take no part in the manual split: they are of a held-out application without being "
        "tested on, or made by a builder of one.",
    ]
    return (*notes, *(note for task in tasks if (note := _TASKS[task][3])))
