"""Makes Table 1 of both versions of the paper: programs and samples of each set, ours and theirs."""

from __future__ import annotations

from collections.abc import Sequence

from costbench.reports.data.evidence import PARTS, Counts, SplitCounts
from costbench.reports.papers.numbers import PAPERS, PaperCorpus, corpus_of_paper
from costbench.reports.table import Column, Table, Value
from costbench.tasks import TASKS

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
