"""Matrix products in float32 for matrices of many rows and few columns, as the compiled kernels call them.

Rows are pairs of node and decision, columns are units of a layer; the number of columns is a multiple of
`NARROW`. A product is a loop over tiles whose sums stay in vector registers (`register_tiles`), so it runs at
the processor's peak on as few as a dozen rows, and a ReLU or a mask is applied while a tile is written. The
loop over columns is outside of the loop over rows, so the columns of w in a tile are reused for all rows.

After a ReLU many units are inactive (0) for all decisions of a node at once. `find_active_units` finds the
others, and products named `gathered_...` sum over these only: the same terms in the same order without zeros.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import F32, I64
from costbench.execution.compiled import compiled, compiled_inline
from costbench_kernels.register_tiles import (
    ADDS,
    COLUMNS,
    GATHER_DEPTH,
    GATHER_ROWS,
    MASK,
    NARROW,
    RELU,
    ROWS,
    TileOffsets,
    nonzero_columns,
    tile_product,
)

# Products of a tile of full or narrow width, of `ROWS` rows or of one.
_wide_tile, _narrow_tile = tile_product(ROWS, COLUMNS), tile_product(ROWS, NARROW)
_wide_row, _narrow_row = tile_product(1, COLUMNS), tile_product(1, NARROW)
_nonzero_of_wide, _nonzero_of_narrow = nonzero_columns(COLUMNS), nonzero_columns(NARROW)
_NO_INDICES = np.empty(0, np.int64)
# The flags (see `register_tiles`) are compiled into a product: each sum is a constant where it is used.
_GATHER, _GATHER_ADDS, _GATHER_RELU = GATHER_DEPTH, GATHER_DEPTH + ADDS, GATHER_DEPTH + RELU
_GATHER_MASK, _GATHER_ADDS_RELU = GATHER_DEPTH + MASK, GATHER_DEPTH + ADDS + RELU
_GATHER_ROWS_ADDS = GATHER_ROWS + ADDS


Rows = tuple[F32, int]
"""A matrix and the row at which to start."""
Units = tuple[I64, int]
"""Column indices as `find_active_units` leaves them, and how many of the first ones are active."""


@compiled
def aligned(rows: int, width: int) -> F32:
    """Allocates [rows, width] from the start of a cache line (64 bytes), where vector loads are fastest."""
    buffer = np.empty(rows * width + 16, np.float32)
    skipped = (-(buffer.ctypes.data >> 2)) % 16
    return buffer[skipped : skipped + rows * width].reshape(rows, width)


@compiled
def aligned_zeros(rows: int, width: int) -> F32:
    """Allocates as `aligned` does, filled with zeros."""
    array = aligned(rows, width)
    array[:] = 0.0
    return array


@compiled
def transpose_all(weights: F32) -> F32:
    """Returns transposed copies of L matrices: [L, I, J] to [L, J, I], `aligned`."""
    count, height, width = weights.shape
    array = aligned(count * width, height).reshape(count, width, height)
    for number in range(count):
        array[number] = weights[number].T
    return array


@compiled
def relu_gradient(d: F32, d_row: int, relu: F32, relu_row: int, rows: int, out: F32) -> None:
    """out = d where `relu` is above 0, else 0: the gradient through a ReLU whose output is `relu`.

    Reads `rows` rows of d from d_row on and of `relu` from relu_row on; writes the first rows of `out`.
    """
    width = d.shape[1]
    gradient = d.reshape(-1)[d_row * width : (d_row + rows) * width]
    activated = relu.reshape(-1)[relu_row * width : (relu_row + rows) * width]
    flat = out.reshape(-1)
    for h in range(len(gradient)):
        flat[h] = np.float32(0.0) if activated[h] <= 0.0 else gradient[h]


@compiled_inline
def _offsets(x: Rows, w: F32, y: Rows, mask: Rows, i: int, j: int, depth: int) -> TileOffsets:
    """Returns the offsets of the tile of y = x w at row i and column j, with sums of `depth` terms."""
    inputs, width = w.shape
    out, mask_at = (y[1] + i) * width + j, (mask[1] + i) * width + j
    return TileOffsets((x[1] + i) * inputs, inputs, 1, j, width, out, width, mask_at, depth, 0)


@compiled_inline
def _product(x: Rows, w: F32, y: Rows, rows: int, mask: Rows, units: Units, flags: int) -> None:
    """Writes x w to y over `rows` rows, as the flags say; `units` are the columns of x that are summed over.

    Four loops cover the edges: full and narrow tiles of columns, by `ROWS` rows and by one.
    """
    width, (indices, depth) = w.shape[1], units
    even, full, arrays = rows - rows % ROWS, width - width % COLUMNS, (mask[0], indices)
    for j in range(0, full, COLUMNS):
        for i in range(0, even, ROWS):
            _wide_tile(x[0], w, y[0], arrays, _offsets(x, w, y, mask, i, j, depth), flags)
        for i in range(even, rows):
            _wide_row(x[0], w, y[0], arrays, _offsets(x, w, y, mask, i, j, depth), flags)
    for j in range(full, width, NARROW):
        for i in range(0, even, ROWS):
            _narrow_tile(x[0], w, y[0], arrays, _offsets(x, w, y, mask, i, j, depth), flags)
        for i in range(even, rows):
            _narrow_row(x[0], w, y[0], arrays, _offsets(x, w, y, mask, i, j, depth), flags)


@compiled
def product(x: F32, x_row: int, w: F32, y: F32, y_row: int, rows: int) -> None:
    """y = x w over `rows` rows from x_row and y_row on: x [., M], w [M, N], y [., N]."""
    _product((x, x_row), w, (y, y_row), rows, (y, y_row), (_NO_INDICES, len(w)), 0)


@compiled
def product_add(x: F32, x_row: int, w: F32, y: F32, y_row: int, rows: int) -> None:
    """y += x w; arguments as in `product`."""
    _product((x, x_row), w, (y, y_row), rows, (y, y_row), (_NO_INDICES, len(w)), ADDS)


@compiled
def product_masked(x: F32, w: F32, y: F32, rows: int, mask: F32, mask_row: int) -> None:
    """y = x w where the mask is above 0, else 0: the first rows of x and y, and the mask from mask_row on."""
    _product((x, 0), w, (y, 0), rows, (mask, mask_row), (_NO_INDICES, len(w)), MASK)


@compiled
def add_gradient(d: F32, d_row: int, x: F32, x_row: int, rows: int, out: F32) -> None:
    """out += d^T x, summed over `rows` rows from d_row and x_row on: d [., M], x [., N], out [M, N]."""
    height, width = out.shape
    full, arrays = width - width % COLUMNS, (out, _NO_INDICES)
    for j in range(0, full, COLUMNS):
        for i in range(0, height, ROWS):
            at, right = i * width + j, x_row * width + j
            offsets = TileOffsets(d_row * height + i, 1, height, right, width, at, width, at, rows, 0)
            _wide_tile(d, x, out, arrays, offsets, ADDS)
    for j in range(full, width, NARROW):
        for i in range(0, height, ROWS):
            at, right = i * width + j, x_row * width + j
            offsets = TileOffsets(d_row * height + i, 1, height, right, width, at, width, at, rows, 0)
            _narrow_tile(d, x, out, arrays, offsets, ADDS)


BLOCK_ROWS = 256
"""Rows of a block: a fused kernel runs its chain of products block by block. At width 64 one takes 64 kB."""
CHUNK_ROWS = 32
"""Upper limit for the rows of a chunk, within which a unit counts as inactive if it is 0 in every row."""
MANY_DECISIONS = 16
"""Decisions per node from which inactive units are left out; with fewer, all units are multiplied.

Active units differ between nodes but hardly between decisions of a node, so a chunk with many inactive units
lies within one node. Chunks of fewer rows did not pay on every processor
(docs/notes/2026-11-25-speed-of-networks.md).
"""


@compiled
def chunk_end(row: int, end: int, configs: int) -> int:
    """Returns the row after the chunk that begins at `row`; never more than `end`.

    With few decisions a chunk is as many whole nodes as a block holds. Otherwise a node is divided into
    chunks of nearly equal size, a multiple of `ROWS` and at most `CHUNK_ROWS`, and no chunk crosses a node.
    """
    if configs < MANY_DECISIONS:
        return min(end, row + configs * (BLOCK_ROWS // configs))
    chunks = -(-configs // CHUNK_ROWS)
    size = -(-configs // (chunks * ROWS)) * ROWS
    return min(end, row + size, (row // configs + 1) * configs)


@compiled
def all_units(width: int) -> I64:
    """Returns 0, ..., width - 1 as int64: all units, and a buffer for `find_active_units`."""
    return np.arange(width)


@compiled
def find_active_units(x: F32, row: int, rows: int, configs: int, units: I64) -> Units:
    """Finds the columns of x that are not 0 in at least one of `rows` rows from `row` on.

    Overwrites `units`: the active columns first, ascending, then the others. Returns `units` and the number
    of active columns. With fewer than `MANY_DECISIONS` decisions all columns are returned without looking.
    """
    width = len(units)
    if configs < MANY_DECISIONS:
        return units, width
    count, last, full = 0, width - 1, width - width % COLUMNS
    for first in range(0, width, NARROW):
        if first < full and first % COLUMNS == 0:
            active = _nonzero_of_wide(x, row * width + first, width, rows)
        elif first >= full:
            active = _nonzero_of_narrow(x, row * width + first, width, rows)
        for unit in range(first, first + NARROW):
            # Written to both ends, and one end moves: the branch predictor would miss half of the time.
            units[count] = units[last] = unit
            is_active = active & 1
            active >>= 1
            count += is_active
            last -= 1 - is_active
    return units, count


@compiled
def gathered_product(x: Rows, w: F32, y: Rows, rows: int, units: Units) -> None:
    """y = x w over the active columns of x and the same rows of w."""
    _product(x, w, y, rows, y, units, _GATHER)


@compiled
def gathered_product_add(x: Rows, w: F32, y: Rows, rows: int, units: Units) -> None:
    """y += x w over the active columns of x."""
    _product(x, w, y, rows, y, units, _GATHER_ADDS)


@compiled
def gathered_product_relu(x: Rows, w: F32, y: Rows, rows: int, units: Units) -> None:
    """y = relu(x w) over the active columns of x."""
    _product(x, w, y, rows, y, units, _GATHER_RELU)


@compiled
def gathered_product_add_relu(x: Rows, w: F32, y: Rows, rows: int, units: Units) -> None:
    """y = relu(y + x w) over the active columns of x."""
    _product(x, w, y, rows, y, units, _GATHER_ADDS_RELU)


@compiled
def gathered_product_masked(x: Rows, w: F32, y: Rows, rows: int, mask: Rows, units: Units) -> None:
    """y = x w over the active columns of x where the mask is above 0, else 0."""
    _product(x, w, y, rows, mask, units, _GATHER_MASK)


@compiled
def add_gathered_gradient(d: Rows, x: Rows, rows: int, out: F32, units: Units) -> None:
    """out += d^T x over `rows` rows, for the active columns of d only: d [., M], x [., N], out [M, N]."""
    height, width = out.shape
    indices, count = units
    full, arrays = width - width % COLUMNS, (out, indices)
    # The count is rounded up to whole tiles of ROWS: up to three inactive columns, which follow the active
    # ones in `indices`, are computed too and add 0.
    for i in range(0, count, ROWS):
        for j in range(0, full, COLUMNS):
            right = x[1] * width + j
            offsets = TileOffsets(d[1] * height, 1, height, right, width, j, width, j, rows, i)
            _wide_tile(d[0], x[0], out, arrays, offsets, _GATHER_ROWS_ADDS)
        for j in range(full, width, NARROW):
            right = x[1] * width + j
            offsets = TileOffsets(d[1] * height, 1, height, right, width, j, width, j, rows, i)
            _narrow_tile(d[0], x[0], out, arrays, offsets, _GATHER_ROWS_ADDS)
