"""Dynamic analysis: features of a kernel from its LLVM IR, with a time limit (crop2024, section 3.2).

Kernels of schedules are what TVM builds of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from costbench.errors import DataError
from costbench_schedules.devices.device import CpuDevice
from costbench_schedules.devices.instrumented.worker import Sampling
from costbench_schedules.devices.process import Limits, WorkerFailedError, WorkerProcess, require_tvm
from costbench_schedules.devices.timing import TimingSpec
from costbench_schedules.llvm.features import ProgramFeatures, effective_counts, profile_of, static_features
from costbench_schedules.llvm.program import parse_program
from costbench_schedules.operators.operators import Operator
from costbench_schedules.spaces.space import Value


@dataclass(frozen=True)
class KernelSource:
    """What is analysed.

    Attributes:
        text: LLVM IR.
        entry: function of the kernel.
        sizes: bytes of each of its pointer arguments by name.
    """

    text: str
    entry: str
    sizes: Mapping[str, int]


class Analyzer:
    """Takes features of kernels in a worker process. Use it as a context manager, or call `close`.

    Args:
        threads: numbers of threads that are counted for; 1 is always among them.
        sampling: sampling of reuse distances.
        seconds: seconds that a kernel may take.
        processor: processor that the instrumented code is compiled for, `native` or a name of LLVM's.
    """

    def __init__(
        self,
        threads: tuple[int, ...] = (1,),
        sampling: Sampling | None = None,
        seconds: float = 60.0,
        processor: str = "native",
    ) -> None:
        if min(threads, default=0) < 1:
            raise DataError(f"{min(threads, default=0)} threads", expected="at least 1")
        self._threads = sorted({1, *threads})
        self._sampling = sampling or Sampling()
        self._processor = processor
        self._seconds = seconds
        command = (sys.executable, "-m", "costbench_schedules.devices.instrumented.worker")
        self._worker = WorkerProcess(Limits(build_s=seconds, run_s=seconds, command=command))

    def __enter__(self) -> Analyzer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker process."""
        self._worker.stop()

    def features(self, kernel: KernelSource) -> ProgramFeatures:
        """Returns the features of a kernel.

        Raises:
            DataError: for malformed IR, an unknown instruction, an argument without a size, a kernel that
                crashes, fails or does not end in time.
        """
        program = parse_program(kernel.text, kernel.entry)
        static, names = static_features(program)
        request = {
            "text": kernel.text,
            "entry": kernel.entry,
            "sizes": dict(kernel.sizes),
            "threads": self._threads,
            "sampling": asdict(self._sampling),
            "processor": self._processor,
        }
        try:
            answer = self._worker.ask(request)
        except WorkerFailedError as error:
            problem = f"the instrumented kernel fails: {error}"
            expected = f"a kernel that ends within {self._seconds:g} s"
            raise DataError(problem, where=f"@{kernel.entry}", expected=expected) from error
        if "failed" in answer:
            raise DataError(str(answer["failed"]), where=f"@{kernel.entry}")
        counts = [effective_counts(np.array(answer["counts"][str(count)])) for count in self._threads]
        return ProgramFeatures(
            static=static,
            threads=np.array(self._threads, dtype=np.int64),
            counts=np.array(counts, dtype=np.int64),
            profile=profile_of(np.array(answer["samples"], dtype=np.int64).reshape(-1, 2)),
            touched=int(answer["touched"]),
            footprint=int(answer["footprint"]),
            names=names,
        )


_OUTPUT = "compute"
_ELEMENT_BYTES = 4


def kernel_of(operator: Operator, choices: Mapping[str, Value], target: str = "native") -> KernelSource:
    """Returns the kernel of a schedule.

    Args:
        operator: operator that is computed.
        choices: choice of each knob, see `ScheduleSpace.choices`.
        target: processor whose instructions are used, see `tvm_adapter.target_of`.

    Raises:
        DataError: if the extra `cpu` is not installed.
    """
    require_tvm()
    from costbench_schedules.devices import tvm_adapter

    tvm_adapter.check_versions()
    text = tvm_adapter.build(operator, choices, target).llvm_ir()
    return KernelSource(text, tvm_adapter.KERNEL, argument_sizes(operator))


def argument_sizes(operator: Operator) -> dict[str, int]:
    """Returns the bytes of a kernel's arguments by TVM's names of them."""
    sizes = {name: _ELEMENT_BYTES * math.prod(operator.tensors[name]) for name in operator.inputs}
    return sizes | {_OUTPUT: _ELEMENT_BYTES * math.prod(operator.tensors[operator.output])}


class AnalysingMachine(ExitStack):
    """Measures and analyses schedules. Use it as a context manager, or call `close`.

    Args:
        seconds: seconds that the analysis of a program may take.
        timing: length and number of measurements.
        limits: limits of one measurement.

    Attributes:
        native: device that builds for this processor.
        generic: device that builds for the least processor of the family.
    """

    def __init__(
        self, seconds: float, timing: TimingSpec | None = None, limits: Limits | None = None
    ) -> None:
        super().__init__()
        self.native = self.enter_context(CpuDevice("native", timing, limits))
        self.generic = self.enter_context(CpuDevice("generic", timing, limits))
        self._analyzer = self.enter_context(Analyzer(seconds=seconds))

    @property
    def host(self) -> Mapping[str, Any]:
        """Returns this machine and the versions of its compiler, see `tvm_adapter.HostToolchain`.

        Raises:
            DataError: if the extra `cpu` is not installed.
        """
        return self.native.host

    def features(self, operator: Operator, choices: Mapping[str, Value], target: str, /) -> bytes:
        """Returns `ProgramFeatures.to_bytes` of a schedule that is built for a target, see `kernel_of`.

        Raises:
            DataError: if the program cannot be analysed, or takes too long, or TVM is not installed.
        """
        return self._analyzer.features(kernel_of(operator, choices, target)).to_bytes()
