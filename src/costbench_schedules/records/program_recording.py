"""Records programs of operators on the machine at hand, or takes features of those of a recorded table.

Half of an operator's schedules are drawn uniformly, half by a short evolutionary search: neighbours and
crossovers of the fastest so far. Random schedules alone are all slow, and those of a search all alike. A
recorded table says how long its programs take; they are built again and analysed, not measured. Both can be
stopped and continued at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from costbench.arrays import I64, Bool
from costbench.artifacts import digest_bytes
from costbench.errors import DataError
from costbench.rng import stream
from costbench.search.space import Seen
from costbench_schedules.devices.device import ScheduleDevice
from costbench_schedules.devices.timing import TimingSpec
from costbench_schedules.operators.networks import workload_name
from costbench_schedules.operators.operators import Operator
from costbench_schedules.records.arrow_file import as_json
from costbench_schedules.records.programs import (
    CURVES_FOLDER,
    SLOW,
    SUFFIX,
    DrawnPrograms,
    EstimatedPrograms,
    no_programs,
    read_programs,
    write_programs,
)
from costbench_schedules.records.table import RecordedTable
from costbench_schedules.spaces.space import ScheduleSpace, Value, tile_name

_ATTEMPTS = 50
"""Draws for each program that is wanted, before the space counts as exhausted."""


@dataclass(frozen=True)
class DrawSpec:
    """Which programs are drawn.

    Attributes:
        random: number of programs that are drawn uniformly.
        searched: number of programs that a search draws after these.
        batch: number of programs that are drawn at once; the file is written after each batch.
        parents: number of fastest programs that a search continues from.
        slowest: multiple of the fastest runtime up to which the features of a program are taken.
        again: number of fastest programs that are measured again in the end, and of programs at random.
        seed: seed of all draws.
        timing: length and number of measurements.
    """

    random: int = 30
    searched: int = 30
    batch: int = 10
    parents: int = 6
    slowest: float = 10.0
    again: int = 5
    seed: int = 0
    timing: TimingSpec = field(default_factory=lambda: TimingSpec(budget_ns=60_000_000))

    @property
    def total(self) -> int:
        """Returns the number of programs of an operator."""
        return self.random + self.searched


class AnalysesSchedules(Protocol):
    """What takes the features of schedules."""

    @property
    def host(self) -> Mapping[str, Any]:
        """Returns what the machine is; see `tvm_adapter.HostToolchain`."""
        ...

    def features(self, operator: Operator, choices: Mapping[str, Value], target: str, /) -> bytes:
        """Returns `ProgramFeatures.to_bytes` of a schedule that is built for a processor by LLVM's name.

        Raises:
            DataError: if they cannot be taken.
        """
        ...


class Machine(AnalysesSchedules, Protocol):
    """What programs are measured and analysed on."""

    @property
    def native(self) -> ScheduleDevice:
        """Returns the device that builds for this processor."""
        ...

    @property
    def generic(self) -> ScheduleDevice:
        """Returns the device that builds for the least processor of the family."""
        ...


def record_programs(
    spec: DrawSpec,
    operator: Operator,
    machine: Machine,
    folder: Path,
    on_batch: Callable[[DrawnPrograms], None],
) -> DrawnPrograms:
    """Measures and analyses an operator's programs that a folder does not have yet, and writes them.

    Raises:
        DataError: if the file was recorded otherwise or cannot be written, or the machine is too busy.
        KeyboardInterrupt: passed on; what was measured before the last batch is in the file.
    """
    path = folder / f"{workload_name(operator)}{SUFFIX}"
    space = ScheduleSpace(operator)
    facts = {"host": machine.host, "draw": asdict(spec)}
    programs = _continued(path, no_programs(operator, facts))
    while len(rows := _next_rows(spec, space, programs)):
        programs = programs.extended(_measured(spec, space, machine, rows, programs))
        write_programs(path, programs)
        on_batch(programs)
    return _measured_again(spec, space, machine, programs, path)


def record_same(
    spec: DrawSpec,
    elsewhere: EstimatedPrograms,
    operator: Operator,
    machine: Machine,
    folder: Path,
    on_batch: Callable[[DrawnPrograms], None],
) -> DrawnPrograms:
    """Measures and analyses programs that were recorded on another machine, and writes them.

    Taken are the first that ran for both targets there, as many as `spec` has of either kind, in their order.

    Raises:
        DataError: if the file was recorded otherwise or cannot be written, or the machine is too busy.
        KeyboardInterrupt: passed on; what was measured before the last batch is in the file.
    """
    path = folder / f"{workload_name(operator)}{SUFFIX}"
    space = ScheduleSpace(operator)
    numbers, searched = _chosen_elsewhere(spec, elsewhere, operator)
    digest = digest_bytes(numbers.tobytes())
    facts = {"host": machine.host, "draw": asdict(spec) | {"as_elsewhere": digest}}
    programs = _continued(path, no_programs(operator, facts))
    while len(programs) < len(numbers):
        batch = slice(len(programs), len(programs) + spec.batch)
        rows = space.rows(numbers[batch].tolist())
        measured = _measured(spec, space, machine, rows, programs)
        programs = programs.extended(measured.with_column("searched", searched[batch]))
        write_programs(path, programs)
        on_batch(programs)
    return _measured_again(spec, space, machine, programs, path)


def _chosen_elsewhere(spec: DrawSpec, elsewhere: EstimatedPrograms, operator: Operator) -> tuple[I64, Bool]:
    """Returns numbers of programs in the unrestricted space, and which of them a search drew."""
    columns = elsewhere.columns
    operators = [index for index, other in enumerate(elsewhere.operators) if other.text == operator.text]
    ran = columns["analysed"] & (columns["native_ns"] > 0) & (columns["generic_ns"] > 0)
    rows = np.flatnonzero(ran & np.isin(columns["operator"], operators))
    searched = columns["searched"][rows].astype(np.bool_)
    chosen = np.concatenate([rows[~searched][: spec.random], rows[searched][: spec.searched]])
    return columns["number"][chosen].astype(np.int64), columns["searched"][chosen].astype(np.bool_)


def record_curve(spec: DrawSpec, operator: Operator, machine: Machine, folder: Path) -> DrawnPrograms:
    """Measures the fastest program of an operator with every size of its innermost tile, and writes the file.

    The tile of the last output axis is split into (extent / S, 1, 1, S) for all divisors S of the extent;
    all else stays (crop2024, Figure 6). Nothing is measured where the file exists.

    Args:
        spec: settings, of which `timing` and `slowest` are used.
        operator: operator whose programs have been recorded.
        machine: machine that they were recorded on.
        folder: folder of the recording; curves go to a folder inside.

    Raises:
        DataError: if no program of the operator was recorded, or the file cannot be written.
    """
    path = folder / CURVES_FOLDER / f"{workload_name(operator)}{SUFFIX}"
    if path.exists():
        return read_programs(path)
    recorded = read_programs(folder / f"{workload_name(operator)}{SUFFIX}")
    runtime = recorded.columns["native_ns"]
    if not runtime.any():
        raise DataError("no program ran", where=path, expected="a recording to begin with")
    space = ScheduleSpace(operator)
    fastest = int(np.argmin(np.where(runtime > 0, runtime, np.iinfo(np.int64).max)))
    [row] = space.rows([int(recorded.columns["number"][fastest])])
    axis = operator.spatial[-1]
    column = [knob.name for knob in space.knobs].index(tile_name(axis))
    values = space.knobs[column].values
    sizes = [size for size in range(1, axis.extent + 1) if axis.extent % size == 0]
    rows = np.tile(row, (len(sizes), 1))
    rows[:, column] = [values.index((axis.extent // size, 1, 1, size)) for size in sizes]
    empty = no_programs(operator, {"host": machine.host, "draw": asdict(spec)})
    programs = _measured(replace(spec, slowest=np.inf), space, machine, rows, empty)
    write_programs(path, programs)
    return programs


def _continued(path: Path, fresh: DrawnPrograms) -> DrawnPrograms:
    if not path.exists():
        return fresh
    programs = read_programs(path)
    for name, value in fresh.facts.items():
        if programs.facts.get(name) != as_json(value):
            expected = f"the same {name}; another folder for another recording"
            raise DataError("was recorded otherwise", where=path, field=name, expected=expected)
    return programs


def _next_rows(spec: DrawSpec, space: ScheduleSpace, programs: DrawnPrograms) -> I64:
    """Returns the configurations of the next batch, at most `spec.batch`; none if there are no new ones."""
    count = len(programs)
    random = count < spec.random
    wanted = min(spec.batch, (spec.random if random else spec.total) - count)
    rng = stream(spec.seed, "programs of networks", space.operator.text, count)
    seen, rows = Seen(space.rows(programs.columns["number"].tolist())), [space.rows([])]
    for _ in range(_ATTEMPTS * wanted):
        row = space.sample(rng, 1).astype(np.int64) if random else _child(spec, space, programs, rng)
        rows.append(seen.take_fresh(row))
        if sum(map(len, rows)) == wanted:
            break
    return np.concatenate(rows)


def _child(spec: DrawSpec, space: ScheduleSpace, programs: DrawnPrograms, rng: np.random.Generator) -> I64:
    """Returns a neighbour of one of the fastest programs, or of a crossover of two, [1, m]."""
    runtime = programs.columns["native_ns"]
    ran = np.flatnonzero(runtime > 0)
    if not len(ran):
        return space.sample(rng, 1).astype(np.int64)
    fastest = ran[np.argsort(runtime[ran], kind="stable")[: spec.parents]]
    parents = space.rows(programs.columns["number"][rng.choice(fastest, 2)].tolist())
    child = space.cross(parents[:1], parents[1:], rng) if rng.random() < 0.5 else parents[:1]
    return space.step(child, rng)


def _measured(
    spec: DrawSpec, space: ScheduleSpace, machine: Machine, rows: I64, before: DrawnPrograms
) -> DrawnPrograms:
    native = machine.native.measure(space, rows)
    known = np.concatenate([before.columns["native_ns"], native.runtime_ns])
    fastest = known[known > 0].min(initial=np.iinfo(np.int64).max)
    problems = list(native.reasons)
    generic = np.zeros(len(rows), dtype=np.int64)
    clean = np.minimum(native.clean, 255)
    features = [b""] * len(rows)
    for index, row in enumerate(rows):
        if problems[index]:
            continue
        if native.runtime_ns[index] > spec.slowest * fastest:
            problems[index] = SLOW
            continue
        other = machine.generic.measure(space, row[None])
        generic[index] = other.runtime_ns[0]
        clean[index] = min(clean[index], other.clean[0])
        problems[index] = f"generic: {other.reasons[0]}" if other.reasons[0] else ""
        try:
            features[index] = machine.features(space.operator, space.choices(row), "native")
        except DataError as error:
            problems[index] = f"features: {error.problem}"
    columns = {
        "number": np.array(space.numbers(rows), dtype=np.int64),
        "searched": np.full(len(rows), len(before) >= spec.random),
        "native_ns": native.runtime_ns,
        "generic_ns": generic,
        "clean": clean.astype(np.uint8),
        "again_ns": np.zeros(len(rows), dtype=np.int64),
    }
    return DrawnPrograms(space.operator, before.facts, columns, tuple(problems), tuple(features))


def _measured_again(
    spec: DrawSpec, space: ScheduleSpace, machine: Machine, programs: DrawnPrograms, path: Path
) -> DrawnPrograms:
    """Measures the fastest programs and some at random again, once, in random order; writes the file."""
    if not len(programs) or programs.columns["again_ns"].any():
        return programs
    runtime = programs.columns["native_ns"]
    ran = np.flatnonzero((runtime > 0) & np.array([not problem for problem in programs.problems], dtype=bool))
    fastest = ran[np.argsort(runtime[ran], kind="stable")[: spec.again]]
    rng = stream(spec.seed, "programs again", space.operator.text)
    others = np.setdiff1d(ran, fastest)
    others_again = rng.choice(others, size=min(spec.again, len(others)), replace=False)
    chosen = rng.permutation(np.concatenate([fastest, others_again])).astype(np.int64)
    again = np.zeros(len(programs), dtype=np.int64)
    if len(chosen):
        rows = space.rows(programs.columns["number"][chosen].tolist())
        again[chosen] = machine.native.measure(space, rows).runtime_ns
    programs = programs.with_column("again_ns", again)
    write_programs(path, programs)
    return programs


ANALYSED_BATCH = 20
"""Programs after which the file is written."""


def analyse_table(
    table: RecordedTable,
    machine: AnalysesSchedules,
    folder: Path,
    max_programs: int,
    on_batch: Callable[[DrawnPrograms], bool],
) -> DrawnPrograms:
    """Takes features of the programs of a table that a folder does not have yet, and writes them.

    Programs that ran come in an order drawn at random, so that the first n are a sample of the table. They
    are built for the processor that the table was measured on, whatever this one is.

    Args:
        table: measurements; `native_ns` of the result is their `runtime_ns`.
        machine: machine that takes the features.
        folder: folder of the file `workload_name(operator).arrow`.
        max_programs: number of programs that are wanted, those in the file included; 0 for all.
        on_batch: function of the programs so far that is called after every `ANALYSED_BATCH`; the analysis
            ends where it returns False.

    Raises:
        DataError: if the file is of other measurements or cannot be read or written.
    """
    path = folder / f"{workload_name(table.space.operator)}{SUFFIX}"
    facts = {
        "host": machine.host,
        "draw": {"workload": table.workload, "target": table.target, "measured_on": table.host},
    }
    programs = _continue_analysis(path, table, facts)
    order = stream(0, "analysed rows", table.workload).permutation(np.flatnonzero(~table.failed))
    rows = order[: max_programs or len(order)]
    while len(programs) < len(rows):
        batch = rows[len(programs) : len(programs) + ANALYSED_BATCH]
        programs = programs.extended(_analysed(table, machine, batch, programs.facts))
        write_programs(path, programs)
        if not on_batch(programs):
            break
    return programs


def _continue_analysis(path: Path, table: RecordedTable, facts: Mapping[str, Any]) -> DrawnPrograms:
    if not path.exists():
        return no_programs(table.space.operator, facts)
    programs = read_programs(path)
    if programs.facts.get("draw") != as_json(facts["draw"]):
        processor = table.host.get("processor")
        expected = f"rows of {table.workload} for {table.target} on {processor}; another folder for others"
        raise DataError("was taken of something else", where=path, field="draw", expected=expected)
    return programs


def _analysed(
    table: RecordedTable, machine: AnalysesSchedules, indices: np.ndarray[Any, Any], facts: Mapping[str, Any]
) -> DrawnPrograms:
    target = str(table.host["mcpu"]) if table.target == "native" else table.target
    problems, contents = [], []
    for row in table.space.rows(indices.tolist()):
        try:
            contents.append(machine.features(table.space.operator, table.space.choices(row), target))
            problems.append("")
        except DataError as error:
            contents.append(b"")
            problems.append(f"features: {error.problem}")
    count = len(indices)
    columns = {
        "number": np.array(table.unrestricted_numbers(indices), dtype=np.int64),
        "searched": np.zeros(count, dtype=np.bool_),
        "native_ns": table.columns["runtime_ns"][indices].astype(np.int64),
        "generic_ns": np.zeros(count, dtype=np.int64),
        "clean": table.columns["clean"][indices].astype(np.uint8),
        "again_ns": np.zeros(count, dtype=np.int64),
    }
    return DrawnPrograms(table.space.operator, facts, columns, tuple(problems), tuple(contents))
