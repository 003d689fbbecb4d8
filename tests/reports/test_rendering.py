"""One small table in every format, character by character."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costbench.errors import ChoiceError, DataError
from costbench.reports.rendering import (
    RENDERERS,
    read_table,
    table_titles,
    to_csv,
    to_html,
    to_latex,
    to_markdown,
    write_numbers,
    write_tables,
)
from costbench.reports.table import Column, Table

TABLE = Table(
    name="small",
    title="Small & fine",
    columns=(
        Column("program", "Program"),
        Column("ape_learned", "learned", "APE (%)", 1, "lower", "ape"),
        Column("ape_analytical", "analytical", "APE (%)", 1, "lower", "ape"),
    ),
    rows=(("a_b|c", 1.0, 2.0), ("median", 1 / 3, None)),
    summary_rows=1,
    notes=("100% true.",),
)


def test_csv() -> None:
    assert to_csv(TABLE) == "program,ape_learned,ape_analytical\na_b|c,1,2\nmedian,0.333333,\n"


def test_markdown() -> None:
    assert to_markdown(TABLE) == (
        "## Small & fine\n\n"
        "| Program | APE (%): learned | APE (%): analytical |\n"
        "| --- | ---: | ---: |\n"
        "| a_b\\|c | **1.0** | 2.0 |\n"
        "| *median* | 0.3 | – |\n"
        "\n100% true.\n"
    )


def test_latex() -> None:
    lines = to_latex(TABLE).splitlines()
    assert lines == [
        r"\begin{table}",
        r"\centering",
        r"\caption{Small \& fine}",
        r"\label{tab:small}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"\multicolumn{1}{c}{} & \multicolumn{2}{c}{APE (\%)} \\",
        r"\cmidrule(lr){2-3}",
        r"Program & learned & analytical \\",
        r"\midrule",
        r"a\_b|c & \textbf{1.0} & 2.0 \\",
        r"\midrule",
        r"median & 0.3 & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip\footnotesize 100\% true.",
        r"\end{table}",
    ]


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    """All formats can be made of what git keeps: the CSV, and what its columns are called."""
    paths = write_tables([TABLE], tmp_path)
    assert [path.name for path in paths] == ["small.csv", "tables.json"]
    assert (tmp_path / "small.csv").read_text() == to_csv(TABLE)
    assert table_titles(tmp_path) == {"small": "Small & fine"}
    again = read_table(tmp_path, "small")
    for render in RENDERERS.values():
        assert render(again) == render(TABLE)
    with pytest.raises(ChoiceError, match="unknown table 'large'"):
        read_table(tmp_path, "large")


def test_html() -> None:
    text = to_html(TABLE)
    assert '<td class="best">1.0</td>' in text
    assert '<p class="notes">100% true.</p>' in text


@pytest.mark.parametrize("value", [0.1 + 0.2, 1e-9, 123456.789, -0.0])
def test_csv_numbers_are_plain(value: float) -> None:
    table = Table("t", "T", (Column("x", "X"),), ((value,),))
    text = to_csv(table).splitlines()[1]
    assert "e" not in text
    assert float(text) == pytest.approx(value, abs=5e-7)


def test_numbers_have_nine_digits(tmp_path: Path) -> None:
    """What processors that round logarithms differently make of one number is one number."""
    path = tmp_path / "summary.json"
    for error in (10.152436882678197, 10.152436882678199):
        write_numbers(path, {"a": [error, 0.1 + 0.2, 1e-17, 3, None, "1.5", (1234567890.123,)]})
        written = json.loads(path.read_text("utf-8"))
        assert written == {"a": [10.1524369, 0.3, 1e-17, 3, None, "1.5", [1234567890.0]]}
    with pytest.raises(DataError, match=r"summary\.json: a: nan cannot be stored"):
        write_numbers(path, {"a": float("nan")})
