"""A table as CSV (for programs), Markdown (for reading on a forge) and LaTeX (booktabs, for papers)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path

from costbench.artifacts import write_text
from costbench.reports.table import Table

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
}


def to_csv(table: Table) -> str:
    """Comma-separated, keys in the first line, numbers with six decimals at most, empty for none."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    for row in table.rows:
        writer.writerow([_plain(value) for value in row])
    return stream.getvalue()


def _plain(value: str | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{round(value, 6) + 0.0:.6f}".rstrip("0").rstrip(".")
    return str(value)


def to_markdown(table: Table) -> str:
    """A pipe table under a heading; groups become part of the headers, the best of a contest is bold."""
    headers = [f"{c.group}: {c.header}" if c.group else c.header for c in table.columns]
    aligned = ["---" if table.is_text(index) else "---:" for index in range(len(table.columns))]
    lines = [f"## {table.title}", "", _pipes([h.replace("|", "\\|") for h in headers]), _pipes(aligned)]
    for row in range(len(table.rows)):
        cells = [_markdown_cell(table, row, column) for column in range(len(table.columns))]
        if row >= len(table.rows) - table.summary_rows:
            cells[0] = f"*{cells[0]}*"
        lines.append(_pipes(cells))
    lines += [f"\n{note}" for note in table.notes]
    return "\n".join(lines) + "\n"


def _pipes(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(table: Table, row: int, column: int) -> str:
    text = table.text(row, column).replace("|", "\\|")
    return f"**{text}**" if table.is_best(row, column) else text


def to_latex(table: Table) -> str:
    """A `table` environment with booktabs rules; needs \\usepackage{booktabs}."""
    layout = "".join("l" if table.is_text(index) else "r" for index in range(len(table.columns)))
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(table.title)}}}"]
    lines += [rf"\label{{tab:{table.name}}}", rf"\begin{{tabular}}{{{layout}}}", r"\toprule"]
    if any(column.group for column in table.columns):
        lines += _latex_groups(table)
    lines += [_latex_line([_latex(column.header) for column in table.columns]), r"\midrule"]
    for row in range(len(table.rows)):
        if table.summary_rows and row == len(table.rows) - table.summary_rows:
            lines.append(r"\midrule")
        lines.append(_latex_line([_latex_cell(table, row, c) for c in range(len(table.columns))]))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\footnotesize {_latex(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _latex_groups(table: Table) -> list[str]:
    cells, rules, start = [], [], 1
    for group, members in groupby(table.columns, key=lambda column: column.group):
        width = len(list(members))
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{{_latex(group)}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    return [_latex_line(cells), "".join(rules)]


def _latex_line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(table: Table, row: int, column: int) -> str:
    text = _latex(table.text(row, column))
    return rf"\textbf{{{text}}}" if table.is_best(row, column) else text


def _latex(text: str) -> str:
    return "".join(_LATEX_SPECIAL.get(character, character) for character in text)


RENDERERS: Mapping[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
"""By suffix of the file."""


def write_table(table: Table, folder: Path) -> tuple[Path, ...]:
    """Write `<name>.csv`, `.md` and `.tex`; the paths. Raises: DataError if one cannot be written."""
    paths = []
    for suffix, render in RENDERERS.items():
        path = folder / f"{table.name}.{suffix}"
        write_text(path, render(table))
        paths.append(path)
    return tuple(paths)
