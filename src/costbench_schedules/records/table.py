"""A recorded table: the measurements of all configurations of a sub-space on one machine, or of a part of it.

One Arrow file, a row per configuration in order of number, so configurations are not stored: number i of the
sub-space is row i. Programs are not stored either, they follow from the configuration.

    column          type     unit, meaning
    measured        bool     whether the row has been measured
    runtime_ns      int64    minimum over blocks of runs, processor time; 0 where it failed
    median_ns       int64    their median
    clean           uint8    blocks without an involuntary context switch; 0: all blocks were interrupted
    reason          uint8    0 if it ran, else 1 + position in `reasons`
    seconds         float32  processor time of build and runs; until it failed, elapsed time

What was measured again is in the metadata: `repeats`, lists [number, runtime_ns, rows measured before it,
round]. Round 0 is while recording and round 1 after it, to know the noise. Round 2 is another pass over all
configurations, for machines with slow spells: `runtime_ns` is the least of all passes. `ReplayDevice`
answers from recorded tables, with the interface of the machine they were recorded on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from costbench.arrays import F64, I64, AnyArray, Bool
from costbench.errors import CostbenchError, DataError, one_line
from costbench_schedules.devices.device import Rows, ScheduleMeasurement
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.arrow_file import read_arrow, write_arrow
from costbench_schedules.spaces.space import ScheduleSpace

SUFFIX = ".arrow"
ESTIMATES = "estimates"
"""Folder beside tables, of what the analytical model says of their programs; no tables lie in it."""
VERSION = 1
WHILE_RECORDING, AFTERWARDS, ANOTHER_PASS = 0, 1, 2
"""Rounds of repeated measurements; those of another pass are part of the first measurement."""
_KEY = b"costbench.schedules"
_COLUMNS: Mapping[str, tuple[Any, Any]] = {
    "measured": (np.bool_, pa.bool_()),
    "runtime_ns": (np.int64, pa.int64()),
    "median_ns": (np.int64, pa.int64()),
    "clean": (np.uint8, pa.uint8()),
    "reason": (np.uint8, pa.uint8()),
    "seconds": (np.float32, pa.float32()),
}
_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, (_, kind) in _COLUMNS.items()])
_FACTS = ("version", "workload", "operator", "restrict", "target", "host", "timing", "reasons", "repeats")
_MAX_REASONS = 255
_OTHER = "other"


@dataclass(frozen=True, eq=False)
class RecordedTable:
    """Measurements of the n configurations of a sub-space.

    Attributes:
        workload: name of the workload.
        space: sub-space that was recorded.
        target: target that code was built for, see `CpuDevice`.
        host: facts of the machine: processor, architecture, mcpu, features, versions.
        timing: length and number of measurements, see `TimingSpec`.
        reasons: reasons for which configurations failed.
        repeats: repeated measurements, int64 [r, 4], see above.
        columns: arrays of the file by name, [n] each.
    """

    workload: str
    space: ScheduleSpace
    target: str
    host: Mapping[str, Any]
    timing: Mapping[str, int]
    reasons: tuple[str, ...]
    repeats: I64
    columns: Mapping[str, AnyArray]

    def __len__(self) -> int:
        return self.space.size

    @property
    def num_measured(self) -> int:
        """Returns how many rows have been measured."""
        return int(np.count_nonzero(self.columns["measured"]))

    @property
    def complete(self) -> bool:
        """Returns whether all rows have been measured."""
        return self.num_measured == len(self)

    @property
    def failed(self) -> Bool:
        """Returns which configurations failed, bool [n]."""
        return np.asarray(self.columns["reason"] > 0)

    @property
    def later(self) -> I64:
        """Returns the repeats that ran and are no part of the first measurement, int64 [k, 4]."""
        chosen = (self.repeats[:, 1] > 0) & (self.repeats[:, 3] != ANOTHER_PASS)
        return np.asarray(self.repeats[chosen])

    @property
    def gflops(self) -> F64:
        """Returns floating-point operations per nanosecond, float64 [n]; 0 without a runtime."""
        runtime = self.columns["runtime_ns"]
        rate = self.space.operator.flops / np.maximum(1, runtime)
        return np.where(runtime > 0, rate, 0.0)

    def unrestricted_numbers(self, indices: I64) -> list[int]:
        """Returns the numbers that some rows have in the unrestricted space of the operator."""
        full = self.space.full_rows(self.space.rows(indices.tolist()))
        return ScheduleSpace(self.space.operator).numbers(full)

    def with_reasons(self, failures: Mapping[int, str]) -> RecordedTable:
        """Returns the table with these rows failed, by number, with their reasons."""
        reasons, column = list(self.reasons), self.columns["reason"].copy()
        for number, reason in failures.items():
            if reason not in reasons:
                reason = reason if len(reasons) < _MAX_REASONS - 1 else _OTHER
            if reason not in reasons:
                reasons.append(reason)
            column[number] = 1 + reasons.index(reason)
        return replace(self, reasons=tuple(reasons), columns={**self.columns, "reason": column})


def table_paths(folder: Path) -> list[Path]:
    """Returns the files of the tables in a folder and its sub-folders, sorted."""
    paths = folder.rglob(f"*{SUFFIX}")
    return sorted(path for path in paths if path.name[0] != "." and path.parent.name != ESTIMATES)


def empty_table(
    workload: str, space: ScheduleSpace, target: str, host: Mapping[str, Any], timing: Mapping[str, int]
) -> RecordedTable:
    """Returns a table in which nothing has been measured."""
    columns = {name: np.zeros(space.size, dtype=kind) for name, (kind, _) in _COLUMNS.items()}
    repeats = np.zeros((0, 4), dtype=np.int64)
    return RecordedTable(workload, space, target, dict(host), dict(timing), (), repeats, columns)


def write_table(path: Path, table: RecordedTable) -> None:
    """Writes a table atomically; equal tables give equal bytes.

    Raises:
        DataError: naming the file, if it cannot be written.
    """
    facts = {
        "version": VERSION,
        "workload": table.workload,
        "operator": table.space.operator.text,
        "restrict": {
            knob.name: ids.tolist() for knob, ids in zip(table.space.knobs, table.space.chosen, strict=True)
        },
        "target": table.target,
        "host": table.host,
        "timing": table.timing,
        "reasons": list(table.reasons),
        "repeats": table.repeats.tolist(),
    }
    arrays = [pa.array(table.columns[name], kind) for name, (_, kind) in _COLUMNS.items()]
    write_arrow(path, _KEY, facts, _SCHEMA, arrays)


def read_table(path: Path) -> RecordedTable:
    """Reads a table and checks it.

    Raises:
        DataError: naming the file, if it is missing, damaged, of another version, or holds what cannot be.
    """
    try:
        facts, arrow = read_arrow(path, _KEY)
        columns = {name: arrow.column(name).to_numpy() for name in _COLUMNS}
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        problem = one_line(error)
        raise DataError(f"cannot be read: {problem}", where=path, expected="a recorded table") from error
    if (
        any(key not in facts for key in _FACTS)
        or facts["version"] != VERSION
        or not arrow.schema.equals(_SCHEMA, check_metadata=False)
    ):
        raise DataError(
            "is of another version", where=path, expected=f"a recorded table of version {VERSION}"
        )
    try:
        table = RecordedTable(
            str(facts["workload"]),
            ScheduleSpace(parse_operator(facts["operator"]), facts["restrict"]),
            str(facts["target"]),
            dict(facts["host"]),
            dict(facts["timing"]),
            tuple(str(reason) for reason in facts["reasons"]),
            np.array(facts["repeats"], dtype=np.int64).reshape(-1, 4),
            columns,
        )
    except CostbenchError as error:
        raise DataError(error.message(), where=path, field="restrict") from error
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        problem = f"facts that cannot be: {one_line(error)}"
        raise DataError(problem, where=path, expected="a recorded table") from error
    _check(table, path)
    return table


def _check(table: RecordedTable, path: Path) -> None:
    columns = table.columns
    if len(columns["measured"]) != len(table):
        raise DataError(f"{len(columns['measured'])} rows", where=path, expected=str(len(table)))
    ran = columns["measured"] & ~table.failed
    checks = {
        "runtime_ns": np.all(columns["runtime_ns"][ran] > 0) and not np.any(columns["runtime_ns"][~ran]),
        "median_ns": np.all(columns["median_ns"] >= columns["runtime_ns"]),
        "reason": np.all(columns["reason"] <= len(table.reasons)),
        "seconds": np.all(np.isfinite(columns["seconds"])) and np.all(columns["seconds"] >= 0),
        "repeats": np.all((table.repeats[:, 0] >= 0) & (table.repeats[:, 0] < len(table))),
    }
    for field, good in checks.items():
        if not good:
            raise DataError("values that cannot be measurements", where=path, field=field)


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
