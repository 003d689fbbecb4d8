"""What is read from tuning records of others, whatever wrote them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costbench.artifacts import open_file
from costbench.errors import DataError
from costbench.limits import MAX_LINE_BYTES
from costbench_schedules.operators.operators import Operator
from costbench_schedules.records.tune_log import parse_line
from costbench_schedules.spaces.space import ScheduleSpace, Value

_NS = 1e9
_LONGEST_S = 1e6
_RECORD = "a record in JSON"


@dataclass(frozen=True)
class ImportedRecord:
    """One measurement of others.

    Attributes:
        workload: as the file names it, with shapes.
        target: target that was built for, as the file has it.
        runtime_ns: mean of the recorded runs; None where it failed.
        reason: reason of the failure, or empty.
        operator: ours with these shapes; None without one.
        choices: schedule in our space; None where its decisions have no counterpart.
        unmapped: reason for which `choices` is None, or empty.
    """

    workload: str
    target: str
    runtime_ns: float | None
    reason: str = ""
    operator: Operator | None = None
    choices: Mapping[str, Value] | None = None
    unmapped: str = ""


class UnmappedError(Exception):
    """A schedule has no counterpart in our space; the message is the reason."""


def json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields `file:line` and the value of each line that is not empty, one at a time.

    Raises:
        DataError: naming file and line, if one is no JSON or longer than 16 MiB, or the file cannot be read.
    """
    with open_file(path) as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES):
            number += 1
            where = f"{path}:{number}"
            if len(line) == MAX_LINE_BYTES:
                raise DataError("a line of 16 MiB", where=where, expected=_RECORD)
            if line.strip():
                yield where, parse_line(line, where, _RECORD)


def mean_ns(seconds: object, where: str, field: str) -> float | None:
    """Returns the mean of recorded seconds in ns; None for an empty list or times that stand for a failure.

    Raises:
        DataError: for anything but a list of numbers above 0.
    """
    if not isinstance(seconds, list):
        raise DataError("no times", where=where, field=field, expected="a list of seconds")
    for value in seconds:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise DataError(f"{str(value)[:40]!r}", where=where, field=field, expected="seconds above 0")
    # Both tools write 1e9 or 1e10 seconds for a schedule that did not run.
    if not seconds or max(seconds) > _LONGEST_S:
        return None
    return math.fsum(seconds) / len(seconds) * _NS


def tensor(value: object, where: str, field: str) -> tuple[str, tuple[int, ...]]:
    """Returns data type and shape of ["TENSOR", dtype, shape] or ["TENSOR", shape, dtype].

    Raises:
        DataError: for anything else.
    """
    if isinstance(value, list) and len(value) == 3 and value[0] == "TENSOR":
        shape, dtype = (value[1], value[2]) if isinstance(value[1], list) else (value[2], value[1])
        if isinstance(dtype, str) and isinstance(shape, list) and all(_is_extent(extent) for extent in shape):
            return dtype, tuple(shape)
    raise DataError(f"{str(value)[:60]!r}", where=where, field=field, expected='["TENSOR", shape, type]')


def _is_extent(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def text_of(name: str, tensors: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    """Returns a workload as a line of text."""
    return f"{name}({', '.join(f'{dtype}{list(shape)}' for dtype, shape in tensors)})"


def checked(operator: Operator, choices: Mapping[str, Value]) -> Mapping[str, Value]:
    """Returns choices that are in the operator's space.

    Raises:
        UnmappedError: if they are not.
    """
    try:
        ScheduleSpace(operator).row_of(choices)
    except DataError as error:
        raise UnmappedError(f"not in our space: {error.field}: {error.problem}") from error
    return choices
