"""Keys, shapes, types and ranges, each refused with its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costbench.arrays import AnyArray
from costbench.datasets.tpugraphs.checks import (
    Key,
    conform,
    require_ascending,
    require_graph,
    require_runtimes,
)
from costbench.errors import DataError

KEYS = (
    Key("first", ("n", 2), "real", np.float32),
    Key("second", ("n",), "integer", np.int32),
    Key("loose", None, "integer", np.int64),
)


def arrays(**changes: Any) -> dict[str, AnyArray]:
    content = {"first": np.zeros((3, 2)), "second": np.zeros(3, np.uint8), "loose": np.array([[1, 2]])}
    return {key: value for key, value in (content | changes).items() if value is not None}


def test_types_become_one_and_free_shapes_flat() -> None:
    found = conform(arrays(), KEYS, "f")
    assert {key: (value.dtype, value.shape) for key, value in found.items()} == {
        "first": (np.dtype(np.float32), (3, 2)),
        "second": (np.dtype(np.int64), (3,)),
        "loose": (np.dtype(np.int64), (2,)),
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": None}, r"f: first: missing key \(expected an array of shape \(n, 2\)\)"),
        ({"second": None}, r"f: second: missing key \(expected an array of shape \(3,\)\)"),
        ({"first": np.zeros((3, 5))}, r"first: shape \(3, 5\) \(expected shape \(n, 2\)\)"),
        ({"second": np.zeros(4, int)}, r"second: shape \(4,\) \(expected shape \(3,\)\)"),
        ({"second": np.zeros((3, 1), int)}, r"second: shape \(3, 1\)"),
        ({"second": np.full(3, 0.5)}, r"second: value 0\.5 \(expected integers\)"),
        ({"second": np.full(3, 2.0**54)}, r"second: value 1\.8.*e\+16 \(expected integers\)"),
        ({"second": np.full(3, np.inf)}, r"second: value inf \(expected integers\)"),
        ({"first": np.zeros((3, 2), complex)}, r"first: type complex128 \(expected real numbers\)"),
        ({"first": np.full((3, 2), "x")}, "first: type <U1"),
        ({"first": np.array([[0, 0], [0, np.nan], [0, 0]])}, r"first: value nan at \(1, 1\)"),
        ({"first": np.full((3, 2), 1e39)}, r"first: value 1e\+39"),
        ({"second": np.full(3, 2**63, np.uint64)}, "second: value 9223372036854775808"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        conform(arrays(**changes), KEYS, "f")


@pytest.mark.parametrize(
    ("opcodes", "edges", "message"),
    [
        ([], [], "no nodes"),
        ([1, 121], [], "opcode 121"),
        ([-1], [], "opcode -1"),
        ([1, 2], [[1, 0], [0, 0]], r"edge \[0, 0\]"),
        ([1, 2], [[0, 1]], r"edge \[0, 1\]"),
        ([1, 2], [[2, 1]], r"edge \[2, 1\].*consumer < 2"),
        ([1, 2], [[1, -1]], r"edge \[1, -1\]"),
    ],
)
def test_graphs(opcodes: list[int], edges: list[list[int]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        require_graph(np.array(opcodes, np.int64), np.array(edges, np.int64).reshape(-1, 2), "f")


def accepts(check: Callable[..., None], *arguments: object) -> bool:
    try:
        check(*arguments, "f")
    except DataError:
        return False
    return True


@pytest.mark.parametrize(
    ("times", "accepted"),
    [([1, 5], True), ([0, 0], True), ([], True), ([3, 0], False), ([0, 3], False), ([-1, 3], False)],
)
def test_runtimes_are_positive_or_withheld(times: list[int], accepted: bool) -> None:
    assert accepts(require_runtimes, {"t": np.array(times, np.int64)}, "t") is accepted


def test_an_impossible_runtime_is_named() -> None:
    with pytest.raises(DataError, match="t: time 0 ns at 1"):
        require_runtimes({"t": np.array([3, 0])}, "t", "f")


@given(values=st.lists(st.integers(-1, 4), max_size=5))
@example(values=[])
@example(values=[0, 1, 2, 3])
def test_order_is_strict_and_within_range(values: list[int]) -> None:
    expected = values == sorted({value for value in values if 0 <= value <= 3})
    assert accepts(require_ascending, {"ids": np.array(values, np.int64)}, "ids", 3) is expected


@pytest.mark.parametrize("values", [[1, 1], [2, 1], [-1, 0], [0, 4]])
def test_wrong_order_is_named(values: list[int]) -> None:
    with pytest.raises(
        DataError, match=r"ids: values out of order or range \(expected ascending in 0 to 3\)"
    ):
        require_ascending({"ids": np.array(values)}, "ids", 3, "f")
