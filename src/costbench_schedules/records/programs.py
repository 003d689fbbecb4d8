"""Files of programs: those of one operator as they are recorded, and those of several with estimates of them.

`DrawnPrograms` are programs of one operator, measured for two targets, with the analytical model's features.
One Arrow file for each operator, a row for each program in the order in which they were drawn.

    column         type     unit, meaning
    number         int64    configuration of the unrestricted space, see `ScheduleSpace.rows`
    searched       bool     whether it was drawn from the neighbours of the fastest so far, not at random
    native_ns      int64    runtime on the processor built for itself, minimum over blocks; 0 where it failed
    generic_ns     int64    the same built for the least processor of the family; 0 where it was left out
    clean          uint8    blocks without an interruption, the smaller of both targets' numbers
    again_ns       int64    native runtime, measured again after all others; 0 where it was not
    problem        string   why something is missing; empty if nothing is
    features       binary   `ProgramFeatures.to_bytes` of the native program; empty where they were left out

`EstimatedPrograms` are what a repository keeps of a recording: features of a program take some 10 KB, its
estimates 200 bytes. Folder of a recording that is kept:

    programs.arrow    all programs of all operators, a row each: columns below
    sampled.arrow     features of one program of each operator, from which its estimates follow
    curves.arrow      programs that differ in one tile, where they are recorded; format of programs.arrow
    card.json         machine, how programs were drawn, noise, digests

    column            type         unit, meaning
    operator          int16        position in the list of operators, in the metadata
    number            int64        configuration of the unrestricted space of the operator
    searched          bool         whether it was drawn from the neighbours of the fastest so far
    native_ns         int64        measured for the processor itself; 0 where it failed
    generic_ns        int64        measured for the least processor of the family; 0 where left out
    again_ns          int64        native runtime, measured again; 0 where it was not
    analysed          bool         whether features were taken, which slow programs have not
    NAME              float32      estimates, one column each; 0 without features
    lanes             float32 [k]  executed lanes by kind of operation, see `llvm.operations.KINDS`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from costbench.arrays import F64, AnyArray
from costbench.datasets.arrow_files import UNREADABLE
from costbench.errors import CostbenchError, DataError, one_line
from costbench_schedules.llvm.operations import KINDS
from costbench_schedules.operators.operators import Operator, parse_operator
from costbench_schedules.records.arrow_file import read_arrow, write_arrow

SUFFIX = ".arrow"
CURVES_FOLDER = "curves"
"""Folder of recordings in which one tile changes, inside that of all others."""
VERSION = 1
_KEY = b"costbench.networks"
SLOW = "slow"
"""Problem of a program that takes so many times as long as the fastest that no features were taken."""
_UNREADABLE = (*UNREADABLE, AttributeError, CostbenchError)
_DRAWN_COLUMNS: Mapping[str, tuple[Any, Any]] = {
    "number": (np.int64, pa.int64()),
    "searched": (np.bool_, pa.bool_()),
    "native_ns": (np.int64, pa.int64()),
    "generic_ns": (np.int64, pa.int64()),
    "clean": (np.uint8, pa.uint8()),
    "again_ns": (np.int64, pa.int64()),
}
_DRAWN_SCHEMA = pa.schema(
    [
        *(pa.field(name, kind, nullable=False) for name, (_, kind) in _DRAWN_COLUMNS.items()),
        pa.field("problem", pa.string(), nullable=False),
        pa.field("features", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True, eq=False)
class DrawnPrograms:
    """The n programs of an operator that were measured so far.

    Attributes:
        operator: operator that they compute.
        facts: machine, timing and how programs were drawn, as JSON has them.
        columns: number columns of the file, [n] each.
        problems: reasons why something is missing, empty if nothing is, [n].
        features: `ProgramFeatures.to_bytes`, empty where they were left out, [n].
    """

    operator: Operator
    facts: Mapping[str, Any]
    columns: Mapping[str, AnyArray]
    problems: tuple[str, ...]
    features: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.problems)

    def extended(self, other: DrawnPrograms) -> DrawnPrograms:
        """Returns the programs of both, these first."""
        columns = {
            name: np.concatenate([values, other.columns[name]]) for name, values in self.columns.items()
        }
        return replace(
            self,
            columns=columns,
            problems=self.problems + other.problems,
            features=self.features + other.features,
        )

    def with_column(self, name: str, values: AnyArray) -> DrawnPrograms:
        """Returns the programs with another column."""
        return replace(self, columns={**self.columns, name: values})


def no_programs(operator: Operator, facts: Mapping[str, Any]) -> DrawnPrograms:
    """Returns the table before the first measurement."""
    columns = {name: np.zeros(0, dtype=kind) for name, (kind, _) in _DRAWN_COLUMNS.items()}
    return DrawnPrograms(operator, facts, columns, (), ())


def write_programs(path: Path, programs: DrawnPrograms) -> None:
    """Writes programs atomically; equal programs give equal bytes.

    Raises:
        DataError: naming the file, if it cannot be written.
    """
    facts = {"version": VERSION, "operator": programs.operator.text, **programs.facts}
    arrays = [pa.array(programs.columns[name], kind) for name, (_, kind) in _DRAWN_COLUMNS.items()]
    arrays += [pa.array(programs.problems, pa.string()), pa.array(programs.features, pa.binary())]
    write_arrow(path, _KEY, facts, _DRAWN_SCHEMA, arrays)


def read_programs(path: Path) -> DrawnPrograms:
    """Reads what `write_programs` wrote.

    Raises:
        DataError: naming the file, if it is missing, damaged or of another version.
    """
    expected = f"programs of version {VERSION}, written by `costbench record-networks`"
    try:
        facts, table = read_arrow(path, _KEY)
        if facts.pop("version") != VERSION or not table.schema.equals(_DRAWN_SCHEMA, check_metadata=False):
            raise ValueError("another version")
        operator = parse_operator(facts.pop("operator"))
        columns = {name: table.column(name).to_numpy() for name in _DRAWN_COLUMNS}
        problems = tuple(table.column("problem").to_pylist())
        return DrawnPrograms(operator, facts, columns, problems, tuple(table.column("features").to_pylist()))
    except _UNREADABLE as error:
        raise DataError(f"cannot be read: {one_line(error)}", where=path, expected=expected) from error


PROGRAMS, SAMPLED, CURVES = "programs.arrow", "sampled.arrow", "curves.arrow"
_LANES = "lanes"
_ESTIMATED_COLUMNS: Mapping[str, tuple[Any, Any]] = {
    "operator": (np.int16, pa.int16()),
    "number": (np.int64, pa.int64()),
    "searched": (np.bool_, pa.bool_()),
    "native_ns": (np.int64, pa.int64()),
    "generic_ns": (np.int64, pa.int64()),
    "again_ns": (np.int64, pa.int64()),
    "analysed": (np.bool_, pa.bool_()),
}


@dataclass(frozen=True, eq=False)
class EstimatedPrograms:
    """The n programs of several operators.

    Attributes:
        operators: operators that they compute.
        columns: columns of the file by name, [n] each; `lanes` is [n, len(KINDS)].
        estimates: estimates by name, float64 [n] each.
    """

    operators: tuple[Operator, ...]
    columns: Mapping[str, AnyArray]
    estimates: Mapping[str, F64]

    def __len__(self) -> int:
        return len(self.columns["number"])


def write_estimated(path: Path, programs: EstimatedPrograms) -> None:
    """Writes programs atomically; equal programs give equal bytes.

    Raises:
        DataError: naming the file, if it cannot be written.
    """
    facts = {
        "version": VERSION,
        "operators": [operator.text for operator in programs.operators],
        "estimates": list(programs.estimates),
        "kinds": list(KINDS),
    }
    kinds = {name: kind for name, (_, kind) in _ESTIMATED_COLUMNS.items()} | dict.fromkeys(
        programs.estimates, pa.float32()
    )
    arrays = [pa.array(programs.columns[name], kind) for name, (_, kind) in _ESTIMATED_COLUMNS.items()]
    arrays += [pa.array(values.astype(np.float32)) for values in programs.estimates.values()]
    lanes = programs.columns[_LANES].astype(np.float32)
    arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(lanes.ravel()), lanes.shape[1]))
    fields = [pa.field(name, kind, nullable=False) for name, kind in kinds.items()]
    fields.append(pa.field(_LANES, arrays[-1].type, nullable=False))
    write_arrow(path, _KEY, facts, pa.schema(fields), arrays)


def read_estimated(path: Path) -> EstimatedPrograms:
    """Reads what `write_estimated` wrote.

    Raises:
        DataError: naming the file, if it is missing, damaged or of another version.
    """
    expected = f"programs of version {VERSION}, written by `costbench estimate-networks`"
    try:
        facts, table = read_arrow(path, _KEY)
        if facts["version"] != VERSION or facts["kinds"] != list(KINDS):
            raise ValueError("another version")
        columns = {name: table.column(name).to_numpy() for name in _ESTIMATED_COLUMNS}
        lanes = table.column(_LANES).combine_chunks().flatten().to_numpy()
        columns[_LANES] = lanes.reshape(-1, len(KINDS))
        operators = tuple(parse_operator(text) for text in facts["operators"])
        estimates = {name: table.column(name).to_numpy().astype(np.float64) for name in facts["estimates"]}
    except _UNREADABLE as error:
        raise DataError(f"cannot be read: {one_line(error)}", where=path, expected=expected) from error
    indices = columns["operator"]
    if len(indices) and not 0 <= indices.min() <= indices.max() < len(operators):
        raise DataError("names operators that it does not have", where=path, field="operator")
    return EstimatedPrograms(operators, columns, estimates)
