"""Kernels of schedules: what TVM builds of them, for the analysis of its LLVM IR."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from types import ModuleType
from typing import Any

from costbench.errors import DataError
from costbench_schedules.devices.instrumented.analysis import Analyzer, Kernel
from costbench_schedules.operators.operators import Operator
from costbench_schedules.spaces.space import Value

_OUTPUT = "compute"
_ELEMENT_BYTES = 4


def kernel_of(operator: Operator, choices: Mapping[str, Value], target: str = "native") -> Kernel:
    """Returns the kernel of a schedule.

    Args:
        operator: what is computed.
        choices: one for each knob, see `ScheduleSpace.choices`.
        target: processor whose instructions are used, see `tvm_adapter.target_of`.

    Raises:
        DataError: if the extra `cpu` is not installed.
    """
    tvm_adapter = _adapter()
    tvm_adapter.check_versions()
    text = tvm_adapter.build(operator, choices, target).llvm_ir()
    return Kernel(text, tvm_adapter.KERNEL, argument_sizes(operator))


def _adapter() -> ModuleType:
    """Returns the module that imports TVM; a DataError if TVM is not installed."""
    try:
        from costbench_schedules.devices import tvm_adapter
    except ImportError as error:
        raise DataError("TVM is not installed", expected="pip install costbench[cpu]") from error
    return tvm_adapter


class ScheduleAnalyzer:
    """Takes features of schedules. Use it as a context manager, or call `close`.

    Args:
        seconds: most that the analysis of a program may take.
    """

    def __init__(self, seconds: float) -> None:
        self._analyzer = Analyzer(seconds=seconds)

    def __enter__(self) -> ScheduleAnalyzer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker process."""
        self._analyzer.close()

    @property
    def host(self) -> Mapping[str, Any]:
        """Returns this machine and the versions of its compiler, see `tvm_adapter.Host`.

        Raises:
            DataError: if the extra `cpu` is not installed.
        """
        return asdict(_adapter().host())

    def features(self, operator: Operator, choices: Mapping[str, Value], target: str, /) -> bytes:
        """Returns `ProgramFeatures.to_bytes` of a schedule that is built for a target, see `kernel_of`.

        Raises:
            DataError: if the program cannot be analysed, or takes too long, or TVM is not installed.
        """
        return self._analyzer.features(kernel_of(operator, choices, target)).to_bytes()


def argument_sizes(operator: Operator) -> dict[str, int]:
    """Returns the bytes of a kernel's arguments by TVM's names of them."""
    sizes = {name: _ELEMENT_BYTES * math.prod(operator.tensors[name]) for name in operator.inputs}
    return sizes | {_OUTPUT: _ELEMENT_BYTES * math.prod(operator.tensors[operator.output])}
