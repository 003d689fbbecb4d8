"""Programs of one operator, measured for two targets, with the analytical model's features.

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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from costbench.arrays import AnyArray
from costbench.errors import CostbenchError, DataError
from costbench_schedules.operators.operators import Operator, parse_operator
from costbench_schedules.records.networks.arrow_file import read_arrow, write_arrow

SUFFIX = ".arrow"
CURVES_FOLDER = "curves"
"""Folder of recordings in which one tile changes, inside that of all others."""
VERSION = 1
SLOW = "slow"
"""Problem of a program that takes so many times as long as the fastest that no features were taken."""
_NUMBERS: Mapping[str, tuple[Any, Any]] = {
    "number": (np.int64, pa.int64()),
    "searched": (np.bool_, pa.bool_()),
    "native_ns": (np.int64, pa.int64()),
    "generic_ns": (np.int64, pa.int64()),
    "clean": (np.uint8, pa.uint8()),
    "again_ns": (np.int64, pa.int64()),
}
_SCHEMA = pa.schema(
    [
        *(pa.field(name, kind, nullable=False) for name, (_, kind) in _NUMBERS.items()),
        pa.field("problem", pa.string(), nullable=False),
        pa.field("features", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True, eq=False)
class DrawnPrograms:
    """The n programs of an operator that were measured so far.

    Attributes:
        operator: what they compute.
        facts: machine, timing and how programs were drawn, as JSON has them.
        columns: number columns of the file, [n] each.
        problems: [n].
        features: [n].
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
        columns = {name: np.concatenate([own, other.columns[name]]) for name, own in self.columns.items()}
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
    columns = {name: np.zeros(0, dtype=kind) for name, (kind, _) in _NUMBERS.items()}
    return DrawnPrograms(operator, facts, columns, (), ())


def write_programs(path: Path, found: DrawnPrograms) -> None:
    """Writes programs atomically; equal programs give equal bytes.

    Raises:
        DataError: naming the file, if it cannot be written.
    """
    facts = {"version": VERSION, "operator": found.operator.text, **found.facts}
    arrays = [pa.array(found.columns[name], kind) for name, (_, kind) in _NUMBERS.items()]
    arrays += [pa.array(found.problems, pa.string()), pa.array(found.features, pa.binary())]
    write_arrow(path, facts, _SCHEMA, arrays)


def read_programs(path: Path) -> DrawnPrograms:
    """Reads what `write_programs` wrote.

    Raises:
        DataError: naming the file, if it is missing, damaged or of another version.
    """
    expected = f"programs of version {VERSION}, written by `costbench record-networks`"
    try:
        facts, found = read_arrow(path)
        if facts.pop("version") != VERSION or not found.schema.equals(_SCHEMA, check_metadata=False):
            raise ValueError("another version")
        operator = parse_operator(facts.pop("operator"))
        columns = {name: found.column(name).to_numpy() for name in _NUMBERS}
        problems = tuple(found.column("problem").to_pylist())
        return DrawnPrograms(operator, facts, columns, problems, tuple(found.column("features").to_pylist()))
    except (OSError, ValueError, KeyError, AttributeError, pa.ArrowException, CostbenchError) as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"cannot be read: {problem}", where=path, expected=expected) from error
