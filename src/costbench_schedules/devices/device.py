"""The processor of this machine as a measuring device: builds and runs schedules of operators, one at a time.

One process builds and measures on one thread (see `costbench_schedules.devices.timing`). A schedule that
cannot be built, crashes, hangs, needs too much memory or computes something else is a failure with its
reason, as a failed compile is on the simulated chip.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from costbench.arrays import F64, I64, AnyInt, Bool
from costbench.errors import ChoiceError, DataError
from costbench_schedules.devices.process import Limits, WorkerFailedError, WorkerProcess, require_tvm
from costbench_schedules.devices.timing import Clock, TimingSpec
from costbench_schedules.operators.operators import Operator
from costbench_schedules.spaces.space import ScheduleSpace

Rows = AnyInt
_NS = 1e9
NOISY_SPREAD = 0.2
"""Spread of a measurement from which on it is noise, if all its blocks were interrupted. Runs of many
milliseconds are always interrupted on a shared machine, but their processor time is steady."""
MAX_NOISY = 50
"""Such measurements in a row after which the machine is too busy to measure on."""


@dataclass(frozen=True, eq=False)
class ScheduleMeasurement:
    """Measurements of `n` schedules.

    Attributes:
        runtime_ns: minimum over the blocks without interruption, at least 1, int64 [n]; 0 where it failed.
        failed: whether each failed, bool [n].
        run_seconds: processor time of build and runs, float64 [n]; where it failed, the time until it did.
        reasons: reason for which each failed; empty for those that did not.
        spread: median over minimum of the blocks, minus 1, float64 [n]; 0 where it failed.
        clean: number of blocks without interruption, int64 [n].
    """

    runtime_ns: I64
    failed: Bool
    run_seconds: F64
    reasons: tuple[str, ...]
    spread: F64
    clean: I64


class ScheduleDevice(Protocol):
    """What schedules are measured on: this machine, or a recorded table of another one."""

    def measure(self, space: ScheduleSpace, rows: Rows, /) -> ScheduleMeasurement:
        """Returns the measurements of configurations [n, m] of a space."""
        ...


@dataclass(frozen=True)
class PrintedSchedule:
    """A schedule for people and for TVM.

    Attributes:
        trace: JSON; `tvm.s_tir.Trace.apply_json_to_schedule` applies it.
        code: TVMScript.
    """

    trace: list[object]
    code: str


@dataclass(frozen=True)
class ScheduleRun:
    """The measurement of one schedule; fields as in `ScheduleMeasurement`, 0 where it failed."""

    runtime_ns: int
    run_seconds: float
    reason: str
    spread: float = 0.0
    clean: int = 0


class CpuDevice:
    """This machine; a `ScheduleDevice`. Use it as a context manager, or call `close`.

    Args:
        target: "native", "generic" or LLVM's name of a processor.
        timing: length and number of measurements.
        limits: limits of one schedule, and its threads.
        clock: name of the clock, see `CLOCKS`.

    Raises:
        DataError: for several threads by processor time, which is that of one.
    """

    def __init__(
        self,
        target: str = "native",
        timing: TimingSpec | None = None,
        limits: Limits | None = None,
        clock: Clock = "processor",
    ) -> None:
        self.target = target
        self._timing = timing or TimingSpec()
        self._limits = limits or Limits()
        if self._limits.threads > 1 and clock == "processor":
            problem = f"{self._limits.threads} threads by the processor time of one"
            raise DataError(problem, expected="the clock `wall`")
        self._clock = clock
        self._worker = WorkerProcess(self._limits)
        self._noisy = 0

    def __enter__(self) -> CpuDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the measuring process."""
        self._worker.stop()

    @property
    def host(self) -> Mapping[str, Any]:
        """Returns processor, architecture, mcpu, features and versions; see `tvm_adapter.HostToolchain`.

        Raises:
            DataError: if the extra `cpu` is not installed.
        """
        self._start()
        return self._worker.host

    def _start(self) -> None:
        if not self._limits.command:
            require_tvm()
        self._worker.start()

    def check_target(self) -> None:
        """Raises ChoiceError if the compiler does not know the target, DataError if there is no compiler."""
        answer = self._answer({"do": "target", "target": self.target})
        if "failed" in answer:
            raise ChoiceError(str(answer["failed"]), expected=answer.get("expected"))

    def show(self, space: ScheduleSpace, row: Rows) -> PrintedSchedule:
        """Returns the program of a configuration [m].

        Raises:
            DataError: if the compiler fails or is not installed.
        """
        [full] = space.full_rows(row[None]).tolist()
        answer = self._answer({"do": "show", "operator": space.operator.text, "row": full})
        if "failed" in answer:
            raise DataError(str(answer["failed"]), where=space.operator.text)
        return PrintedSchedule(answer["trace"], answer["code"])

    def measure_program(self, operator: Operator, program: Path) -> ScheduleMeasurement:
        """Builds and runs a program of `tvm_adapter.write_program` that computes the operator.

        Raises:
            DataError: as `measure`.
        """
        self._start()
        return stack_runs([self._measured({"operator": operator.text, "program": str(program)})])

    def _answer(self, request: Mapping[str, object]) -> Mapping[str, Any]:
        self._start()
        try:
            return self._worker.ask(request)
        except WorkerFailedError as error:
            return {"failed": str(error)}

    def measure(self, space: ScheduleSpace, rows: Rows, /) -> ScheduleMeasurement:
        """Builds and runs configurations, in their order.

        Raises:
            DataError: if TVM is not installed, or the machine is so busy that `MAX_NOISY` measurements in a
                row were interrupted in all blocks and spread by more than `NOISY_SPREAD`.
        """
        self._start()
        text = space.operator.text
        return stack_runs(
            [self._measured({"operator": text, "row": row}) for row in space.full_rows(rows).tolist()]
        )

    def _measured(self, request: Mapping[str, object]) -> ScheduleRun:
        begin = time.monotonic()
        timed = {"timing": asdict(self._timing), "clock": self._clock}
        answer = self._answer({**request, **timed, "target": self.target})
        if "failed" in answer:
            return ScheduleRun(0, time.monotonic() - begin, str(answer["failed"]))
        return self._run_of(answer)

    def _run_of(self, answer: Mapping[str, Any]) -> ScheduleRun:
        timing = answer["timing"]
        spread = timing["median_ns"] / timing["runtime_ns"] - 1.0
        self._noisy = self._noisy + 1 if spread > NOISY_SPREAD and not timing["clean"] else 0
        if self._noisy >= MAX_NOISY:
            problem = f"{MAX_NOISY} measurements in a row were interrupted and spread by more than a fifth"
            raise DataError(problem, expected="a machine with a processor to spare")
        return ScheduleRun(
            max(1, round(timing["runtime_ns"])),
            (timing["total_ns"] + answer["build_ns"]) / _NS,
            "",
            spread,
            timing["clean"],
        )


def stack_runs(runs: Sequence[ScheduleRun]) -> ScheduleMeasurement:
    """Returns measurements of single schedules as arrays."""
    runtime_ns = np.array([run.runtime_ns for run in runs], dtype=np.int64)
    return ScheduleMeasurement(
        runtime_ns,
        runtime_ns == 0,
        np.array([run.run_seconds for run in runs], dtype=np.float64),
        tuple(run.reason for run in runs),
        np.array([run.spread for run in runs], dtype=np.float64),
        np.array([run.clean for run in runs], dtype=np.int64),
    )
