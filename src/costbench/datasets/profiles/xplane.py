"""Reads profiles as `jax.profiler.trace` writes them (`.xplane.pb`): how long each operation ran.

A profile has planes (a device, the host, tables of programs), a plane has lines (a core, a stream, a thread),
a line has events. Events of XLA programs name an instruction of a compiled module, by a statistic (`hlo_op`)
or by their own name:

* TPU: plane `/device:TPU:0`, line `XLA Ops`; the line `XLA Modules` says which program ran when.
* GPU: plane `/device:GPU:0`, a line per stream; an instruction may launch several kernels.
* CPU: plane `/host:CPU`, a line per thread.

The compiled modules themselves are in the plane `/host:metadata`. The format is XLA's
(`xla/tsl/profiler/protobuf/xplane.proto`); no library is needed to read it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from costbench.artifacts import read_bytes
from costbench.datasets.profiles.proto import xplane_pb2
from costbench.errors import DataError, HloError
from costbench.hlo.proto.hlo_pb2 import HloModuleProto
from costbench.hlo.reader import parse_proto
from costbench.hlo.wire import parse_message
from costbench.limits import MAX_MESSAGES

SUFFIX = ".xplane.pb"
_HOST, _DEVICE, _TABLES = "/host:CPU", "/device:", "/host:metadata"
_OPERATIONS, _PROGRAMS = "XLA Ops", "XLA Modules"
_PS_PER_NS = 1000.0
_BYTES_OF_MESSAGE = 3
"""Bytes that a message has at least, on average: an event with its time has eight."""
_WITH_NUMBER = re.compile(r"(.*)\((\d+)\)")
_INSTRUCTION = re.compile(r"%?([\w.\-]+)(?: = .*)?", re.DOTALL)
_EXPECTED = "a profile as jax.profiler.trace writes it (.xplane.pb)"
_Value = str | int | float | bytes


@dataclass(frozen=True, slots=True)
class ProgramId:
    """A program as a profile names it.

    Attributes:
        name: name of its module; empty where events tell only its number.
        number: its number in the process; None where events tell only its name.
    """

    name: str
    number: int | None


@dataclass(frozen=True, eq=False)
class Profile:
    """The operations of one file.

    Attributes:
        path: the file.
        device: name of the device ("TPU v3", "cpu").
        self_ns: program -> instruction -> name of the event -> self time of each run in nanoseconds: that
            of the event without events within it. Runs on all devices are listed one after another.
        modules: compiled modules that the profile holds, by program.
        num_damaged: number of events with a negative time or an unknown name.
    """

    path: Path
    device: str
    self_ns: Mapping[ProgramId, Mapping[str, Mapping[str, tuple[float, ...]]]]
    modules: Mapping[ProgramId, HloModuleProto]
    num_damaged: int


def find_profiles(folder: Path) -> tuple[Path, ...]:
    """Returns the profiles in a folder and below, or the file itself.

    Raises:
        DataError: if there are none.
    """
    paths = (folder,) if folder.is_file() else tuple(sorted(folder.rglob(f"*{SUFFIX}")))
    if not paths:
        raise DataError(
            "no profiles", where=folder, expected=f"the folder of jax.profiler.trace, with *{SUFFIX}"
        )
    return paths


def read_profile(path: Path) -> Profile:
    """Reads one profile.

    Raises:
        DataError: if the file is missing, damaged or no profile, or if no operation of a program ran in it.
    """
    space = xplane_pb2.XSpace()
    try:
        data = read_bytes(path)
        max_messages = max(MAX_MESSAGES, len(data) // _BYTES_OF_MESSAGE)
        parse_message(space, data, where=str(path), max_messages=max_messages)
    except HloError as error:
        raise error.recast(DataError) from error
    except DecodeError as error:
        raise DataError("truncated or damaged", where=path, expected=_EXPECTED) from error
    if not any(plane.name for plane in space.planes):
        raise DataError("no planes", where=path, expected=_EXPECTED)
    planes = [_Plane(plane) for plane in space.planes]
    devices = [plane for plane in planes if plane.name.startswith(_DEVICE) and plane.runs()]
    devices = devices or [plane for plane in planes if plane.name == _HOST and plane.runs()]
    if not devices:
        expected = "operations of XLA programs; let the trace end after jax.block_until_ready"
        raise DataError("no operation ran", where=path, expected=expected)
    runs: dict[ProgramId, dict[str, dict[str, list[float]]]] = {}
    for plane in devices:
        for run in plane.runs():
            names = runs.setdefault(run.program, {}).setdefault(run.instruction, {})
            names.setdefault(run.event, []).append(run.self_ps / _PS_PER_NS)
    return Profile(
        path=path,
        device=devices[0].device,
        self_ns={
            program: {
                instruction: {name: tuple(times) for name, times in names.items()}
                for instruction, names in instructions.items()
            }
            for program, instructions in runs.items()
        },
        modules={program: proto for plane in planes for program, proto in _modules(plane, path)},
        num_damaged=sum(plane.num_damaged for plane in devices),
    )


@dataclass(slots=True)
class _Run:
    """One event of a line: an instruction of a program that ran once; times in picoseconds."""

    program: ProgramId
    instruction: str
    event: str
    start_ps: int
    end_ps: int
    self_ps: float = 0.0


class _Plane:
    """A plane with its names resolved.

    Attributes:
        name: name of the plane.
        num_damaged: number of events that were passed over, once `runs` was called.
    """

    def __init__(self, plane: xplane_pb2.XPlane) -> None:
        self._plane, self.name, self.num_damaged = plane, plane.name, 0
        self._stat_names = {number: stat.name for number, stat in plane.stat_metadata.items()}
        self._of_event: dict[int, dict[str, _Value]] = {}
        self._runs: list[_Run] | None = None

    @property
    def event_metadata(self) -> Iterable[xplane_pb2.XEventMetadata]:
        """Names and statistics of its kinds of events."""
        return self._plane.event_metadata.values()

    @property
    def device(self) -> str:
        """Name of the device: its type where the profile says it, otherwise the kind of the plane."""
        kind = self.stats(self._plane.stats).get("device_type_string")
        return str(kind or self.name.removeprefix(_DEVICE).removeprefix("/host:").split(":")[0].lower())

    def stats(self, stats: Iterable[xplane_pb2.XStat]) -> dict[str, _Value]:
        """Returns statistics by name; references are resolved."""
        values: dict[str, _Value] = {}
        for stat in stats:
            kind = stat.WhichOneof("value")
            if kind is not None:
                value = getattr(stat, kind)
                values[self._stat_names.get(stat.metadata_id, "")] = (
                    self._stat_names.get(value, "") if kind == "ref_value" else value
                )
        return values

    def runs(self) -> list[_Run]:
        """Returns the runs of operations on all lines, with their self times."""
        if self._runs is None:
            lines = [line for line in self._plane.lines if line.name == _OPERATIONS] or list(
                self._plane.lines
            )
            schedule = self._schedule()
            self._runs = []
            for line in lines:
                on_line = sorted(self._on_line(line, schedule), key=lambda run: (run.start_ps, -run.end_ps))
                _subtract_nested(on_line)
                self._runs += on_line
        return self._runs

    def _schedule(self) -> tuple[list[int], list[tuple[int, ProgramId]]]:
        """Returns when programs began, ascending, and with each its end and the program."""
        spans = []
        for line in self._plane.lines:
            if line.name == _PROGRAMS:
                for event in line.events:
                    start = line.timestamp_ns * 1000 + event.offset_ps
                    name = self._plane.event_metadata[event.metadata_id].name
                    spans.append((start, start + event.duration_ps, _program_id(name)))
        spans.sort(key=lambda span: span[:2])
        return [span[0] for span in spans], [span[1:] for span in spans]

    def _on_line(
        self, line: xplane_pb2.XLine, schedule: tuple[list[int], list[tuple[int, ProgramId]]]
    ) -> Iterator[_Run]:
        is_operations = line.name == _OPERATIONS
        origin_ps = line.timestamp_ns * 1000
        for event in line.events:
            if event.metadata_id not in self._plane.event_metadata:
                self.num_damaged += 1
                continue
            metadata = self._plane.event_metadata[event.metadata_id]
            if event.metadata_id not in self._of_event:
                self._of_event[event.metadata_id] = self.stats(metadata.stats)
            stats = self._of_event[event.metadata_id] | self.stats(event.stats)
            name = stats.get("hlo_op") or (is_operations and (metadata.display_name or metadata.name))
            match = _INSTRUCTION.fullmatch(str(name)) if name else None
            if match is None:
                continue
            start_ps = origin_ps + event.offset_ps
            if event.offset_ps < 0 or event.duration_ps < 0:
                self.num_damaged += 1
                continue
            program = _program_of(stats) or _program_at(schedule, start_ps)
            yield _Run(program, match[1], metadata.name, start_ps, start_ps + event.duration_ps)


def _subtract_nested(runs: Sequence[_Run]) -> None:
    """Sets the self time of runs on one line, in order of their starts, those around others first."""
    around: list[_Run] = []
    for run in runs:
        run.self_ps = float(run.end_ps - run.start_ps)
        while around and around[-1].end_ps <= run.start_ps:
            around.pop()
        if around:
            around[-1].self_ps -= min(run.end_ps, around[-1].end_ps) - run.start_ps
        around.append(run)


def _program_id(text: str) -> ProgramId:
    match = _WITH_NUMBER.fullmatch(text)
    return ProgramId(match[1], int(match[2])) if match else ProgramId(text, None)


def _program_of(stats: Mapping[str, _Value]) -> ProgramId | None:
    """Returns the program that the statistics of an event name."""
    number, name = stats.get("program_id"), str(stats.get("hlo_module", ""))
    if isinstance(number, str):
        number = int(number) if number.isdigit() else None
    if number is None and not name:
        return None
    return ProgramId(name, None if number is None else int(number))


def _program_at(schedule: tuple[list[int], list[tuple[int, ProgramId]]], start_ps: int) -> ProgramId:
    """Returns the program that ran at a time, by the line of programs."""
    starts, spans = schedule
    index = bisect_right(starts, start_ps) - 1
    return spans[index][1] if index >= 0 and start_ps <= spans[index][0] else ProgramId("", None)


def _modules(plane: _Plane, path: Path) -> Iterator[tuple[ProgramId, HloModuleProto]]:
    if plane.name != _TABLES:
        return
    for metadata in plane.event_metadata:
        for value in plane.stats(metadata.stats).values():
            if isinstance(value, bytes):
                yield _program_id(metadata.name), parse_proto(value, where=f"{path}: {metadata.name}")
