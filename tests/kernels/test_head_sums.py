from __future__ import annotations

import numpy as np
import pytest

from costbench_kernels.head_sums import (
    Numbers,
    Rows,
    ScoreTerms,
    Shape,
    Table,
    Terms,
    attention_vector_gradients,
    head_dots,
    relu_sums,
    value_gradients,
)

CONFIGS = 5
# Of the default network; several registers to a head; more heads; narrow ones; a number that fills no four.
SHAPES = pytest.mark.parametrize(("heads", "depth"), [(4, 16), (4, 32), (8, 16), (2, 32), (4, 8), (3, 16)])


def whole_numbers(seed: int, *shape: int) -> np.ndarray:
    # Sums of these are exact in any order.
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


@SHAPES
def test_dots_of_heads(heads: int, depth: int) -> None:
    width = heads * depth
    a, b = whole_numbers(0, CONFIGS, heads, depth), whole_numbers(1, CONFIGS, 2, heads, depth)
    out = np.zeros((2, CONFIGS, heads), np.float32)
    shape = Shape(CONFIGS, heads, depth)
    # The second half of each row of b.
    halves = Rows(b.ravel(), width, 2 * width)
    head_dots(Rows(a.ravel(), 0, width), halves, Numbers(out.ravel(), out[0].size), shape)
    np.testing.assert_array_equal(out, [np.zeros_like(out[0]), np.einsum("chk,chk->ch", a, b[:, 1])])


@SHAPES
def test_sums_of_what_senders_tell(heads: int, depth: int) -> None:
    width = heads * depth
    weights, rows = whole_numbers(0, 3, CONFIGS, heads), whole_numbers(1, 4, CONFIGS, heads, depth)
    out = np.full((CONFIGS, 2, heads, depth), 9.0, np.float32)
    # Terms 1 and 2 of three: weights 0 and 2, rows 3 and 1.
    places = np.array([1, 0, 2]) * weights[0].size, np.array([0, 3, 1]) * rows[0].size
    relu_sums(
        Terms(*places, 1, 3),
        weights.ravel(),
        Table(rows.ravel(), width),
        Rows(out.ravel(), width, 2 * width),
        Shape(CONFIGS, heads, depth),
    )
    expected = weights[0][:, :, None] * rows[3] + weights[2][:, :, None] * rows[1]
    np.testing.assert_array_equal(out[:, 1], np.maximum(expected, 0.0))
    assert (out[:, 0] == 9.0).all()


@SHAPES
def test_gradients_of_values(heads: int, depth: int) -> None:
    width = heads * depth
    weights, rows = whole_numbers(0, 2, CONFIGS, heads), whole_numbers(1, 2, CONFIGS, heads, depth)
    scores, asks = whole_numbers(2, 2, CONFIGS, heads), whole_numbers(3, 4, heads, depth)
    out = np.empty((CONFIGS, heads, depth), np.float32)
    places = np.array([0, 1]) * weights[0].size, np.array([1, 0]) * rows[0].size
    value_gradients(
        Terms(*places, 0, 2),
        weights.ravel(),
        Table(rows.ravel(), width),
        ScoreTerms(scores.ravel(), asks.ravel(), 2),
        Rows(out.ravel(), 0, width),
        Shape(CONFIGS, heads, depth),
    )
    expected = (weights[..., None] * rows[::-1]).sum(0) + (scores[..., None] * asks[2:, None]).sum(0)
    np.testing.assert_array_equal(out, expected)


@SHAPES
def test_gradients_of_what_is_asked_for(heads: int, depth: int) -> None:
    scores, rows = whole_numbers(0, 2, CONFIGS, heads), whole_numbers(1, CONFIGS, heads, depth)
    out = np.ones((3, heads, depth), np.float32)
    width = heads * depth
    attention_vector_gradients(
        scores.ravel(),
        Rows(rows.ravel(), 0, width),
        Numbers(out.ravel(), width),
        Shape(CONFIGS, heads, depth),
    )
    expected = 1.0 + np.einsum("pch,chk->phk", scores, rows)
    np.testing.assert_array_equal(out, [np.ones((heads, depth)), *expected])


@pytest.mark.parametrize(("heads", "depth"), [(4, 16), (4, 8)])
def test_a_nan_stays_one(heads: int, depth: int) -> None:
    rows, out = np.full((1, heads, depth), np.nan, np.float32), np.zeros((1, heads, depth), np.float32)
    terms = Terms(np.zeros(1, np.int64), np.zeros(1, np.int64), 0, 1)
    width = heads * depth
    weights = np.ones(heads, np.float32)
    table, attended = Table(rows.ravel(), width), Rows(out.ravel(), 0, width)
    relu_sums(terms, weights, table, attended, Shape(1, heads, depth))
    assert np.isnan(out).all()
