"""Compute time of one iteration: matrix passes, vector work, data movement inside the scratchpad.

Every tile is computed in full, edge tiles included. Work that needs the finished sums of a contraction (its
epilogue) runs once per result tile, everything else in every iteration.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.lowering.packed import PackedNest, pack
from costbench.compiler.tiling.footprint import Tile
from costbench.execution.compiled import compiled_step
from costbench.hardware.matrix_unit import matrix_time, pack_contraction
from costbench.hardware.vector_unit import VectorRates, vector_ns, vector_work

FloatArray = npt.NDArray[np.float64]


class KernelWork(NamedTuple):
    """What a kernel computes, before any tile size or machine timing.

    Attributes:
        contraction: its convolution or dot, see `pack_contraction`.
        vector: `VectorAmounts` per box, [2, num_boxes, 8].
    """

    contraction: FloatArray
    vector: FloatArray


class ComputeTime(NamedTuple):
    """Nanoseconds for one tile size.

    Attributes:
        matrix_ns: matrix unit, per iteration.
        vector_ns: vector unit, per iteration.
        epilogue_ns: vector unit, per result tile of a contraction.
    """

    matrix_ns: float
    vector_ns: float
    epilogue_ns: float


def kernel_work(nest: LoopNest) -> KernelWork:
    """What a kernel computes; worked out once and kept with the nest, like its own cached properties.

    Raises:
        UnsupportedKernelError: if the kernel holds an operation that the machine cannot run.
    """
    known: KernelWork | None = vars(nest).get("kernel_work")
    if known is None:
        known = KernelWork(pack_contraction(nest), vector_work(pack(nest), nest.kernel))
        vars(nest)["kernel_work"] = known
    return known


@compiled_step
def compute_time(
    nest: PackedNest,
    contraction: FloatArray,
    rates: VectorRates,
    tile: Tile,
    moving: int,
    machine: FloatArray,
) -> ComputeTime:
    """Prices the work of one full tile, whose sizes are known."""
    matrix = matrix_time(nest, contraction, tile, moving, machine)
    every, after = vector_ns(rates, tile)
    return ComputeTime(matrix.matrix_ns, matrix.vector_ns + every, after)
