"""The programs of a recorded table that have estimates, with what arms read, loaded once in each process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from costbench.arrays import F32, F64, I64
from costbench.errors import DataError
from costbench_schedules.experiments.tables.joint import distinct_columns
from costbench_schedules.experiments.tables.tables import TableFile, features_of, table_of
from costbench_schedules.features.estimates import estimate_features
from costbench_schedules.records.networks.estimated import PROGRAMS, read_estimated
from costbench_schedules.records.networks.of_tables import unrestricted_numbers
from costbench_schedules.records.table import RecordedTable
from costbench_schedules.search.problems import EnumeratedSpace


@dataclass(frozen=True, eq=False)
class TablePrograms:
    """The n programs of a table that ran and have estimates.

    Attributes:
        table: the whole table.
        places: int64 [n], their rows, ascending.
        total_ns: float64 [n], estimated runtimes.
        loops: float32 [n, F], context relation features whose columns tell programs apart.
        parts: float32 [n, G], logarithm of the estimate and `estimate_features`.
    """

    table: RecordedTable
    places: I64
    total_ns: F64
    loops: F32
    parts: F32

    @property
    def runtime_ns(self) -> F64:
        """Returns measured runtimes, float64 [n]."""
        return self.table.columns["runtime_ns"][self.places].astype(np.float64)

    @property
    def space(self) -> EnumeratedSpace:
        """Returns the programs as a search space."""
        return EnumeratedSpace(self.table.space, self.table.space.rows(self.places.tolist()))


@lru_cache(16)
def programs_of(file: TableFile, estimates: Path, digest: str) -> TablePrograms:
    """Returns the programs of a table with estimates, possibly none.

    Args:
        file: of the table.
        estimates: folder of `costbench estimate-networks`.
        digest: of its `programs.arrow`, so that a changed file is read again.

    Raises:
        DataError: if a file is damaged, or the estimates are of other measurements.
    """
    path, table = estimates / PROGRAMS, table_of(file)
    found = read_estimated(path)
    texts = [operator.text for operator in found.operators]
    text = table.space.operator.text
    own = np.zeros(len(found), dtype=np.bool_)
    if text in texts:
        own = found.columns["analysed"] & (found.columns["operator"] == texts.index(text))
    every = np.arange(len(table), dtype=np.int64)
    number_of = dict(zip(unrestricted_numbers(table, every), every.tolist(), strict=True))
    numbers = found.columns["number"][own].tolist()
    if not set(numbers) <= set(number_of):
        raise DataError("estimates of programs that the table does not have", where=path, field=text)
    places = np.array([number_of[number] for number in numbers], dtype=np.int64)
    order = np.argsort(places, kind="stable")
    places, rows = places[order], np.flatnonzero(own)[order]
    if not np.array_equal(found.columns["native_ns"][rows], table.columns["runtime_ns"][places]):
        expected = f"those of {file.path.name}; run analyse-tables and estimate-networks again"
        raise DataError("estimates beside other measurements", where=path, field=text, expected=expected)
    values = {name: column[rows] for name, column in found.estimates.items()}
    lanes = found.columns["lanes"][rows].astype(np.float64)
    loops = np.asarray(features_of(file, "relation"))[places]
    return TablePrograms(
        table,
        places,
        values["total"],
        np.ascontiguousarray(loops[:, distinct_columns(loops)]) if len(loops) else loops,
        _parts(values["total"], estimate_features(values, lanes)) if len(rows) else np.zeros((0, 1), "f4"),
    )


def _parts(total_ns: F64, rows: F32) -> F32:
    """Returns the logarithm of the estimate before the other features."""
    return np.column_stack([np.log(total_ns), rows]).astype(np.float32)
