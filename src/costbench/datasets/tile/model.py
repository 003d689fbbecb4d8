"""What generation asks of a compiler's own tile model: costs, and the tile size that it would choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.kernel_batches import KernelBatch
from costbench.compiler.tiling.sizes import TileSizes
from costbench.compiler.tiling.space import TileSpace
from costbench.target import Architecture

IntArray = npt.NDArray[np.int64]


class TileModel(Protocol):
    """A compiler's model of tile sizes on one chip."""

    def predict(self, kernel: Kernel, decisions: TileSizes) -> npt.NDArray[np.float64]:
        """Cost of each tile size of a kernel, [n]; lower is better."""
        ...

    def choose(self, space: TileSpace) -> IntArray:
        """Loop extents, [num_loops], of the tile size that the compiler takes without tuning.

        Raises:
            UnsupportedKernelError: if no tile size fits the scratchpad.
        """
        ...

    def choose_each(self, batch: KernelBatch, chosen: IntArray) -> IntArray:
        """The same for m kernels of a batch whose smallest tiles fit: loop extents, [m, batch.most_loops]."""
        ...


TileModelOn = Callable[[Architecture], TileModel]
"""The model for a chip; it travels to worker processes, so it is a class or a function of a module."""
