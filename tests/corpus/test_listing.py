"""The table in the documentation is the manifest's."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus.listing import (
    BEGIN,
    END,
    HEADER,
    application_rows,
    markdown_tables,
    table_rows,
    update_table,
)
from costbench.errors import DataError
from costbench.programs.manifest import ProgramEntry, load_manifest
from tests.sentences import numbers


def entry(name: str, application: str, step: str, instructions: int) -> ProgramEntry:
    optimizer = "sgd" if step == "train" else ""
    return ProgramEntry(
        name, application, "f()", step, 8, "f32", optimizer, "jax", "known", "A 2020", instructions, "", ""
    )


def test_the_committed_document_shows_the_committed_corpus(repository: Path) -> None:
    text = (repository / "docs" / "corpus.md").read_text("utf-8")
    table = text.partition(BEGIN)[2].partition(END)[0].strip()
    assert table == markdown_tables(load_manifest(repository / "data" / "programs"))


def test_rows_are_by_application_and_counted() -> None:
    entries = [entry("b", "Z", "infer", 1200), entry("c", "A", "train", 34), entry("a", "Z", "train", 5)]
    assert [row[0] for row in table_rows(entries)] == ["c", "a", "b"]
    lines = markdown_tables(entries).splitlines()
    # Programs, those that train, applications, instructions, programs of known sizes.
    assert numbers(lines[0]) == [3, 2, 2, 1239, 3]
    assert lines[-5] == "| " + " | ".join(HEADER) + " |"
    assert lines[-1] == "| b | Z | infer | 8 | f32 | – | jax | known | 1,200 | A 2020 |"


def test_applications_with_most_programs_come_first() -> None:
    entries = [entry("b", "Z", "infer", 1200), entry("c", "A", "train", 34), entry("a", "Z", "train", 5)]
    entries.append(entry("d", "B", "infer", 0))
    assert application_rows(entries) == [("Z", "2", "1", "1,205"), ("A", "1", "1", "34"), ("B", "1", "0", "")]
    lines = markdown_tables(entries).splitlines()
    assert lines[3] == "|---|---:|---:|---:|"
    assert lines[4] == "| Z | 2 | 1 | 1,205 |"


def test_only_the_table_is_replaced(tmp_path: Path) -> None:
    document = tmp_path / "doc.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    entries = [entry("a", "A", "train", 5)]
    update_table(document, entries)
    assert document.read_text() == f"before\n{BEGIN}\n{markdown_tables(entries)}\n{END}\nafter\n"


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END} {BEGIN}"])
def test_a_document_without_a_place_for_the_table_is_left_alone(tmp_path: Path, text: str) -> None:
    document = tmp_path / "doc.md"
    document.write_text(text)
    with pytest.raises(DataError, match="no place for the table"):
        update_table(document, [])
    assert document.read_text() == text
