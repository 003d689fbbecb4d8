"""Settings for running a network on a CPU, as plain values: modules that read them need not load torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Accelerator = Literal["cpu", "gpu", "auto"]
"""Where a network runs: on a CPU, on a CUDA GPU, or on a GPU where there is one."""


@dataclass(frozen=True)
class Execution:
    """CPU settings; they change speed, and results in the last bits only.

    Attributes:
        threads: OpenMP threads of torch. Two processes of one thread beat one process of two here.
        onednn_matmul: multiply fp32 matrices with oneDNN on processors where that stays fp32.
        keep_memory: let glibc keep freed memory for the next tensor.
        compiled: use compiled kernels where `costbench_kernels` has them for the network.
    """

    threads: int = 1
    onednn_matmul: bool = True
    keep_memory: bool = True
    compiled: bool = True

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads is {self.threads}, must be at least 1")


DEFAULT_EXECUTION = Execution()
