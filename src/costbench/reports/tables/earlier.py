"""lpm2020's tables 2 and 3: the graph network beside the baselines it was compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costbench.metrics.measures import AVERAGES, Measure
from costbench.metrics.rows import MAIN
from costbench.reports.papers.numbers import PrintedGrid, earlier_table
from costbench.reports.results import Cell, Results
from costbench.reports.table import Column, Table, Value
from costbench.tasks import LEARNED


@dataclass(frozen=True)
class _Baseline:
    """A column of ours: key, header, the rows that fill it, and the paper's column beside it."""

    key: str
    header: str
    model: str
    variant: str
    printed: str


_BASELINES: Mapping[str, tuple[_Baseline, ...]] = {
    "fusion": (
        _Baseline("gnn", "learned", "learned", MAIN, "gnn"),
        _Baseline("hybrid", "hybrid", "hybrid", MAIN, ""),
        _Baseline("lstm", "LSTM alone", "learned", "lpm2020-lstm", "lstm"),
        _Baseline("analytical", "analytical", "analytical", MAIN, "analytical"),
    ),
    "tile": (
        _Baseline("learned", "learned", "learned", MAIN, ""),
        _Baseline("hybrid", "hybrid", "hybrid", MAIN, ""),
        _Baseline("rank", "rank loss", "learned", "vanilla", "rank"),
        _Baseline("mse", "squared error", "learned", "mse", "mse"),
        _Baseline("analytical", "analytical", "analytical", MAIN, "analytical"),
    ),
}
_NEEDED = {"fusion": "lpm2020-lstm", "tile": "mse"}
"""Without this variant the table would only repeat the main one."""
_NOTES = {
    "fusion": ", over kernels of at least 5 µs. LSTM alone: over nodes in topological order, without a graph "
    "network.",
    "tile": "; its graph network, features and programs are earlier ones than those of lpm2021. Ours: "
    "learned is the main model; rank loss and squared error are one small GraphSAGE model trained either "
    "way.",
}


def earlier_tables(results: Results, cell: Cell) -> tuple[Table, ...]:
    """The table of the cell's task beside the printed one; none where baselines were not run.

    Args:
        results: has the variants.
        cell: main results of a task, split and chip; only those that lpm2020 prints have a table.

    Raises:
        ParamsError: if the package's data of the paper are broken.
    """
    paper = earlier_table(cell.task, cell.split)
    needed = results.cell(cell.task, cell.split, cell.chip, _NEEDED.get(cell.task, MAIN))
    if paper is None or paper.chip != cell.chip or needed is None:
        return ()
    baselines = {
        baseline: found
        for baseline in _BASELINES[cell.task]
        if (found := results.cell(cell.task, cell.split, cell.chip, baseline.variant)) is not None
        and baseline.model in found.seeds
    }
    measures = tuple(
        m for m in LEARNED[cell.task].measures if any(c.startswith(m.printed) for c in paper.columns)
    )
    columns = [Column("application", "Application"), Column("program", "Program")]
    for m in measures:
        columns += _columns(m, baselines, paper)
    rows = [(*program, *_values(baselines, measures, paper, program)) for program in cell.programs]
    rows += [(label, "", *_averages(baselines, measures, paper, kind)) for kind, label in AVERAGES.items()]
    title = f"{cell.task.capitalize()} task, {cell.split} split, {cell.chip}"
    title += f", beside {paper.table} of {paper.paper}"
    notes = (f"{paper.paper} prints medians{_NOTES[cell.task]}",)
    name = f"{paper.paper}_{paper.table.replace(' ', '').lower()}_{cell.name}"
    return (Table(name, title, tuple(columns), tuple(rows), len(AVERAGES), notes, 1),)


def _printed(m: Measure, baseline: _Baseline, paper: PrintedGrid) -> str:
    name = f"{m.printed}_{baseline.printed}"
    return name if name in paper.columns else ""


def _columns(m: Measure, baselines: Mapping[_Baseline, Cell], paper: PrintedGrid) -> list[Column]:
    ours = [
        Column(f"{m.short}_{r.key}", r.header, f"{m.title}, ours", m.decimals, m.better, m.short)
        for r in baselines
    ]
    theirs = [
        Column(
            f"paper_{column}", r.header, f"{m.title}, {paper.paper}", m.decimals, m.better, f"paper_{m.short}"
        )
        for r in _BASELINES[_task(m)]
        if (column := _printed(m, r, paper))
    ]
    return ours + theirs


def _task(m: Measure) -> str:
    return next(name for name, task in LEARNED.items() if m in task.measures)


def _values(
    baselines: Mapping[_Baseline, Cell],
    measures: tuple[Measure, ...],
    paper: PrintedGrid,
    program: tuple[str, str],
) -> list[Value]:
    row: list[Value] = []
    for m in measures:
        row += [cell.score(baseline.model, m.metric, program[1]) for baseline, cell in baselines.items()]
        printed = [_printed(m, baseline, paper) for baseline in _BASELINES[_task(m)]]
        row += [paper.value(program[0], column) for column in printed if column]
    return row


def _averages(
    baselines: Mapping[_Baseline, Cell], measures: tuple[Measure, ...], paper: PrintedGrid, kind: str
) -> list[Value]:
    row: list[Value] = []
    for m in measures:
        row += [m.average(kind, cell.over_programs(r.model, m.metric)) for r, cell in baselines.items()]
        printed = [_printed(m, baseline, paper) for baseline in _BASELINES[_task(m)]]
        medians = dict(zip(paper.columns, paper.median, strict=True))
        row += [medians[column] if kind == "median" else None for column in printed if column]
    return row
