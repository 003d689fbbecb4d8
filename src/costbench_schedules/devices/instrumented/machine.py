"""This machine: schedules measured for two targets, and features of their programs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from costbench.arrays import I64
from costbench_schedules.devices.device import CpuDevice
from costbench_schedules.devices.instrumented.analysis import Analyzer
from costbench_schedules.devices.instrumented.schedules import kernel_of
from costbench_schedules.devices.process import Limits
from costbench_schedules.devices.timing import TimingSpec
from costbench_schedules.operators.operators import Operator
from costbench_schedules.spaces.space import ScheduleSpace


class AnalysingMachine:
    """Measures and analyses schedules. Use it as a context manager, or call `close`.

    Args:
        timing: how long and how often is measured.
        limits: what one measurement may take.
        seconds: most that the analysis of a program may take.

    Attributes:
        native: device that builds for this processor.
        generic: device that builds for the least processor of the family.
    """

    def __init__(self, timing: TimingSpec, limits: Limits, seconds: float) -> None:
        self._stack = ExitStack()
        self.native = self._stack.enter_context(CpuDevice("native", timing, limits))
        self.generic = self._stack.enter_context(CpuDevice("generic", timing, limits))
        self._analyzer = self._stack.enter_context(Analyzer(seconds=seconds))

    def __enter__(self) -> AnalysingMachine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all worker processes."""
        self._stack.close()

    @property
    def host(self) -> Mapping[str, Any]:
        """Returns processor, architecture, mcpu, features and versions; see `tvm_adapter.Host`.

        Raises:
            DataError: if the extra `cpu` is not installed.
        """
        return self.native.host

    def features(self, operator: Operator, row: I64) -> bytes:
        """Returns `ProgramFeatures.to_bytes` of a configuration [m] of the unrestricted space.

        Raises:
            DataError: if the program cannot be analysed, or takes too long.
        """
        kernel = kernel_of(operator, ScheduleSpace(operator).choices(row))
        return self._analyzer.features(kernel).to_bytes()
