"""Dynamic analysis: features of a kernel from its LLVM IR, with a time limit (crop2024, section 3.2)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from costbench.errors import DataError
from costbench_schedules.devices.instrumented.run import Sampling
from costbench_schedules.devices.process import Limits, WorkerFailedError, WorkerProcess
from costbench_schedules.llvm.features import ProgramFeatures, effective, profile_of, static_features
from costbench_schedules.llvm.program import parse_program


@dataclass(frozen=True)
class Kernel:
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
        threads: numbers of threads to count for; 1 is always among them.
        sampling: of reuse distances.
        seconds: most that a kernel may take.
        processor: what the instrumented code is compiled for, `native` or a name of LLVM's.
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

    def features(self, kernel: Kernel) -> ProgramFeatures:
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
            found = self._worker.ask(request)
        except WorkerFailedError as error:
            problem = f"the instrumented kernel fails: {error}"
            expected = f"a kernel that ends within {self._seconds:g} s"
            raise DataError(problem, where=f"@{kernel.entry}", expected=expected) from error
        if "failed" in found:
            raise DataError(str(found["failed"]), where=f"@{kernel.entry}")
        counts = [effective(np.array(found["counts"][str(each)])) for each in self._threads]
        return ProgramFeatures(
            static=static,
            threads=np.array(self._threads, dtype=np.int64),
            counts=np.array(counts, dtype=np.int64),
            profile=profile_of(np.array(found["samples"], dtype=np.int64).reshape(-1, 2)),
            touched=int(found["touched"]),
            footprint=int(found["footprint"]),
            names=names,
        )
