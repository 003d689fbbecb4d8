"""Kernels of schedules: what TVM builds of them, for the analysis of its LLVM IR."""

from __future__ import annotations

import math
from collections.abc import Mapping

from costbench.compiler.schedule.operators import Operator
from costbench.compiler.schedule.space import Value
from costbench.errors import DataError
from costbench.hardware.instrumented.analysis import Kernel

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
    try:
        from costbench.hardware.cpu import tvm_adapter
    except ImportError as error:
        raise DataError("TVM is not installed", expected="pip install costbench[cpu]") from error
    tvm_adapter.check_versions()
    text = tvm_adapter.build(operator, choices, target).llvm_ir()
    return Kernel(text, tvm_adapter.KERNEL, argument_sizes(operator))


def argument_sizes(operator: Operator) -> dict[str, int]:
    """Returns the bytes of a kernel's arguments by TVM's names of them."""
    sizes = {name: _ELEMENT_BYTES * math.prod(operator.tensors[name]) for name in operator.inputs}
    return sizes | {_OUTPUT: _ELEMENT_BYTES * math.prod(operator.tensors[operator.output])}
