"""Makes declared tables of the frame of results: rows, columns, statistics, intervals and averages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import pandas as pd

from costbench.metrics.measures import APE_FLOOR_PERCENT, Measure
from costbench.params import load_section
from costbench.reports.baseline_comparison import Estimate, estimate, estimate_difference, estimate_error
from costbench.reports.declarations import (
    TABLES,
    ColumnDeclaration,
    Labels,
    RowDeclaration,
    Statistic,
    TableDeclaration,
    declaration_of,
    load_declarations,
)
from costbench.reports.frame import means, select, split_by
from costbench.reports.losses import AVERAGES, average
from costbench.reports.papers.printed import PrintedRow, PrintedTable
from costbench.reports.results import BEST, SPLIT_NAMES, described, deviation_over_runs, split_order
from costbench.reports.scores import (
    STATISTICS,
    Draws,
    applications_of,
    make_draws,
    score_matrix,
    share_won,
)
from costbench.reports.table import Column, Table, Value


def declared_tables(path: Path, frame: pd.DataFrame, seed: int = 0) -> dict[str, tuple[Table, ...]]:
    """Returns the tables of a file by the anchor of their section; those without results are left out.

    Args:
        path: YAML with a list `tables`, and a section for each printed table.
        frame: results (see `costbench.reports.frame`).
        seed: seed of the resamples of intervals; a table has a random stream of its own.

    Raises:
        ParamsError: for a file that is missing or declares something else.
    """
    by_section: dict[str, list[Table]] = {}
    for declared in load_declarations(path):
        printed = load_section(path, declared.printed, PrintedTable) if declared.printed else None
        by_section.setdefault(declared.section, []).extend(_tables(declared, frame, printed, seed))
    return {section: tuple(tables) for section, tables in by_section.items()}


def _tables(
    declared: TableDeclaration, frame: pd.DataFrame, printed: PrintedTable | None, seed: int
) -> Iterable[Table]:
    """Returns a table for each combination of values of `each` that `needs` are there for."""
    rows = select(frame, **declared.filter)
    of_task = select(frame, **{key: value for key, value in declared.filter.items() if key == "task"})
    needed = select(rows, **declared.needs)
    combinations = needed[list(declared.each)].drop_duplicates() if declared.each else needed.iloc[:1, :0]
    records = [{str(key): str(value) for key, value in r.items()} for r in combinations.to_dict("records")]
    for record in sorted(records, key=lambda r: (split_order(r.get("split", "")), *r.values())):
        split, chip = record.get("split", ""), record.get("chip", "")
        where = ", ".join(part for part in (SPLIT_NAMES.get(split, split), chip) if part)
        yield make_table(
            declared,
            select(rows, **record),
            words=record | {"where": where},
            printed=printed,
            kernels=kernel_counts(select(of_task, **record)),
            draws=make_draws(applications_of(rows), seed, "tables", declared.name.format(**record)),
        )


def kernel_counts(frame: pd.DataFrame) -> pd.Series[float]:
    """Returns the number of tested kernels by program."""
    return means(select(frame, model=BEST, metric="kernels", group="all"), ["program"])


def mean_over_kernels(values: pd.Series[float], kernels: pd.Series[float]) -> float | None:
    """Returns the mean of values by program, each weighing as many kernels as it has; None without any."""
    values = values[values.index.isin(kernels.index)]
    numbers, weights = values.to_numpy(), kernels.reindex(values.index).to_numpy()
    return float((numbers * weights).sum() / weights.sum()) if len(numbers) else None


def fill_table(
    kind: str,
    rows: pd.DataFrame | Iterable[Mapping[str, object]],
    file: Path = TABLES,
    /,
    *,
    name: str = "",
    notes: Sequence[str] = (),
    averages: int = 0,
    across: Mapping[str, str] = MappingProxyType({}),
    **words: object,
) -> Table:
    """Returns a table of the values of a frame, with title, columns and notes as a file declares them.

    Args:
        kind: name in the file.
        rows: values by the keys of columns; what a row lacks is a missing number, and other keys are not
            shown.
        file: file of a package's tables; that of this one if left out.
        name: name of the table; empty for the kind.
        notes: further notes, below those of the declaration; empty ones are left out.
        averages: how many of the last rows are averages.
        across: values of columns that go across, with their titles.
        words: what stands in braces in the declaration.

    Raises:
        ChoiceError: for a kind that is not declared.
        ParamsError: if the file of the package is broken.
    """
    declared = declaration_of(kind, name, notes, file=file)
    expanded = (
        [_of_value(column, *titled) for titled in across.items()] if column.across else [column]
        for column in declared.columns
    )
    columns = {column.key.format(**words): column for several in expanded for column in several}
    # As they are: pandas would make floats of whole numbers beside missing ones.
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows), dtype=object)
    filled = {c.optional for key, c in columns.items() if key in frame and frame[key].notna().any()}
    columns = {key: c for key, c in columns.items() if not c.optional or c.optional in filled}
    values = frame.reindex(columns=[*columns]).astype(object)
    return Table(
        declared.name,
        declared.title.format(**words),
        tuple(_column(declared, column, words) for column in columns.values()),
        tuple(values.where(values.notna(), None).itertuples(index=False, name=None)),
        averages,
        _notes(declared, words),
    )


def make_table(
    declared: TableDeclaration,
    frame: pd.DataFrame,
    *,
    words: Mapping[str, object],
    printed: PrintedTable | None = None,
    rows: Sequence[Labels] = (),
    numbers: Mapping[str, Mapping[Labels, Value]] = MappingProxyType({}),
    kernels: pd.Series[float] | None = None,
    draws: Draws | None = None,
) -> Table:
    """Returns a declared table of results.

    Args:
        declared: declaration of the table.
        frame: results that its filter leaves, of one value of each column of `each`.
        words: what stands in braces in the declaration, besides `printed`, `paper` and `beside`.
        printed: table that a paper printed; columns of printed numbers are left out without them.
        rows: labels of the rows, all of which are shown; those of the values that there are, if left out.
        numbers: key of a column -> its values where they are no statistic of results, by labels of the row;
            those below the rows by the name of the average.
        kernels: tested kernels by program, for means over kernels.
        draws: resamples of programs and seeds for intervals.
    """
    words = {**words, "beside": ""}
    if printed is not None:
        words |= {"printed": printed.name, "paper": printed.paper, "beside": f", beside {printed.name}"}
    cases = declared.cases or tuple(map(RowDeclaration, rows or split_by(frame, declared.rows)))
    expanded = [
        (column, measure)
        for column, measure in _expand(declared, frame, words)
        if not column.printed or (printed is not None and column.printed in printed.columns)
    ]
    estimated = _estimate_columns(declared, expanded, frame, cases, draws)
    columns: list[_FilledColumn] = []
    for column, measure in expanded:
        values: Sequence[Value]
        if column.printed:
            values = [_printed_value(printed, column.printed, row) for row in cases]
        elif column.key in numbers:
            values = [numbers[column.key].get(row.labels) for row in cases]
        elif column.key in estimated:
            values = estimated[column.key]
        else:
            values = _column_values(declared, column, measure, frame, cases, kernels)
        columns.append((column, measure, values))
    with_results = {c.optional for c, _, vs in columns if not c.printed and any(v is not None for v in vs)}
    columns = [filled for filled in columns if not filled[0].optional or filled[0].optional in with_results]
    measured = [values for column, _, values in columns if not (column.count or column.printed)]
    has_results = [any(values[i] is not None for values in measured) for i in range(len(cases))]
    absent = ", ".join(row.printed or row.labels[0] for i, row in enumerate(cases) if not has_results[i])
    whose = ("ours",) if declared.both else ()
    lines: list[tuple[Value, ...]] = [
        (*whose, *row.labels, *(_scaled(values[i], column.scale) for column, _, values in columns))
        for i, row in enumerate(cases)
        if has_results[i] or declared.cases or rows
    ]
    if declared.both and printed is not None:
        keys = [column.printed or column.key for column, *_ in columns]
        lines += [
            ("paper", row.label, *(_printed_value(printed, key, row) for key in keys)) for row in printed.rows
        ]
    by_key = {column.key: values for column, _, values in columns}
    for kind in declared.summary:
        averages = (_average(filled, kind, by_key, printed, numbers) for filled in columns)
        empty = [""] * (len(declared.rows) + declared.both - 1)
        lines.append((declared.headers.get(kind, AVERAGES[kind]), *empty, *averages))
    label_keys = (*(["whose"] if declared.both else []), *declared.rows)
    labels = (Column(key, declared.headers.get(key, key.capitalize())) for key in label_keys)
    return Table(
        declared.name.format(**words),
        declared.title.format(**words),
        (*labels, *(_column(declared, column, words) for column, *_ in columns)),
        tuple(lines),
        len(declared.summary),
        _notes(declared, words | {"absent": absent}, absent),
        # A spread is neither good nor bad.
        int(declared.summary[-1:] == ("standard_deviation",)),
    )


_FilledColumn: TypeAlias = tuple[ColumnDeclaration, Measure, Sequence[Value]]
"""A column, the measure that averages below it are those of, and one value a row, not scaled."""
_ERROR = Measure("", "", "", "error", 1, "lower", APE_FLOOR_PERCENT)
"""Averages of columns that show no measure of a task are those of errors."""


def _expand(
    declared: TableDeclaration, frame: pd.DataFrame, words: Mapping[str, object]
) -> Iterable[tuple[ColumnDeclaration, Measure]]:
    """Returns the columns with their measures, one for each value of those that go across."""
    columns = declared.columns
    if declared.across:
        columns = (ColumnDeclaration("{value}", across=declared.across, highlight="across"),)
    task = str(words.get("task") or declared.filter.get("task", ""))
    for (across, block), neighbours in groupby(columns, lambda column: (column.across, column.block)):
        if not across:
            yield from (_with_measure(column, task, words) for column in neighbours)
            continue
        present = {value: value for value in sorted(map(str, frame[across].unique()))}
        titles = declared.values.get(across, present)
        several = [[_of_value(column, value, titles[value]) for value in titles] for column in neighbours]
        ordered = zip(*several, strict=True) if block else several
        yield from (_with_measure(column, task, words) for group in ordered for column in group)


def _of_value(column: ColumnDeclaration, value: str, title: str) -> ColumnDeclaration:
    """Returns the column for one of the values of results that it goes across."""
    names = ("key", "group", "optional", "averaged_with", "printed")
    texts = {
        name: getattr(column, name).replace("{value}", value).replace("{title}", title) for name in names
    }
    filters = {**column.filter, column.across: value}
    return replace(column, **texts, header=column.header or title, filter=filters)


def _with_measure(
    column: ColumnDeclaration, task: str, words: Mapping[str, object]
) -> tuple[ColumnDeclaration, Measure]:
    """Returns the column with names, metric, digits and better end of the measure that it shows."""
    if not column.measure:
        return column, _ERROR
    known = described(str(column.filter.get("task", task)), str(words.get("split", "")))
    measures = known.short_kernels if column.measure.startswith("short") else known.measures
    measure = measures[column.measure.endswith("tau")]
    names = {"short": measure.short, "measure": measure.title, "paper": "{paper}"}
    column = replace(
        column,
        **{name: getattr(column, name).format(**names) for name in ("key", "group", "highlight")},
        filter={"metric": measure.metric, **column.filter},
        decimals=measure.decimals if column.decimals is None else column.decimals,
        better=column.better or (measure.better if column.highlight else ""),
    )
    return column, measure


def _column_values(
    declared: TableDeclaration,
    column: ColumnDeclaration,
    measure: Measure,
    frame: pd.DataFrame,
    rows: Sequence[RowDeclaration],
    kernels: pd.Series[float] | None,
) -> list[float | None]:
    """Returns the statistic of each row's results, None without any."""
    by = list(declared.rows)
    filters = {*column.filter, *(name for row in rows for name in row.filter)}
    # Only the columns that are read: each text column is taken at its own cost.
    read = [name for name in frame if name in (*_READ, *by, *filters)]
    results = select(frame[read], **column.filter)
    statistic = column.statistic or declared.statistic
    if declared.cases:
        of_rows = [select(results, **row.filter) for row in rows]
    elif statistic == "mean" and {"application", "program"} <= set(by):
        values = _OVER_SEEDS[column.over_seeds](results, by).to_dict()
        return [values.get(row.labels) for row in rows]
    else:
        groups = split_by(results, by)
        of_rows = [groups.get(row.labels, results.iloc[:0]) for row in rows]
    return [
        _statistic(of_row, row.statistic or statistic, column, measure, kernels)
        for row, of_row in zip(rows, of_rows, strict=True)
    ]


_READ = ("application", "program", "seed", "value")
"""Columns that statistics are of."""
_OVER_SEEDS: Mapping[str, Callable[[pd.DataFrame, list[str]], pd.Series[float]]] = {
    "mean": means,
    "median": lambda frame, by: frame.groupby(by)["value"].median(),
    "min": lambda frame, by: frame.groupby(by)["value"].min(),
    "max": lambda frame, by: frame.groupby(by)["value"].max(),
}


def _statistic(
    results: pd.DataFrame,
    statistic: Statistic,
    column: ColumnDeclaration,
    measure: Measure,
    kernels: pd.Series[float] | None,
) -> float | None:
    """Returns a statistic over programs, None without any."""
    if results.empty:
        return None
    if statistic == "seeds":
        return results["seed"].nunique()
    if statistic == "run_deviation":
        return deviation_over_runs(results, measure)
    values = _OVER_SEEDS[column.over_seeds](results, ["application", "program"]).droplevel("application")
    if statistic == "programs":
        return float(len(values))
    if statistic == "kernel_mean":
        return None if kernels is None else mean_over_kernels(values, kernels)
    if statistic in ("min", "max", "sum"):
        return float(getattr(values, statistic)())
    return average(measure, statistic, values.tolist())


def _estimate_columns(
    declared: TableDeclaration,
    columns: Sequence[tuple[ColumnDeclaration, Measure]],
    frame: pd.DataFrame,
    rows: Sequence[RowDeclaration],
    draws: Draws | None,
) -> dict[str, list[float | None]]:
    """Returns the numbers of the columns that are an end of an interval or a difference, by their keys.

    Rows are resampled one after the other, and a number and the ends of its interval by the same draws.
    """
    estimated = [(column, measure) for column, measure in columns if column.interval or column.against]
    numbers: dict[str, list[float | None]] = {column.key: [] for column, _ in estimated}
    draws = draws or make_draws(applications_of(frame), 0, "tables", declared.name)
    for row in rows if estimated else ():
        of_row: dict[str, Estimate | None] = {}
        for column, measure in estimated:
            statistic = row.statistic or column.statistic or declared.statistic
            number = f"{statistic} {dict(column.filter)} {dict(column.against)}"
            if number not in of_row:
                results = select(frame, **column.filter)
                filters = row.filter if declared.cases else dict(zip(declared.rows, row.labels, strict=True))
                compared = select(results, **column.against) if column.against else None
                shown = replace(measure, better=column.better or measure.better)
                of_row[number] = _estimate(select(results, **filters), compared, statistic, shown, draws)
            value = of_row[number]
            numbers[column.key].append(None if value is None else getattr(value, column.interval or "value"))
    return numbers


def _estimate(
    results: pd.DataFrame,
    compared: pd.DataFrame | None,
    statistic: str,
    measure: Measure,
    draws: Draws,
) -> Estimate | None:
    """Returns a statistic over programs with its interval, or its difference to that of other results.

    None without programs, and for results that would be compared with themselves.
    """
    scores = score_matrix(results)
    if compared is None:
        if not scores.programs:
            return None
        if measure.metric and measure.floor:
            return estimate_error(scores, draws, statistic)
        return estimate(lambda resample: STATISTICS[statistic](resample(scores)), (scores,), draws)
    other = score_matrix(compared)
    shared = tuple(sorted(set(scores.programs) & set(other.programs)))
    if not shared or results.index.equals(compared.index):
        return None
    left, right = scores.over(shared), other.over(shared)
    if statistic == "share_won":
        sign = 1.0 if measure.better == "higher" else -1.0
        return estimate(
            lambda resample: share_won(resample(left), resample(right), sign), (left, right), draws
        )
    return estimate_difference(left, right, draws, statistic)


def _printed_value(
    printed: PrintedTable | None, column: str, row: RowDeclaration | PrintedRow
) -> float | None:
    """Returns the printed number beside a row of ours, or of a printed row itself."""
    if printed is None or column not in printed.columns:
        return None
    if isinstance(row, PrintedRow):
        return printed.value_in(row, column)
    if len(row.labels) == 2 and any(printed_row.application for printed_row in printed.rows):
        return printed.value_in(printed.row_for(*row.labels), column)
    return printed.value(row.printed or row.labels[0], column)


def _average(
    filled: _FilledColumn,
    kind: str,
    by_key: Mapping[str, Sequence[Value]],
    printed: PrintedTable | None,
    numbers: Mapping[str, Mapping[Labels, Value]],
) -> Value:
    """Returns what stands below a column in the row of an average.

    Args:
        filled: column with its values.
        kind: key of `AVERAGES`.
        by_key: values of all columns.
        printed: table that a paper printed, with its averages.
        numbers: values that are no statistic of results, by column, and of averages by their names.
    """
    column, measure, values = filled
    if column.printed and printed is not None and printed.averages:
        return printed.average(kind, column.printed)
    if (kind,) in numbers.get(column.key, {}):
        return numbers[column.key][kind,]
    if column.count or (column.averages is not None and kind not in column.averages):
        return None
    others = by_key[column.averaged_with or column.key]
    shown = [
        value
        for value, other in zip(values, others, strict=True)
        if isinstance(value, float | int) and other is not None
    ]
    return _scaled(average(measure, kind, shown), column.scale)


def _scaled(value: Value, scale: str) -> Value:
    if not isinstance(value, float | int) or not scale:
        return value
    return 100.0 * value if scale == "percent" else 100.0 * (value - 1.0)


def _column(declared: TableDeclaration, column: ColumnDeclaration, words: Mapping[str, object]) -> Column:
    """Returns the column as tables have it."""
    key, header, group = (text.format(**words) for text in (column.key, column.header, column.group))
    decimals = declared.decimals if column.decimals is None else int(str(column.decimals).format(**words))
    better = column.better or declared.better
    return Column(key, header or key, group, decimals, better, column.highlight, column.count, column.p_value)


def _notes(declared: TableDeclaration, words: Mapping[str, object], absent: str = "") -> tuple[str, ...]:
    return tuple(note.format(**words) for note in declared.notes if absent or "{absent}" not in note)
