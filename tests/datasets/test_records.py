from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from costbench.arrays import AnyArray
from costbench.datasets.record_types import ESTIMATES, NODE_EXTRAS, TILE, TILE_GRAPHS
from costbench.datasets.records import check_columns, check_values
from costbench.errors import DataError
from tests.datasets.tile_columns import tile_columns

WHERE = Path("x.arrow")


def test_good_columns_pass_and_so_do_none_at_all() -> None:
    check_columns(TILE, tile_columns(), WHERE)
    check_columns(TILE, tile_columns(()), WHERE)
    check_columns(TILE, tile_columns((0, 4, 0)), WHERE)


def runtimes(value: float, dtype: str) -> Callable[[dict[str, AnyArray]], None]:
    def change(columns: dict[str, AnyArray]) -> None:
        changed = columns["config_runtime_ns"].astype(dtype)
        changed[3] = value
        columns["config_runtime_ns"] = changed

    return change


BAD: list[tuple[str, Callable[[dict[str, AnyArray]], object], str]] = [
    ("NaN runtime", runtimes(np.nan, "f8"), r"x\.arrow: config_runtime_ns: holds NaN or infinity"),
    ("infinite runtime", runtimes(np.inf, "f4"), "config_runtime_ns: holds NaN or infinity"),
    ("float runtime", runtimes(1.0, "f8"), r"config_runtime_ns: has type float64 \(expected int64\)"),
    ("zero runtime", runtimes(0, "i8"), r"config_runtime_ns: entry 3 is 0 \(expected 1 or more ns\)"),
    ("negative runtime", runtimes(-5, "i8"), "config_runtime_ns: entry 3 is -5"),
    ("big-endian", runtimes(1, ">i8"), "config_runtime_ns: has type >i8"),
    ("missing", lambda c: c.pop("kernel_runs"), "kernel_runs: missing"),
    ("unknown", lambda c: c.update(extra=np.zeros(1)), "no column 'extra'.*kernel_runs"),
    ("too short", lambda c: c.update(kernel_runs=c["kernel_runs"][:1]), "kernel_runs: has 1 entries.*2"),
    ("dimensions", lambda c: c.update(kernel_runs=c["kernel_runs"][:, None]), "has 2 dimensions"),
    (
        "fingerprint",
        lambda c: c.update(kernel_fingerprint=c["kernel_fingerprint"][:, :8].copy()),
        "kernel_fingerprint: has 8 entries.*16",
    ),
    (
        "offsets short of the end",
        lambda c: c["config_offsets"].__setitem__(2, 4),
        r"config_offsets: do not delimit.*0 to 5, the length of config_tile",
    ),
    ("offsets falling", lambda c: c["config_offsets"].__setitem__(1, 9), "config_offsets: do not delimit"),
    ("offsets from 1", lambda c: c["config_offsets"].__setitem__(0, 1), "config_offsets: do not delimit"),
    ("negative position", lambda c: c["kernel_inputs"].__setitem__(0, -1), "kernel_inputs: entry 0 is -1"),
]


@pytest.mark.parametrize(("change", "problem"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_columns_are_named(change: Callable[[dict[str, AnyArray]], object], problem: str) -> None:
    columns = tile_columns()
    change(columns)
    with pytest.raises(DataError, match=problem):
        check_columns(TILE, columns, WHERE)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_floats_that_are_no_numbers_are_named_with_their_row(value: float) -> None:
    estimates = np.arange(1.0, 7.0)
    estimates[4] = value
    column = ESTIMATES.column("config_analytical_ns")
    problem = rf"x\.arrow: config_analytical_ns: entry 4 is {value} \(expected a finite number\)"
    with pytest.raises(DataError, match=problem):
        check_values(column, estimates, WHERE)
    rows = np.zeros((3, 5), np.float32)
    rows[2, 1] = value
    with pytest.raises(DataError, match=f"node_extra: entry 2, 1 is {value}"):
        check_values(NODE_EXTRAS.column("node_extra"), rows, WHERE)


def test_fractions_below_a_minimum_are_refused() -> None:
    runtimes = np.array([0.0, 2.5, -0.5])
    with pytest.raises(DataError, match=r"config_runtime_ns: entry 2 is -0\.5 \(expected 0 or more ns\)"):
        check_values(TILE_GRAPHS.column("config_runtime_ns"), runtimes, WHERE)
