"""The compiler's hand-written tile-size model: transfers against compute, the larger of the two per
iteration.

It is the baseline of lpm2021 (section 2.3 and appendix A), rebuilt from what such a model may know before
code is generated: how often a tile is fetched again, window halos, nominal bandwidth and peak with padding to
the matrix unit, some 100 ns of control per iteration, and that small transfers reach less of the bandwidth.
It takes only a chip's public `Architecture`; the rest of the machine is for learned models to find out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.compiler.access import array_shape, tile_elements
from costbench.compiler.kernel import Kernel
from costbench.compiler.loop_nest import LoopNest, loop_nest
from costbench.compiler.tile_sizes import TileSizes
from costbench.compiler.transfers import Transfer
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape
from costbench.target import Architecture

FloatArray = npt.NDArray[np.float64]
ITERATION_NS = 100.0
"""Control and latency of one iteration."""
HALF_EFFICIENCY_BYTES = 16 * 1024
"""Size at which a transfer reaches half of the nominal bandwidth."""
OPERATIONS_PER_CYCLE = 2.0
"""Vector registers that the vector unit is taken to process per cycle."""

_WITHOUT_WORK = frozenset(
    {
        Opcode.PARAMETER,
        Opcode.CONSTANT,
        Opcode.TUPLE,
        Opcode.GET_TUPLE_ELEMENT,
        Opcode.BITCAST,
        Opcode.RESHAPE,
        Opcode.BROADCAST,
        Opcode.CONVOLUTION,
        Opcode.DOT,
    }
)
_WORKS_ON_OPERAND = {Opcode.REDUCE: 0, Opcode.DYNAMIC_UPDATE_SLICE: 1, Opcode.SCATTER: -1}
_EXPENSIVE = {
    Opcode.EXPONENTIAL: 6.0,
    Opcode.LOG: 6.0,
    Opcode.TANH: 6.0,
    Opcode.LOGISTIC: 8.0,
    Opcode.RSQRT: 6.0,
    Opcode.SQRT: 6.0,
    Opcode.DIVIDE: 6.0,
    Opcode.POWER: 12.0,
    Opcode.SINE: 12.0,
    Opcode.COSINE: 12.0,
    Opcode.ERF: 12.0,
    Opcode.SORT: 64.0,
}


@dataclass(frozen=True)
class AnalyticalModel:
    """A `CostModel` of tile sizes.

    Attributes:
        architecture: public figures of the chip.
    """

    architecture: Architecture

    def predict(self, kernel: Kernel, decisions: TileSizes) -> FloatArray:
        """Estimated nanoseconds, float64 [n]:

        iterations * (max(transfer, compute) + 100 ns), with transfer and compute averaged per iteration.
        """
        nest = loop_nest(kernel)
        extents = nest.extents(decisions)
        trips = nest.trips(extents).astype(np.float64)
        iterations = trips.prod(axis=1)
        elements = nest.mean_elements(extents)
        transfer = np.zeros(len(extents))
        for item in nest.transfers:
            transfer += _fetches(nest, item, trips) * self._transfer_ns(item, elements, len(extents))
        compute = self._compute_ns(nest, elements, trips)
        result: FloatArray = np.maximum(transfer, compute) + iterations * ITERATION_NS
        return result

    def _transfer_ns(self, item: Transfer, elements: Sequence[FloatArray], count: int) -> FloatArray:
        num_bytes = _padded(item.shape, tile_elements(item.shape, item.access, elements), count)
        num_bytes = num_bytes * (item.shape.element_type.bits / 8)
        # bytes / (bandwidth * bytes / (bytes + half)) = (bytes + half) / bandwidth
        result: FloatArray = (num_bytes + HALF_EFFICIENCY_BYTES) / self.architecture.hbm_gb_per_s
        return result

    def _compute_ns(self, nest: LoopNest, elements: Sequence[FloatArray], trips: FloatArray) -> FloatArray:
        """Matrix and vector work of the whole kernel, perfectly scheduled side by side."""
        iterations = trips.prod(axis=1)
        results = trips[:, : nest.num_output_loops].prod(axis=1)
        count = len(trips)
        vector = np.zeros(count)
        for position in nest.kernel.instructions:
            inst = nest.kernel.instruction(position)
            if inst.opcode in _WITHOUT_WORK:
                continue
            # A reduction works on what it reads, an update in place on what it writes.
            place = _WORKS_ON_OPERAND.get(inst.opcode)
            subject = position if place is None else inst.operands[place]
            shape = array_shape(nest.kernel.instruction(subject).shape)
            access = nest.accesses.get(subject, ())
            if len(access) != shape.rank:
                continue
            window = math.prod(w.size for w in inst.window)
            work = _padded(shape, tile_elements(shape, access, elements), count) / 1024.0
            runs = results if position in nest.after_contraction else iterations
            vector += runs * work * window * _EXPENSIVE.get(inst.opcode, 1.0)
        matrix = iterations * self._matrix_cycles(nest, elements, count)
        cycles: FloatArray = np.maximum(vector / OPERATIONS_PER_CYCLE, matrix)
        return cycles * self.architecture.cycle_ns

    def _matrix_cycles(self, nest: LoopNest, elements: Sequence[FloatArray], count: int) -> FloatArray:
        """Multiply-adds of one tile over the peak, both sides of the matrix unit padded to its size."""
        if nest.contraction is None or not nest.is_tiled:
            return np.zeros(count)
        left, right = nest.operand_accesses
        inst = nest.kernel.instruction(nest.contraction)
        moved_by_left = {loop for axis in left for loop in axis.loops}
        moved_by_right = {loop for axis in right for loop in axis.loops}
        size = float(self.architecture.mxu_size)
        work = np.ones(count)
        depth = np.ones(count)
        for loop in range(len(nest.loops)):
            in_left, in_right = loop in moved_by_left, loop in moved_by_right
            window = any(axis.window_loop == loop for axis in left)
            if in_right and not in_left:
                work = work * np.ceil(elements[loop] / size) * size
            elif in_left and in_right and loop >= nest.num_output_loops and not window:
                depth = depth * elements[loop]
            else:
                work = work * elements[loop]
        dilation = math.prod(w.base_dilation for w in inst.window)
        peak = self.architecture.num_mxus * size * size
        result: FloatArray = work * np.ceil(depth / size) * size / dilation / peak
        if max(inst.feature_group_count, inst.batch_group_count) > 1:
            # Groups leave the matrix unit nearly empty, so their products run on the vector unit.
            result = work * depth / dilation * 2.0 / 1024.0 / OPERATIONS_PER_CYCLE
        return result


def _padded(shape: Shape, logical: Sequence[FloatArray | float], count: int) -> FloatArray:
    """Elements of a tile padded to 8 sublanes and 128 lanes."""
    total = np.ones(count)
    for place, axis in enumerate(shape.layout):
        unit = (128.0, 8.0)[place] if place < 2 and shape.rank > 1 else 1.0
        total = total * np.ceil(np.asarray(logical[axis]) / unit) * unit
    return total


def _fetches(nest: LoopNest, item: Transfer, trips: FloatArray) -> FloatArray:
    """How often a tile is copied: the trips of every loop down to the innermost one that moves it."""
    moving = set(item.loops)
    fetches = np.ones(len(trips))
    so_far = np.ones(len(trips))
    for loop in nest.order:
        so_far = so_far * trips[:, loop]
        if loop in moving:
            fetches = np.where(trips[:, loop] > 1, so_far, fetches)
    return fetches
