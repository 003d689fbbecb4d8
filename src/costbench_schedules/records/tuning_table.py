"""Tuning tables: two independent measurements of every configuration of a kernel on one device.

What a search sees and what its choice is scored by are different measurements. The fastest of many noisy
measurements is on average too fast (the winner's curse); a second measurement of the choice is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costbench.arrays import F64, I64, Bool
from costbench_schedules.spaces.parameter_space import ParameterSpace

_WARMED_UP = 2
"""Runs above which the first one is left out."""


@dataclass(frozen=True, eq=False)
class TuningTable:
    """Measurements of the k configurations of a space; row i is configuration i.

    Attributes:
        kernel: name of the kernel, or of the workload.
        device: name of the device that it ran on.
        space: space of the configurations.
        first_ns: measurement that searches see, float64 [k]; infinite where a configuration failed.
        second_ns: independent measurement that choices are scored by, likewise.
        seconds: time that a search is charged for each configuration, float64 [k]; 0 where unknown.
        reasons: reason for which each configuration failed, [k]; empty for those that ran.
        repeats: number of runs behind both measurements, int64 [k]; 1 where both are one run, or the second
            is an estimate.

    Raises:
        ValueError: if arrays differ in length, a time is none, a configuration failed in only one of both
            measurements, or none ran.
    """

    kernel: str
    device: str
    space: ParameterSpace
    first_ns: F64
    second_ns: F64
    seconds: F64
    reasons: tuple[str, ...]
    repeats: I64

    def __post_init__(self) -> None:
        lengths = {len(self.first_ns), len(self.second_ns), len(self.seconds)}
        if lengths != {self.space.size} or {len(self.reasons), len(self.repeats)} != lengths:
            raise ValueError(f"arrays are not of the {self.space.size} configurations of the space")
        if not np.all(self.first_ns > 0.0) or not np.all(self.second_ns > 0.0):
            raise ValueError("a runtime is not above 0")
        has_reason = np.array([bool(reason) for reason in self.reasons])
        if np.any(self.failed != has_reason) or np.any(np.isinf(self.second_ns) != has_reason):
            raise ValueError("a configuration has both a time and a reason of a failure, or neither")
        if not np.any(np.isfinite(self.first_ns)):
            raise ValueError("all configurations failed")

    def __len__(self) -> int:
        return self.space.size

    @property
    def name(self) -> str:
        """Returns `KERNEL-DEVICE`, which names the table in results."""
        return f"{self.kernel}-{self.device}"

    @property
    def failed(self) -> Bool:
        """Returns which configurations failed, bool [k]."""
        return np.isinf(self.first_ns)

    @property
    def twice(self) -> bool:
        """Returns whether all configurations that ran have a second measurement of their own."""
        return bool(np.all(self.repeats[~self.failed] > 1))

    @cached_property
    def best_ns(self) -> float:
        """Returns the least second measurement: what searches could find at best."""
        return float(self.second_ns.min())


def table_of_runs(
    kernel: str,
    device: str,
    space: ParameterSpace,
    runs_ns: Sequence[Sequence[float]],
    seconds: F64,
    reasons: Sequence[str],
) -> TuningTable:
    """Returns a table of single runs.

    The first run warms up and is left out of three or more. The mean of every other run is the first
    measurement, the mean of the others the second. Of one run alone both are that run.

    Args:
        kernel: name of the kernel.
        device: name of the device.
        space: space of the configurations.
        runs_ns: runtimes of each configuration in order, in ns; none where it failed.
        seconds: time that was spent on each configuration.
        reasons: reason for which each failed; empty for those that ran.

    Raises:
        ValueError: as `TuningTable`.
    """
    first, second = np.full(len(runs_ns), np.inf), np.full(len(runs_ns), np.inf)
    repeats = np.zeros(len(runs_ns), dtype=np.int64)
    for index, runs in enumerate(runs_ns):
        steady = runs[1:] if len(runs) > _WARMED_UP else runs
        repeats[index] = len(steady)
        if len(steady):
            first[index] = np.mean(steady[::2])
            second[index] = np.mean(steady[1::2] if len(steady) > 1 else steady)
    return TuningTable(kernel, device, space, first, second, seconds, tuple(reasons), repeats)


def random_trials(table: TuningTable, share: float) -> float:
    """Returns after how many draws without replacement a configuration is met on average that is fast enough.

    (n + 1) / (k + 1) with k of n configurations whose second measurement reaches a share of the best speed.
    """
    fast = np.count_nonzero(table.second_ns <= table.best_ns / share)
    return float((len(table) + 1) / (fast + 1))
