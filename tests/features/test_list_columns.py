"""Lists as columns: truncation, totals over whole lists, wrap-around, absent lists."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from costbench.features.list_columns import ListColumns


def _wrapped(value: int) -> int:
    """`value` as a 64-bit integer in two's complement."""
    return (value + 2**63) % 2**64 - 2**63


def test_leading_values_then_totals_of_the_whole_list() -> None:
    table = np.full((3, 5), -7, dtype=np.float32)
    columns = ListColumns(start=1, places=2)
    columns.add(0, (4, 5, 6))
    columns.add(2, (9,))
    columns.write(table)
    assert table[0].tolist() == [-7, 4, 5, 15, 120]
    assert table[1].tolist() == [-7, -7, -7, -7, -7]
    assert table[2].tolist() == [-7, 9, -7, 9, 9]


def test_nothing_noted_writes_nothing() -> None:
    table = np.zeros((1, 4), dtype=np.float32)
    columns = ListColumns(start=0, places=2)
    columns.add(0, ())
    columns.write(table)
    assert not table.any()


@given(
    rows=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), min_size=1, max_size=8),
    places=st.integers(1, 6),
)
def test_equals_a_row_by_row_computation(rows: list[list[int]], places: int) -> None:
    table = np.zeros((len(rows), places + 2), dtype=np.float32)
    columns = ListColumns(start=0, places=places)
    for row, values in enumerate(rows):
        columns.add(row, values)
    columns.write(table)
    for row, values in enumerate(rows):
        expected = np.zeros(places + 2, dtype=np.float32)
        if values:
            leading = values[:places]
            expected[: len(leading)] = np.array(leading, dtype=np.int64)
            expected[places:] = np.array([_wrapped(sum(values)), _wrapped(math.prod(values))], dtype=np.int64)
        np.testing.assert_array_equal(table[row], expected)
