"""The corpus as tables for people: what `docs/corpus.md` shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from costbench.artifacts import read_bytes, write_text
from costbench.errors import DataError
from costbench.programs.manifest import ProgramEntry

BEGIN = "<!-- table: written by the stage collect, not by hand -->"
END = "<!-- end of table -->"
# Column -> how Markdown aligns it.
HEADER = {
    "program": "---", "application": "---", "step": "---", "batch": "---:", "dtype": "---",
    "optimizer": "---", "source": "---", "layer sizes": "---", "instructions": "---:", "described in": "---",
}  # fmt: skip
APPLICATION_HEADER = {
    "application": "---", "programs": "---:", "training steps": "---:", "instructions": "---:",
}  # fmt: skip


def table_rows(entries: Sequence[ProgramEntry]) -> list[tuple[str, ...]]:
    """Returns one row of text per program under `HEADER`, by application, then by name."""
    ordered = sorted(entries, key=lambda entry: (entry.application, entry.name))
    return [
        (
            entry.name, entry.application, entry.step, str(entry.batch or ""), entry.dtype, entry.optimizer,
            entry.source, entry.faithful, _thousands(entry.instructions), entry.reference,
        )
        for entry in ordered
    ]  # fmt: skip


def application_rows(entries: Sequence[ProgramEntry]) -> list[tuple[str, ...]]:
    """Returns one row of text per application under `APPLICATION_HEADER`, those with most programs first."""
    programs = Counter(entry.application for entry in entries)
    training = Counter(entry.application for entry in entries if entry.step == "train")
    instructions: Counter[str] = Counter()
    for entry in entries:
        instructions[entry.application] += entry.instructions
    ordered = sorted(programs, key=lambda name: (-programs[name], name))
    return [
        (name, str(programs[name]), str(training[name]), _thousands(instructions[name])) for name in ordered
    ]


def markdown_tables(entries: Sequence[ProgramEntry]) -> str:
    """Returns totals, a Markdown table of applications, and one of programs."""
    applications = len({entry.application for entry in entries})
    instructions = sum(entry.instructions for entry in entries)
    training = sum(entry.step == "train" for entry in entries)
    faithful = Counter(entry.faithful for entry in entries)
    sizes = "; ".join(
        f"{count} {kind}" for kind, count in sorted(faithful.items(), key=lambda item: -item[1])
    )
    return "\n".join(
        [
            f"{len(entries)} programs ({training} training steps) of {applications} applications, "
            f"{instructions:,} instructions. Layer sizes: {sizes}.",
            "",
            *_markdown(APPLICATION_HEADER, application_rows(entries)),
            "",
            *_markdown(HEADER, table_rows(entries)),
        ]
    )


def _thousands(number: int) -> str:
    return f"{number:,}" if number else ""


def _markdown(header: dict[str, str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join(header.values()) + "|"]
    return lines + ["| " + " | ".join(cell or "–" for cell in row) + " |" for row in rows]


def update_table(document: Path, entries: Sequence[ProgramEntry]) -> None:
    """Replaces what lies between the two markers of `document` by the tables of `entries`.

    Raises:
        DataError: the document is missing or lacks the markers.
    """
    text = read_bytes(document).decode("utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise DataError("no place for the table", where=document, expected=f"{BEGIN} ... {END}")
    new = f"{head}{begin}\n{markdown_tables(entries)}\n{end}{tail}"
    if new != text:
        write_text(document, new)
