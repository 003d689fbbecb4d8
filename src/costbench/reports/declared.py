"""Tables declared in YAML: which results, what rows and columns are, what is averaged, what a paper printed.

```yaml
tables:
- name: tau_by_variant_{split}_{chip}
  title: "Kendall's tau of each variant, {where}"
  each: [split, chip]
  filter: {task: tile, model: learned, group: all, metric: kendall_tau}
  rows: [application]
  across: variant
  decimals: 3
  better: higher
```

A cell takes the results that the filters of table, row and column leave, averages them over seeds, and has a
statistic over their programs. `section`s of the same file have what a paper printed (`PrintedTable`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import pandas as pd

from costbench.metrics.measures import APE_FLOOR_PERCENT, AVERAGES, Measure
from costbench.params import load_section, load_yaml, parse
from costbench.reports.frame import COLUMNS, means, select
from costbench.reports.papers.tpugraphs2023 import PrintedTable
from costbench.reports.results import BEST, SPLIT_NAMES, split_order
from costbench.reports.table import Column, Table, Value

Filter: TypeAlias = Mapping[str, str | tuple[str, ...]]
Statistic = Literal[
    "mean", "median", "geometric_mean", "standard_deviation", "min", "max", "kernel_mean", "programs"
]


@dataclass(frozen=True)
class DeclaredRow:
    """A row.

    Attributes:
        labels: what stands in the first columns, one a name of `DeclaredTable.rows`.
        filter: column of results -> the value or values that belong to the row.
        printed: label of the printed row beside it; empty for the first of `labels`.
    """

    labels: tuple[str, ...]
    filter: Filter = field(default_factory=dict)
    printed: str = ""


@dataclass(frozen=True)
class DeclaredColumn:
    """A column.

    Attributes:
        key: name in CSV.
        header: name for people; empty for the key.
        group: name above it and its neighbours.
        filter: column of results -> the value or values that belong to it.
        statistic: in place of the table's.
        printed: column of the printed table, whose numbers it has in place of results.
        decimals: in place of the table's.
        highlight: columns of one name compete for the best value of a row, if `better` says what is best.
        count: whether numbers are shown as counts.
    """

    key: str
    header: str = ""
    group: str = ""
    filter: Filter = field(default_factory=dict)
    statistic: Statistic | None = None
    printed: str = ""
    decimals: int | None = None
    highlight: str = ""
    count: bool = False


@dataclass(frozen=True)
class DeclaredTable:
    """A table, or one for each value of some columns.

    Attributes:
        name: names its files; `{split}` stands for the value of a column of `each`.
        title: a line, likewise; `{where}` is split and chip in words, `{printed}` the printed table's number
            and paper.
        rows: columns of results whose values are rows, or names of the labels of `cases`.
        cases: the rows, one by one; those of the values that there are, if left out.
        across: column of results whose values are the columns, in place of `columns`.
        columns: the columns, one by one.
        each: columns of results; there is a table for each of their values that `needs` are there for.
        filter: column of results -> the value or values that count.
        needs: a further filter, of results without which there is no table.
        statistic: over programs.
        decimals: digits after the point.
        better: which end is good; the best of a row is printed bold.
        summary: averages over all rows, below them.
        printed: section of the file with the table that a paper printed; empty for none.
        both: whether the rows of the printed table follow ours, marked in a first column `whose`.
        headers: names of row labels for people, by column.
        notes: sentences below it; those with `{absent}` are left out if no case lacks results.
        section: anchor of the section of the report that it joins.
    """

    name: str
    title: str
    rows: tuple[str, ...]
    cases: tuple[DeclaredRow, ...] = ()
    across: str = ""
    columns: tuple[DeclaredColumn, ...] = ()
    each: tuple[str, ...] = ()
    filter: Filter = field(default_factory=dict)
    needs: Filter = field(default_factory=dict)
    statistic: Statistic = "mean"
    decimals: int = 2
    better: Literal["", "lower", "higher"] = ""
    summary: tuple[str, ...] = ()
    printed: str = ""
    both: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    section: str = "tables"

    def __post_init__(self) -> None:
        filters = [self.filter, self.needs, *(one.filter for one in self.cases)]
        filters += [one.filter for one in self.columns]
        named = {
            *self.each,
            *([self.across] if self.across else []),
            *(key for one in filters for key in one),
        }
        named |= set() if self.cases else set(self.rows)
        unknown = sorted(named - set(COLUMNS))
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: no column of results; those are {', '.join(COLUMNS)}")
        if bool(self.across) == bool(self.columns):
            raise ValueError("give the columns, or across for the column whose values they are")
        if not set(self.summary) <= set(AVERAGES):
            raise ValueError(f"summary: of {', '.join(AVERAGES)}")


@dataclass(frozen=True)
class _Tables:
    """The section `tables` of a file."""

    tables: tuple[DeclaredTable, ...]


def declared_tables(path: Path, frame: pd.DataFrame) -> dict[str, tuple[Table, ...]]:
    """Returns the tables of a file by the anchor of their section; those without results are left out.

    Args:
        path: YAML with a list `tables`, and a section for each printed table.
        frame: results (see `costbench.reports.frame`).

    Raises:
        ParamsError: for a file that is missing or declares something else.
    """
    made: dict[str, list[Table]] = {}
    content = parse(_Tables, {"tables": load_yaml(path).get("tables")}, where=path)
    for one in content.tables:
        printed = load_section(path, one.printed, PrintedTable) if one.printed else None
        made.setdefault(one.section, []).extend(_tables(one, frame, printed))
    return {section: tuple(tables) for section, tables in made.items()}


def _tables(one: DeclaredTable, frame: pd.DataFrame, printed: PrintedTable | None) -> Iterable[Table]:
    rows = select(frame, **one.filter)
    places = select(rows, **one.needs)[list(one.each)].drop_duplicates()
    if not one.each:
        places = places.iloc[:1]
    ordered = sorted(
        places.to_dict("records"),
        key=lambda place: (split_order(str(place.get("split", ""))), *place.values()),
    )
    for values in ordered:
        place = {str(key): str(value) for key, value in values.items()}
        if len(select(rows, **one.needs, **place)):
            of_task = {key: value for key, value in one.filter.items() if key == "task"}
            yield _table(one, select(rows, **place), select(frame, **place, **of_task), place, printed)


def _table(
    one: DeclaredTable,
    frame: pd.DataFrame,
    of_task: pd.DataFrame,
    place: Mapping[str, str],
    printed: PrintedTable | None,
) -> Table:
    columns = one.columns or tuple(
        DeclaredColumn(value, filter={one.across: value}, highlight="across")
        for (value,) in _values(frame, (one.across,))
    )
    weights = means(select(of_task, model=BEST, metric="kernels", group="all"), ["program"])
    cases = one.cases or [
        DeclaredRow(values, dict(zip(one.rows, values, strict=True))) for values in _values(frame, one.rows)
    ]
    shown = [_column(one, column) for column in columns]
    rows: list[tuple[Value, ...]] = []
    absent = []
    for case in cases:
        own = select(frame, **case.filter)
        numbers = [_cell(one, column, own, weights, case, printed) for column in columns]
        measured = [
            number is not None
            for number, column in zip(numbers, columns, strict=True)
            if not (column.count or column.printed)
        ]
        if not any(measured):
            absent.append(case.printed or case.labels[0])
        if any(measured) or one.cases:
            rows.append((*(["ours"] if one.both else []), *case.labels, *numbers))
    averages = [_average(one, columns, rows, kind) for kind in one.summary]
    if one.both and printed is not None:
        rows += [("paper", row.label, *_printed_row(printed, row.label, columns)) for row in printed.rows]
    labels = [*(["whose"] if one.both else []), *one.rows]
    words = {"where": _where(place), **place, "absent": ", ".join(absent)}
    if printed is not None:
        words["printed"] = f"{printed.table} of {printed.paper}"
    return Table(
        one.name.format(**words),
        one.title.format(**words),
        (*(Column(key, one.headers.get(key, key.capitalize())) for key in labels), *shown),
        (*rows, *averages),
        len(averages),
        tuple(note.format(**words) for note in one.notes if absent or "{absent}" not in note),
    )


def _values(frame: pd.DataFrame, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the values of some columns that occur together, sorted."""
    found = frame[list(columns)].drop_duplicates().sort_values(list(columns))
    return [tuple(map(str, values)) for values in found.itertuples(index=False, name=None)]


def _column(one: DeclaredTable, column: DeclaredColumn) -> Column:
    decimals = one.decimals if column.decimals is None else column.decimals
    header = column.header or column.key
    return Column(column.key, header, column.group, decimals, one.better, column.highlight, column.count)


def _cell(
    one: DeclaredTable,
    column: DeclaredColumn,
    frame: pd.DataFrame,
    weights: pd.Series[float],
    case: DeclaredRow,
    printed: PrintedTable | None,
) -> float | None:
    if column.printed:
        label = case.printed or case.labels[0]
        return None if printed is None else printed.value(label, column.printed)
    values = means(select(frame, **column.filter), ("application", "program")).droplevel("application")
    return _statistic(values, column.statistic or one.statistic, weights)


def _statistic(values: pd.Series[float], statistic: Statistic, weights: pd.Series[float]) -> float | None:
    """Returns a statistic over programs, None without any."""
    if statistic == "kernel_mean":
        values = values[values.index.isin(weights.index)]
        own, kernels = values.to_numpy(), weights.reindex(values.index).to_numpy()
        return float((own * kernels).sum() / kernels.sum()) if len(own) else None
    if statistic == "programs":
        return float(len(values)) or None
    if values.empty:
        return None
    if statistic in ("min", "max"):
        return float(values.min() if statistic == "min" else values.max())
    return _AVERAGE.average(statistic, values.tolist())


_AVERAGE = Measure("", "", "", "error", 1, "lower", APE_FLOOR_PERCENT)
"""Averages as those of errors."""


def _average(
    one: DeclaredTable, columns: Sequence[DeclaredColumn], rows: Sequence[tuple[Value, ...]], kind: str
) -> tuple[Value, ...]:
    labels = len(one.rows) + one.both
    filled: list[Value] = [AVERAGES[kind], *[""] * (labels - 1)]
    for place, column in enumerate(columns, labels):
        values = [value for row in rows if isinstance(value := row[place], float)]
        filled.append(None if column.count else _AVERAGE.average(kind, values))
    return tuple(filled)


def _printed_row(printed: PrintedTable, label: str, columns: Sequence[DeclaredColumn]) -> list[Value]:
    return [
        printed.value(label, name) if (name := column.printed or column.key) in printed.columns else None
        for column in columns
    ]


def _where(place: Mapping[str, str]) -> str:
    split = place.get("split", "")
    return ", ".join(part for part in (SPLIT_NAMES.get(split, split), place.get("chip", "")) if part)
