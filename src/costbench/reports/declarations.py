"""Tables are declared: which results, what rows and columns are, what is averaged, what a paper printed.

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
statistic over their programs, or an end of its 95% interval over programs and seeds; with `against`, less the
same statistic of other results. `printed` names a section of the same file with what a paper printed. Where
rows are no results, such as budgets or claims, `declared_tables.fill_table` takes them from a frame, and the
declaration says the rest. The tables of the package are in `tables.yaml` and in the files of papers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from costbench.errors import choose
from costbench.params import load_yaml, parse
from costbench.reports.frame import COLUMNS
from costbench.reports.losses import AVERAGES

TABLES = Path(__file__).with_name("tables.yaml")
"""Tables of this package."""
Filter: TypeAlias = Mapping[str, str | tuple[str, ...]]
Statistic = Literal[
    "mean",
    "median",
    "geometric_mean",
    "standard_deviation",
    "above_1",
    "above_5",
    "above_10",
    "min",
    "max",
    "sum",
    "kernel_mean",
    "share_won",
    "programs",
    "seeds",
    "run_deviation",
]
_WITH_INTERVALS = ("mean", "median", "geometric_mean", "standard_deviation", "share_won")
Labels: TypeAlias = tuple[str, ...]
"""What stands in the first columns of a row."""


@dataclass(frozen=True)
class RowDeclaration:
    """A row.

    Attributes:
        labels: what stands in the first columns, one a name of `TableDeclaration.rows`.
        filter: column of results -> the value or values that belong to the row.
        printed: label of the printed row beside it; empty for the first of `labels`.
        statistic: statistic in place of that of table and column.
    """

    labels: Labels
    filter: Filter = field(default_factory=dict)
    printed: str = ""
    statistic: Statistic | None = None


@dataclass(frozen=True)
class ColumnDeclaration:
    """A column.

    Attributes:
        key: name in CSV.
        header: name for people; empty for the key.
        group: name above it and its neighbours.
        filter: column of results -> the value or values that belong to it.
        measure: measure of the task that it shows, with metric, digits and better end; `{short}` and
            `{measure}` in key, group and highlight stand for its names.
        across: column of results; there is a column for each of its values, `{value}` in names and filters,
            `{title}` for people.
        block: neighbours with the same name here and in `across` stand together for each value.
        statistic: statistic in place of the table's.
        interval: end of the statistic's 95% interval that is shown in its place.
        against: column of results -> the value or values of what the row is compared with: shown is the
            statistic less that of these results, over the programs of both; nothing for these themselves.
        over_seeds: how results of one program are put together, such as those of training runs.
        scale: `percent` for shares as percentages, `gain` for factors as percentages above one.
        printed: column of the printed table, whose numbers it has in place of results.
        decimals: digits in place of the table's.
        better: which end is good, in place of the table's.
        highlight: columns of one name compete for the best value of a row, if `better` says what is best.
        count: whether numbers are shown as counts.
        p_value: whether numbers are p-values, of which none is shown as zero.
        optional: columns of one such name are left out together where none of them has results.
        averages: averages below it, of those of the table; all if left out.
        averaged_with: key of a column; programs without a value there are left out of averages.
    """

    key: str
    header: str = ""
    group: str = ""
    filter: Filter = field(default_factory=dict)
    measure: Literal["", "error", "tau", "short_error", "short_tau"] = ""
    across: str = ""
    block: str = ""
    statistic: Statistic | None = None
    interval: Literal["", "low", "high"] = ""
    against: Filter = field(default_factory=dict)
    over_seeds: Literal["mean", "median", "min", "max"] = "mean"
    scale: Literal["", "percent", "gain"] = ""
    printed: str = ""
    decimals: int | str | None = None
    better: Literal["", "lower", "higher"] = ""
    highlight: str = ""
    count: bool = False
    p_value: bool = False
    optional: str = ""
    averages: tuple[str, ...] | None = None
    averaged_with: str = ""


@dataclass(frozen=True)
class TableDeclaration:
    """A table, or one for each value of some columns.

    Attributes:
        name: names its files; `{split}` stands for the value of a column of `each`.
        title: a line, likewise; `{where}` is split and chip in words, `{printed}` the printed table's number
            and paper.
        rows: columns of results whose values are rows, or names of the labels of `cases`.
        cases: rows, one by one; those of the values that there are, if left out.
        across: column of results whose values are the columns, in place of `columns`.
        columns: columns, one by one.
        values: column of results -> those of its values that columns go across, in order, with their titles;
            all that there are, if left out.
        each: columns of results; there is a table for each of their values that `needs` are there for.
        filter: column of results -> the value or values that count.
        needs: a further filter, of results without which there is no table.
        statistic: statistic over programs.
        decimals: digits after the point.
        better: which end is good; the best of a row is printed bold.
        summary: averages over all rows, below them.
        printed: section of the file with the table that a paper printed; empty for none.
        both: whether the rows of the printed table follow ours, marked in a first column `whose`.
        headers: names of row labels for people, by column, and of averages, by kind.
        notes: sentences below it; those with `{absent}` are left out if no case lacks results.
        section: anchor of the section of the report that it joins.
    """

    name: str
    title: str
    rows: tuple[str, ...] = ()
    cases: tuple[RowDeclaration, ...] = ()
    across: str = ""
    columns: tuple[ColumnDeclaration, ...] = ()
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
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
        filters = [self.filter, self.needs, *(row.filter for row in self.cases)]
        filters += [part for column in self.columns for part in (column.filter, column.against)]
        used = {*self.each, *self.values, self.across, *(column.across for column in self.columns)} - {""}
        used |= {key for part in filters for key in part} | (set() if self.cases else set(self.rows))
        unknown = sorted(used - set(COLUMNS))
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: no column of results; those are {', '.join(COLUMNS)}")
        if bool(self.across) == bool(self.columns):
            raise ValueError("give the columns, or across for the column whose values they are")
        if not set(self.summary) <= set(AVERAGES):
            raise ValueError(f"summary: of {', '.join(AVERAGES)}")
        for column in self.columns:
            statistic = column.statistic or self.statistic
            if statistic == "share_won" and not column.against:
                raise ValueError(f"{column.key}: programs are won against something")
            if (column.interval or column.against) and statistic not in _WITH_INTERVALS:
                raise ValueError(f"{column.key}: only {', '.join(_WITH_INTERVALS)} have intervals")


@dataclass(frozen=True)
class _Tables:
    """The section `tables` of a file."""

    tables: tuple[TableDeclaration, ...]


def load_declarations(path: Path) -> tuple[TableDeclaration, ...]:
    """Returns what the section `tables` of a YAML file declares; lists among columns are spliced into them.

    Raises:
        ParamsError: for a file that is missing or declares something else.
    """
    tables = load_yaml(path).get("tables")
    for table in tables if isinstance(tables, list) else ():
        if isinstance(table, dict) and isinstance(columns := table.get("columns"), list):
            nested = (column if isinstance(column, list) else [column] for column in columns)
            table["columns"] = [column for several in nested for column in several]
    return parse(_Tables, {"tables": tables}, where=path).tables


@cache
def _declarations_by_name(file: Path) -> dict[str, TableDeclaration]:
    return {declared.name: declared for declared in load_declarations(file)}


def declaration_of(
    kind: str, name: str = "", notes: Sequence[str] = (), *, file: Path = TABLES, **changes: Any
) -> TableDeclaration:
    """Returns what a package declares of a kind of table.

    Args:
        kind: name in the file.
        name: name of the table; empty for the kind.
        notes: further notes, below those of the file; empty ones are left out.
        file: file of the package's tables.
        changes: fields in place of those of the file.

    Raises:
        ChoiceError: for a kind that is not declared.
        ParamsError: if the file of the package is broken.
    """
    declared = choose(_declarations_by_name(file), kind, "table")
    notes = (*declared.notes, *filter(None, notes))
    return replace(declared, name=name or kind, notes=notes, **changes)
