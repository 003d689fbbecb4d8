"""Fused forward and backward kernels of feed-forward layers, and the array functions that kernels share.

Loop order: blocks of rows, then layers. A block fits the innermost caches, so a layer reads there what the
layer before has written, and gradients between layers never go to memory. States [N, C, H] are read as a
matrix [N C, H], a node's C decisions next to each other.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import F32
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


@compiled
def aligned(rows: int, width: int) -> F32:
    """Allocate [rows, width] from the start of a cache line (64 bytes) on, where vector loads are fastest."""
    store = np.empty(rows * width + 16, np.float32)
    skipped = (-(store.ctypes.data >> 2)) % 16
    return store[skipped : skipped + rows * width].reshape(rows, width)


@compiled
def aligned_zeros(rows: int, width: int) -> F32:
    """Allocate as `aligned` does, filled with zeros."""
    array = aligned(rows, width)
    array[:] = 0.0
    return array


@compiled
def turned_all(weights: F32) -> F32:
    """Returns transposed copies of L matrices: [L, I, J] to [L, J, I], `aligned`."""
    count, height, width = weights.shape
    array = aligned(count * width, height).reshape(count, width, height)
    for place in range(count):
        array[place] = weights[place].T
    return array


@compiled
def mask(d: F32, d_row: int, seen: F32, seen_row: int, rows: int, out: F32) -> None:
    """out = d where `seen` is above 0, else 0: the gradient of a ReLU whose output is `seen`.

    Reads `rows` rows of d from d_row on and of `seen` from seen_row on; writes the first rows of `out`.
    """
    width = d.shape[1]
    came = d.reshape(-1)[d_row * width : (d_row + rows) * width]
    above = seen.reshape(-1)[seen_row * width : (seen_row + rows) * width]
    written = out.reshape(-1)
    for h in range(len(came)):
        written[h] = np.float32(0.0) if above[h] <= 0.0 else came[h]


@compiled
def stack_forward(rows: F32, weights: F32, configs: int) -> F32:
    """Returns the outputs of all layers: y_l = relu(y_(l-1) weights_l^T), where y_(-1) is `rows`.

    Shape: rows [R, H] of `configs` decisions per node, weights [L, H, H] ([outputs, inputs]) to [L, R, H].
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
def stack_backward(gradient: F32, rows: F32, outputs: F32, weights: F32, configs: int) -> tuple[F32, F32]:
    """Returns the gradients of the rows [R, H] and the weights [L, H, H] of `stack_forward`.

    `gradient` is that of the last layer's output, [R, H]; the others are as in `stack_forward`. Blocks are
    outside of layers here, too: the gradients between two layers are two buffers that take turns.
    """
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
