"""Compute time of one iteration: matrix passes, vector work, data movement inside the scratchpad.

Every tile is computed in full, edge tiles included. Work that needs the finished sums of a contraction (its
epilogue) runs once per result tile, everything else in every iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.compiler.footprint import TileGrid
from costbench.hardware.matrix_unit import matrix_time
from costbench.hardware.vector_unit import vector_work
from costbench.target import Target

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ComputeTime:
    """Nanoseconds, each [n].

    Attributes:
        matrix_ns: matrix unit, per iteration.
        vector_ns: vector unit, per iteration.
        epilogue_ns: vector unit, per result tile of a contraction.
    """

    matrix_ns: FloatArray
    vector_ns: FloatArray
    epilogue_ns: FloatArray


def compute_time(grid: TileGrid, target: Target) -> ComputeTime:
    """Prices the work of one full tile.

    Raises:
        UnsupportedKernelError: if the kernel holds an operation that the machine cannot run.
    """
    every, after = vector_work(grid.nest, target.timing)
    matrix, vector = np.zeros(grid.count), every.time_ns(grid, target)
    if grid.nest.contraction is not None:
        contraction = matrix_time(grid, target)
        matrix, vector = contraction.matrix_ns, vector + contraction.vector_ns
    return ComputeTime(matrix, vector, after.time_ns(grid, target))
