"""The paper's main tables, one task at a time: per test program, our models beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costbench.metrics.measures import APE_FLOOR_PERCENT, AVERAGES, Measure
from costbench.reports.frame import select
from costbench.reports.papers.numbers import PaperTable
from costbench.reports.results import BEST, SPLIT_NAMES, TITLES, TRAINED, Cell, is_given, title_of
from costbench.reports.table import Column, Table, Value

PAPER_MODELS = ("learned", "analytical")
_SHOWN = (*TRAINED, "analytical")
"""Models of tables by program, with the strongest baseline; all others are in the tables of baselines."""
_PRINTED_AVERAGES = ("median", "geometric_mean")


def program_table(cell: Cell, paper: PaperTable | None, strongest: str | None = None) -> Table:
    """Error and tau of a task per test program with averages, ours and the paper's.

    Args:
        cell: the results.
        paper: the paper's table of the same task and split; its numbers are shown only where its chip is
            the cell's, since times of another chip are no comparison.
        strongest: the strongest baseline, shown beside networks and the analytical model.
    """
    shown = paper if paper is not None and paper.chip == cell.chip else None
    task, labels = cell.described, cell.labels
    title = f"{labels.heading}, {SPLIT_NAMES.get(cell.split, cell.split)}, {cell.chip}{labels.kernels}"
    if shown is not None:
        title += f", beside {shown.table} of {shown.paper}"
    return _table(_shown(cell, strongest), task.measures, shown, (cell.name, title), task.counted)


def short_kernels_table(cell: Cell, strongest: str | None = None) -> Table:
    """The same of kernels below 5 us, for which the paper prints no rows; empty if there are none."""
    measures, heading = cell.described.short_kernels, cell.labels.heading
    title = f"{heading}, {SPLIT_NAMES.get(cell.split, cell.split)}, {cell.chip}, kernels below 5 µs"
    cell = _shown(cell, strongest)
    table = _table(cell, measures, None, (f"{cell.name}_short", title), "kernels_lt5us")
    measured = any(cell.over_programs(model, m.metric) for model in cell.models for m in measures)
    return table if measured else Table(table.name, table.title, table.columns, ())


def _shown(cell: Cell, strongest: str | None) -> Cell:
    """Returns the cell with the models of tables by program alone."""
    kept = [model for model in cell.seeds if model in (*_SHOWN, strongest, BEST) or is_given(model)]
    return replace(cell, frame=select(cell.frame, model=kept))


def _table(
    cell: Cell,
    measures: Sequence[Measure],
    paper: PaperTable | None,
    named: tuple[str, str],
    counted: str,
) -> Table:
    columns = [Column("application", "Application"), Column("program", "Program")]
    counted = counted if any((BEST, counted, program) in cell.scores for _, program in cell.programs) else ""
    if counted:
        columns.append(Column("kernels", "Kernels", count=True))
    for m in measures:
        for model in cell.models:
            key = f"{m.short}_{model}"
            header = title_of(model)
            columns.append(Column(key, header, f"{m.title}, ours", m.decimals, m.better, m.short))
        if paper is not None:
            for model in PAPER_MODELS:
                key, group = f"paper_{m.short}_{model}", f"{m.title}, {paper.paper}"
                columns.append(Column(key, model, group, m.decimals, m.better, f"paper_{m.short}"))
    rows = [_program_row(cell, measures, paper, counted, program) for program in cell.programs]
    rows += [_average_row(cell, measures, paper, bool(counted), kind) for kind in AVERAGES]
    name, title = named
    return Table(name, title, tuple(columns), tuple(rows), len(AVERAGES), _notes(cell, measures, paper), 1)


def _program_row(
    cell: Cell, measures: Sequence[Measure], paper: PaperTable | None, counted: str, program: tuple[str, str]
) -> tuple[Value, ...]:
    row: list[Value] = [*program]
    if counted:
        row.append(cell.score(BEST, counted, program[1]))
    theirs = None if paper is None else paper.row_for(*program)
    for m in measures:
        row += [cell.score(model, m.metric, program[1]) for model in cell.models]
        if paper is not None:
            row += [None if theirs is None else theirs.score(m.printed, model) for model in PAPER_MODELS]
    return tuple(row)


def _average_row(
    cell: Cell, measures: Sequence[Measure], paper: PaperTable | None, counted: bool, kind: str
) -> tuple[Value, ...]:
    row: list[Value] = [AVERAGES[kind], "", *([None] if counted else [])]
    theirs = getattr(paper, kind) if paper is not None and kind in _PRINTED_AVERAGES else None
    for m in measures:
        row += [m.average(kind, cell.over_programs(model, m.metric)) for model in cell.models]
        if paper is not None:
            row += [None if theirs is None else theirs.score(m.printed, model) for model in PAPER_MODELS]
    return tuple(row)


def _rows_that_ours_lack(cell: Cell, measures: Sequence[Measure], paper: PaperTable) -> list[str]:
    """The paper's averages are over these as well."""
    matched = [paper.row_for(*program) for program in cell.programs]
    lacking = []
    for row in paper.rows:
        if row not in matched:
            scores = (
                f"{m.title} " + " and ".join(f"{row.score(m.printed, model)}" for model in PAPER_MODELS)
                for m in measures
            )
            lacking.append(f"{row.label} ({'; '.join(scores)})")
    if not lacking:
        return []
    return [
        f"Rows of {paper.paper}, {' and '.join(PAPER_MODELS)}, whose like we have no kernels of: "
        f"{', '.join(lacking)}. Its averages are over these as well."
    ]


def _notes(cell: Cell, measures: Sequence[Measure], paper: PaperTable | None) -> tuple[str, ...]:
    notes = [
        cell.labels.definition,
        f"In the geometric mean an error below {APE_FLOOR_PERCENT}% counts as {APE_FLOOR_PERCENT}%, so that "
        "a program without error does not hide the others; – where a correlation is not positive. The "
        "standard deviation is that over programs.",
    ]
    for model in TRAINED:
        seeds = cell.seeds.get(model, ())
        if seeds and any(cell.over_programs(model, m.metric) for m in measures):
            which = ", ".join(map(str, seeds))
            notes.append(f"{title_of(model)}: mean over {len(seeds)} training run(s), seeds {which}.")
    if "hybrid" in cell.models:
        notes.append("hybrid: the network adds to the analytical estimate what that gets wrong; in no paper.")
    if "lpm2021" in cell.models:
        notes.append(f"{title_of('lpm2021')}: the paper's inputs, loss and layers, and nothing of ours.")
    if "tuned" in cell.models:
        notes.append(
            f"{TITLES['tuned']}: with the hyper-parameters of the best trial of our sweep, maybe those of a "
            "hybrid; the tables of tuned settings say so."
        )
    if paper is not None:
        notes.append(
            f"{paper.paper}: as printed in its {paper.table}, measured on real hardware, with other programs "
            "of the same applications; to be read as a scale, not as a target."
        )
        notes += _rows_that_ours_lack(cell, measures, paper)
    return tuple(notes)
