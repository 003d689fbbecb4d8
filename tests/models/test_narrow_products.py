from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.models.narrow_products import (
    FloatArray,
    add_gradient,
    product,
    product_add,
    product_add_relu,
    product_masked,
    product_relu,
)

WIDTHS = st.sampled_from([16, 32, 64, 80, 144])
SHAPES = st.tuples(st.integers(1, 11), st.integers(1, 20), WIDTHS, st.integers(0, 3))
PRODUCTS: dict[str, tuple[Callable[..., Any], Callable[[FloatArray, FloatArray], FloatArray]]] = {
    "product": (product, lambda old, new: new),
    "product_add": (product_add, lambda old, new: old + new),
    "product_relu": (product_relu, lambda old, new: np.maximum(new, 0.0)),
    "product_add_relu": (product_add_relu, lambda old, new: np.maximum(old + new, 0.0)),
}


def whole_numbers(seed: int, *shape: int) -> FloatArray:
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
