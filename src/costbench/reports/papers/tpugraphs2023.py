"""The tables of tpugraphs2023 as data: rows of numbers under a label, and its hyper-parameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from costbench.params import load_section

_FILE = Path(__file__).with_suffix(".yaml")
TableName = Literal[
    "collections",
    "best",
    "layout_variants",
    "layout_programs",
    "tile_variants",
    "tile_programs",
    "overhead",
]


@dataclass(frozen=True)
class PrintedRow:
    """A row: its label and one value a column; None where nothing is printed."""

    label: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class PrintedTable:
    """A table.

    Attributes:
        paper: short id.
        table: its number in the paper.
        columns: names of the columns.
        rows: in the paper's order.
    """

    paper: str
    table: str
    columns: tuple[str, ...]
    rows: tuple[PrintedRow, ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(f"{row.label}: {len(row.values)} values for {len(self.columns)} columns")

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the rows, in order."""
        return tuple(row.label for row in self.rows)

    def value(self, label: str, column: str) -> float | None:
        """Returns a number, or None where there is no such row, or nothing is printed."""
        found = (row.values for row in self.rows if row.label == label)
        values = next(found, None)
        return None if values is None else values[self.columns.index(column)]


@dataclass(frozen=True)
class PrintedSetting:
    """A row of Table 5: the values tried for layout and tile models, and where our parameters have it."""

    parameter: str
    setting: str
    layout: str
    tile: str


@dataclass(frozen=True)
class PrintedSettings:
    """Table 5."""

    paper: str
    table: str
    rows: tuple[PrintedSetting, ...]


def printed_table(name: TableName) -> PrintedTable:
    """Returns a table of the paper.

    Raises:
        ParamsError: if the data file of the package is broken.
    """
    return load_section(_FILE, name, PrintedTable)


def printed_settings() -> PrintedSettings:
    """Returns Table 5. Raises: ParamsError as `printed_table`."""
    return load_section(_FILE, "settings", PrintedSettings)
