from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.arrays import F32
from costbench.models.kernels.gemm import (
    BLOCK_ROWS,
    MANY_DECISIONS,
    PIECE_ROWS,
    add_gradient,
    add_picked_gradient,
    all_units,
    pick,
    picked_product,
    picked_product_add,
    picked_product_add_relu,
    picked_product_masked,
    picked_product_relu,
    piece_end,
    product,
    product_add,
    product_masked,
)

WIDTHS = st.sampled_from([16, 32, 64, 80, 144])
SHAPES = st.tuples(st.integers(1, 11), st.integers(1, 20), WIDTHS, st.integers(0, 3))
PICKED_SHAPES = st.tuples(st.integers(1, 40), WIDTHS, WIDTHS, st.integers(0, 3))
PRODUCTS: dict[str, tuple[Callable[..., Any], Callable[[F32, F32], F32]]] = {
    "product": (product, lambda old, new: new),
    "product_add": (product_add, lambda old, new: old + new),
}
PICKED: dict[str, tuple[Callable[..., Any], Callable[[F32, F32], F32]]] = {
    "product": (picked_product, lambda old, new: new),
    "product_add": (picked_product_add, lambda old, new: old + new),
    "product_relu": (picked_product_relu, lambda old, new: np.maximum(new, 0.0)),
    "product_add_relu": (picked_product_add_relu, lambda old, new: np.maximum(old + new, 0.0)),
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


@pytest.mark.parametrize("name", sorted(PICKED))
@given(shape=PICKED_SHAPES)
def test_products_of_units_that_are_on(name: str, shape: tuple[int, int, int, int]) -> None:
    rows, depth, width, first = shape
    function, expected = PICKED[name]
    x, w, y = with_zeros(rows + 3, depth), whole_numbers(1, depth, width), whole_numbers(2, rows + 4, width)
    before = y.copy()
    units = pick(x, first, rows, MANY_DECISIONS, all_units(depth))
    function((x, first), w, (y, 2), rows, units)
    np.testing.assert_array_equal(
        y[2 : 2 + rows], expected(before[2 : 2 + rows], x[first : first + rows] @ w)
    )
    np.testing.assert_array_equal(y[:2], before[:2])
    np.testing.assert_array_equal(y[2 + rows :], before[2 + rows :])


@given(shape=PICKED_SHAPES)
def test_masked_products_of_units_that_are_on(shape: tuple[int, int, int, int]) -> None:
    rows, depth, width, first = shape
    x, w, mask = with_zeros(rows, depth), whole_numbers(1, depth, width), whole_numbers(2, rows + 3, width)
    y = np.ones((rows, width), np.float32)
    units = pick(x, 0, rows, MANY_DECISIONS, all_units(depth))
    picked_product_masked((x, 0), w, (y, 0), rows, (mask, first), units)
    np.testing.assert_array_equal(y, np.where(mask[first : first + rows] > 0.0, x @ w, 0.0))


@given(shape=PICKED_SHAPES)
def test_gradients_of_units_that_are_on_add_up(shape: tuple[int, int, int, int]) -> None:
    rows, height, width, first = shape
    d, x, out = (
        with_zeros(rows + 3, height),
        whole_numbers(1, rows + 1, width),
        whole_numbers(2, height, width),
    )
    expected = out + d[first : first + rows].T @ x[1:]
    units = pick(d, first, rows, MANY_DECISIONS, all_units(height))
    add_picked_gradient((d, first), (x, 1), rows, out, units)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("width", [16, 64, 80])
def test_units_that_are_on_come_first(width: int) -> None:
    x = np.zeros((5, width), np.float32)
    on = [1, 7, 8, width - 1]
    x[1, on[0]], x[2, on[1]], x[3, on[2]], x[3, on[3]] = 1.0, -1.0, np.nan, np.inf
    # Rows that are not asked for.
    x[0], x[4] = 1.0, 1.0
    units, count = pick(x, 1, 3, MANY_DECISIONS, all_units(width))
    assert units[:count].tolist() == on
    assert sorted(units.tolist()) == list(range(width))
    assert pick(x, 0, 1, MANY_DECISIONS, all_units(width))[1] == width
    assert pick(x[1:2] * 0.0, 0, 1, MANY_DECISIONS, all_units(width))[1] == 0


def test_of_few_decisions_all_units_are_picked() -> None:
    units, count = pick(np.zeros((5, 16), np.float32), 0, 5, MANY_DECISIONS - 1, all_units(16))
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
def test_pieces_end_with_nodes(configs: int, num_nodes: int, ends: list[int]) -> None:
    rows, found, row = configs * num_nodes, [], 0
    while row < rows:
        row = piece_end(row, rows, configs)
        found.append(row)
    assert found == ends


@given(configs=st.integers(1, 2000), num_nodes=st.integers(1, 5))
def test_pieces_are_small(configs: int, num_nodes: int) -> None:
    row, rows = 0, configs * num_nodes
    while row < rows:
        end = piece_end(row, rows, configs)
        assert 0 < end - row <= (BLOCK_ROWS if configs < MANY_DECISIONS else PIECE_ROWS)
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
