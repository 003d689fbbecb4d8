"""Products of float32 matrices of many rows and few columns, for compiled kernels over the rows of a batch.

Each is made of tiles that stay in registers (`compiled_tiles`), so it runs at the processor's peak on as few
as a dozen rows, and rectifies or masks what it writes on the way. Widths are multiples of `NARROW`.

After a ReLU many units are inactive for all decisions of a node at once. Products that are told which are on
(`pick`) leave out the rest: sums of the same terms in the same order, without those that are 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


_whole, _narrow = tile_product(ROWS, COLUMNS), tile_product(ROWS, NARROW)
_row, _narrow_row = tile_product(1, COLUMNS), tile_product(1, NARROW)
_seen, _narrow_seen = columns_seen(COLUMNS), columns_seen(NARROW)
_ALL = np.empty(0, np.int64)
# Ways have to be constants where they are used.
_SETS, _ADDS, _RELU, _MASK = PICKED_DEPTH, PICKED_DEPTH + ADDS, PICKED_DEPTH + RELU, PICKED_DEPTH + MASK
_ADDS_RELU, _ADDS_ROWS = PICKED_DEPTH + ADDS + RELU, PICKED_ROWS + ADDS


Rows = tuple[FloatArray, int]
"""An array of rows and the first one that is meant."""
Units = tuple[IntArray, int]
"""Numbers of columns, as `pick` leaves them, and how many of them are not 0."""


@compiled_inline
def _product(x: Rows, w: FloatArray, y: Rows, rows: int, beside: tuple[Rows, Units], way: int) -> None:
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
def product(x: FloatArray, x_row: int, w: FloatArray, y: FloatArray, y_row: int, rows: int) -> None:
    """y = x w."""
    _product((x, x_row), w, (y, y_row), rows, ((y, y_row), (_ALL, len(w))), 0)


@compiled
def product_add(x: FloatArray, x_row: int, w: FloatArray, y: FloatArray, y_row: int, rows: int) -> None:
    """y += x w."""
    _product((x, x_row), w, (y, y_row), rows, ((y, y_row), (_ALL, len(w))), ADDS)


@compiled
def product_masked(
    x: FloatArray, w: FloatArray, y: FloatArray, rows: int, mask: FloatArray, mask_row: int
) -> None:
    """y = x w where the mask is above 0, else 0: the first rows of x and y."""
    _product((x, 0), w, (y, 0), rows, ((mask, mask_row), (_ALL, len(w))), MASK)


@compiled
def add_gradient(d: FloatArray, d_row: int, x: FloatArray, x_row: int, rows: int, out: FloatArray) -> None:
    """out += d^T x over `rows` rows from d_row and x_row on: d [., M] and x [., N] to [M, N]."""
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
"""Rows of a block that passes go by: of width 64 they take 64 kB."""
PIECE_ROWS = 32
"""Rows of a piece of a block, where units are looked for that are off in all of them."""
MANY_DECISIONS = 16
"""From so many of a node on that is worth while: nodes differ in their units, decisions hardly."""


@compiled
def piece_end(row: int, end: int, configs: int) -> int:
    """Where a piece ends that begins at `row`, a whole number of nodes or a part of one: at `end` at last."""
    if configs < MANY_DECISIONS:
        return min(end, row + configs * (BLOCK_ROWS // configs))
    parts = -(-configs // PIECE_ROWS)
    even = -(-configs // (parts * ROWS)) * ROWS
    return min(end, row + even, (row // configs + 1) * configs)


@compiled
def all_units(width: int) -> IntArray:
    """What `pick` writes to."""
    return np.arange(width)


@compiled
def pick(x: FloatArray, row: int, rows: int, configs: int, units: IntArray) -> Units:
    """The columns of x that are not 0 in all of some rows: `units` begins with these, ascending.

    The others follow. Of few decisions a node, all are picked.
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
            # Both are written, as a branch would be guessed wrong half of the time.
            units[count] = units[off] = unit
            is_on = seen & 1
            seen >>= 1
            count += is_on
            off -= 1 - is_on
    return units, count


@compiled
def picked_product(x: Rows, w: FloatArray, y: Rows, rows: int, units: Units) -> None:
    """y = x w."""
    _product(x, w, y, rows, (y, units), _SETS)


@compiled
def picked_product_add(x: Rows, w: FloatArray, y: Rows, rows: int, units: Units) -> None:
    """y += x w."""
    _product(x, w, y, rows, (y, units), _ADDS)


@compiled
def picked_product_relu(x: Rows, w: FloatArray, y: Rows, rows: int, units: Units) -> None:
    """y = relu(x w)."""
    _product(x, w, y, rows, (y, units), _RELU)


@compiled
def picked_product_add_relu(x: Rows, w: FloatArray, y: Rows, rows: int, units: Units) -> None:
    """y = relu(y + x w)."""
    _product(x, w, y, rows, (y, units), _ADDS_RELU)


@compiled
def picked_product_masked(x: Rows, w: FloatArray, y: Rows, rows: int, mask: Rows, units: Units) -> None:
    """y = x w where the mask is above 0, else 0."""
    _product(x, w, y, rows, (mask, units), _MASK)


@compiled
def add_picked_gradient(d: Rows, x: Rows, rows: int, out: FloatArray, units: Units) -> None:
    """out += d^T x over `rows` rows, `units` being those of d: d [., M] and x [., N] to [M, N]."""
    height, width = out.shape
    picked, count = units
    full = width - width % COLUMNS
    # Up to three more than are not 0, so that whole tiles are left.
    for i in range(0, count, ROWS):
        for j in range(0, full, COLUMNS):
            places = (d[1] * height, 1, height, x[1] * width + j, width, j, width, j, rows, i)
            _whole(d[0], x[0], out, (out, picked), places, _ADDS_ROWS)
        for j in range(full, width, NARROW):
            places = (d[1] * height, 1, height, x[1] * width + j, width, j, width, j, rows, i)
            _narrow(d[0], x[0], out, (out, picked), places, _ADDS_ROWS)
