"""Recorded tables of schedules as tuning tables, with a second measurement or what is expected of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench.errors import DataError
from costbench_schedules.records.second_measurements import second_measurements
from costbench_schedules.records.table import RecordedTable, read_table
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.spaces.parameter_space import ParameterSpace


def read_recorded(path: Path) -> TuningTable:
    """Reads a recorded table as a tuning table.

    Raises:
        DataError: naming the file, as `read_table` and `tuning_table`.
    """
    table = read_table(path)
    try:
        return tuning_table(table)
    except ValueError as error:
        raise DataError(str(error), where=path, expected="a complete table, measured twice") from error


def tuning_table(table: RecordedTable) -> TuningTable:
    """Returns a complete table of schedules as a tuning table, see `second_measurements`.

    Raises:
        ValueError: if it is not complete, none of it ran, or nothing was measured again.
    """
    twice = second_measurements(table) if table.complete else None
    if twice is None:
        raise ValueError("is not complete, or nothing was measured again")
    codes = table.columns["reason"]
    again = np.isin(np.arange(len(table)), table.later[:, 0])
    return TuningTable(
        table.workload,
        f"{table.host.get('processor', 'unknown')} ({table.target})",
        ParameterSpace(
            {knob.name: knob.values for knob in table.space.knobs}, table.space.rows(range(len(table)))
        ),
        twice.first_ns,
        twice.second_ns,
        table.columns["seconds"].astype(np.float64),
        tuple(table.reasons[code - 1] if code else "" for code in codes.tolist()),
        np.where(table.failed, 0, np.where(again, 2, 1)),
    )
