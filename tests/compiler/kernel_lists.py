"""Kernels of one computation as arrays."""

from __future__ import annotations

from collections.abc import Sequence

from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import KernelArrays, kernel_arrays


def as_arrays(kernels: Sequence[Kernel]) -> KernelArrays:
    """The positions of the kernels, one kernel after the other."""
    return kernel_arrays((kernel.instructions, kernel.inputs, kernel.outputs) for kernel in kernels)
