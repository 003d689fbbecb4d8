"""A device that answers from recorded tables, with the interface of the machine they were recorded on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from costbench.arrays import I64
from costbench.errors import DataError
from costbench_schedules.devices.device import Rows, ScheduleMeasurement
from costbench_schedules.records.table import SUFFIX, RecordedTable, read_table
from costbench_schedules.spaces.space import ScheduleSpace


class ReplayDevice:
    """Recorded measurements; a `ScheduleDevice`.

    Args:
        tables: one of each operator, all of one target.

    Raises:
        DataError: if two tables are of one operator, or of different targets or machines.
    """

    def __init__(self, tables: Sequence[RecordedTable]) -> None:
        self._tables = {table.space.operator.text: table for table in tables}
        if len(self._tables) < len(tables):
            raise DataError("two tables of one operator", expected="one of each")
        machines = sorted({f"{table.host.get('processor')} as {table.target}" for table in tables})
        if len(machines) > 1:
            raise DataError("tables of " + "; ".join(machines), expected="one machine and target")
        self.name = machines[0] if machines else "nothing"

    def space(self, operator: str) -> ScheduleSpace:
        """Returns the space that was recorded of an operator, given as text.

        Raises:
            DataError: if there is no table of it.
        """
        return self._table(operator).space

    def _table(self, operator: str) -> RecordedTable:
        if operator not in self._tables:
            expected = "one of " + "; ".join(sorted(self._tables))
            raise DataError("was not recorded", where=operator, expected=expected)
        return self._tables[operator]

    def measure(self, space: ScheduleSpace, rows: Rows, /) -> ScheduleMeasurement:
        """Returns what was recorded of configurations [n, m] of a space.

        Raises:
            DataError: naming the operator, if one of them was not recorded.
        """
        table = self._table(space.operator.text)
        numbers = self._numbers(table, space, rows)
        columns = {name: column[numbers] for name, column in table.columns.items()}
        if not np.all(columns["measured"]):
            problem = f"configuration {numbers[np.argmin(columns['measured'])]} is not in the table"
            raise DataError(problem, where=space.operator.text, expected="a complete table")
        failed = columns["reason"] > 0
        ran = np.maximum(1, columns["runtime_ns"])
        return ScheduleMeasurement(
            columns["runtime_ns"],
            failed,
            columns["seconds"].astype(np.float64),
            tuple(table.reasons[code - 1] if code else "" for code in columns["reason"].tolist()),
            np.where(failed, 0.0, columns["median_ns"] / ran - 1.0),
            columns["clean"].astype(np.int64),
            np.zeros(len(numbers)),
        )

    @staticmethod
    def _numbers(table: RecordedTable, space: ScheduleSpace, rows: Rows) -> I64:
        full = space.full_rows(rows)
        choices = np.full(full.shape, -1, dtype=np.int64)
        for knob, ids in enumerate(table.space.chosen):
            inverse = np.full(1 + max(int(ids.max()), int(full[:, knob].max(initial=0))), -1, dtype=np.int64)
            inverse[ids] = np.arange(len(ids))
            choices[:, knob] = inverse[full[:, knob]]
        outside = np.any(choices < 0, axis=1)
        if np.any(outside):
            wrong = space.choices(rows[int(np.argmax(outside))])
            raise DataError(f"{wrong} was not recorded", where=space.operator.text, expected="the sub-space")
        return np.array(table.space.numbers(choices), dtype=np.int64)


def read_tables(folder: Path) -> list[RecordedTable]:
    """Returns the tables in a folder, sorted by name.

    Raises:
        DataError: if the folder does not exist or a table in it is damaged.
    """
    if not folder.is_dir():
        raise DataError("no such folder", where=folder, expected="a folder of recorded tables")
    return [read_table(path) for path in sorted(folder.glob(f"*{SUFFIX}")) if path.name[0] != "."]
