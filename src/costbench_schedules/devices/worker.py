"""The process in which schedules are built and run: it may hang, crash or run out of memory, and is replaced.

Reads one request a line on standard input, JSON, and answers in lines on the descriptor that it was given:
`{"phase": "built"}` once the machine code is there, then the result. What libraries print goes to standard
error. Output is compared with NumPy for every schedule: buffers are filled with NaN before the first run.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from costbench.errors import ChoiceError
from costbench_schedules.devices.timing import CLOCKS, TimingSpec, time_call
from costbench_schedules.operators.operators import Operator, parse_operator
from costbench_schedules.operators.reference import TOLERANCE, expected_output, inputs_of, largest_error
from costbench_schedules.spaces.space import ScheduleSpace

BUILD, MEMORY, WRONG = "build error", "out of memory", "wrong output"
"""Reasons for which a worker says that a schedule failed."""
_MAX_REASON = 300


@dataclass
class _Workload:
    """An operator with its arrays."""

    operator: Operator
    space: ScheduleSpace
    arrays: list[Any]
    expected: Any


class Worker:
    """Answers requests; keeps the arrays of the last operator."""

    def __init__(self, out: TextIO) -> None:
        # TVM takes seconds to import, and only this process does.
        from costbench_schedules.devices import tvm_adapter

        tvm_adapter.check_versions()
        self._tvm = tvm_adapter
        self._out = out
        self._text = ""
        self._workload: _Workload | None = None

    def answer(self, message: Mapping[str, object]) -> None:
        """Writes one line."""
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def hello(self) -> None:
        """Says what machine this is."""
        self.answer({"host": asdict(self._tvm.host()), "pid": os.getpid()})

    def serve(self, line: str) -> None:
        """Answers one request, a JSON object.

        `do` is "measure" (the default) with operator, row of its unrestricted space, target, timing, clock,
        or with `program`, a file of `tvm_adapter.write_program`, in place of the row; "show" with operator
        and row; or "target" with a target.
        """
        request = json.loads(line)
        {"measure": self._measure, "show": self._show, "target": self._target}[request.get("do", "measure")](
            request
        )

    def _target(self, request: Mapping[str, Any]) -> None:
        """Answers whether a target is known."""
        try:
            self._tvm.target_of(request["target"])
        except ChoiceError as error:
            self.answer({"failed": error.problem, "expected": error.expected})
        else:
            self.answer({"known": True})

    def _show(self, request: Mapping[str, Any]) -> None:
        """Answers with a schedule's trace and code."""
        operator = parse_operator(request["operator"])
        choices = ScheduleSpace(operator).choices(np.array(request["row"], dtype=np.int64))
        self.answer(
            {"trace": self._tvm.trace(operator, choices), "code": self._tvm.script(operator, choices)}
        )

    def _measure(self, request: Mapping[str, Any]) -> None:
        """Answers that a program is built, then with its times, or why it failed."""
        workload = self._workload_of(request["operator"])
        start = time.thread_time_ns()
        try:
            program = self._built(workload, request)
        except MemoryError as error:
            self._fail(MEMORY, error)
            return
        except Exception as error:  # whatever TVM and LLVM raise
            self._fail(BUILD, error)
            return
        build_ns = time.thread_time_ns() - start
        self.answer({"phase": "built"})
        wrong = largest_error(self._run_once(program, workload), workload.expected)
        if not wrong <= TOLERANCE:
            self._fail(WRONG, f"relative error {wrong:.3g}")
            return
        spec, clock = TimingSpec(**request["timing"]), CLOCKS[request.get("clock", "processor")]
        timing = time_call(lambda: program(workload.arrays), spec, *clock)
        self.answer({"timing": asdict(timing), "build_ns": build_ns, "error": wrong})

    def _built(self, workload: _Workload, request: Mapping[str, Any]) -> Any:
        if "program" in request:
            return self._tvm.build_program(Path(request["program"]), request["target"])
        choices = workload.space.choices(np.array(request["row"], dtype=np.int64))
        return self._tvm.build(workload.operator, choices, request["target"])

    def _run_once(self, program: Any, workload: _Workload) -> Any:
        output = workload.arrays[-1]
        output.copyfrom(np.full(output.shape, np.nan, dtype=np.float32))
        program(workload.arrays)
        return self._tvm.to_numpy(output)

    def _workload_of(self, text: str) -> _Workload:
        if self._workload is None or text != self._text:
            operator = parse_operator(text)
            inputs = inputs_of(operator)
            output = np.zeros(operator.tensors[operator.output], dtype=np.float32)
            arrays = self._tvm.device_arrays([*inputs, output])
            expected = expected_output(operator, inputs)
            self._text, self._workload = text, _Workload(operator, ScheduleSpace(operator), arrays, expected)
        return self._workload

    def _fail(self, reason: str, detail: object) -> None:
        lines = [line.strip() for line in str(detail).splitlines() if line.strip()]
        message = f"{reason}: {lines[-1] if lines else type(detail).__name__}"
        self.answer({"failed": message[:_MAX_REASON]})


def main(descriptor: int, memory_bytes: int) -> None:
    """Serves requests until standard input ends."""
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        worker = Worker(out)
        worker.hello()
        for line in sys.stdin:
            worker.serve(line)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
