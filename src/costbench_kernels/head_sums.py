"""The inner loops of graph attention: dot products and weighted sums per decision and head, compiled.

States of a node are rows [C, H] for its C decisions, with the heads side by side, H = heads * depth. Scores
and softmax weights, one per decision and head, are vectors [C heads]. Arrays are flat; positions are in
elements.

If the depth of a head is a multiple of `WIDTH`, sums are kept in vector registers (`register_tiles`); other
depths take scalar loops. The shape of the default network, 4 heads of 16, is passed as constants to inlined
functions, so that the compiler knows the loop bounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from costbench.arrays import F32, I64
from costbench.execution.compiled import compiled, compiled_inline
from costbench_kernels.register_tiles import (
    WIDTH,
    join_halves,
    join_pairs,
    join_quads,
    join_whole,
    load,
    multiply_add,
    relu,
    spread,
    store,
    total,
    zeros,
)


class Rows(NamedTuple):
    """C rows of a flat array: the position of the first one, and the distance from one to the next."""

    array: F32
    start: int
    stride: int


class Table(NamedTuple):
    """Rows of a flat array whose positions the terms of a sum have, and the distance between decisions."""

    array: F32
    stride: int


class Numbers(NamedTuple):
    """A vector [C heads], or two [H], from a position of a flat array on."""

    array: F32
    start: int


class Shape(NamedTuple):
    """Numbers of decisions C and of heads, and the depth of a head."""

    configs: int
    heads: int
    depth: int


class Terms(NamedTuple):
    """Terms `first` to `end` of sums: positions of their weights [C heads] and of their rows."""

    weights: I64
    rows: I64
    first: int
    end: int


_ZERO = np.float32(0.0)
_COLUMNS = 4 * WIDTH


@compiled_inline
def _product(a: Rows, b: Rows, c: int, column: int, depth: int) -> Any:
    """Returns the products of one head of a and b at decision c, summed up to one vector [WIDTH]."""
    total_vector = zeros()
    for k in range(column, column + depth, WIDTH):
        left, right = load(a.array, a.start + c * a.stride + k), load(b.array, b.start + c * b.stride + k)
        total_vector = multiply_add(left, right, total_vector)
    return total_vector


@compiled_inline
def _four_products(a: Rows, b: Rows, first: int, shape: Shape) -> Any:
    """Returns partial dot products of four heads in a row; `first` counts heads over all decisions.

    Each quarter of the vector has one partial sum of each head.
    """
    heads, depth = shape.heads, shape.depth
    c, column = first // heads, first % heads * depth
    return join_quads(
        join_pairs(_product(a, b, c, column, depth), _product(a, b, c, column + depth, depth)),
        join_pairs(
            _product(a, b, c, column + 2 * depth, depth), _product(a, b, c, column + 3 * depth, depth)
        ),
    )


@compiled_inline
def _wide_dots(a: Rows, b: Rows, out: Numbers, shape: Shape) -> None:
    """`head_dots` where 4 divides the heads: 16 dot products at a time, transposed and added in registers.

    Adding the lanes of each product by itself (`total`) would take more shuffles; the last ones are done so.
    """
    configs, heads, depth = shape
    whole = configs * heads // WIDTH * WIDTH
    for first in range(0, whole, WIDTH):
        left = join_halves(_four_products(a, b, first, shape), _four_products(a, b, first + 4, shape))
        right = join_halves(_four_products(a, b, first + 8, shape), _four_products(a, b, first + 12, shape))
        store(join_whole(left, right), out.array, out.start + first)
    for head in range(whole, configs * heads):
        out.array[out.start + head] = total(_product(a, b, head // heads, head % heads * depth, depth))


@compiled
def head_dots(a: Rows, b: Rows, out: Numbers, shape: Shape) -> None:
    """out_ch = sum over k of a_chk b_chk: a dot product for each decision c and head h."""
    configs, heads, depth = shape
    if heads == 4 and depth == WIDTH:
        _wide_dots(a, b, out, Shape(configs, 4, 16))
    elif heads % 4 == 0 and depth % WIDTH == 0:
        _wide_dots(a, b, out, shape)
    else:
        for c in range(configs):
            for head in range(heads):
                dot = _ZERO
                for column in range(head * depth, head * depth + depth):
                    left = a.array[a.start + c * a.stride + column]
                    dot += left * b.array[b.start + c * b.stride + column]
                out.array[out.start + c * heads + head] = dot


Four = tuple[Any, Any, Any, Any]
"""Four vectors next to each other: so many independent sums hide the latency of an addition."""


@compiled_inline
def _add_terms(
    start: Four,
    terms: Terms,
    weights: F32,
    rows: Table,
    c: int,
    column: int,
    s: Shape,
) -> Four:
    """Returns start + sum over terms of weight_ch row_chk, for decision c and `_COLUMNS` columns.

    `column` is the first column.
    """
    one, two, three, four = start
    lane, offset = c * s.heads, c * rows.stride + column
    heads = _heads_of(column, s.depth)
    for term in range(terms.first, terms.end):
        weight, row = terms.weights[term] + lane, terms.rows[term] + offset
        one = multiply_add(spread(weights, weight + heads[0]), load(rows.array, row), one)
        two = multiply_add(spread(weights, weight + heads[1]), load(rows.array, row + WIDTH), two)
        three = multiply_add(spread(weights, weight + heads[2]), load(rows.array, row + 2 * WIDTH), three)
        four = multiply_add(spread(weights, weight + heads[3]), load(rows.array, row + 3 * WIDTH), four)
    return one, two, three, four


@compiled_inline
def _heads_of(column: int, depth: int) -> tuple[int, int, int, int]:
    """Returns the heads of the four vectors that begin at a column."""
    return (
        column // depth,
        (column + WIDTH) // depth,
        (column + 2 * WIDTH) // depth,
        (column + 3 * WIDTH) // depth,
    )


@compiled_inline
def _load_four(array: F32, at: int) -> Four:
    return load(array, at), load(array, at + WIDTH), load(array, at + 2 * WIDTH), load(array, at + 3 * WIDTH)


@compiled_inline
def _store_four(values: Four, array: F32, at: int) -> None:
    store(values[0], array, at)
    store(values[1], array, at + WIDTH)
    store(values[2], array, at + 2 * WIDTH)
    store(values[3], array, at + 3 * WIDTH)


@compiled_inline
def _add_times(start: Four, weights: F32, at: int, heads: tuple[int, ...], row: Four) -> Four:
    """Returns start + weight_h row_hk."""
    return (
        multiply_add(spread(weights, at + heads[0]), row[0], start[0]),
        multiply_add(spread(weights, at + heads[1]), row[1], start[1]),
        multiply_add(spread(weights, at + heads[2]), row[2], start[2]),
        multiply_add(spread(weights, at + heads[3]), row[3], start[3]),
    )


@compiled_inline
def _wide_sums(terms: Terms, weights: F32, rows: Table, out: Rows, s: Shape) -> None:
    for c in range(s.configs):
        for column in range(0, s.heads * s.depth, _COLUMNS):
            sums = zeros(), zeros(), zeros(), zeros()
            sums = _add_terms(sums, terms, weights, rows, c, column, s)
            activated = relu(sums[0]), relu(sums[1]), relu(sums[2]), relu(sums[3])
            _store_four(activated, out.array, out.start + c * out.stride + column)


@compiled
def relu_sums(terms: Terms, weights: F32, rows: Table, out: Rows, shape: Shape) -> None:
    """out_chk = max(0, sum over terms of weight_ch row_chk)."""
    configs, heads, depth = shape
    if heads == 4 and depth == WIDTH:
        _wide_sums(terms, weights, rows, out, Shape(configs, 4, 16))
    elif depth % WIDTH == 0 and heads * depth % _COLUMNS == 0:
        _wide_sums(terms, weights, rows, out, shape)
    else:
        for c in range(configs):
            for column in range(heads * depth):
                value = _ZERO
                for term in range(terms.first, terms.end):
                    weight = weights[terms.weights[term] + c * heads + column // depth]
                    value += weight * rows.array[terms.rows[term] + c * rows.stride + column]
                out.array[out.start + c * out.stride + column] = _ZERO if value < _ZERO else value


class ScoreTerms(NamedTuple):
    """What scores contribute to the gradient of values; both arrays are flat.

    Attributes:
        gradients: gradients of the scores as sender and as receiver, [2, C heads].
        vectors: attention vectors, [., H].
        sender: index of the sender's vector, after which the receiver's follows.
    """

    gradients: F32
    vectors: F32
    sender: int


@compiled_inline
def _wide_gradients(terms: Terms, weights: F32, rows: Table, scores: ScoreTerms, out: Rows, s: Shape) -> None:
    d_scores, vectors, first = scores.gradients, scores.vectors, scores.sender
    width = s.heads * s.depth
    for column in range(0, width, _COLUMNS):
        heads = _heads_of(column, s.depth)
        sender_vector = _load_four(vectors, first * width + column)
        receiver_vector = _load_four(vectors, (first + 1) * width + column)
        for c in range(s.configs):
            sums = zeros(), zeros(), zeros(), zeros()
            sums = _add_times(sums, d_scores, c * s.heads, heads, sender_vector)
            sums = _add_times(sums, d_scores, (s.configs + c) * s.heads, heads, receiver_vector)
            sums = _add_terms(sums, terms, weights, rows, c, column, s)
            _store_four(sums, out.array, out.start + c * out.stride + column)


@compiled
def value_gradients(
    terms: Terms, weights: F32, rows: Table, scores: ScoreTerms, out: Rows, shape: Shape
) -> None:
    """out_chk = sum over terms of weight_ch row_chk, plus d_ch vector_hk as sender and as receiver.

    This is the gradient of a node's values: through the sums of its receivers, and through its two scores.
    """
    configs, heads, depth = shape
    if heads == 4 and depth == WIDTH:
        _wide_gradients(terms, weights, rows, scores, out, Shape(configs, 4, 16))
    elif depth % WIDTH == 0 and heads * depth % _COLUMNS == 0:
        _wide_gradients(terms, weights, rows, scores, out, shape)
    else:
        for c in range(configs):
            for column in range(heads * depth):
                lane, at = c * heads + column // depth, scores.sender * heads * depth + column
                value = scores.gradients[lane] * scores.vectors[at]
                value += scores.gradients[configs * heads + lane] * scores.vectors[at + heads * depth]
                for term in range(terms.first, terms.end):
                    row = rows.array[terms.rows[term] + c * rows.stride + column]
                    value += weights[terms.weights[term] + lane] * row
                out.array[out.start + c * out.stride + column] = value


@compiled_inline
def _wide_vector_gradients(scores: F32, rows: Rows, out: Numbers, s: Shape) -> None:
    width = s.heads * s.depth
    for column in range(0, width, _COLUMNS):
        heads, at = _heads_of(column, s.depth), out.start + column
        d_sender, d_receiver = _load_four(out.array, at), _load_four(out.array, at + width)
        for c in range(s.configs):
            row = _load_four(rows.array, rows.start + c * rows.stride + column)
            d_sender = _add_times(d_sender, scores, c * s.heads, heads, row)
            d_receiver = _add_times(d_receiver, scores, (s.configs + c) * s.heads, heads, row)
        _store_four(d_sender, out.array, at)
        _store_four(d_receiver, out.array, at + width)


@compiled
def attention_vector_gradients(scores: F32, rows: Rows, out: Numbers, shape: Shape) -> None:
    """out_hk += sum over c of d_ch row_chk, for sender and receiver: the gradient of their vectors.

    `scores` has the gradients d of the scores, [2, C heads], flat; `out` is [2, H].
    """
    configs, heads, depth = shape
    if heads == 4 and depth == WIDTH:
        _wide_vector_gradients(scores, rows, out, Shape(configs, 4, 16))
    elif depth % WIDTH == 0 and heads * depth % _COLUMNS == 0:
        _wide_vector_gradients(scores, rows, out, shape)
    else:
        for c in range(configs):
            for column in range(heads * depth):
                lane, number = c * heads + column // depth, rows.array[rows.start + c * rows.stride + column]
                out.array[out.start + column] += scores[lane] * number
                out.array[out.start + heads * depth + column] += scores[configs * heads + lane] * number
