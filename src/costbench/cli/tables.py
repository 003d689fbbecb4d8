"""The command that shows a table of the report, in any format."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """Formats of tables."""

    csv = "csv"
    markdown = "markdown"
    latex = "latex"
    html = "html"


def table(
    name: Annotated[str | None, typer.Argument(help="Table; all are listed if left out.")] = None,
    form: Annotated[Format, typer.Option("--format", help="What to make of it.")] = Format.markdown,
    folder: Annotated[Path, typer.Option(help="Folder of the report, such as `reports/evidence`.")] = Path(
        "reports"
    ),
) -> None:
    """Print a table of the report as CSV, Markdown, LaTeX (with booktabs) or HTML.

    Example: `costbench table tile_random_tpu_v2 --format latex > table2.tex`
    """
    from costbench.reports.rendering import RENDERERS, read_table, table_titles

    if name is None:
        for known, title in table_titles(folder / "tables").items():
            typer.echo(f"{known}: {title}")
        return
    typer.echo(RENDERERS[form](read_table(folder / "tables", name)), nl=False)
