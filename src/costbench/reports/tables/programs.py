"""The paper's main tables, one task at a time: per test program, our models beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from costbench.metrics.intervals import paired_bootstrap
from costbench.metrics.measures import APE_FLOOR_PERCENT, AVERAGES, Measure
from costbench.metrics.rows import MAIN
from costbench.reports.baseline_comparison import Estimate, Standings
from costbench.reports.described_table import described_table
from costbench.reports.frame import select
from costbench.reports.papers.numbers import PaperTable, PrintedGrid, earlier_table
from costbench.reports.results import (
    BASELINES,
    BEST,
    SPLIT_NAMES,
    TITLES,
    TRAINED,
    Cell,
    Results,
    is_given,
    title_of,
)
from costbench.reports.table import Column, Table, Value
from costbench.rng import stream
from costbench.tasks import LEARNED

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


def comparison_table(cell: Cell, seed: int) -> Table:
    """Paired bootstrap over test programs of learned - baseline, for tau and the error of the task.

    Args:
        cell: the results.
        seed: of the resampling; the same one gives the same table.
    """
    rows: list[tuple[Value, ...]] = []
    for baseline in cell.models:
        if baseline == "learned":
            continue
        for measure in reversed(cell.described.measures):
            row = _row(cell, baseline, measure, seed)
            if row is not None:
                rows.append(row)
    prefix = cell.labels.prefix
    where = f"{prefix}{cell.split} split, {cell.chip}"
    return described_table("comparison", rows, name=f"comparison_{cell.name}", where=where)


def _row(cell: Cell, baseline: str, measure: Measure, seed: int) -> tuple[Value, ...] | None:
    metric = measure.metric
    pairs = [
        (left, right)
        for _, program in cell.programs
        if (left := cell.score("learned", metric, program)) is not None
        and (right := cell.score(baseline, metric, program)) is not None
    ]
    if not pairs:
        return None
    learned, other = zip(*pairs, strict=True)
    interval = paired_bootstrap(learned, other, stream(seed, "comparison", cell.name, baseline, metric))
    lower = measure.better == "lower"
    better = interval.share_negative if lower else 1.0 - interval.share_negative
    name = measure.title.replace("(%)", "(points)")
    return (
        title_of(baseline),
        name,
        len(pairs),
        interval.difference,
        interval.low,
        interval.high,
        better,
    )


def baselines_table(cell: Cell, found: Standings) -> Table:
    """Returns one row a model, the least error first, and below them one a ceiling.

    Args:
        cell: the results.
        found: how its models stand (see `costbench.reports.baseline_comparison`).
    """
    error, tau = cell.described.measures
    rows: list[tuple[Value, ...]] = [
        (
            title_of(one.model),
            _kind(one.model, found.strongest),
            *_plain(one.error),
            cell.deviation(one.model, error),
            one.tau,
            None if one.won is None else 100.0 * one.won,
            *_plain(one.difference),
            one.programs,
            one.seeds,
        )
        for one in found.models
    ]
    ceilings = [_ceiling(cell, name, 13) for name in cell.ceilings]
    heading = cell.labels
    where = f"{SPLIT_NAMES.get(cell.split, cell.split)}, {cell.chip}{heading.kernels}"
    return described_table(
        "baselines",
        (*rows, *ceilings),
        name=f"baselines_{cell.name}",
        notes=_CEILINGS if ceilings else (),
        averages=len(ceilings),
        heading=heading.heading,
        where=where,
        error=error.title,
        tau=tau.title,
    )


_CEILINGS = (
    "Ceilings know the machine and are no models. Measured again: another measurement of the same tile "
    "sizes, the fastest of three runs as theirs is. Machine without irregular code: the simulated machine "
    "without noise and without the factor of each structure of inner loops, which looks random to whoever "
    "has no example of it.",
)


def _ceiling(cell: Cell, name: str, width: int) -> tuple[Value, ...]:
    """Returns the row of a ceiling, [width] values: mean error and tau, without comparison."""
    error, tau = (m.mean(cell.over_programs(name, m.metric)) for m in cell.described.measures)
    programs, seeds = len(cell.over_programs(name, cell.described.measures[0].metric)), len(cell.seeds[name])
    row: tuple[Value, ...] = (title_of(name), "ceiling", error, None, None, None, tau)
    return (*row, *[None] * (width - len(row) - 2), programs, seeds)


def _kind(model: str, strongest: str | None) -> str:
    if model == strongest:
        return "strongest baseline"
    if is_given(model):
        return "yours"
    return "baseline" if model in BASELINES else "network"


def _plain(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
