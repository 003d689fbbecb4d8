"""Compiled passes of feed-forward layers, forward and backward.

They go through the rows of a batch in blocks that fit the innermost caches: what one product writes the next
reads from there, and values that are needed once only are never written to memory. Rows are those of states
[N, C, H] as [N C, H], a node's C decisions next to each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from costbench.compiled import compiled
from costbench.models.narrow_products import add_gradient, product, product_masked, product_relu

FloatArray = npt.NDArray[np.float32]

BLOCK_ROWS = 256
"""Rows of a block: of width 64 they take 64 kB."""


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
def stack_forward(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """outputs_l = relu(outputs_(l-1) weights_l^T), outputs_(-1) being `rows`.

    Shape: rows [R, H], weights [L, H, H] (outputs first) to outputs [L, R, H].
    """
    count, width = weights.shape[:2]
    outputs = aligned(count * len(rows), width).reshape(count, len(rows), width)
    matrices = turned_all(weights)
    for start in range(0, len(rows), BLOCK_ROWS):
        end = min(start + BLOCK_ROWS, len(rows))
        product_relu(rows, start, matrices[0], outputs[0], start, end - start)
        for place in range(1, count):
            product_relu(outputs[place - 1], start, matrices[place], outputs[place], start, end - start)
    return outputs


@compiled
def stack_backward(
    gradient: FloatArray, rows: FloatArray, outputs: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Gradients of the rows and the weights of `stack_forward`, of the same shapes."""
    here, there = aligned(BLOCK_ROWS, rows.shape[1]), aligned(BLOCK_ROWS, rows.shape[1])
    width = rows.shape[1]
    d_rows, d_weights = (
        aligned(*rows.shape),
        aligned_zeros(len(weights) * width, width).reshape(weights.shape),
    )
    last = len(weights) - 1
    for start in range(0, len(rows), BLOCK_ROWS):
        count = min(BLOCK_ROWS, len(rows) - start)
        mask(gradient, start, outputs[last], start, count, here)
        for place in range(last, 0, -1):
            before = outputs[place - 1]
            add_gradient(here, 0, before, start, count, d_weights[place])
            product_masked(here, weights[place], there, count, before, start)
            here, there = there, here
        add_gradient(here, 0, rows, start, count, d_weights[0])
        product(here, 0, weights[0], d_rows, start, count)
    return d_rows, d_weights
