"""Computes the features of decisions (tile sizes, layouts) and the static performance features of a kernel.

A tile size is 24 numbers, a layout configuration 18 per configurable node (tpugraphs2023, section 4.1); the
four static performance features are those of lpm2021, section 3.1. Networks also read features of the
loops that a tile size makes of its kernel, which a compiler knows. Nothing here is measured.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import F32, I64
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.spaces import TileSizes
from costbench.errors import DataError
from costbench.features.schema import NUM_LAYOUT_FEATURES, TILE_FEATURES, absent_row, column
from costbench.hlo.cost_analysis import CostAnalysis

_PLACES = 6
_BLOCKS = ("kernel_bounds", "output_bounds", "input_bounds")
_ABSENT = absent_row(TILE_FEATURES)
_START = {block: column(TILE_FEATURES, f"{block}_0") for block in _BLOCKS}


def tile_features(tile_sizes: TileSizes, input_bounds: I64 | None = None) -> F32:
    """Returns the features of `n` tile sizes of one kernel: float32 [n, 24].

    Per list (kernel, output, input bounds): the first six bounds, padded with 0, then sum and product of all
    of them in 64-bit integers. An absent list has product 0, unlike the empty lists of node features.

    Args:
        tile_sizes: the tile sizes.
        input_bounds: int64 [n, rank] if they are given; the compiler nearly always derives them.
    """
    table = np.tile(_ABSENT, (len(tile_sizes), 1))
    _write_block(table, "kernel_bounds", tile_sizes.kernel_bounds)
    _write_block(table, "output_bounds", tile_sizes.output_bounds)
    if input_bounds is not None:
        _write_block(table, "input_bounds", input_bounds)
    return table


def loop_features(nest: LoopNest, tile_sizes: TileSizes) -> F32:
    """Returns features of the loop nests that tile sizes make of their kernel: float32 [n, 4].

    A loop over u native tiles in steps of e has ceil(u / e) iterations and an overhang e ceil(u / e) / u,
    which is 1 if e divides u. Both are multiplied over the loops of the output, then over the reduction
    loops.

    Raises:
        UnsupportedKernelError: for tile sizes of another kernel.
    """
    extents = nest.extents(tile_sizes)
    trips, split = nest.trips(extents), nest.num_output_loops
    parts = (trips.astype(np.float64), extents * trips / nest.units)
    columns = [half.prod(axis=1) for part in parts for half in (part[:, :split], part[:, split:])]
    return np.stack(columns, axis=1).astype(np.float32)


def decision_features(nest: LoopNest, tile_sizes: TileSizes) -> F32:
    """Returns `tile_features` and `loop_features` of `n` tile sizes of one kernel: float32 [n, 28].

    Raises:
        UnsupportedKernelError: for tile sizes of another kernel.
    """
    return np.concatenate([tile_features(tile_sizes), loop_features(nest, tile_sizes)], axis=1)


def _write_block(table: F32, block: str, bounds: I64) -> None:
    if bounds.ndim != 2 or len(bounds) != len(table):
        raise DataError(f"bounds of shape {bounds.shape}", field=block, expected=f"[{len(table)}, rank]")
    if bounds.shape[1] == 0:
        return
    start, num_bounds = _START[block], min(bounds.shape[1], _PLACES)
    whole = bounds.astype(np.int64, copy=False)
    table[:, start : start + num_bounds] = whole[:, :num_bounds]
    table[:, start + _PLACES] = whole.sum(axis=1)
    table[:, start + _PLACES + 1] = whole.prod(axis=1)


def layout_features(minor_to_major: I64) -> F32:
    """Returns the features of layout configurations: int64 [..., 3, 6] to float32 [..., 18].

    Three blocks (output, input, kernel) of six axis numbers, fastest-varying first, -1 where absent.

    Raises:
        DataError: if the last two dimensions are not 3 and 6.
    """
    if minor_to_major.shape[-2:] != (len(_BLOCKS), _PLACES):
        shape = minor_to_major.shape
        raise DataError(f"layouts of shape {shape}", field="minor_to_major", expected="[..., 3, 6]")
    return minor_to_major.reshape(*minor_to_major.shape[:-2], NUM_LAYOUT_FEATURES).astype(np.float32)


def static_performance(kernel: Kernel, analysis: CostAnalysis | None = None) -> F32:
    """Returns FLOPs, bytes read, bytes written and special functions of one run of a kernel: float32 [4].

    Args:
        kernel: the kernel.
        analysis: the cost analysis of the kernel's module, to share work among kernels of one program.

    Raises:
        UnsupportedKernelError: for an opcode without a cost rule.
    """
    cost = (analysis or CostAnalysis(kernel.module)).kernel(
        kernel.computation, kernel.instructions, kernel.inputs, kernel.outputs
    )
    return np.array([cost.flops, cost.bytes_read, cost.bytes_written, cost.transcendentals], dtype=np.float32)
