"""Results of searches over fusions on a machine that exists, a row for each search, as one Parquet file.

data/results/xla_cpu_searches/
    searches.parquet      a row a search: program, start, kind, what it cost, what it gained
    searches.json         the machine, the settings, and programs that were left out, with the reason
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from costbench.artifacts import read_json, seal, write_json
from costbench.datasets.machine_records import RecordColumn, read_table, write_table
from costbench.errors import DataError

SEARCHES, CARD = "searches.parquet", "searches.json"
XLA, RANDOM = "xla", "random"
"""Starts of searches: the config nearest to XLA's own fusions, and a random one."""
HARDWARE, MODEL = "hardware", "model"
_DIGITS = 6
_TEXT = pa.dictionary(pa.int32(), pa.string())
COLUMNS: Mapping[str, RecordColumn] = {
    "program": RecordColumn(_TEXT, "name of the program"),
    "application": RecordColumn(_TEXT, "family of the program"),
    "start": RecordColumn(_TEXT, f"`{XLA}`, the config nearest to XLA's own fusions, or `{RANDOM}`"),
    "arm": RecordColumn(_TEXT, f"`{HARDWARE}` alone, `analytical` or `{MODEL}` ` and {HARDWARE}`"),
    "budget_s": RecordColumn(pa.float32(), "seconds of the processor that the search had"),
    "spent_s": RecordColumn(pa.float32(), "seconds that it spent, compiling included"),
    "measured": RecordColumn(pa.int32(), "configs that were compiled and run"),
    "predicted": RecordColumn(pa.int32(), "configs that the model scored"),
    "own_ns": RecordColumn(pa.int64(), "runtime with XLA's own fusions, measured anew, median of processes"),
    "chosen_ns": RecordColumn(pa.int64(), "the same of the fusions that the search ends with"),
    "gain": RecordColumn(pa.float64(), "how many times as fast as with XLA's own fusions, measured anew"),
    "low": RecordColumn(pa.float64(), "lower end of its 95% interval over processes"),
    "high": RecordColumn(pa.float64(), "upper end"),
    "is_own": RecordColumn(pa.bool_(), "whether it ends with XLA's own fusions, as nothing faster was found"),
    "difference": RecordColumn(pa.float32(), "largest difference of results, relative to their norm"),
}
"""Columns of `searches.parquet`."""


def write_searches(folder: Path, rows: Sequence[Mapping[str, Any]], card: Mapping[str, object]) -> None:
    """Writes searches and their card, and seals them; equal rows give equal bytes.

    Raises:
        DataError: if a file cannot be written.
    """
    key = ("program", "start", "arm")
    ordered = sorted(rows, key=lambda row: tuple(str(row[name]) for name in key))
    rounded = [
        {
            name: float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
            for name, value in row.items()
        }
        for row in ordered
    ]
    write_table(folder / SEARCHES, rounded, COLUMNS)
    write_json(folder / CARD, card)
    seal(folder, "`git checkout`, or `costbench search-fusions`")


def read_searches(folder: Path) -> pd.DataFrame:
    """Returns the rows of a folder; none where there is no file.

    Raises:
        DataError: for a file that is something else, or a gain that is none.
    """
    path = folder / SEARCHES
    if not path.exists():
        return pd.DataFrame({name: [] for name in COLUMNS})
    frame = read_table(path, COLUMNS)
    if len(frame) and not (frame[["gain", "low", "high"]] > 0.0).all(axis=None):
        raise DataError("a gain that is none", where=path, field="gain", expected="numbers above 0")
    return frame


def read_card(folder: Path) -> dict[str, Any]:
    """Returns the card of a folder; empty where there is none. Raises: DataError, if it is damaged."""
    path = folder / CARD
    content = read_json(path) if path.exists() else {}
    if not isinstance(content, dict):
        raise DataError("is no card", where=path, expected="a mapping")
    return content
