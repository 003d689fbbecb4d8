from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.arrays import F32
from costbench_kernels.gemm import (
    BLOCK_ROWS,
    CHUNK_ROWS,
    MANY_DECISIONS,
    add_gathered_gradient,
    add_gradient,
    aligned,
    aligned_zeros,
    all_units,
    chunk_end,
    find_active_units,
    gathered_product,
    gathered_product_add,
    gathered_product_add_relu,
    gathered_product_masked,
    gathered_product_relu,
    product,
    product_add,
    product_masked,
    relu_gradient,
    transpose_all,
)

WIDTHS = st.sampled_from([16, 32, 64, 80, 144])
SHAPES = st.tuples(st.integers(1, 11), st.integers(1, 20), WIDTHS, st.integers(0, 3))
GATHERED_SHAPES = st.tuples(st.integers(1, 40), WIDTHS, WIDTHS, st.integers(0, 3))
PRODUCTS: dict[str, tuple[Callable[..., Any], Callable[[F32, F32], F32]]] = {
    "product": (product, lambda old, new: new),
    "product_add": (product_add, lambda old, new: old + new),
}
GATHERED: dict[str, tuple[Callable[..., Any], Callable[[F32, F32], F32]]] = {
    "product": (gathered_product, lambda old, new: new),
    "product_add": (gathered_product_add, lambda old, new: old + new),
    "product_relu": (gathered_product_relu, lambda old, new: np.maximum(new, 0.0)),
    "product_add_relu": (gathered_product_add_relu, lambda old, new: np.maximum(old + new, 0.0)),
}


def whole_numbers(seed: int, *shape: int) -> F32:
    """Small ones, so that sums are exact in any order."""
    return np.random.default_rng(seed).integers(-5, 6, shape).astype(np.float32)


@pytest.mark.parametrize("name", sorted(PRODUCTS))
@given(shape=SHAPES)
def test_products_of_rows(name: str, shape: tuple[int, int, int, int]) -> None:
    rows, depth, width, first = shape
    function, expected = PRODUCTS[name]
    x, w, y = (
        whole_numbers(seed, *size)
        for seed, size in enumerate([(rows + 3, depth), (depth, width), (rows + 4, width)])
    )
    before = y.copy()
    function(x, first, w, y, 2, rows)
    np.testing.assert_array_equal(
        y[2 : 2 + rows], expected(before[2 : 2 + rows], x[first : first + rows] @ w)
    )
    np.testing.assert_array_equal(y[:2], before[:2])
    np.testing.assert_array_equal(y[2 + rows :], before[2 + rows :])


def with_zeros(rows: int, width: int) -> F32:
    """Whole numbers, in a third of the columns zeros only."""
    return whole_numbers(5, rows, width) * (np.random.default_rng(6).random(width) < 2 / 3).astype(np.float32)


@pytest.mark.parametrize("name", sorted(GATHERED))
@given(shape=GATHERED_SHAPES)
def test_products_of_active_units(name: str, shape: tuple[int, int, int, int]) -> None:
    rows, depth, width, first = shape
    function, expected = GATHERED[name]
    x, w, y = with_zeros(rows + 3, depth), whole_numbers(1, depth, width), whole_numbers(2, rows + 4, width)
    before = y.copy()
    units = find_active_units(x, first, rows, MANY_DECISIONS, all_units(depth))
    function((x, first), w, (y, 2), rows, units)
    np.testing.assert_array_equal(
        y[2 : 2 + rows], expected(before[2 : 2 + rows], x[first : first + rows] @ w)
    )
    np.testing.assert_array_equal(y[:2], before[:2])
    np.testing.assert_array_equal(y[2 + rows :], before[2 + rows :])


@given(shape=GATHERED_SHAPES)
def test_masked_products_of_active_units(shape: tuple[int, int, int, int]) -> None:
    rows, depth, width, first = shape
    x, w, mask = with_zeros(rows, depth), whole_numbers(1, depth, width), whole_numbers(2, rows + 3, width)
    y = np.ones((rows, width), np.float32)
    units = find_active_units(x, 0, rows, MANY_DECISIONS, all_units(depth))
    gathered_product_masked((x, 0), w, (y, 0), rows, (mask, first), units)
    np.testing.assert_array_equal(y, np.where(mask[first : first + rows] > 0.0, x @ w, 0.0))


@given(shape=GATHERED_SHAPES)
def test_gradients_of_active_units_add_up(shape: tuple[int, int, int, int]) -> None:
    rows, height, width, first = shape
    d, x, out = (
        with_zeros(rows + 3, height),
        whole_numbers(1, rows + 1, width),
        whole_numbers(2, height, width),
    )
    expected = out + d[first : first + rows].T @ x[1:]
    units = find_active_units(d, first, rows, MANY_DECISIONS, all_units(height))
    add_gathered_gradient((d, first), (x, 1), rows, out, units)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("width", [16, 64, 80])
def test_active_units_come_first(width: int) -> None:
    x = np.zeros((5, width), np.float32)
    on = [1, 7, 8, width - 1]
    x[1, on[0]], x[2, on[1]], x[3, on[2]], x[3, on[3]] = 1.0, -1.0, np.nan, np.inf
    # Rows that are not asked for.
    x[0], x[4] = 1.0, 1.0
    units, count = find_active_units(x, 1, 3, MANY_DECISIONS, all_units(width))
    assert units[:count].tolist() == on
    assert sorted(units.tolist()) == list(range(width))
    assert find_active_units(x, 0, 1, MANY_DECISIONS, all_units(width))[1] == width
    assert find_active_units(x[1:2] * 0.0, 0, 1, MANY_DECISIONS, all_units(width))[1] == 0


def test_of_few_decisions_all_units_are_active() -> None:
    units, count = find_active_units(np.zeros((5, 16), np.float32), 0, 5, MANY_DECISIONS - 1, all_units(16))
    assert (units.tolist(), count) == (list(range(16)), 16)


@pytest.mark.parametrize(
    ("configs", "num_nodes", "ends"),
    [
        (1, 600, [256, 512, 600]),
        (3, 100, [255, 300]),
        (16, 2, [16, 32]),
        (32, 2, [32, 64]),
        (33, 2, [20, 33, 53, 66]),
        (100, 1, [28, 56, 84, 100]),
    ],
)
def test_chunks_end_with_nodes(configs: int, num_nodes: int, ends: list[int]) -> None:
    rows, found, row = configs * num_nodes, [], 0
    while row < rows:
        row = chunk_end(row, rows, configs)
        found.append(row)
    assert found == ends


@given(configs=st.integers(1, 2000), num_nodes=st.integers(1, 5))
def test_chunks_are_small(configs: int, num_nodes: int) -> None:
    row, rows = 0, configs * num_nodes
    while row < rows:
        end = chunk_end(row, rows, configs)
        assert 0 < end - row <= (BLOCK_ROWS if configs < MANY_DECISIONS else CHUNK_ROWS)
        assert end % configs == 0 or end // configs == row // configs
        row = end


@given(shape=SHAPES)
def test_masked_products(shape: tuple[int, int, int, int]) -> None:
    rows, depth, width, first = shape
    x, w, mask = (
        whole_numbers(seed, *size)
        for seed, size in enumerate([(rows, depth), (depth, width), (rows + 3, width)])
    )
    y = np.ones((rows, width), np.float32)
    product_masked(x, w, y, rows, mask, first)
    np.testing.assert_array_equal(y, np.where(mask[first : first + rows] > 0.0, x @ w, 0.0))


@given(shape=SHAPES, height=WIDTHS)
def test_gradients_add_up(shape: tuple[int, int, int, int], height: int) -> None:
    rows, _, width, first = shape
    d, x, out = (
        whole_numbers(seed, *size)
        for seed, size in enumerate([(rows + 3, height), (rows + 1, width), (height, width)])
    )
    expected = out + d[first : first + rows].T @ x[1:]
    add_gradient(d, first, x, 1, rows, out)
    np.testing.assert_array_equal(out, expected)


def test_real_numbers_are_as_exact_as_floats_are() -> None:
    draw = np.random.default_rng(0)
    x, w = (draw.standard_normal(shape).astype(np.float32) for shape in ((33, 64), (64, 64)))
    y = np.empty((33, 64), np.float32)
    product(x, 0, w, y, 0, 33)
    np.testing.assert_allclose(y, x.astype(np.float64) @ w, atol=1e-5)


def test_rows_begin_at_whole_lines() -> None:
    assert all(aligned(rows, 16).ctypes.data % 64 == 0 for rows in (1, 3, 100))
    assert aligned(3, 16).shape == (3, 16)


def test_zeros_and_transposed_copies_are_aligned() -> None:
    matrices = np.arange(96, dtype=np.float32).reshape(3, 2, 16)
    transposed = transpose_all(matrices), matrices.transpose(0, 2, 1)
    for array, expected in ((aligned_zeros(3, 16), np.zeros((3, 16))), transposed):
        np.testing.assert_array_equal(array, expected)
        assert array.ctypes.data % 64 == 0


def test_gradients_of_relus_by_hand() -> None:
    d = np.arange(6, dtype=np.float32).reshape(3, 2) + 1.0
    relu = np.array([[0.0, 1.0], [-1.0, 2.0]], np.float32)
    out = np.empty((2, 2), np.float32)
    relu_gradient(d, 1, relu, 0, 2, out)
    assert out.tolist() == [[0.0, 4.0], [0.0, 6.0]]
