"""Tables whose rows are made in Python, and whose titles, columns and notes are data (`tables.yaml`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from costbench.errors import choose
from costbench.params import load_yaml
from costbench.reports.table import Column, Table, Value

_FILE = Path(__file__).with_name("tables.yaml")


def described_table(
    kind: str,
    rows: Iterable[Sequence[Value]],
    *,
    name: str = "",
    notes: Sequence[str] = (),
    averages: int = 0,
    **words: object,
) -> Table:
    """Returns a table as `tables.yaml` describes it.

    Args:
        kind: entry of the file.
        rows: values of its columns.
        name: name of the table; empty for that of the entry.
        notes: further notes, below those of the entry; empty ones are left out.
        averages: how many of the last rows are averages.
        words: what stands in braces in the entry.

    Raises:
        ParamsError: if the file of the package is broken.
    """
    entry = choose(_entries()["tables"], kind, "table")
    columns = tuple(
        _column(key, described, words)
        for named, one in entry["columns"].items()
        for key, described in (_entries()["shared"][named] if one == "shared" else {named: one}).items()
    )
    said = (*(note.format(**words) for note in entry.get("notes", ())), *notes)
    filled = tuple(tuple(row) for row in rows)
    shown = tuple(note for note in said if note)
    return Table(name or kind, entry["title"].format(**words), columns, filled, averages, shown)


def _column(key: str, described: str | dict[str, Any], words: dict[str, object]) -> Column:
    values = {"header": described} if isinstance(described, str) else dict(described)
    texts = {name: value.format(**words) for name, value in values.items() if isinstance(value, str)}
    decimals = int(texts.pop("decimals", values.get("decimals", 2)))
    return Column(key.format(**words), **{**values, **texts, "decimals": decimals})


@cache
def _entries() -> dict[str, Any]:
    return dict(load_yaml(_FILE))
