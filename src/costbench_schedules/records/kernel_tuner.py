"""Measurements of others: cache files of Kernel Tuner, JSON, as a space that can be searched and a device.

Kernel Tuner (github.com/KernelTuner/kernel_tuner, schema of cache files 1.0.0 to 1.1.0) records what it has
measured: `tune_params` has the values of each parameter in the order of `tune_params_keys`, `cache` an entry
per configuration under its values joined by commas, with the objective (`time`, milliseconds) or the name of
a failure. Times of compilation and benchmarking are in milliseconds, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costbench.arrays import I16, I64, AnyInt, Bool
from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench.search.space import keys
from costbench_schedules.devices.device import Rows, ScheduleMeasurement, ScheduleRun, stack_runs

_KEYS = ("device_name", "kernel_name", "tune_params_keys", "tune_params", "cache")
_OBJECTIVE = "time"
_CHARGED = ("compile_time", "benchmark_time", "verification_time")
_NS_PER_MS, _MS_PER_S = 1e6, 1e3
_LONGEST_MS = 1e12
_TRIES = 16


class KernelTunerSpace:
    """The configurations of one file; a `VectorSpace`, so every strategy can search it.

    Args:
        parameters: values of each tuning parameter by name, in order.
        recorded: configurations of the file as indices of values, int16 [n, m].

    Attributes:
        parameters: values of each tuning parameter by name.
        recorded: configurations of the file, int16 [n, m].
    """

    def __init__(self, parameters: Mapping[str, tuple[object, ...]], recorded: I16) -> None:
        self.parameters = parameters
        self.recorded = recorded
        self._index_of = {key: index for index, key in enumerate(keys(recorded))}

    @property
    def num_choices(self) -> I64:
        """Returns the number of values of each parameter, int64 [m]."""
        return np.array([len(values) for values in self.parameters.values()], dtype=np.int64)

    @property
    def default(self) -> I16:
        """Returns the first configuration of the file, int16 [m]."""
        first: I16 = self.recorded[0]
        return first

    def indices(self, configs: Rows) -> I64:
        """Returns the position in the file of each configuration [n, m]; -1 for one that it lacks."""
        indices = [self._index_of.get(key, -1) for key in keys(np.ascontiguousarray(configs, dtype=np.int16))]
        return np.array(indices, dtype=np.int64)

    def legal(self, configs: I16) -> Bool:
        """Returns whether the file has each configuration, bool [n]."""
        return self.indices(configs) >= 0

    def sample(self, rng: np.random.Generator, count: int) -> I16:
        """Returns configurations of the file drawn with replacement, int16 [count, m]."""
        return self.recorded[rng.integers(len(self.recorded), size=count)]

    def neighbours(self, config: I16, rng: np.random.Generator, count: int) -> I16:
        """Returns configurations of the file that differ in one parameter, int16 [count or 0, m]."""
        apart = np.count_nonzero(self.recorded != config, axis=1)
        around: I16 = self.recorded[apart == 1]
        return around[rng.integers(len(around), size=count)] if len(around) else around

    def crossover(self, first: I16, second: I16, rng: np.random.Generator) -> I16:
        """Returns a configuration of the file mixed from two; the first if no try is in the file."""
        mixed = np.where(rng.random((_TRIES, len(first))) < 0.5, first, second).astype(np.int16)
        known = np.flatnonzero(self.legal(mixed))
        return mixed[known[0]] if len(known) else first.astype(np.int16)

    def choices(self, row: AnyInt) -> dict[str, object]:
        """Returns the value of each parameter by name."""
        pairs = zip(self.parameters.items(), row.tolist(), strict=True)
        return {name: values[index] for (name, values), index in pairs}


@dataclass(frozen=True, eq=False)
class KernelTunerDevice:
    """What a file recorded of one kernel on one device.

    Attributes:
        device: name of the device.
        kernel: name of the kernel.
        problem_size: size of the problem, as the file has it.
        space: space of the recorded configurations.
        measurement: measurements of all of them, in order.
    """

    device: str
    kernel: str
    problem_size: object
    space: KernelTunerSpace
    measurement: ScheduleMeasurement

    def measure(self, space: KernelTunerSpace, rows: Rows, /) -> ScheduleMeasurement:
        """Returns what was recorded of configurations [n, m].

        Raises:
            DataError: if the space is another file's, or the file does not have a configuration.
        """
        if space is not self.space:
            raise DataError("configurations of another file", where=self.kernel, expected="its own space")
        indices = space.indices(rows)
        if np.any(indices < 0):
            wrong = space.choices(rows[int(np.argmin(indices))])
            raise DataError(f"{wrong} was not recorded", where=self.kernel, expected="a configuration of it")
        return self.measurement.select(indices)


def read_kernel_tuner(path: Path) -> KernelTunerDevice:
    """Reads a cache file.

    Raises:
        DataError: naming the file and the field or configuration, if it is no cache file, has another
            objective than time, or values that cannot be.
    """
    content = read_json(path)
    if not isinstance(content, dict) or any(key not in content for key in _KEYS):
        raise DataError("is no cache file", where=path, expected="the keys " + ", ".join(_KEYS))
    if content.get("objective", _OBJECTIVE) != _OBJECTIVE:
        raise DataError(repr(content["objective"]), where=path, field="objective", expected=_OBJECTIVE)
    names, values, cache = content["tune_params_keys"], content["tune_params"], content["cache"]
    if not isinstance(cache, dict) or not cache or not isinstance(values, dict):
        raise DataError("no configurations", where=path, field="cache", expected="an object with entries")
    if (
        not isinstance(names, list)
        or not names
        or any(not isinstance(values.get(name), list) for name in names)
    ):
        expected = "a list of values for each of tune_params_keys"
        raise DataError("parameters without values", where=path, field="tune_params", expected=expected)
    parameters = {str(name): tuple(values[name]) for name in names}
    rows = [_row(parameters, key, entry, path) for key, entry in cache.items()]
    space = KernelTunerSpace(parameters, np.array(rows, dtype=np.int16))
    measured = [_read_run(key, entry, path) for key, entry in cache.items()]
    return KernelTunerDevice(
        str(content["device_name"]),
        str(content["kernel_name"]),
        content.get("problem_size"),
        space,
        stack_runs(measured),
    )


def _row(parameters: Mapping[str, tuple[object, ...]], key: str, entry: object, path: Path) -> list[int]:
    """Returns a configuration as indices of values."""
    row = []
    for name, values in parameters.items():
        value = entry.get(name) if isinstance(entry, dict) else None
        if value not in values:
            expected = f"one of the values of {name}"
            raise DataError(f"{name} = {value!r}", where=path, field=f"cache.{key}", expected=expected)
        row.append(values.index(value))
    return row


def _read_run(key: str, entry: Mapping[str, Any], path: Path) -> ScheduleRun:
    time = entry.get(_OBJECTIVE)
    parts = [entry.get(name, 0.0) for name in _CHARGED]
    times = entry.get("times", [time])
    numbers = [time, *parts, *times] if isinstance(time, int | float) and isinstance(times, list) else parts
    good = all(isinstance(number, int | float) and 0 <= number < _LONGEST_MS for number in numbers)
    if not good or not (isinstance(time, str) or numbers is not parts) or time == 0:
        expected = "non-negative milliseconds, or the name of a failure"
        raise DataError(f"{_OBJECTIVE} = {time!r}", where=path, field=f"cache.{key}", expected=expected)
    seconds = sum(parts) / _MS_PER_S
    if not isinstance(time, int | float):
        return ScheduleRun(0, 0.0, str(time))
    runtime_ns = max(1, round(time * _NS_PER_MS))
    median_ns = float(np.median(times)) * _NS_PER_MS if times else float(runtime_ns)
    spread = max(median_ns, float(runtime_ns)) / runtime_ns - 1.0
    return ScheduleRun(runtime_ns, seconds, "", spread, len(times), parts[0] / _MS_PER_S)
