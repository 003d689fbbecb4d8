"""TVM MetaSchedule's JSON data base: `database_workload.json` and `database_tuning_record.json`.

A line of the second file is [workload, [trace, seconds, target, arguments]]. A trace is a list of
instructions and of the decisions that they took. Loops tiled as "SSRSRS" are ours in the order
"S0 S1 R0 S2 R1 S3", so such a trace of a matmul, batch matmul or convolution without padding is a row of our
space: tiles, the place of the cache, unrolling, vectorisation, parallel loops. What else TVM's
post-processing does, such as fusing loops that it vectorises, is not in our space; the runtime is that of
TVM's program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costbench.errors import CostbenchError, DataError
from costbench_schedules.operators.operators import Operator, parse_operator
from costbench_schedules.records.imported.record import (
    ImportedRecord,
    UnmappedError,
    checked,
    json_lines,
    mean_ns,
    tensor,
    text_of,
)
from costbench_schedules.spaces.space import CACHES, ORDERS, PARALLEL, SPATIAL_LEVELS, Value, tile_name

WORKLOADS_FILE, RECORDS_FILE = "database_workload.json", "database_tuning_record.json"
_MAX_PAD = 16
_STRUCTURE, _VECTORIZE = '"SSRSRS"', "meta_schedule.vectorize"
Shapes = list[tuple[int, ...]]


def read_metaschedule(folder: Path) -> Iterator[ImportedRecord]:
    """Yields the records of a data base, one line at a time.

    Raises:
        DataError: naming file and line, for a line that is no record, or of a workload that is missing.
    """
    workloads = sum(1 for _ in _workloads(folder / WORKLOADS_FILE))
    for where, line in json_lines(folder / RECORDS_FILE):
        if not isinstance(line, list) or len(line) != 2 or not isinstance(line[0], int):
            raise DataError("no record", where=where, expected="[workload, record]")
        if isinstance(line[0], bool) or not 0 <= line[0] < workloads:
            raise DataError(f"workload {line[0]}", where=where, expected=f"one of {workloads}")
        yield _record(line[1], where)


def _workloads(path: Path) -> Iterator[str]:
    for where, line in json_lines(path):
        if not isinstance(line, list) or len(line) != 2 or not all(isinstance(text, str) for text in line):
            raise DataError("no workload", where=where, expected="[hash, module]")
        yield line[0]


def _record(record: object, where: str) -> ImportedRecord:
    if not isinstance(record, list) or len(record) != 4:
        raise DataError("no record", where=where, expected="[trace, seconds, target, arguments]")
    trace, seconds, target, arguments = record
    if not isinstance(arguments, list) or not arguments:
        raise DataError("no arguments", where=where, field="arguments", expected="a list of tensors")
    tensors = [tensor(argument, where, "arguments") for argument in arguments]
    # Written as null until it is measured.
    runtime = None if seconds is None else mean_ns(seconds, where, "seconds")
    steps = _steps(trace, where)
    kind = target.get("mcpu", target.get("kind")) if isinstance(target, dict) else target
    operator, choices, unmapped = _mapped(steps, tensors)
    name = text_of(operator.name if operator else "program", tensors)
    reason = "" if runtime is not None else "did not run"
    return ImportedRecord(name, str(kind), runtime, reason, operator, choices, unmapped)


@dataclass(frozen=True)
class _Step:
    """An instruction of a trace with its decision."""

    name: str
    inputs: list[Any]
    attributes: list[Any]
    outputs: list[Any]
    decision: Any


def _steps(trace: object, where: str) -> list[_Step]:
    expected = "[instructions, decisions]"
    if not isinstance(trace, list) or len(trace) != 2 or not all(isinstance(item, list) for item in trace):
        raise DataError("no trace", where=where, field="trace", expected=expected)
    decisions = {}
    for item in trace[1]:
        if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], int):
            raise DataError("no decision", where=where, field="trace", expected="[instruction, choice]")
        decisions[item[0]] = item[1]
    steps = []
    for index, item in enumerate(trace[0]):
        if (
            not isinstance(item, list)
            or len(item) != 4
            or not isinstance(item[0], str)
            or not all(isinstance(part, list) for part in item[1:])
        ):
            expected = "[name, inputs, attributes, outputs]"
            raise DataError("no instruction", where=where, field="trace", expected=expected)
        steps.append(_Step(item[0], item[1], item[2], item[3], decisions.get(index)))
    return steps


def _mapped(
    steps: list[_Step], tensors: list[tuple[str, tuple[int, ...]]]
) -> tuple[Operator | None, Mapping[str, Value] | None, str]:
    """Returns operator, choices, and why one of them is None."""
    if any(dtype != "float32" for dtype, _ in tensors):
        return None, None, "types other than float32"
    operator = _operator([shape for _, shape in tensors])
    if operator is None:
        return None, None, "arguments that do not say which operator it is"
    try:
        return operator, checked(operator, _choices(steps, operator)), ""
    except UnmappedError as error:
        return operator, None, str(error)


def _operator(shapes: Shapes) -> Operator | None:
    """Returns the one operator of ours with these shapes; None if there is none, or two.

    Square weights may be those of a matmul or of a dense layer: then it is taken for the matmul.
    """
    operators = []
    for text in _descriptions(shapes):
        try:
            operator = parse_operator(text)
        except CostbenchError:
            continue
        names = (*operator.inputs, operator.output)
        if [operator.tensors[name] for name in names] == shapes:
            operators.append(operator)
    kinds = {operator.name for operator in operators}
    return operators[0] if len(operators) == 1 or kinds == {"matmul", "dense"} else None


def _descriptions(shapes: Shapes) -> Iterator[str]:
    ranks = [len(shape) for shape in shapes]
    if ranks == [2, 2, 2]:
        (m, k), (_, n) = shapes[:2]
        yield f"matmul:m={m},n={n},k={k}"
        yield f"dense:n={m},ci={k},co={shapes[1][0]}"
    if ranks == [3, 3, 3]:
        (b, m, k), (_, _, n) = shapes[:2]
        yield f"batch_matmul:b={b},m={m},n={n},k={k}"
    if ranks == [4, 4, 4]:
        (n, h, w, ci), (kh, kw, _, co) = shapes[:2]
        for stride in range(1, 5):
            for pad in range(min(max(kh, kw), _MAX_PAD)):
                size = f"ci={ci},co={co},kh={kh},kw={kw},stride={stride},pad={pad}"
                yield f"conv2d:n={n},h={h},w={w},{size}"


def _choices(steps: list[_Step], operator: Operator) -> dict[str, Value]:
    if not any(step.name == "Annotate" and _STRUCTURE in step.inputs for step in steps):
        raise UnmappedError("no loops tiled as SSRSRS")
    if operator.padding:
        raise UnmappedError("where zeros are added")
    if sum(step.name in ("CacheRead", "SampleComputeLocation", "RFactor") for step in steps):
        raise UnmappedError("stages that our schedules do not have")
    tiles = [step for step in steps if step.name == "SamplePerfectTile"]
    axes = (*operator.spatial, *operator.reduce)
    if len(tiles) != len(axes):
        raise UnmappedError(f"{len(tiles)} tiled loops, not {len(axes)}")
    choices: dict[str, Value] = {}
    for axis, step in zip(axes, tiles, strict=True):
        if not isinstance(step.decision, list) or not all(
            isinstance(factor, int) for factor in step.decision
        ):
            raise UnmappedError("tiles without a decision")
        choices[tile_name(axis)] = tuple(step.decision)
    outer = _outer(steps, tiles, len(operator.spatial))
    return choices | {
        "order": next(iter(ORDERS)),
        "cache": _cache(steps, outer),
        "vectorize": int(any(step.name == "Annotate" and _VECTORIZE in step.attributes for step in steps)),
        "unroll": _unroll(steps),
        "parallel": _parallel(steps, len(operator.spatial)),
        "padding": "none",
    }


def _outer(steps: list[_Step], tiles: list[_Step], spatial: int) -> list[Any]:
    """Returns the last loops of S0 and of S1, as the trace names them."""
    loops = []
    for tile in tiles[:spatial]:
        splits = (step for step in steps if step.name == "Split" and step.inputs[1:] == tile.outputs)
        split = next(splits, None)
        if split is None or len(split.outputs) != SPATIAL_LEVELS:
            raise UnmappedError("tiles that split no loop")
        loops.append(split.outputs)
    return [loops[-1][0], loops[-1][1]]


def _cache(steps: list[_Step], outer: list[Any]) -> str:
    writes = [step for step in steps if step.name == "CacheWrite"]
    if not writes:
        return CACHES[0]
    loops = [step.inputs[1:2] for step in steps if step.name == "ReverseComputeAt"]
    if len(writes) > 1 or len(loops) != 1 or loops[0] not in ([loop] for loop in outer):
        raise UnmappedError("a cache elsewhere than inside S0 or S1")
    return CACHES[2] if loops[0] == outer[:1] else CACHES[1]


def _unroll(steps: list[_Step]) -> int:
    """Returns the most statements of unrolled loops that a sampled annotation asks for."""
    for step in steps:
        if step.name != "SampleCategorical":
            continue
        values = step.attributes[0] if step.attributes else None
        if not isinstance(values, list) or not isinstance(step.decision, int):
            raise UnmappedError("unrolling without a decision")
        if not 0 <= step.decision < len(values) or not isinstance(values[step.decision], int):
            raise UnmappedError("unrolling without a decision")
        return int(values[step.decision])
    return 0


def _parallel(steps: list[_Step], spatial: int) -> str:
    """Returns which loops were fused and made parallel after the annotations."""
    parallel = [step.inputs for step in steps if step.name == "Parallel"]
    if not parallel:
        return PARALLEL[0]
    fused = next((step for step in steps if step.name == "Fuse" and step.outputs == parallel[0]), None)
    names = {spatial: PARALLEL[2], 2 * spatial: PARALLEL[3]}
    count = len(fused.inputs) if fused else 1
    if count not in names:
        raise UnmappedError(f"{count} parallel loops")
    return names[count]
