"""Records whole sub-spaces on the machine at hand; can be stopped and continued at any time.

Configurations are measured in a random order, so that a drift of the machine does not look like an effect of
a knob. After every batch the table is written, and some configurations that were measured before are measured
again: two anchors, always the same, and some at random. In the end the fastest and some random ones follow,
apart from everything else. Their rank correlation with the first measurement says what the table is worth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from costbench.arrays import I64
from costbench.errors import DataError
from costbench.rng import stream
from costbench_schedules.devices.device import CpuDevice, ScheduleMeasurement
from costbench_schedules.devices.process import Limits
from costbench_schedules.devices.timing import TimingSpec
from costbench_schedules.records.agreement import fastest_numbers
from costbench_schedules.records.arrow_file import as_json
from costbench_schedules.records.table import (
    AFTERWARDS,
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
        seed: seed of the order.
        max_seconds: seconds after which recording stops at the end of a batch; 0 for none.
    """

    folder: Path
    target: str = "native"
    timing: TimingSpec = field(default_factory=TimingSpec)
    limits: Limits = field(default_factory=Limits)
    batch: int = 50
    seed: int = 0
    max_seconds: float = 0.0


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
        KeyboardInterrupt: passed on; what was measured before the last batch is in the file.
    """
    path = table_path(spec, workload)
    begin = time.monotonic()
    with CpuDevice(spec.target, spec.timing, spec.limits) as device:
        table = _start(
            spec, path, empty_table(workload, space, spec.target, device.host, asdict(spec.timing))
        )
        order = stream(spec.seed, "record", space.operator.text, spec.target).permutation(space.size)
        left = order[~table.columns["measured"][order]]
        for start in range(0, len(left), spec.batch):
            if spec.max_seconds and time.monotonic() - begin > spec.max_seconds:
                return table
            chosen = left[start : start + spec.batch]
            table = _with(table, chosen, _measured(device, space, chosen))
            table = _again(spec, device, table, order)
            write_table(path, table)
            on_batch(table)
        if not np.any(table.repeats[:, 3] == AFTERWARDS):
            table = _confirm(spec, device, table)
            write_table(path, table)
            on_batch(table)
    return table


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


def _with(table: RecordedTable, numbers: I64, measurement: ScheduleMeasurement) -> RecordedTable:
    columns = {name: column.copy() for name, column in table.columns.items()}
    columns["measured"][numbers] = True
    columns["runtime_ns"][numbers] = measurement.runtime_ns
    columns["median_ns"][numbers] = np.round(measurement.runtime_ns * (1.0 + measurement.spread)).astype(
        np.int64
    )
    columns["clean"][numbers] = np.minimum(measurement.clean, 255)
    columns["seconds"][numbers] = measurement.run_seconds
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


def _confirm(spec: RecordingSpec, device: CpuDevice, table: RecordedTable) -> RecordedTable:
    """Measures the fastest and some random configurations again after everything else."""
    known = np.flatnonzero(table.columns["measured"] & ~table.failed)
    fastest = fastest_numbers(table)
    rng = stream(spec.seed, "confirm", table.space.operator.text, spec.target)
    others = np.setdiff1d(known, fastest)
    random = rng.choice(others, size=min(_CONFIRMED, len(others)), replace=False)
    return _repeated(device, table, rng.permutation(np.concatenate([fastest, random])).tolist(), AFTERWARDS)


def _repeated(
    device: CpuDevice, table: RecordedTable, numbers: Sequence[int], round_number: int
) -> RecordedTable:
    measurement = _measured(device, table.space, np.array(numbers, dtype=np.int64))
    rows = [
        (number, runtime, table.num_measured, round_number)
        for number, runtime in zip(numbers, measurement.runtime_ns.tolist(), strict=True)
    ]
    repeats = np.concatenate([table.repeats, np.array(rows, dtype=np.int64).reshape(-1, 4)])
    return replace(table, repeats=repeats)
