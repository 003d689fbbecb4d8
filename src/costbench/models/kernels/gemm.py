"""Matrix products in float32 for matrices of many rows and few columns, as the compiled kernels call them.

Rows are pairs of node and decision, columns are units of a layer; the number of columns is a multiple of
`NARROW`. A product is a loop over tiles whose sums stay in vector registers (`register_tiles`), so it runs at
the processor's peak on as few as a dozen rows, and a ReLU or a mask is applied while a tile is written. The
loop over columns is outside of the loop over rows, so the columns of w in a tile are reused for all rows.

After a ReLU many units are inactive (0) for all decisions of a node at once. `pick` finds the active ones,
and products named `picked_...` sum over these only: the same terms in the same order without zeros.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import F32, I64
from costbench.execution.compiled import compiled, compiled_inline
from costbench.models.kernels.register_tiles import (
    ADDS,
    COLUMNS,
    MASK,
    NARROW,
    PICKED_DEPTH,
    PICKED_ROWS,
    RELU,
    ROWS,
    columns_seen,
    tile_product,
)

_whole, _narrow = tile_product(ROWS, COLUMNS), tile_product(ROWS, NARROW)
_row, _narrow_row = tile_product(1, COLUMNS), tile_product(1, NARROW)
_seen, _narrow_seen = columns_seen(COLUMNS), columns_seen(NARROW)
_ALL = np.empty(0, np.int64)
# A way (see `register_tiles`) is compiled into a product, so each has to be a constant where it is used.
_SETS, _ADDS, _RELU, _MASK = PICKED_DEPTH, PICKED_DEPTH + ADDS, PICKED_DEPTH + RELU, PICKED_DEPTH + MASK
_ADDS_RELU, _ADDS_ROWS = PICKED_DEPTH + ADDS + RELU, PICKED_ROWS + ADDS


Rows = tuple[F32, int]
"""A matrix and the row at which to start."""
Units = tuple[I64, int]
"""Column indices in the order in which `pick` leaves them, and how many of the first ones are active."""


@compiled_inline
def _product(x: Rows, w: F32, y: Rows, rows: int, beside: tuple[Rows, Units], way: int) -> None:
    """Write x w to y over `rows` rows, as `way` says; `beside` holds the mask and the active columns of x.

    Four loops cover the edges: full and narrow tiles of columns, by `ROWS` rows and by one.
    """
    (depth, width), (mask, (picked, count)) = w.shape, beside
    even, full, arrays = rows - rows % ROWS, width - width % COLUMNS, (mask[0], picked)
    for j in range(0, full, COLUMNS):
        for i in range(0, even, ROWS):
            at, seen = (y[1] + i) * width + j, (mask[1] + i) * width + j
            places = ((x[1] + i) * depth, depth, 1, j, width, at, width, seen, count, 0)
            _whole(x[0], w, y[0], arrays, places, way)
        for i in range(even, rows):
            at, seen = (y[1] + i) * width + j, (mask[1] + i) * width + j
            places = ((x[1] + i) * depth, depth, 1, j, width, at, width, seen, count, 0)
            _row(x[0], w, y[0], arrays, places, way)
    for j in range(full, width, NARROW):
        for i in range(0, even, ROWS):
            at, seen = (y[1] + i) * width + j, (mask[1] + i) * width + j
            places = ((x[1] + i) * depth, depth, 1, j, width, at, width, seen, count, 0)
            _narrow(x[0], w, y[0], arrays, places, way)
        for i in range(even, rows):
            at, seen = (y[1] + i) * width + j, (mask[1] + i) * width + j
            places = ((x[1] + i) * depth, depth, 1, j, width, at, width, seen, count, 0)
            _narrow_row(x[0], w, y[0], arrays, places, way)


@compiled
def product(x: F32, x_row: int, w: F32, y: F32, y_row: int, rows: int) -> None:
    """y = x w over `rows` rows from x_row and y_row on: x [., M], w [M, N], y [., N]."""
    _product((x, x_row), w, (y, y_row), rows, ((y, y_row), (_ALL, len(w))), 0)


@compiled
def product_add(x: F32, x_row: int, w: F32, y: F32, y_row: int, rows: int) -> None:
    """y += x w; arguments as in `product`."""
    _product((x, x_row), w, (y, y_row), rows, ((y, y_row), (_ALL, len(w))), ADDS)


@compiled
def product_masked(x: F32, w: F32, y: F32, rows: int, mask: F32, mask_row: int) -> None:
    """y = x w where the mask is above 0, else 0: the first rows of x and y, and the mask from mask_row on."""
    _product((x, 0), w, (y, 0), rows, ((mask, mask_row), (_ALL, len(w))), MASK)


@compiled
def add_gradient(d: F32, d_row: int, x: F32, x_row: int, rows: int, out: F32) -> None:
    """out += d^T x, summed over `rows` rows from d_row and x_row on: d [., M], x [., N], out [M, N]."""
    height, width = out.shape
    full = width - width % COLUMNS
    for j in range(0, full, COLUMNS):
        for i in range(0, height, ROWS):
            at, begin = i * width + j, x_row * width + j
            places = (d_row * height + i, 1, height, begin, width, at, width, at, rows, 0)
            _whole(d, x, out, (out, _ALL), places, ADDS)
    for j in range(full, width, NARROW):
        for i in range(0, height, ROWS):
            at, begin = i * width + j, x_row * width + j
            places = (d_row * height + i, 1, height, begin, width, at, width, at, rows, 0)
            _narrow(d, x, out, (out, _ALL), places, ADDS)


BLOCK_ROWS = 256
"""Rows of a block: a fused kernel runs its chain of products block by block. At width 64 one takes 64 kB."""
PIECE_ROWS = 32
"""Upper limit for the rows of a piece, within which a unit counts as inactive if it is 0 in every row."""
MANY_DECISIONS = 16
"""Decisions per node from which inactive units are left out; with fewer, all units are multiplied.

Active units differ between nodes but hardly between decisions of a node, so a piece with many inactive units
lies within one node. Pieces of fewer rows did not pay on every processor (timings in docs/models.md).
"""


@compiled
def piece_end(row: int, end: int, configs: int) -> int:
    """Returns the row after the piece that begins at `row`; never more than `end`.

    With few decisions a piece is as many whole nodes as a block holds. Otherwise a node is divided into
    pieces of nearly equal size, a multiple of `ROWS` and at most `PIECE_ROWS`, and no piece crosses a node.
    """
    if configs < MANY_DECISIONS:
        return min(end, row + configs * (BLOCK_ROWS // configs))
    parts = -(-configs // PIECE_ROWS)
    even = -(-configs // (parts * ROWS)) * ROWS
    return min(end, row + even, (row // configs + 1) * configs)


@compiled
def all_units(width: int) -> I64:
    """Returns 0, ..., width - 1 as int64: all units, and a buffer for `pick`."""
    return np.arange(width)


@compiled
def pick(x: F32, row: int, rows: int, configs: int, units: I64) -> Units:
    """Find the columns of x that are not 0 in at least one of `rows` rows from `row` on.

    Overwrites `units`: the active columns first, ascending, then the others. Returns `units` and the number
    of active columns. With fewer than `MANY_DECISIONS` decisions all columns are returned without looking.
    """
    width = len(units)
    if configs < MANY_DECISIONS:
        return units, width
    count, off, full = 0, width - 1, width - width % COLUMNS
    for first in range(0, width, NARROW):
        if first < full and first % COLUMNS == 0:
            seen = _seen(x, row * width + first, width, rows)
        elif first >= full:
            seen = _narrow_seen(x, row * width + first, width, rows)
        for unit in range(first, first + NARROW):
            # Both places are written and one index moves: the branch predictor would miss half of the time.
            units[count] = units[off] = unit
            is_on = seen & 1
            seen >>= 1
            count += is_on
            off -= 1 - is_on
    return units, count


@compiled
def picked_product(x: Rows, w: F32, y: Rows, rows: int, units: Units) -> None:
    """y = x w over the active columns of x and the same rows of w."""
    _product(x, w, y, rows, (y, units), _SETS)


@compiled
def picked_product_add(x: Rows, w: F32, y: Rows, rows: int, units: Units) -> None:
    """y += x w over the active columns of x."""
    _product(x, w, y, rows, (y, units), _ADDS)


@compiled
def picked_product_relu(x: Rows, w: F32, y: Rows, rows: int, units: Units) -> None:
    """y = relu(x w) over the active columns of x."""
    _product(x, w, y, rows, (y, units), _RELU)


@compiled
def picked_product_add_relu(x: Rows, w: F32, y: Rows, rows: int, units: Units) -> None:
    """y = relu(y + x w) over the active columns of x."""
    _product(x, w, y, rows, (y, units), _ADDS_RELU)


@compiled
def picked_product_masked(x: Rows, w: F32, y: Rows, rows: int, mask: Rows, units: Units) -> None:
    """y = x w over the active columns of x where the mask is above 0, else 0."""
    _product(x, w, y, rows, (mask, units), _MASK)


@compiled
def add_picked_gradient(d: Rows, x: Rows, rows: int, out: F32, units: Units) -> None:
    """out += d^T x over `rows` rows, for the active columns of d only: d [., M], x [., N], out [M, N]."""
    height, width = out.shape
    picked, count = units
    full = width - width % COLUMNS
    # The count is rounded up to whole tiles of ROWS: up to three inactive columns, which follow the active
    # ones in `picked`, are computed too and add 0.
    for i in range(0, count, ROWS):
        for j in range(0, full, COLUMNS):
            places = (d[1] * height, 1, height, x[1] * width + j, width, j, width, j, rows, i)
            _whole(d[0], x[0], out, (out, picked), places, _ADDS_ROWS)
        for j in range(full, width, NARROW):
            places = (d[1] * height, 1, height, x[1] * width + j, width, j, width, j, rows, i)
            _narrow(d[0], x[0], out, (out, picked), places, _ADDS_ROWS)
