"""A cost model of your own: any object with `predict(kernel, decisions)`.

    costbench tune tests/experiments/mixer_step.hlo.txt --model examples.my_cost_model:LargestTile

As an entry of `evaluate.models` in params.yaml, the same name makes it a row of the tables.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import F64
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes


class LargestTile:
    """Believes that larger tiles are faster, and knows nothing else.

    A class whose constructor has a parameter `architecture` gets the figures of the chip. A model that
    predicts nanoseconds says `tasks = ("tile", "fusion")` and is asked about fused kernels as well.
    """

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Returns a cost for each tile size, lower is faster, float64 [n].

        Args:
            kernel: `kernel.instruction(i)` for `i` in `kernel.instructions` are what it computes.
            decisions: its tile sizes, int64 `output_bounds` [n, rank] and `kernel_bounds` [n, rank or 0].
        """
        volume = decisions.output_bounds.prod(axis=1) * decisions.kernel_bounds.prod(axis=1)
        return -volume.astype(np.float64)
