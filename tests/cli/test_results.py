"""The command that prints tables, from the folder of a report."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from costbench.cli.app import app
from costbench.reports.rendering import write_tables
from costbench.reports.table import Column, Table


def _report(folder: Path) -> Path:
    columns = (Column("model", "Model"), Column("tau", "Kendall's τ", decimals=2))
    write_tables([Table("taus", "Rank correlations", columns, (("learned", 0.125),))], folder / "tables")
    return folder


def test_tables_are_listed_and_printed_in_any_format(tmp_path: Path) -> None:
    run, where = CliRunner(), ["--folder", str(_report(tmp_path))]
    assert run.invoke(app, ["table", *where]).output == "taus: Rank correlations\n"
    for form, text in (
        ("csv", "model,tau\nlearned,0.125\n"),
        ("markdown", "| learned | 0.12 |"),
        ("latex", r"Model & Kendall's $\tau$ \\"),
        ("html", '<td class="text">learned</td>'),
    ):
        assert text in run.invoke(app, ["table", "taus", "--format", form, *where]).output


def test_columns_go_by_their_keys_where_nothing_describes_them(tmp_path: Path) -> None:
    (_report(tmp_path) / "tables" / "tables.json").unlink()
    run, where = CliRunner(), ["--folder", str(tmp_path)]
    assert run.invoke(app, ["table", *where]).output == "taus: taus\n"
    assert "| model | tau |" in run.invoke(app, ["table", "taus", *where]).output
