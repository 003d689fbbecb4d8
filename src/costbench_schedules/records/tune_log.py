"""The log of a live search for a schedule: JSON lines, one per measurement, written as they are made.

The first line says what was searched where; each further one is a measurement. A line is complete or does
not count, so a log can be continued after a crash, a kill or a full disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from io import FileIO
from pathlib import Path
from types import TracebackType

from costbench.artifacts import open_file, parse_json
from costbench.errors import CostbenchError, DataError
from costbench.limits import MAX_LINE_BYTES
from costbench.params import parse
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.space import ScheduleSpace

FORMAT = "costbench schedule log 1"


@dataclass(frozen=True)
class LogHeader:
    """What a log is of.

    Attributes:
        operator: description that `parse_operator` reads.
        restrict: indices of the choices of restricted knobs in the unrestricted space.
        target: target that was built for.
        host: facts of the machine; see `devices.tvm_adapter.HostToolchain`.
        settings: everything else that decides what is tried, such as the seed.
        format: `FORMAT`.
    """

    operator: str
    restrict: Mapping[str, tuple[int, ...]]
    target: str
    host: Mapping[str, object]
    settings: Mapping[str, object] = field(default_factory=dict)
    format: str = FORMAT

    @property
    def space(self) -> ScheduleSpace:
        """Returns the space that was searched. Raises: DataError if there is no such space."""
        return ScheduleSpace(parse_operator(self.operator), self.restrict)


@dataclass(frozen=True)
class LogEntry:
    """One measurement.

    Attributes:
        number: number of the configuration in the space.
        runtime_ns: runtime in ns; None where it failed.
        seconds: seconds that are charged for build and runs.
        spread: median over minimum of the blocks, minus 1.
        clean: number of blocks without interruption.
        reason: reason of the failure, or empty.
    """

    number: int
    runtime_ns: int | None
    seconds: float
    spread: float = 0.0
    clean: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.runtime_ns is None) != bool(self.reason):
            raise ValueError("either a runtime_ns or a reason, expected one of them")
        if self.runtime_ns is not None and self.runtime_ns < 1:
            raise ValueError(f"runtime_ns is {self.runtime_ns}, expected at least 1")
        if self.number < 0 or self.seconds < 0 or self.spread < 0:
            raise ValueError("number, seconds, spread: expected at least 0")


def read_log(path: Path) -> tuple[LogHeader, list[LogEntry]]:
    """Returns header and measurements; a last line that was not completed is left out.

    Raises:
        DataError: naming file, line and field, for a line that is none of a log, or a configuration that is
            not in the space or occurs twice.
    """
    lines = _lines(path)
    number, text = next(lines, (1, b""))
    header = _header(text, path)
    try:
        size = header.space.size
    except CostbenchError as error:
        raise DataError(error.message(), where=f"{path}:1", expected="a space of an operator") from error
    entries: list[LogEntry] = []
    seen: set[int] = set()
    for number, text in lines:
        where = f"{path}:{number}"
        entry = parse(LogEntry, parse_line(text, where, FORMAT), where=where, error=DataError)
        if entry.number >= size or entry.number in seen:
            expected = f"distinct numbers below {size}"
            raise DataError(f"{entry.number}", where=where, field="number", expected=expected)
        seen.add(entry.number)
        entries.append(entry)
    return header, entries


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields the complete lines of a file with their numbers, from 1."""
    with open_file(path) as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES):
            number += 1
            if line.endswith(b"\n"):
                yield number, line
            elif len(line) == MAX_LINE_BYTES:
                raise DataError("a line without end", where=f"{path}:{number}", expected=FORMAT)


@dataclass(frozen=True)
class _CheckedHeader:
    """The fields of a header that are checked one by one."""

    operator: str
    restrict: Mapping[str, tuple[int, ...]]
    target: str
    format: str


def _header(text: bytes, path: Path) -> LogHeader:
    where = f"{path}:1"
    content = parse_line(text, where, FORMAT)
    free: dict[str, Mapping[str, object]] = {}
    for name in ("host", "settings"):
        value = content.pop(name, None) if isinstance(content, dict) else None
        if not isinstance(value, dict):
            raise DataError("no mapping", where=where, field=name, expected=FORMAT)
        free[name] = value
    plain = parse(_CheckedHeader, content, where=where, error=DataError)
    if plain.format != FORMAT:
        raise DataError(f"{plain.format!r}", where=where, field="format", expected=repr(FORMAT))
    return LogHeader(plain.operator, plain.restrict, plain.target, free["host"], free["settings"])


def parse_line(line: bytes, where: str, expected: str) -> object:
    """Returns the value of a line of JSON. Raises: DataError naming the line and what it should be."""
    try:
        return parse_json(line, where)
    except DataError as error:
        raise DataError(f"no JSON: {error.problem}", where=where, expected=expected) from error


def header_of(
    space: ScheduleSpace, target: str, host: Mapping[str, object], settings: Mapping[str, object]
) -> LogHeader:
    """Returns the header of a log of a space; see `LogHeader`."""
    full = ScheduleSpace(space.operator)
    restrict = {
        knob.name: tuple(ids.tolist())
        for knob, ids in zip(full.knobs, space.chosen, strict=True)
        if ids.tolist() != list(range(len(knob.values)))
    }
    return LogHeader(space.operator.text, restrict, target, host, settings)


class LogWriter:
    """Appends measurements to a log; a context manager.

    Args:
        path: path of the log, which is created with its folder or continued after its last complete line.
        header: header that is written first, to a new file.

    Raises:
        DataError: if the file cannot be written.
    """

    def __init__(self, path: Path, header: LogHeader) -> None:
        self._path = path
        with refuse_in_writing(self._path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Read as well: what follows the last line end is cut off.
            self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
            self._end = _complete(path)
            self._file.truncate(self._end)
        if not self._end:
            self._write(asdict(header))

    def append(self, entry: LogEntry) -> None:
        """Writes one measurement, whole or not at all. Raises: DataError naming the file if it is not."""
        self._write(asdict(entry))

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _write(self, content: Mapping[str, object]) -> None:
        data = (json.dumps(content, allow_nan=False) + "\n").encode()
        with refuse_in_writing(self._path):
            self._file.seek(self._end)
            try:
                _write_all(self._file, data)
            except OSError:
                with suppress(OSError):
                    self._file.truncate(self._end)
                raise
            self._end += len(data)


@contextmanager
def refuse_in_writing(path: Path) -> Iterator[None]:
    """Turns what the system says about a file into an error of ours."""
    try:
        yield
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        expected = "a folder with space left; what was written before is kept"
        raise DataError(problem, where=path, expected=expected) from error


def _write_all(file: FileIO, data: bytes) -> None:
    left = memoryview(data)
    while len(left):
        left = left[os.write(file.fileno(), left) :]


def _complete(path: Path) -> int:
    """Returns the number of bytes up to the last line end."""
    with path.open("rb") as stream:
        return sum(len(line) for line in stream if line.endswith(b"\n"))
