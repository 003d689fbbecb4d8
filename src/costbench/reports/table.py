"""Tables as data, independent of rendering: keyed columns, rows of text and numbers, columns to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

Value = str | float | int | None
"""A cell's value; None for a missing number."""


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        key: name in CSV.
        header: name for people.
        group: name that it and its neighbours have in common, printed once above them; empty for none.
        decimals: digits after the point of its numbers.
        better: which end is good; the best of a row's competing numbers is printed bold.
        contest: columns of the same non-empty name compete for the best value of a row.
        count: whether its numbers are like counts: shown with separators, from a million on as 1.2M, and with
            decimals only below a thousand and if there are any.
        p_value: whether its numbers are p-values: what its decimals would show as zero is shown as less than
            the least that they can show.
    """

    key: str
    header: str
    group: str = ""
    decimals: int = 2
    better: Literal["", "lower", "higher"] = ""
    contest: str = ""
    count: bool = False
    p_value: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: name of its files, and its anchor on the page.
        title: one line.
        columns: columns from left to right.
        rows: rows, one value a column.
        summary_rows: number of last rows that are averages, set off by a rule.
        notes: sentences below it.
        unranked_rows: number of last rows of which no value is best (a spread is neither good nor bad).
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    summary_rows: int = 0
    notes: tuple[str, ...] = ()
    unranked_rows: int = 0

    @property
    def data(self) -> pd.DataFrame:
        """Returns its values as a frame, columns by key."""
        keys = [column.key for column in self.columns]
        # As they are: pandas would make floats of whole numbers beside missing ones.
        return pd.DataFrame(list(self.rows), columns=keys, dtype=object)

    def text(self, row: int, column: int) -> str:
        """Returns a cell as people read it."""
        value = self.rows[row][column]
        if value is None:
            return "–"
        if isinstance(value, str):
            return value
        least = 10.0 ** -self.columns[column].decimals
        if self.columns[column].p_value and value < least:
            return f"<{least:.{self.columns[column].decimals}f}"
        if self.columns[column].count:
            if value >= 1e6:
                return f"{value / 1e6:,.1f}M"
            decimals = 0 if value >= 1e3 or value == round(value) else self.columns[column].decimals
            return f"{value:,.{decimals}f}"
        # Adding zero turns a rounded -0.0 into 0.0.
        return f"{round(value, self.columns[column].decimals) + 0.0:.{self.columns[column].decimals}f}"

    def is_text(self, column: int) -> bool:
        """Returns whether the column holds words (and is set flush left)."""
        return any(isinstance(row[column], str) for row in self.rows)

    def is_best(self, row: int, column: int) -> bool:
        """Returns whether the cell is the best (or an equal best, as printed) of those it competes with."""
        contest, better = self.columns[column].contest, self.columns[column].better
        value = self.rows[row][column]
        if row >= len(self.rows) - self.unranked_rows or not contest or not better:
            return False
        if not isinstance(value, float | int):
            return False
        numbers = [
            float(self.text(row, index))
            for index, other in enumerate(self.columns)
            if other.contest == contest and not isinstance(self.rows[row][index], str | None)
        ]
        best = min if better == "lower" else max
        return len(numbers) > 1 and float(self.text(row, column)) == best(numbers)
