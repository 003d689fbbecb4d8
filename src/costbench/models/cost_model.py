"""The interface of cost models: a kernel and some of its tile sizes to a predicted cost for each.

Formulas, trained networks and measuring devices all implement it, so that evaluation and search treat them
alike. Training, files and hardware therefore do not appear here.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from costbench.arrays import F64
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes


@runtime_checkable
class CostModel(Protocol):
    """Predicts the costs of decisions of one kernel at a time."""

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Returns the cost of each decision, float64 [len(decisions)]; lower is faster.

        Costs of one kernel can be compared with each other; whether they are times, and whether they can be
        compared between kernels, depends on the model. Up to rounding, the cost of a decision does not depend
        on the other decisions of the call. Every cost is finite.

        Raises:
            UnsupportedKernelError: if the model cannot price the kernel.
        """
        ...
