"""Records programs of operators on the machine at hand; can be stopped and continued at any time.

Half of an operator's schedules are drawn uniformly, half by a short evolutionary search: neighbours and
crossovers of the fastest so far. Random schedules alone are all slow, and those of a search all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from costbench.arrays import I16, I64, Bool
from costbench.artifacts import digest_bytes
from costbench.errors import DataError
from costbench.rng import stream
from costbench_schedules.devices.device import ScheduleDevice
from costbench_schedules.devices.timing import TimingSpec
from costbench_schedules.operators.networks import workload_name
from costbench_schedules.operators.operators import Operator
from costbench_schedules.records.networks.drawn import (
    CURVES_FOLDER,
    SLOW,
    SUFFIX,
    DrawnPrograms,
    no_programs,
    read_programs,
    write_programs,
)
from costbench_schedules.records.networks.estimated import EstimatedPrograms
from costbench_schedules.spaces.space import ScheduleSpace, tile_name

_ATTEMPTS = 50
"""Draws for each program that is wanted, before the space counts as exhausted."""


@dataclass(frozen=True)
class DrawSpec:
    """Which programs are drawn.

    Attributes:
        random: how many uniformly.
        searched: how many by search, after these.
        batch: programs drawn at once; the file is written after each batch.
        parents: fastest programs that a search continues from.
        slowest: how many times the runtime of the fastest a program may take to have its features taken.
        again: fastest programs that are measured again in the end, and as many at random.
        seed: of all draws.
        timing: how long and how often is measured.
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


class Machine(Protocol):
    """What programs are measured and analysed on."""

    @property
    def host(self) -> Mapping[str, Any]:
        """Returns what the machine is; see `tvm_adapter.Host`."""
        ...

    @property
    def native(self) -> ScheduleDevice:
        """Returns the device that builds for this processor."""
        ...

    @property
    def generic(self) -> ScheduleDevice:
        """Returns the device that builds for the least processor of the family."""
        ...

    def features(self, operator: Operator, row: I64) -> bytes:
        """Returns the features of a configuration [m] of the unrestricted space.

        Raises:
            DataError: if they cannot be taken.
        """
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
    found = _continued(path, no_programs(operator, facts))
    while len(found) < spec.total:
        rows = _next_rows(spec, space, found)
        if not len(rows):
            break
        found = found.extended(_measured(spec, space, machine, rows, found))
        write_programs(path, found)
        on_batch(found)
    if not found.columns["again_ns"].any():
        found = _again(spec, space, machine, found)
        write_programs(path, found)
    return found


def record_same(
    spec: DrawSpec,
    theirs: EstimatedPrograms,
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
    numbers, searched = _chosen_elsewhere(spec, theirs, operator)
    digest = digest_bytes(numbers.tobytes())
    facts = {"host": machine.host, "draw": asdict(spec) | {"as_elsewhere": digest}}
    found = _continued(path, no_programs(operator, facts))
    while len(found) < len(numbers):
        batch = slice(len(found), len(found) + spec.batch)
        rows = space.rows(numbers[batch].tolist())
        measured = _measured(spec, space, machine, rows, found)
        found = found.extended(measured.with_column("searched", searched[batch]))
        write_programs(path, found)
        on_batch(found)
    if len(found) and not found.columns["again_ns"].any():
        found = _again(spec, space, machine, found)
        write_programs(path, found)
    return found


def _chosen_elsewhere(spec: DrawSpec, theirs: EstimatedPrograms, operator: Operator) -> tuple[I64, Bool]:
    """Returns numbers of programs in the unrestricted space, and which of them a search drew."""
    columns = theirs.columns
    places = [place for place, each in enumerate(theirs.operators) if each.text == operator.text]
    ran = columns["analysed"] & (columns["native_ns"] > 0) & (columns["generic_ns"] > 0)
    own = np.flatnonzero(ran & np.isin(columns["operator"], places))
    searched = columns["searched"][own].astype(np.bool_)
    chosen = np.concatenate([own[~searched][: spec.random], own[searched][: spec.searched]])
    return columns["number"][chosen].astype(np.int64), columns["searched"][chosen].astype(np.bool_)


def record_curve(spec: DrawSpec, operator: Operator, machine: Machine, folder: Path) -> DrawnPrograms:
    """Measures the fastest program of an operator with every size of its innermost tile, and writes the file.

    The tile of the last output axis is split into (extent / S, 1, 1, S) for all divisors S of the extent;
    all else stays (crop2024, Figure 6). Nothing is measured where the file exists.

    Args:
        spec: `timing` and `slowest` are used.
        operator: whose programs have been recorded.
        machine: that they were recorded on.
        folder: of the recording; curves go to a folder inside.

    Raises:
        DataError: if no program of the operator was recorded, or the file cannot be written.
    """
    path = folder / CURVES_FOLDER / f"{workload_name(operator)}{SUFFIX}"
    if path.exists():
        return read_programs(path)
    before = read_programs(folder / f"{workload_name(operator)}{SUFFIX}")
    runtime = before.columns["native_ns"]
    if not runtime.any():
        raise DataError("no program ran", where=path, expected="a recording to begin with")
    space = ScheduleSpace(operator)
    fastest = int(np.argmin(np.where(runtime > 0, runtime, np.iinfo(np.int64).max)))
    [row] = space.rows([int(before.columns["number"][fastest])])
    axis = operator.spatial[-1]
    place = [knob.name for knob in space.knobs].index(tile_name(axis))
    values = space.knobs[place].values
    sizes = [size for size in range(1, axis.extent + 1) if axis.extent % size == 0]
    rows = np.tile(row, (len(sizes), 1))
    rows[:, place] = [values.index((axis.extent // size, 1, 1, size)) for size in sizes]
    empty = no_programs(operator, {"host": machine.host, "draw": asdict(spec)})
    found = _measured(replace(spec, slowest=np.inf), space, machine, rows, empty)
    write_programs(path, found)
    return found


def _continued(path: Path, fresh: DrawnPrograms) -> DrawnPrograms:
    if not path.exists():
        return fresh
    found = read_programs(path)
    for name, value in fresh.facts.items():
        if found.facts.get(name) != _as_json(value):
            expected = f"the same {name}; another folder for another recording"
            raise DataError("was recorded otherwise", where=path, field=name, expected=expected)
    return found


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_json(each) for key, each in value.items()}
    return [_as_json(each) for each in value] if isinstance(value, (tuple, list)) else value


def _next_rows(spec: DrawSpec, space: ScheduleSpace, found: DrawnPrograms) -> I64:
    """Returns the configurations of the next batch, at most `spec.batch`; none if there are no new ones."""
    begun = len(found)
    random = begun < spec.random
    wanted = min(spec.batch, (spec.random if random else spec.total) - begun)
    rng = stream(spec.seed, "programs of networks", space.operator.text, begun)
    seen = set(found.columns["number"].tolist())
    rows = []
    for _ in range(_ATTEMPTS * wanted):
        row = space.sample(rng, 1)[0] if random else _child(spec, space, found, rng)
        [number] = space.numbers(row[None])
        if number not in seen:
            seen.add(number)
            rows.append(row.astype(np.int64))
        if len(rows) == wanted:
            break
    return np.array(rows, dtype=np.int64).reshape(-1, len(space.knobs))


def _child(spec: DrawSpec, space: ScheduleSpace, found: DrawnPrograms, rng: np.random.Generator) -> I16:
    """Returns a neighbour of one of the fastest programs, or of a crossover of two."""
    runtime = found.columns["native_ns"]
    ran = np.flatnonzero(runtime > 0)
    if not len(ran):
        uniform: I16 = space.sample(rng, 1)[0]
        return uniform
    fastest = ran[np.argsort(runtime[ran], kind="stable")[: spec.parents]]
    first, second = space.rows(found.columns["number"][rng.choice(fastest, 2)].tolist()).astype(np.int16)
    child = space.crossover(first, second, rng) if rng.random() < 0.5 else first
    neighbours = space.neighbours(child, rng, 1)
    chosen: I16 = neighbours[0] if len(neighbours) else child
    return chosen


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
    for place, row in enumerate(rows):
        if problems[place]:
            continue
        if native.runtime_ns[place] > spec.slowest * fastest:
            problems[place] = SLOW
            continue
        other = machine.generic.measure(space, row[None])
        generic[place] = other.runtime_ns[0]
        clean[place] = min(clean[place], other.clean[0])
        problems[place] = f"generic: {other.reasons[0]}" if other.reasons[0] else ""
        try:
            features[place] = machine.features(space.operator, row)
        except DataError as error:
            problems[place] = f"features: {error.problem}"
    columns = {
        "number": np.array(space.numbers(rows), dtype=np.int64),
        "searched": np.full(len(rows), len(before) >= spec.random),
        "native_ns": native.runtime_ns,
        "generic_ns": generic,
        "clean": clean.astype(np.uint8),
        "again_ns": np.zeros(len(rows), dtype=np.int64),
    }
    return DrawnPrograms(space.operator, before.facts, columns, tuple(problems), tuple(features))


def _again(spec: DrawSpec, space: ScheduleSpace, machine: Machine, found: DrawnPrograms) -> DrawnPrograms:
    """Measures the fastest programs and some at random again, in random order."""
    runtime = found.columns["native_ns"]
    ran = np.flatnonzero((runtime > 0) & np.array([not each for each in found.problems], dtype=bool))
    fastest = ran[np.argsort(runtime[ran], kind="stable")[: spec.again]]
    rng = stream(spec.seed, "programs again", space.operator.text)
    others = np.setdiff1d(ran, fastest)
    drawn = rng.choice(others, size=min(spec.again, len(others)), replace=False)
    chosen = rng.permutation(np.concatenate([fastest, drawn])).astype(np.int64)
    again = np.zeros(len(found), dtype=np.int64)
    if len(chosen):
        rows = space.rows(found.columns["number"][chosen].tolist())
        again[chosen] = machine.native.measure(space, rows).runtime_ns
    return found.with_column("again_ns", again)
