"""The one signature of everything that prices decisions.

A cost model says, for a kernel and some tile sizes, which is faster. Whether it is a formula, a trained
network or a machine makes no difference to an evaluator or a search, so nothing about training, files or
hardware appears here.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from costbench.compiler.kernel import Kernel
from costbench.compiler.tiling.sizes import TileSizes


@runtime_checkable
class CostModel(Protocol):
    """Prices decisions of one kernel at a time."""

    def predict(self, kernel: Kernel, decisions: TileSizes) -> npt.NDArray[np.float64]:
        """Cost of each decision, float64 [len(decisions)]; lower is faster.

        Costs of one kernel compare with each other; whether they are times, and whether they compare
        between kernels, is the model's own matter. The cost of a decision does not depend on which others
        are asked for with it, up to rounding. Every cost is finite.

        Raises:
            UnsupportedKernelError: if the model cannot price the kernel.
        """
        ...
