"""The corpus as a table for people: what `docs/programs.md` shows and `costbench programs` prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from costbench.artifacts import read_bytes, write_text
from costbench.errors import DataError
from costbench.workloads.manifest import ProgramEntry

BEGIN = "<!-- table: written by the stage collect, not by hand -->"
END = "<!-- end of table -->"
HEADER = (
    "program",
    "application",
    "step",
    "batch",
    "dtype",
    "optimizer",
    "source",
    "layer sizes",
    "instructions",
)


def table_rows(entries: Sequence[ProgramEntry]) -> list[tuple[str, ...]]:
    """One row of text per program under `HEADER`, by application, then by name."""
    ordered = sorted(entries, key=lambda entry: (entry.application, entry.name))
    return [
        (
            entry.name, entry.application, entry.step, str(entry.batch or ""), entry.dtype, entry.optimizer,
            entry.source, entry.faithful, f"{entry.instructions:,}" if entry.instructions else "",
        )
        for entry in ordered
    ]  # fmt: skip


def markdown_table(entries: Sequence[ProgramEntry]) -> str:
    """A Markdown table with a sentence of totals above it."""
    applications = len({entry.application for entry in entries})
    instructions = sum(entry.instructions for entry in entries)
    training = sum(entry.step == "train" for entry in entries)
    lines = [
        f"{len(entries)} programs ({training} training steps) of {applications} applications, "
        f"{instructions:,} instructions.",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|" + "---|" * (len(HEADER) - 1) + "---:|",
    ]
    lines += ["| " + " | ".join(cell or "–" for cell in row) + " |" for row in table_rows(entries)]
    return "\n".join(lines)


def update_table(document: Path, entries: Sequence[ProgramEntry]) -> None:
    """Replace what lies between the two markers of `document` by the table of `entries`.

    Raises:
        DataError: the document is missing or lacks the markers.
    """
    text = read_bytes(document).decode("utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise DataError("no place for the table", where=document, expected=f"{BEGIN} ... {END}")
    new = f"{head}{begin}\n{markdown_table(entries)}\n{end}{tail}"
    if new != text:
        write_text(document, new)
