"""Products of float32 matrices of many rows and few columns, for compiled passes over the rows of a batch.

Each is made of tiles that stay in registers (`compiled_tiles`), so it runs at the processor's peak on as few
as a dozen rows, and rectifies or masks what it writes on the way. Widths are multiples of `NARROW`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from costbench.compiled import compiled, compiled_inline
from costbench.compiled_tiles import ADDS, COLUMNS, MASK, NARROW, RELU, ROWS, tile_product

FloatArray = npt.NDArray[np.float32]


ADDS_RELU = ADDS + RELU
_whole, _narrow = tile_product(ROWS, COLUMNS), tile_product(ROWS, NARROW)
_row, _narrow_row = tile_product(1, COLUMNS), tile_product(1, NARROW)


Rows = tuple[FloatArray, int]
"""An array of rows and the first one that is meant."""


@compiled_inline
def _product(x: Rows, w: FloatArray, y: Rows, rows: int, mask: Rows, way: int) -> None:
    depth, width = w.shape
    even, full = rows - rows % ROWS, width - width % COLUMNS
    for j in range(0, full, COLUMNS):
        for i in range(0, even, ROWS):
            at, seen = (y[1] + i) * width + j, (mask[1] + i) * width + j
            places = ((x[1] + i) * depth, depth, 1, j, width, at, width, seen, depth)
            _whole(x[0], w, y[0], mask[0], places, way)
        for i in range(even, rows):
            at, seen = (y[1] + i) * width + j, (mask[1] + i) * width + j
            places = ((x[1] + i) * depth, depth, 1, j, width, at, width, seen, depth)
            _row(x[0], w, y[0], mask[0], places, way)
    for j in range(full, width, NARROW):
        for i in range(0, even, ROWS):
            at, seen = (y[1] + i) * width + j, (mask[1] + i) * width + j
            places = ((x[1] + i) * depth, depth, 1, j, width, at, width, seen, depth)
            _narrow(x[0], w, y[0], mask[0], places, way)
        for i in range(even, rows):
            at, seen = (y[1] + i) * width + j, (mask[1] + i) * width + j
            places = ((x[1] + i) * depth, depth, 1, j, width, at, width, seen, depth)
            _narrow_row(x[0], w, y[0], mask[0], places, way)


@compiled
def product(x: FloatArray, x_row: int, w: FloatArray, y: FloatArray, y_row: int, rows: int) -> None:
    """y = x w."""
    _product((x, x_row), w, (y, y_row), rows, (y, y_row), 0)


@compiled
def product_add(x: FloatArray, x_row: int, w: FloatArray, y: FloatArray, y_row: int, rows: int) -> None:
    """y += x w."""
    _product((x, x_row), w, (y, y_row), rows, (y, y_row), ADDS)


@compiled
def product_relu(x: FloatArray, x_row: int, w: FloatArray, y: FloatArray, y_row: int, rows: int) -> None:
    """y = relu(x w)."""
    _product((x, x_row), w, (y, y_row), rows, (y, y_row), RELU)


@compiled
def product_add_relu(x: FloatArray, x_row: int, w: FloatArray, y: FloatArray, y_row: int, rows: int) -> None:
    """y = relu(y + x w)."""
    _product((x, x_row), w, (y, y_row), rows, (y, y_row), ADDS_RELU)


@compiled
def product_masked(
    x: FloatArray, w: FloatArray, y: FloatArray, rows: int, mask: FloatArray, mask_row: int
) -> None:
    """y = x w where the mask is above 0, else 0: the first rows of x and y."""
    _product((x, 0), w, (y, 0), rows, (mask, mask_row), MASK)


@compiled
def add_gradient(d: FloatArray, d_row: int, x: FloatArray, x_row: int, rows: int, out: FloatArray) -> None:
    """out += d^T x over `rows` rows from d_row and x_row on: d [., M] and x [., N] to [M, N]."""
    height, width = out.shape
    full = width - width % COLUMNS
    for j in range(0, full, COLUMNS):
        for i in range(0, height, ROWS):
            at, begin = i * width + j, x_row * width + j
            _whole(d, x, out, out, (d_row * height + i, 1, height, begin, width, at, width, at, rows), ADDS)
    for j in range(full, width, NARROW):
        for i in range(0, height, ROWS):
            at, begin = i * width + j, x_row * width + j
            _narrow(d, x, out, out, (d_row * height + i, 1, height, begin, width, at, width, at, rows), ADDS)
