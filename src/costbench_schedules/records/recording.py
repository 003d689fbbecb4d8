"""Records whole sub-spaces on the machine at hand; can be stopped and continued at any time.

Configurations are measured in a random order, so that a drift of the machine does not look like an effect of
a knob. After every batch the table is written, and some configurations that were measured before are measured
again: two anchors, always the same, and some at random. In the end the fastest and some random ones follow,
apart from everything else. Their rank correlation with the first measurement says what the table is worth.
On a machine with slow spells, further passes and rounds at other times make it worth more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from costbench.arrays import I64, AnyArray
from costbench.errors import DataError
from costbench.rng import stream
from costbench_schedules.devices.device import CpuDevice, ScheduleMeasurement
from costbench_schedules.devices.process import Limits
from costbench_schedules.devices.timing import TimingSpec
from costbench_schedules.records.agreement import fastest_numbers
from costbench_schedules.records.arrow_file import as_json
from costbench_schedules.records.table import (
    AFTERWARDS,
    ANOTHER_PASS,
    SUFFIX,
    WHILE_RECORDING,
    RecordedTable,
    empty_table,
    read_table,
    write_table,
)
from costbench_schedules.spaces.space import ScheduleSpace

_ANCHORS = 2
_AGAIN = 3
_CONFIRMED = 60


@dataclass(frozen=True)
class RecordingSpec:
    """What is recorded.

    Attributes:
        folder: folder of the tables `folder`/TARGET/WORKLOAD.arrow.
        target: see `CpuDevice`.
        timing: length and number of measurements.
        limits: limits of one schedule.
        batch: number of configurations after which the table is written.
        passes: how often every configuration is measured; the fastest time counts.
        rounds: how often the fastest and some others are measured again afterwards, to know the noise.
        seed: seed of the order.
        max_seconds: seconds after which recording stops at the end of a batch.
    """

    folder: Path
    target: str = "native"
    timing: TimingSpec = field(default_factory=TimingSpec)
    limits: Limits = field(default_factory=Limits)
    batch: int = 50
    passes: int = 1
    rounds: int = 1
    seed: int = 0
    max_seconds: float = math.inf


def table_path(spec: RecordingSpec, workload: str) -> Path:
    """Returns where a workload's table goes."""
    return spec.folder / spec.target / f"{workload}{SUFFIX}"


def record(
    spec: RecordingSpec, workload: str, space: ScheduleSpace, on_batch: Callable[[RecordedTable], None]
) -> RecordedTable:
    """Measures what a workload's table does not have yet, and writes the table.

    Args:
        spec: settings of the recording.
        workload: name of the operator, and of the file.
        space: sub-space that is recorded.
        on_batch: function of the table so far that is called after each batch.

    Returns:
        the table, complete unless time ran out.

    Raises:
        DataError: if the file is another sub-space's or another machine's, cannot be written, or the machine
            is too busy.
        ChoiceError: for an unknown target.
        KeyboardInterrupt: passed on; what was measured before the last batch is in the file.
    """
    path = table_path(spec, workload)
    begin = time.monotonic()
    with CpuDevice(spec.target, spec.timing, spec.limits) as device:
        device.check_target()
        table = _start(
            spec, path, empty_table(workload, space, spec.target, device.host, asdict(spec.timing))
        )
        for continued in _steps(spec, device, table):
            table = continued
            write_table(path, table)
            on_batch(table)
            if time.monotonic() - begin > spec.max_seconds:
                break
    return table


def _steps(spec: RecordingSpec, device: CpuDevice, table: RecordedTable) -> Iterator[RecordedTable]:
    """Yields the table after each batch of what it lacks: all once, further passes, rounds afterwards."""
    order = stream(spec.seed, "record", table.space.operator.text, spec.target).permutation(len(table))
    for chosen in _batches(order[~table.columns["measured"][order]], spec.batch):
        table = _with(table, chosen, _measured(device, table.space, chosen))
        table = _again(spec, device, table, order)
        yield table
    ran = order[~table.failed[order]]
    for passes in range(1, spec.passes):
        for chosen in _batches(ran[_times_measured(table, ANOTHER_PASS)[ran] < passes], spec.batch):
            table = _passed_again(device, table, chosen)
            yield table
    for rounds in range(spec.rounds):
        again = _confirmed_numbers(spec, table)
        left = again[_times_measured(table, AFTERWARDS)[again] <= rounds]
        if len(left):
            table = _repeated(device, table, left.tolist(), AFTERWARDS)
            yield table


def _batches(numbers: I64, size: int) -> list[I64]:
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


def _start(spec: RecordingSpec, path: Path, fresh: RecordedTable) -> RecordedTable:
    """Returns the table that is continued, or the empty one."""
    if not path.exists():
        return fresh
    table = read_table(path)
    same = {
        "restrict": [ids.tolist() for ids in table.space.chosen]
        == [ids.tolist() for ids in fresh.space.chosen],
        "operator": table.space.operator.text == fresh.space.operator.text,
        "host": dict(table.host) == as_json(fresh.host),
        "timing": dict(table.timing) == dict(fresh.timing),
    }
    for name, equal in same.items():
        if not equal:
            expected = f"the same {name}; another folder for another recording"
            raise DataError("was recorded otherwise", where=path, field=name, expected=expected)
    return table


def _measured(device: CpuDevice, space: ScheduleSpace, numbers: I64) -> ScheduleMeasurement:
    return device.measure(space, space.rows(numbers.tolist()))


def _columns_of(measurement: ScheduleMeasurement) -> dict[str, AnyArray]:
    """Returns what a table has of a measurement, but whether and why it failed."""
    medians = np.round(measurement.runtime_ns * (1.0 + measurement.spread)).astype(np.int64)
    return {
        "runtime_ns": measurement.runtime_ns,
        "median_ns": medians,
        "clean": np.minimum(measurement.clean, 255),
        "seconds": measurement.run_seconds,
    }


def _with(table: RecordedTable, numbers: I64, measurement: ScheduleMeasurement) -> RecordedTable:
    columns = {name: column.copy() for name, column in table.columns.items()}
    columns["measured"][numbers] = True
    for name, column in _columns_of(measurement).items():
        columns[name][numbers] = column
    failures = {
        int(number): reason for number, reason in zip(numbers, measurement.reasons, strict=True) if reason
    }
    return replace(table, columns=columns).with_reasons(failures)


def _again(spec: RecordingSpec, device: CpuDevice, table: RecordedTable, order: I64) -> RecordedTable:
    """Measures the anchors and some random configurations a second time."""
    ran = table.columns["measured"] & ~table.failed
    known = order[ran[order]]
    rng = stream(spec.seed, "repeat", table.space.operator.text, spec.target, table.num_measured)
    random = rng.choice(known, size=min(_AGAIN, len(known)), replace=False)
    return _repeated(device, table, [*known[:_ANCHORS].tolist(), *random.tolist()], WHILE_RECORDING)


def _confirmed_numbers(spec: RecordingSpec, table: RecordedTable) -> I64:
    """Returns the fastest configurations and some random ones, which are measured after everything else."""
    known = np.flatnonzero(table.columns["measured"] & ~table.failed)
    fastest = fastest_numbers(table)
    rng = stream(spec.seed, "confirm", table.space.operator.text, spec.target)
    others = np.setdiff1d(known, fastest)
    random = rng.choice(others, size=min(_CONFIRMED, len(others)), replace=False)
    return rng.permutation(np.concatenate([fastest, random]))


def _times_measured(table: RecordedTable, round_number: int) -> I64:
    """Returns how often each configuration was measured again in a round, int64 [n]."""
    numbers = table.repeats[table.repeats[:, 3] == round_number, 0]
    return np.bincount(numbers, minlength=len(table))


def _passed_again(device: CpuDevice, table: RecordedTable, numbers: I64) -> RecordedTable:
    """Measures configurations in another pass, whose faster times are the table's."""
    measurement = _measured(device, table.space, numbers)
    faster = ~measurement.failed & (measurement.runtime_ns < table.columns["runtime_ns"][numbers])
    columns = {name: column.copy() for name, column in table.columns.items()}
    for name, column in _columns_of(measurement).items():
        columns[name][numbers[faster]] = column[faster]
    return _with_repeats(replace(table, columns=columns), numbers, measurement, ANOTHER_PASS)


def _repeated(
    device: CpuDevice, table: RecordedTable, numbers: Sequence[int], round_number: int
) -> RecordedTable:
    again = np.array(numbers, dtype=np.int64)
    return _with_repeats(table, again, _measured(device, table.space, again), round_number)


def _with_repeats(
    table: RecordedTable, numbers: I64, measurement: ScheduleMeasurement, round_number: int
) -> RecordedTable:
    rows = np.full((len(numbers), 4), (0, 0, table.num_measured, round_number), dtype=np.int64)
    rows[:, 0], rows[:, 1] = numbers, measurement.runtime_ns
    return replace(table, repeats=np.concatenate([table.repeats, rows]))
