"""A table as CSV, Markdown (for reading on a forge), LaTeX (booktabs, for papers) and HTML.

Git keeps the CSV of each table and `tables.json`, which says what its columns are called; everything else is
made of these on demand (`costbench table`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from costbench.artifacts import read_bytes, read_json, write_json, write_text
from costbench.errors import DataError, choose
from costbench.reports.page import column_groups, page_environment, text_environment
from costbench.reports.table import Column, Table

_LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "τ": r"$\tau$",
    "–": "--",
    "<": r"\textless{}",
}


def write_numbers(path: Path, numbers: object) -> None:
    """Writes results as JSON, numbers with nine significant digits.

    Further ones differ between processors, whose logarithms round differently, and mean nothing.

    Raises:
        DataError: if a number is not finite, or the file cannot be written.
    """
    text = json.dumps(numbers)
    write_json(path, json.loads(text, parse_float=lambda digits: float(f"{float(digits):.9g}")))


def to_csv(table: Table) -> str:
    """Returns comma-separated values: keys first, numbers with six decimals at most, empty for none."""
    return str(table.data.map(_plain).to_csv(index=False, lineterminator="\n"))


def _plain(value: str | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{round(value, 6) + 0.0:.6f}".rstrip("0").rstrip(".")
    return str(value)


def to_markdown(table: Table) -> str:
    """Returns a pipe table under a heading; groups become part of the headers, best values are bold."""
    return text_environment().get_template("table.md.j2").render(table=table)


def to_latex(table: Table) -> str:
    r"""Returns a `table` environment with booktabs rules; needs \usepackage{booktabs}."""
    template, special = text_environment().get_template("table.tex.j2"), str.maketrans(_LATEX_SPECIAL)
    return (
        template.render(table=table, groups=column_groups, latex=lambda text: text.translate(special)) + "\n"
    )


def to_html(table: Table) -> str:
    """Returns a `table` element with its notes, as on the pages of the report."""
    return page_environment().get_template("table.html.j2").render(table=table).strip() + "\n"


RENDERERS: Mapping[str, Callable[[Table], str]] = {
    "csv": to_csv,
    "markdown": to_markdown,
    "latex": to_latex,
    "html": to_html,
}
"""By name of the format."""
DESCRIPTIONS = "tables.json"
"""Titles, columns and notes of the tables beside it, by name."""


def write_tables(tables: Sequence[Table], folder: Path) -> tuple[Path, ...]:
    """Writes `<name>.csv` of each table and `tables.json`; returns the paths.

    Raises:
        DataError: if one cannot be written.
    """
    paths = [folder / f"{table.name}.csv" for table in tables]
    for table, path in zip(tables, paths, strict=True):
        write_text(path, to_csv(table))
    descriptions, default = {}, asdict(Column("", ""))
    for table in tables:
        optional = {name: getattr(table, name) for name in ("summary_rows", "unranked_rows", "notes")}
        descriptions[table.name] = {
            "title": table.title,
            "columns": [
                {name: value for name, value in asdict(column).items() if value != default[name]}
                for column in table.columns
            ],
            "text": [column.key for i, column in enumerate(table.columns) if table.is_text(i)],
            **{name: value for name, value in optional.items() if value},
        }
    write_json(folder / DESCRIPTIONS, descriptions)
    return (*paths, folder / DESCRIPTIONS)


def table_titles(folder: Path) -> dict[str, str]:
    """Returns the titles of the tables in a folder, by name, in the order of the report.

    Raises:
        DataError: if the folder has no tables, or `tables.json` is something else.
    """
    titles = {name: table.get("title", name) for name, table in _descriptions(folder).items()}
    return {name: str(title) for name, title in titles.items()}


def read_table(folder: Path, name: str) -> Table:
    """Returns a table as the report left it in a folder; without `tables.json`, columns go by their keys.

    Raises:
        ChoiceError: for a name that is none of the folder's, with those that are.
        DataError: if the folder has no tables, or a file is something else.
    """
    description = choose(_descriptions(folder), name, "table")
    text = read_bytes(folder / f"{name}.csv").decode("utf-8")
    data = pd.read_csv(StringIO(text), dtype=str, keep_default_na=False, na_values=[""])
    shown = description.get("columns", [{}] * len(data.columns))
    columns = tuple(
        Column(**{"key": key, "header": key, **column})
        for key, column in zip(data.columns, shown, strict=True)
    )
    for key in data.columns:
        # An empty cell of a column of words is an empty word, and one of a column of numbers a missing one.
        if key in description.get("text", [key]):
            data[key] = data[key].fillna("")
        else:
            data[key] = pd.to_numeric(data[key])
    rows = tuple(data.astype(object).where(data.notna(), None).itertuples(index=False, name=None))
    return Table(
        name,
        description.get("title", name),
        columns,
        rows,
        summary_rows=description.get("summary_rows", 0),
        notes=tuple(description.get("notes", ())),
        unranked_rows=description.get("unranked_rows", 0),
    )


def _descriptions(folder: Path) -> dict[str, Any]:
    """Returns what `tables.json` says of each table; nothing but the names where it is missing."""
    path = folder / DESCRIPTIONS
    if not path.exists():
        names = sorted(table.stem for table in folder.glob("*.csv"))
        if not names:
            raise DataError("no tables", where=folder, expected="the tables of a report")
        return {name: {} for name in names}
    descriptions = read_json(path)
    if not isinstance(descriptions, dict):
        raise DataError(f"{type(descriptions).__name__}", where=path, expected="an object of tables")
    return descriptions
