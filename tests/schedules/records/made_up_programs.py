"""A machine whose runtimes follow from the configuration, and which analyses nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from costbench.errors import DataError
from costbench.search.space import Rows
from costbench_schedules.devices.device import ScheduleMeasurement
from costbench_schedules.operators.operators import Operator
from costbench_schedules.spaces.space import ScheduleSpace, Value

FAILED = 7


class MadeUpDevice:
    """Runtimes grow with the distance of each choice from the last one; some configurations fail."""

    def __init__(self, factor: int) -> None:
        self._factor = factor
        self.asked = 0

    def measure(self, space: ScheduleSpace, rows: Rows, /) -> ScheduleMeasurement:
        """Returns the runtimes of configurations."""
        self.asked += len(rows)
        far = (space.sizes - 1 - np.asarray(rows)) / np.maximum(space.sizes - 1, 1)
        runtime = (100 * self._factor * (1 + 30 * far.mean(axis=1) ** 2)).astype(np.int64)
        failed = np.array([number % FAILED == 0 for number in space.numbers(np.asarray(rows))])
        zeros = np.zeros(len(rows))
        reasons = tuple("crash" if item else "" for item in failed)
        full = np.full(len(rows), 3, dtype=np.int64)
        return ScheduleMeasurement(np.where(failed, 0, runtime), failed, zeros, reasons, zeros, full)


class MadeUpMachine:
    """A `Machine`; configurations with an odd sum of choices cannot be analysed."""

    def __init__(self, host: str = "made up") -> None:
        self.host: Mapping[str, Any] = {"processor": host, "features": ("one", "two")}
        self.native = MadeUpDevice(1)
        self.generic = MadeUpDevice(2)

    def features(self, operator: Operator, choices: Mapping[str, Value], target: str, /) -> bytes:
        """Returns the configuration as text."""
        row = ScheduleSpace(operator).row_of(choices)
        if int(np.sum(row)) % 2:
            raise DataError("odd", expected="even")
        return f"{operator.name} {row.tolist()}".encode()
