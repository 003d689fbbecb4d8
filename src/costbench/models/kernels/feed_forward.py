"""Compiled forward and backward kernels of feed-forward layers.

They go through the rows of a batch in blocks that fit the innermost caches: what one product writes the next
reads from there, and values that are needed once only are never written to memory. Rows are those of states
[N, C, H] as [N C, H], a node's C decisions next to each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from costbench.execution.compiled import compiled
from costbench.models.kernels.gemm import (
    BLOCK_ROWS,
    add_picked_gradient,
    all_units,
    pick,
    picked_product,
    picked_product_masked,
    picked_product_relu,
    piece_end,
)

FloatArray = npt.NDArray[np.float32]


@compiled
def aligned(rows: int, width: int) -> FloatArray:
    """An array whose rows begin where vector registers like to read: at whole lines of the caches."""
    store = np.empty(rows * width + 16, np.float32)
    skipped = (-(store.ctypes.data >> 2)) % 16
    return store[skipped : skipped + rows * width].reshape(rows, width)


@compiled
def aligned_zeros(rows: int, width: int) -> FloatArray:
    """As `aligned`, of zeros."""
    array = aligned(rows, width)
    array[:] = 0.0
    return array


@compiled
def turned_all(weights: FloatArray) -> FloatArray:
    """Transposed copies of matrices [L, I, J], `aligned`: [L, J, I]."""
    count, height, width = weights.shape
    array = aligned(count * width, height).reshape(count, width, height)
    for place in range(count):
        array[place] = weights[place].T
    return array


@compiled
def mask(d: FloatArray, d_row: int, seen: FloatArray, seen_row: int, rows: int, out: FloatArray) -> None:
    """out = d where `seen` is above 0, else 0: rows from 0 on of `out`, else from a row on."""
    width = d.shape[1]
    came = d.reshape(-1)[d_row * width : (d_row + rows) * width]
    above = seen.reshape(-1)[seen_row * width : (seen_row + rows) * width]
    written = out.reshape(-1)
    for h in range(len(came)):
        written[h] = np.float32(0.0) if above[h] <= 0.0 else came[h]


@compiled
def stack_forward(rows: FloatArray, weights: FloatArray, configs: int) -> FloatArray:
    """outputs_l = relu(outputs_(l-1) weights_l^T), outputs_(-1) being `rows`, of `configs` decisions a node.

    Shape: rows [R, H], weights [L, H, H] (outputs first) to outputs [L, R, H].
    """
    count, width = weights.shape[:2]
    outputs = aligned(count * len(rows), width).reshape(count, len(rows), width)
    matrices, units, start = turned_all(weights), all_units(width), 0
    while start < len(rows):
        end = piece_end(start, len(rows), configs)
        x = rows
        for place in range(count):
            on = pick(x, start, end - start, configs, units)
            picked_product_relu((x, start), matrices[place], (outputs[place], start), end - start, on)
            x = outputs[place]
        start = end
    return outputs


@compiled
def stack_backward(
    gradient: FloatArray, rows: FloatArray, outputs: FloatArray, weights: FloatArray, configs: int
) -> tuple[FloatArray, FloatArray]:
    """Gradients of the rows and the weights of `stack_forward`, of the same shapes."""
    count, width = weights.shape[:2]
    here, there = aligned(BLOCK_ROWS, width), aligned(BLOCK_ROWS, width)
    d_rows = aligned(*rows.shape)
    d_weights = aligned_zeros(count * width, width).reshape(weights.shape)
    units, start = all_units(width), 0
    while start < len(rows):
        end = piece_end(start, len(rows), configs)
        size = end - start
        mask(gradient, start, outputs[count - 1], start, size, here)
        for place in range(count - 1, -1, -1):
            on = pick(here, 0, size, configs, units)
            if place:
                before = outputs[place - 1], start
                add_picked_gradient((here, 0), before, size, d_weights[place], on)
                picked_product_masked((here, 0), weights[place], (there, 0), size, before, on)
                here, there = there, here
            else:
                add_picked_gradient((here, 0), (rows, start), size, d_weights[0], on)
                picked_product((here, 0), weights[0], (d_rows, start), size, on)
        start = end
    return d_rows, d_weights
