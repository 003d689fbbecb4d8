from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from costbench.execution.compiled import compiled
from costbench_kernels.register_tiles import (
    ADDS,
    COLUMNS,
    GATHER_DEPTH,
    GATHER_ROWS,
    LANES,
    MASK,
    NARROW,
    RELU,
    ROWS,
    WIDTH,
    TileOffsets,
    fused,
    join_halves,
    join_pairs,
    join_quads,
    join_whole,
    load,
    multiply_add,
    nonzero_columns,
    relu,
    spread,
    store,
    tile_product,
    total,
    zeros,
)

_tile = tile_product(ROWS, NARROW)
_nonzero_columns = nonzero_columns(NARROW)
_RELU_OF_SUM = ADDS + RELU
_NO_INDICES = np.empty(0, np.int64)


@compiled
def _plain(a: np.ndarray, b: np.ndarray, c: np.ndarray, depth: int) -> None:
    _tile(a, b, c, (c, _NO_INDICES), TileOffsets(0, a.shape[1], 1, 0, NARROW, 0, NARROW, 0, depth, 0), 0)


@compiled
def _relu_of_sum(a: np.ndarray, b: np.ndarray, c: np.ndarray, depth: int) -> None:
    _tile(
        a,
        b,
        c,
        (c, _NO_INDICES),
        TileOffsets(0, a.shape[1], 1, 0, NARROW, 0, NARROW, 0, depth, 0),
        _RELU_OF_SUM,
    )


@compiled
def _masked_transpose(a: np.ndarray, b: np.ndarray, c: np.ndarray, mask: np.ndarray) -> None:
    """c = a^T b, masked; the tile of c begins at its second row."""
    offsets = TileOffsets(0, 1, a.shape[1], 0, NARROW, NARROW, NARROW, 0, len(a), 0)
    _tile(a, b, c, (mask, _NO_INDICES), offsets, MASK)


@compiled
def _of_some_columns(a: np.ndarray, b: np.ndarray, c: np.ndarray, gathered: np.ndarray) -> None:
    """Of the columns of a and rows of b with numbers from the second one on."""
    offsets = TileOffsets(0, a.shape[1], 1, 0, NARROW, 0, NARROW, 0, len(gathered) - 1, 1)
    _tile(a, b, c, (c, gathered), offsets, GATHER_DEPTH)


@compiled
def _of_some_rows(a: np.ndarray, b: np.ndarray, c: np.ndarray, gathered: np.ndarray) -> None:
    """Of the rows of a and c with numbers from the second one on."""
    offsets = TileOffsets(0, a.shape[1], 1, 0, NARROW, 0, NARROW, 0, a.shape[1], 1)
    _tile(a, b, c, (c, gathered), offsets, GATHER_ROWS)


@compiled
def _seen(x: np.ndarray, row: int, rows: int) -> int:
    return int(_nonzero_columns(x, row * x.shape[1] + NARROW, x.shape[1], rows))


@compiled
def _fused(a: float, b: float, c: float) -> float:
    return float(fused(np.float32(a), np.float32(b), np.float32(c)))


def example(depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Whole numbers: sums are exact in any order.
    draw = np.random.default_rng(depth)
    shapes = (ROWS, max(depth, 1)), (max(depth, 1), NARROW), (ROWS + 1, NARROW)
    a, b, c = (draw.integers(-9, 10, shape).astype(np.float32) for shape in shapes)
    return a, b, c


def test_tiles_are_whole_registers() -> None:
    assert NARROW % LANES == 0
    assert COLUMNS % NARROW == 0


@pytest.mark.parametrize("depth", [0, 1, 2, 7])
def test_product_of_a_tile(depth: int) -> None:
    a, b, c = example(depth)
    product = a[:, :depth] @ b[:depth]
    expected = np.concatenate([product, c[ROWS:]])
    _plain(a, b, c, depth)
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("depth", [0, 1, 7])
def test_a_tile_can_be_added_to_and_rectified(depth: int) -> None:
    a, b, c = example(depth)
    expected = np.maximum(c[:ROWS] + a[:, :depth] @ b[:depth], 0.0)
    _relu_of_sum(a, b, c, depth)
    np.testing.assert_array_equal(c[:ROWS], expected)


def test_the_left_side_may_lie_transposed_and_the_result_be_masked() -> None:
    a, b, c = example(ROWS)
    mask = np.where(np.arange(ROWS * NARROW) % 3 == 0, np.float32(0.5), np.float32(-0.5))
    mask[-1] = 0.0
    first = c[0].copy()
    _masked_transpose(a, b, c, mask.reshape(ROWS, NARROW))
    np.testing.assert_array_equal(c[0], first)
    np.testing.assert_array_equal(c[1:], np.where(mask > 0.0, (a.T @ b).ravel(), 0.0).reshape(ROWS, NARROW))


@pytest.mark.parametrize("gathered", [[], [4], [0, 2, 6], [6, 5, 4, 3, 2, 1, 0]])
def test_products_of_picked_columns(gathered: list[int]) -> None:
    a, b, c = example(7)
    _of_some_columns(a, b, c, np.array([99, *gathered]))
    np.testing.assert_array_equal(c[:ROWS], a[:, gathered] @ b[gathered])


def test_products_of_picked_rows() -> None:
    _, b, _ = example(7)
    a, c = whole_numbers(9, 7), np.full((9, NARROW), 5.0, np.float32)
    chosen = [8, 0, 3, 2]
    _of_some_rows(a, b, c, np.array([99, *chosen]))
    others = [row for row in range(9) if row not in chosen]
    np.testing.assert_array_equal(c[chosen], (a @ b)[chosen])
    assert (c[others] == 5.0).all()


def test_columns_that_are_not_zero_everywhere() -> None:
    x = np.zeros((6, 3 * NARROW), np.float32)
    x[1, NARROW + 2] = np.nan
    x[3, NARROW + 15] = -1.0
    # Before and after the rows, and in columns beside.
    x[0], x[4], x[2, :NARROW], x[2, 2 * NARROW :] = 1.0, 1.0, 1.0, 1.0
    assert _seen(x, 1, 3) == (1 << 2) + (1 << 15)
    assert _seen(x, 5, 1) == 0
    assert _seen(x, 0, 1) == (1 << NARROW) - 1
    assert _seen(x, 0, 0) == 0


def test_a_fused_sum_of_numbers() -> None:
    assert _fused(3.0, 4.0, 5.0) == 17.0


def test_a_nan_stays_one() -> None:
    a, b, c = example(1)
    a[0, 0] = np.nan
    _relu_of_sum(a, b, c, 1)
    assert np.isnan(c[0]).all()
    assert not np.isnan(c[1:]).any()


@compiled
def _quads(x: np.ndarray, at: int) -> Any:
    return join_quads(
        join_pairs(load(x, at), load(x, at + 16)), join_pairs(load(x, at + 32), load(x, at + 48))
    )


@compiled
def _sums(x: np.ndarray, out: np.ndarray) -> None:
    """out_i = sum of row i of 16."""
    left = join_halves(_quads(x, 0), _quads(x, 64))
    right = join_halves(_quads(x, 128), _quads(x, 192))
    store(join_whole(left, right), out, 0)


@compiled
def _column_sums(x: np.ndarray, weights: np.ndarray, out: np.ndarray) -> float:
    """out_1 = max(0, sum over rows of weight_i x_i), out_0 is left alone; returns the sum before."""
    found = zeros()
    for row in range(len(x)):
        found = multiply_add(load(x, row * WIDTH), spread(weights, row), found)
    store(relu(found), out, WIDTH)
    return float(total(found))


def whole_numbers(*shape: int) -> np.ndarray:
    # Sums of these are exact in any order.
    return np.random.default_rng(0).integers(-9, 10, shape).astype(np.float32)


def test_joined_registers_are_the_sums_of_sixteen_rows_in_order() -> None:
    x, out = whole_numbers(16, WIDTH), np.empty(16, np.float32)
    _sums(x, out)
    np.testing.assert_array_equal(out, x.sum(axis=1))


def test_weighted_sums_of_rows() -> None:
    x, weights, out = whole_numbers(5, WIDTH), whole_numbers(7)[2:], np.full((2, WIDTH), 7.0, np.float32)
    expected = weights @ x
    assert (expected < 0.0).any()
    assert (expected > 0.0).any()
    assert _column_sums(x, weights, out) == expected.sum()
    np.testing.assert_array_equal(out, [np.full(WIDTH, 7.0), np.maximum(expected, 0.0)])


def test_a_nan_stays_one_in_a_register() -> None:
    x, out = np.ones((1, WIDTH), np.float32), np.empty((2, WIDTH), np.float32)
    x[0, 3] = np.nan
    assert np.isnan(_column_sums(x, np.ones(1, np.float32), out))
    assert np.flatnonzero(np.isnan(out[1])).tolist() == [3]
