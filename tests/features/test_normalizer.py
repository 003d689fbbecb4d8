"""Scaling by the extremes of the training data."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from costbench.arrays import F32
from costbench.errors import ChoiceError, DataError
from costbench.features.normalizer import MinMaxNormalizer, Transform

TABLES = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=8),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)
TRANSFORMS = st.sampled_from(["none", "log1p"])


def _rows(*rows: tuple[float, ...]) -> F32:
    return np.array(rows, dtype=np.float32)


def test_minimum_goes_to_zero_maximum_to_one_and_constants_go_away() -> None:
    scaler = MinMaxNormalizer.fit([_rows((2, 5, -1), (4, 5, 1)), _rows((10, 5, 0))])
    assert scaler.varying.tolist() == [True, False, True]
    assert (scaler.num_inputs, scaler.num_outputs) == (3, 2)
    assert scaler(_rows((2, 5, -1), (4, 5, 1), (10, 7, 0))).tolist() == [[0, 0], [0.25, 1], [1, 0.5]]


def test_values_outside_the_training_range_are_not_cut() -> None:
    scaler = MinMaxNormalizer.fit([_rows((0,), (2,))])
    assert scaler(_rows((-1,), (5,))).tolist() == [[-0.5], [2.5]]


def test_signed_logarithm() -> None:
    scaler = MinMaxNormalizer.fit([_rows((-7,), (31,))], transform="log1p")
    # sign(x) log2(1 + |x|): -3, 0, 1, 5 between -3 and 5.
    np.testing.assert_allclose(scaler(_rows((-7,), (0,), (1,), (31,)))[:, 0], [0, 3 / 8, 4 / 8, 1], rtol=1e-6)


def test_any_leading_dimensions() -> None:
    scaler = MinMaxNormalizer.fit([_rows((0, 0), (1, 2))])
    assert scaler(np.ones((3, 4, 2), dtype=np.float32)).shape == (3, 4, 2)
    assert scaler(_rows((1, 1))[0]).tolist() == [1, 0.5]


def test_a_single_row_makes_every_column_constant() -> None:
    scaler = MinMaxNormalizer.fit([_rows((1, 2))])
    assert scaler(_rows((1, 2), (3, 4))).shape == (2, 0)


def test_extreme_values_do_not_overflow() -> None:
    largest = float(np.finfo(np.float32).max)
    scaler = MinMaxNormalizer.fit([_rows((-largest,), (largest,))])
    assert scaler(_rows((-largest,), (0,), (largest,)))[:, 0].tolist() == [0, 0.5, 1]


@given(table=TABLES, transform=TRANSFORMS)
def test_training_rows_lie_between_zero_and_one_and_reach_both(table: F32, transform: Transform) -> None:
    scaler = MinMaxNormalizer.fit([table], transform)
    scaled = scaler(table)
    assert scaled.dtype == np.float32
    if scaled.size:
        assert (scaled.min(axis=0) == 0).all()
        assert (scaled.max(axis=0) == 1).all()


@given(table=TABLES, transform=TRANSFORMS, cut=st.integers(0, 8))
def test_chunks_do_not_matter(table: F32, transform: Transform, cut: int) -> None:
    whole = MinMaxNormalizer.fit([table], transform)
    parts = MinMaxNormalizer.fit([table[cut:], table[:cut]], transform)
    assert whole.to_dict() == parts.to_dict()


@given(table=TABLES, transform=TRANSFORMS)
def test_json_keeps_every_bit(table: F32, transform: Transform) -> None:
    scaler = MinMaxNormalizer.fit([table], transform)
    again = MinMaxNormalizer.from_dict(json.loads(json.dumps(scaler.to_dict())))
    assert again.to_dict() == scaler.to_dict()
    assert again(table).tobytes() == scaler(table).tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused_by_the_name_of_its_feature(value: float) -> None:
    tiles = np.ones((3, 24), dtype=np.float32)
    tiles[1, 15] = value
    with pytest.raises(DataError, match="output_bounds_product"):
        MinMaxNormalizer.fit([tiles])
    with pytest.raises(DataError, match="output_bounds_product"):
        MinMaxNormalizer.fit([np.ones((3, 24), dtype=np.float32)])(tiles)
    with pytest.raises(DataError, match="height"):
        MinMaxNormalizer.fit([_rows((1, value))], names=("width", "height"))
    with pytest.raises(DataError, match="column 1"):
        MinMaxNormalizer.fit([_rows((1, value))])


def test_nothing_to_fit_is_an_error() -> None:
    with pytest.raises(DataError, match="no training rows"):
        MinMaxNormalizer.fit([])
    with pytest.raises(DataError, match="no training rows"):
        MinMaxNormalizer.fit([np.zeros((0, 4), dtype=np.float32)])


def test_other_widths_are_an_error() -> None:
    with pytest.raises(DataError, match=r"shape \(1, 2\).*expected \[rows, 1\]"):
        MinMaxNormalizer.fit([_rows((1,)), _rows((1, 2))])
    with pytest.raises(DataError, match=r"expected \[\.\.\., 1\]"):
        MinMaxNormalizer.fit([_rows((1,))])(_rows((1, 2)))


def test_an_unknown_transform_lists_the_choices() -> None:
    with pytest.raises(ChoiceError, match="log1p, none"):
        MinMaxNormalizer.fit([_rows((1,))], "sqrt")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"maximum": [1.0]}, "shapes"),
        ({"maximum": [0.0, -1.0]}, "minimum above maximum"),
        ({"maximum": [0.0, float("nan")]}, "nan"),
        ({"minimum": ["a", 0.0]}, "no numbers"),
        ({"names": ["only one"]}, "1 names"),
        ({"extra": 1}, "keys"),
    ],
)
def test_a_damaged_description_is_an_error(change: dict[str, Any], message: str) -> None:
    content = {"transform": "none", "names": [], "minimum": [0.0, 0.0], "maximum": [1.0, 1.0]}
    with pytest.raises(DataError, match=message):
        MinMaxNormalizer.from_dict(content | change)


@given(TABLES, TRANSFORMS, st.data())
def test_scalers_of_some_columns(table: F32, transform: Transform, data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, table.shape[1] - 1), min_size=1)))
    whole = MinMaxNormalizer.fit([table], transform)
    part = whole.of_columns(chosen)
    outputs = [int(whole.varying[:index].sum()) for index in chosen if whole.varying[index]]
    assert part(table[:, chosen]).tobytes() == whole(table)[:, outputs].tobytes()


def test_a_column_keeps_its_name_in_a_scaler_of_some() -> None:
    part = MinMaxNormalizer.fit([_rows((1, 2, 3))], names=("a", "b", "c")).of_columns([2])
    with pytest.raises(DataError, match="c: value nan"):
        part(_rows((np.nan,)))


def test_many_rows_are_scaled_as_few() -> None:
    table = np.random.Generator(np.random.PCG64(0)).normal(size=(20_000, 3)).astype(np.float32)
    scaler = MinMaxNormalizer.fit([table], "log1p")
    assert scaler(table).tobytes() == b"".join(scaler(row).tobytes() for row in table)


def test_columns_go_away_by_the_ends_of_their_names() -> None:
    table = np.array([[0.0, 2.0, 4.0], [1.0, 3.0, 8.0]])
    scaler = MinMaxNormalizer.fit([table], names=("sizes_0", "sizes_product", "production"))
    reduced = scaler.without(["_product", "_sum"])
    assert reduced.varying.tolist() == [True, False, True]
    assert reduced(np.array([[1.0, 99.0, 6.0]])).tolist() == [[1.0, 0.5]]
    assert scaler.without([]) is scaler
    assert scaler.without(["_1"]).num_outputs == 3


def test_columns_of_the_tables_have_names_by_their_number() -> None:
    varied = np.stack([np.zeros(24), np.ones(24)])
    assert MinMaxNormalizer.fit([varied]).without(["_product"]).num_outputs == 24 - 3
    nameless = np.stack([np.zeros(7), np.ones(7)])
    assert MinMaxNormalizer.fit([nameless]).without(["_product"]).num_outputs == 7
