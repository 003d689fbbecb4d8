"""Features of the programs of a recorded table, in the format of drawn programs.

The table says how long its programs take; here they are built again and analysed, not measured. It can be
stopped and continued at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from costbench.errors import DataError
from costbench.rng import stream
from costbench_schedules.operators.networks import workload_name
from costbench_schedules.operators.operators import Operator
from costbench_schedules.records.networks.drawn import (
    SUFFIX,
    DrawnPrograms,
    no_programs,
    read_programs,
    write_programs,
)
from costbench_schedules.records.table import RecordedTable
from costbench_schedules.spaces.space import ScheduleSpace, Value

BATCH = 20
"""Programs after which the file is written."""


class AnalysesSchedules(Protocol):
    """What takes the features of schedules."""

    @property
    def host(self) -> Mapping[str, Any]:
        """Returns what the machine is; see `tvm_adapter.Host`."""
        ...

    def features(self, operator: Operator, choices: Mapping[str, Value], target: str, /) -> bytes:
        """Returns `ProgramFeatures.to_bytes` of a schedule that is built for a processor by LLVM's name.

        Raises:
            DataError: if they cannot be taken.
        """
        ...


def analyse_table(
    table: RecordedTable,
    machine: AnalysesSchedules,
    folder: Path,
    most: int,
    on_batch: Callable[[DrawnPrograms], bool],
) -> DrawnPrograms:
    """Takes features of the programs of a table that a folder does not have yet, and writes them.

    Programs that ran come in an order drawn at random, so that the first n are a sample of the table. They
    are built for the processor that the table was measured on, whatever this one is.

    Args:
        table: the measurements; `native_ns` of the result is their `runtime_ns`.
        machine: takes the features.
        folder: of the file `workload_name(operator).arrow`.
        most: programs wanted, those in the file included; 0 for all.
        on_batch: is called with the programs so far after every `BATCH`; the analysis ends where it is false.

    Raises:
        DataError: if the file is of other measurements or cannot be read or written.
    """
    path = folder / f"{workload_name(table.space.operator)}{SUFFIX}"
    facts = {
        "host": machine.host,
        "draw": {"workload": table.workload, "target": table.target, "measured_on": table.host},
    }
    found = _continued(path, table, facts)
    order = stream(0, "analysed rows", table.workload).permutation(np.flatnonzero(~table.failed))
    wanted = order[: most or len(order)]
    while len(found) < len(wanted):
        batch = wanted[len(found) : len(found) + BATCH]
        found = found.extended(_analysed(table, machine, batch, found.facts))
        write_programs(path, found)
        if not on_batch(found):
            break
    return found


def unrestricted_numbers(table: RecordedTable, places: np.ndarray[Any, Any]) -> list[int]:
    """Returns the numbers that rows of a table have in the unrestricted space of its operator."""
    full = table.space.full_rows(table.space.rows(places.tolist()))
    return ScheduleSpace(table.space.operator).numbers(full)


def _continued(path: Path, table: RecordedTable, facts: Mapping[str, Any]) -> DrawnPrograms:
    if not path.exists():
        return no_programs(table.space.operator, facts)
    found = read_programs(path)
    drawn = found.facts.get("draw")
    known = {} if not isinstance(drawn, dict) else drawn
    if (known.get("workload"), known.get("target")) != (table.workload, table.target):
        expected = f"rows of {table.workload} for {table.target}; another folder for another table"
        raise DataError("was taken of something else", where=path, field="draw", expected=expected)
    return found


def _analysed(
    table: RecordedTable, machine: AnalysesSchedules, places: np.ndarray[Any, Any], facts: Mapping[str, Any]
) -> DrawnPrograms:
    target = str(table.host["mcpu"]) if table.target == "native" else table.target
    problems, contents = [], []
    for row in table.space.rows(places.tolist()):
        try:
            contents.append(machine.features(table.space.operator, table.space.choices(row), target))
            problems.append("")
        except DataError as error:
            contents.append(b"")
            problems.append(f"features: {error.problem}")
    count = len(places)
    columns = {
        "number": np.array(unrestricted_numbers(table, places), dtype=np.int64),
        "searched": np.zeros(count, dtype=np.bool_),
        "native_ns": table.columns["runtime_ns"][places].astype(np.int64),
        "generic_ns": np.zeros(count, dtype=np.int64),
        "clean": table.columns["clean"][places].astype(np.uint8),
        "again_ns": np.zeros(count, dtype=np.int64),
    }
    return DrawnPrograms(table.space.operator, facts, columns, tuple(problems), tuple(contents))
