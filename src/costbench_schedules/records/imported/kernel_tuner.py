"""Tuning tables from files of Kernel Tuner: its cache, and results in the T4 format; JSON, maybe gzipped.

Kernel Tuner (github.com/KernelTuner/kernel_tuner, schema of cache files 1.0.0 to 1.1.0) records what it has
measured: `tune_params` has the values of each parameter in the order of `tune_params_keys`, `cache` an entry
per configuration under its values joined by commas, with the objective (`time`, the mean of `times`,
milliseconds) or the name of a failure. Times of compilation and benchmarking are in milliseconds, too.

T4 (schema 1.0.0, also written by KTT and others) has a list `results` with `configuration`, `measurements`,
`times` and `invalidity` of each configuration, and names neither kernel nor device: they are those of the
file name KERNEL-DEVICE.json.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costbench.artifacts import parse_json, read_bytes
from costbench.errors import DataError
from costbench.limits import MAX_JSON_BYTES
from costbench_schedules.records.tuning_table import TuningTable, table_of_runs
from costbench_schedules.spaces.parameter_space import ParameterSpace

CACHE_KEYS = ("device_name", "kernel_name", "tune_params_keys", "tune_params", "cache")
_OBJECTIVE = "time"
_CHARGED = ("compile_time", "benchmark_time", "verification_time")
_T4_CHARGED = ("compilation", "compilation_time", "benchmark", "benchmark_time", "validation")
_NS_PER_UNIT = {"": 1e6, "ms": 1e6, "s": 1e9, "seconds": 1e9, "us": 1e3, "microseconds": 1e3, "ns": 1.0}
_MS_PER_S = 1e3
_LONGEST = 1e15
_T4_RAN = "correct"
_GZIP = b"\x1f\x8b"
_GZIP_BITS = 31


@dataclass(frozen=True)
class _Entry:
    """One configuration of a file.

    Attributes:
        choices: value of each parameter by name.
        runs_ns: runtimes in ns; none where it failed.
        seconds: time that was spent on it.
        reason: reason of the failure, or empty.
    """

    choices: Mapping[str, Any]
    runs_ns: tuple[float, ...]
    seconds: float
    reason: str


def expand(data: bytes, max_bytes: int) -> tuple[bytes, bool]:
    """Returns at most so many bytes of what was compressed by gzip, or of the data itself, and whether all.

    Raises:
        zlib.error: for damaged data.
    """
    if not data.startswith(_GZIP):
        return data[:max_bytes], len(data) <= max_bytes
    stream = zlib.decompressobj(_GZIP_BITS)
    expanded = stream.decompress(data, max_bytes)
    return expanded, stream.eof


def _read_json(path: Path, open_end: bytes = b"") -> object:
    """Returns the value of a JSON file, also of one that `open_end` closes, in place of a last comma."""
    try:
        text, whole = expand(read_bytes(path, MAX_JSON_BYTES), MAX_JSON_BYTES)
    except zlib.error as error:
        raise DataError(f"damaged: {error}", where=path, expected="a whole gzip file") from error
    if not whole:
        expected = f"a whole gzip file of at most {MAX_JSON_BYTES} bytes"
        raise DataError("is truncated, or expands to too much", where=path, expected=expected)
    try:
        return parse_json(text, path)
    except DataError:
        if open_end:
            with suppress(DataError):
                return parse_json(text.rstrip().removesuffix(b",") + open_end, path)
        raise


def read_cache(path: Path) -> TuningTable:
    """Reads a cache file; one that Kernel Tuner has not closed, as while it runs, as if it had.

    Raises:
        DataError: naming the file and the field or configuration, if it is no cache file, has another
            objective than time, no configuration that ran, or values that cannot be.
    """
    content = _read_json(path, open_end=b"}}")
    if not isinstance(content, dict) or any(key not in content for key in CACHE_KEYS):
        raise DataError("is no cache file", where=path, expected="the keys " + ", ".join(CACHE_KEYS))
    if content.get("objective", _OBJECTIVE) != _OBJECTIVE:
        raise DataError(repr(content["objective"]), where=path, field="objective", expected=_OBJECTIVE)
    names, values, cache = content["tune_params_keys"], content["tune_params"], content["cache"]
    if not isinstance(cache, dict) or not cache or not isinstance(values, dict):
        raise DataError("no configurations", where=path, field="cache", expected="an object with entries")
    if (
        not isinstance(names, list)
        or not names
        or any(not isinstance(name, str) or not isinstance(values.get(name), list) for name in names)
    ):
        expected = "a list of values for each of tune_params_keys"
        raise DataError("parameters without values", where=path, field="tune_params", expected=expected)
    parameters = {name: tuple(_hashable(value) for value in values[name]) for name in names}
    entries = {f"cache.{key}": _read_entry(parameters, key, entry, path) for key, entry in cache.items()}
    return _table(str(content["kernel_name"]), str(content["device_name"]), parameters, entries, path)


def read_t4(path: Path) -> TuningTable:
    """Reads a file of T4.

    Raises:
        DataError: as `read_cache`.
    """
    content = _read_json(path)
    results = content.get("results") if isinstance(content, dict) else None
    if not isinstance(results, list) or not results:
        raise DataError("has no results", where=path, field="results", expected="a list of T4's results")
    entries = {f"results[{i}]": _read_result(result, i, path) for i, result in enumerate(results)}
    names = list(next(iter(entries.values())).choices)
    values: dict[str, dict[Any, None]] = {name: {} for name in names}
    for field, entry in entries.items():
        if set(entry.choices) != values.keys():
            expected = "the parameters of the other configurations: " + ", ".join(names)
            raise DataError("other parameters", where=path, field=f"{field}.configuration", expected=expected)
        for name in names:
            values[name][entry.choices[name]] = None
    parameters = {name: _ordered(tuple(known)) for name, known in values.items()}
    kernel, _, device = path.name.removesuffix(".gz").removesuffix(".json").partition("-")
    return _table(kernel, device or "unknown", parameters, entries, path)


def _table(
    kernel: str,
    device: str,
    parameters: Mapping[str, Sequence[Any]],
    entries: Mapping[str, _Entry],
    path: Path,
) -> TuningTable:
    numbers = {name: {value: i for i, value in enumerate(values)} for name, values in parameters.items()}
    rows: dict[tuple[int, ...], str] = {}
    for field, entry in entries.items():
        row = tuple(numbers[name][entry.choices[name]] for name in parameters)
        if row in rows:
            problem = f"the configuration of {rows[row]} again"
            raise DataError(problem, where=path, field=field, expected="each configuration once")
        rows[row] = field
    try:
        return table_of_runs(
            kernel,
            device,
            ParameterSpace(parameters, np.array(list(rows))),
            [entry.runs_ns for entry in entries.values()],
            np.array([entry.seconds for entry in entries.values()]),
            [entry.reason for entry in entries.values()],
        )
    except ValueError as error:
        raise DataError(str(error), where=path, expected="configurations that ran") from error


def _read_entry(parameters: Mapping[str, tuple[Any, ...]], key: str, entry: object, path: Path) -> _Entry:
    field = f"cache.{key}"
    if not isinstance(entry, dict):
        raise DataError("no entry", where=path, field=field, expected="an object")
    choices = {name: _hashable(entry.get(name)) for name in parameters}
    for name, value in choices.items():
        if value not in parameters[name]:
            raise DataError(
                f"{name} = {value!r}", where=path, field=field, expected=f"one of the values of {name}"
            )
    time = entry.get(_OBJECTIVE)
    seconds = _sum(entry, _CHARGED, path, field) / _MS_PER_S
    if isinstance(time, str) and time:
        return _Entry(choices, (), seconds, time)
    return _Entry(choices, _runs(time, entry.get("times"), "ms", path, field), seconds, "")


def _read_result(result: object, index: int, path: Path) -> _Entry:
    field = f"results[{index}]"
    parts = result if isinstance(result, dict) else {}
    configuration, times = parts.get("configuration"), parts.get("times", {})
    if not isinstance(configuration, dict) or not configuration or not isinstance(times, dict):
        raise DataError("no configuration", where=path, field=field, expected="a result of T4")
    choices = {str(name): _hashable(value) for name, value in configuration.items()}
    objectives = parts.get("objectives", [_OBJECTIVE])
    if objectives != [_OBJECTIVE]:
        raise DataError(
            f"{objectives!r}", where=path, field=f"{field}.objectives", expected=f"[{_OBJECTIVE!r}]"
        )
    seconds = _sum(times, _T4_CHARGED, path, field) / _MS_PER_S
    measurements = parts.get("measurements")
    measured: dict[str, Any] = next(
        (
            item
            for item in (measurements if isinstance(measurements, list) else [])
            if isinstance(item, dict) and item.get("name") == _OBJECTIVE
        ),
        {},
    )
    time, reason = measured.get("value"), str(parts.get("invalidity", _T4_RAN))
    if reason != _T4_RAN or isinstance(time, str):
        return _Entry(choices, (), seconds, str(time) if isinstance(time, str) else reason)
    unit = str(measured.get("unit", ""))
    return _Entry(choices, _runs(time, times.get("runtimes"), unit, path, field), seconds, "")


def _runs(time: object, times: object, unit: str, path: Path, field: str) -> tuple[float, ...]:
    """Returns the runtimes of a configuration in ns: all runs, or their mean where only that is known."""
    if unit not in _NS_PER_UNIT:
        raise DataError(f"unit {unit!r}", where=path, field=field, expected="ms, s, us or ns")
    runs: list[Any] = times if isinstance(times, list) and times else [time]
    for value in (time, *runs):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LONGEST:
            expected = "a time above 0, or the name of a failure"
            raise DataError(f"{_OBJECTIVE} = {str(value)[:40]!r}", where=path, field=field, expected=expected)
    return tuple(float(value) * _NS_PER_UNIT[unit] for value in runs)


def _sum(entry: Mapping[str, Any], names: Sequence[str], path: Path, field: str) -> float:
    """Returns the sum of times that may be missing."""
    total = 0.0
    for name in names:
        value = entry.get(name) or 0.0
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LONGEST:
            expected = "milliseconds, at least 0"
            raise DataError(f"{name} = {str(value)[:40]!r}", where=path, field=field, expected=expected)
        total += value
    return total


def _hashable(value: Any) -> Any:
    """Returns a parameter's value; a list as a tuple, anything deeper as text."""
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    return str(value) if isinstance(value, dict) else value


def _ordered(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns numbers in ascending order, other values as they come."""
    return tuple(sorted(values)) if all(isinstance(value, int | float) for value in values) else values
