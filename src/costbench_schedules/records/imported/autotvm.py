"""AutoTVM's tuning logs: JSON lines, versions 0.1 and 0.2.

A line has the target, the task with its arguments, the choices of the task's knobs ("sp" split, "ot" other,
"an" annotation, "re" reorder), the measured seconds with an error number, and versions. The knobs are those
of TVM's templates, which pack tensors and tile otherwise than ours: their schedules have no counterpart, but
workload and runtime are kept. The template of TVM's tutorial, "tutorial/matmul", has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from costbench_schedules.spaces.space import CACHES, ORDERS, PARALLEL, Value

ERRORS = (
    "no error",
    "instantiation error",
    "compile error on the host",
    "compile error on the device",
    "runtime error on the device",
    "wrong answer",
    "build time-out",
    "run time-out",
    "unknown error",
)
"""What AutoTVM's error numbers mean (autotvm.measure.MeasureErrorNo)."""
Entities = Mapping[str, tuple[str, Any]]
"""The choice of each knob by name, with its kind."""


def read_autotvm(path: Path) -> Iterator[ImportedRecord]:
    """Yields the records of a log, one line at a time.

    Raises:
        DataError: naming file and line, for a line that is no record.
    """
    for where, line in json_lines(path):
        yield _record(line, where)


def _record(line: object, where: str) -> ImportedRecord:
    target, task, arguments, entities, result = _parts(line, where)
    tensors = [
        tensor(argument, where, "input")
        for argument in arguments
        if isinstance(argument, list) and argument[:1] == ["TENSOR"]
    ]
    name = text_of(task, tensors)
    if not isinstance(result, list) or len(result) < 2:
        raise DataError("no result", where=where, field="result", expected="times and an error number")
    number = result[1]
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(ERRORS):
        expected = f"an error number below {len(ERRORS)}"
        raise DataError(f"{str(number)[:40]!r}", where=where, field="result", expected=expected)
    runtime = None if number else mean_ns(result[0], where, "result")
    reason = "" if runtime is not None else ERRORS[number] if number else "no time"
    operator = _operator(task, arguments, tensors)
    try:
        if task not in _TEMPLATES:
            raise UnmappedError(f"knobs of the template {task}")
        choices = _TEMPLATES[task](arguments, entities)
    except UnmappedError as error:
        return ImportedRecord(name, target, runtime, reason, operator, None, str(error))
    return ImportedRecord(name, target, runtime, reason, *choices)


def _parts(line: object, where: str) -> tuple[str, str, list[Any], Entities, object]:
    """Returns target, task, arguments, knobs and result of a line."""
    if not isinstance(line, dict):
        raise DataError("no record", where=where, expected="an object")
    old = "v" in line
    fields, result = line.get("i" if old else "input"), line.get("r" if old else "result")
    if not isinstance(fields, list) or len(fields) < (6 if old else 3):
        raise DataError("no input", where=where, field="input", expected="target, task, arguments")
    target, task, arguments = fields[:3]
    config = fields[5] if old else line.get("config")
    knobs = config.get("e" if old else "entity") if isinstance(config, dict) else None
    if not isinstance(target, str) or not isinstance(task, str) or not isinstance(arguments, list):
        raise DataError("no input", where=where, field="input", expected="target, task, arguments")
    if not isinstance(knobs, list):
        raise DataError("no knobs", where=where, field="config", expected="a list of entities")
    entities = {}
    for knob in knobs:
        if not isinstance(knob, list) or len(knob) != 3 or not isinstance(knob[0], str):
            raise DataError(
                f"{str(knob)[:60]!r}", where=where, field="config", expected="[name, kind, value]"
            )
        entities[knob[0]] = (str(knob[1]), knob[2])
    return target, task, arguments, entities, result


def _operator(task: str, arguments: list[Any], tensors: list[tuple[str, tuple[int, ...]]]) -> Operator | None:
    """Returns our operator of the same mathematics; None for one that we do not have."""
    if any(dtype != "float32" for dtype, _ in tensors):
        return None
    for word, make in _OPERATORS.items():
        if word in task:
            try:
                return parse_operator(make(arguments, tensors))
            except (CostbenchError, TypeError, ValueError, IndexError):
                # Arguments that this kind of task has in no version that we know.
                return None
    return None


def _same(value: object) -> int:
    """Returns a number given once or for every side, if these are equal. Raises: ValueError if not."""
    numbers: list[Any] = value if isinstance(value, list) else [value]
    if not all(isinstance(number, int) for number in numbers) or len(set(numbers)) != 1:
        raise ValueError("sides differ")
    return int(numbers[0])


def _conv2d(arguments: list[Any], tensors: list[tuple[str, tuple[int, ...]]]) -> str:
    """Returns the description of conv2d in NCHW with OIHW: data, kernel, strides, padding, dilation, ..."""
    (n, ci, h, w), (co, inner, kh, kw) = tensors[0][1], tensors[1][1]
    if inner != ci or _same(arguments[4]) != 1:
        raise ValueError("groups, dilation or another layout")
    stride, pad = _same(arguments[2]), _same(arguments[3])
    return f"conv2d:n={n},h={h},w={w},ci={ci},co={co},kh={kh},kw={kw},stride={stride},pad={pad}"


def _dense(_: list[Any], tensors: list[tuple[str, tuple[int, ...]]]) -> str:
    (n, ci), (co, inner) = tensors[0][1], tensors[1][1]
    if inner != ci:
        raise ValueError("another layout")
    return f"dense:n={n},ci={ci},co={co}"


_OPERATORS: Mapping[str, Callable[[list[Any], list[tuple[str, tuple[int, ...]]]], str]] = {
    "depthwise": lambda *_: "",
    "conv2d": _conv2d,
    "dense": _dense,
}
"""Descriptions of the operators of tasks whose names have a word in them, the first that fits."""


def _tutorial(arguments: list[Any], entities: Entities) -> tuple[Operator, Mapping[str, Value]]:
    """Returns the schedule of "tutorial/matmul": loops yo xo k yi xi, tiles of `tile_y` and `tile_x`."""
    if len(arguments) != 4 or arguments[3] != "float32":
        raise UnmappedError("arguments other than N, L, M, float32")
    try:
        n, k, m = (_same(extent) for extent in arguments[:3])
        operator = parse_operator(f"matmul:m={n},n={m},k={k}")
    except (CostbenchError, TypeError, ValueError) as error:
        raise UnmappedError("sizes that we do not have") from error
    choices: dict[str, Value] = {
        "tile i": _split(entities, "tile_y", n),
        "tile j": _split(entities, "tile_x", m),
        "tile r": (k, 1),
        "order": next(iter(ORDERS)),
        "cache": CACHES[0],
        "vectorize": 0,
        "unroll": 0,
        "parallel": PARALLEL[0],
        "padding": "none",
    }
    return operator, checked(operator, choices)


def _split(entities: Entities, name: str, extent: int) -> tuple[int, ...]:
    """Returns a split in two as S0 to S3; AutoTVM writes -1 for the factor that follows from the others."""
    kind, factors = entities.get(name, ("", None))
    if kind != "sp" or not isinstance(factors, list) or len(factors) != 2:
        raise UnmappedError(f"no split {name} in two")
    inner = factors[1]
    if not isinstance(inner, int) or isinstance(inner, bool) or inner < 1 or extent % inner:
        raise UnmappedError(f"{name} does not divide {extent}")
    return (extent // inner, 1, 1, inner)


_TEMPLATES: Mapping[str, Callable[[list[Any], Entities], tuple[Operator, Mapping[str, Value]]]] = {
    "tutorial/matmul": _tutorial,
}
"""Templates whose schedules have a counterpart in our spaces."""
