"""Noise of a recorded table, with repeats made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.agreement import (
    agreement,
    agreement_afterwards,
    confirmed_gflops,
    fastest_numbers,
)
from costbench_schedules.records.table import (
    AFTERWARDS,
    WHILE_RECORDING,
    RecordedTable,
    empty_table,
)
from costbench_schedules.spaces.sub_spaces import recorded_space

FASTEST = 5


def table(*repeats: tuple[int, int, int]) -> RecordedTable:
    """Runtimes of 1000 ns and more, 800 ns of the fastest; repeats are (number, nanoseconds, round)."""
    space = recorded_space(parse_operator("matmul:m=32,n=32,k=32"), 600)
    empty = empty_table("matmul", space, "native", {}, {})
    runtime = 1000 + np.arange(space.size)
    runtime[FASTEST] = 800
    listed = np.array([(number, ns, space.size, kind) for number, ns, kind in repeats], dtype=np.int64)
    measured = np.ones(space.size, dtype=np.bool_)
    columns = {**empty.columns, "measured": measured, "runtime_ns": runtime}
    return replace(empty, columns=columns, repeats=listed.reshape(-1, 4))


def test_the_fastest_has_the_speed_of_its_measurements_after_recording() -> None:
    """Median of 900, 1000 and 2000 ns for 2 * 32^3 operations; other rounds and schedules do not count."""
    again = [(FASTEST, ns, AFTERWARDS) for ns in (900, 2000, 1000)]
    gflops = confirmed_gflops(table(*again, (FASTEST, 700, WHILE_RECORDING), (0, 500, AFTERWARDS)))
    assert gflops == pytest.approx(2 * 32**3 / 1000)


@pytest.mark.parametrize("repeats", [(), ((0, 900, AFTERWARDS),), ((FASTEST, 0, AFTERWARDS),)])
def test_without_a_measurement_nothing_is_confirmed(repeats: tuple[tuple[int, int, int], ...]) -> None:
    assert confirmed_gflops(table(*repeats)) is None


def test_agreement_by_hand() -> None:
    """1000, 1001, 1002 and 800 ns become 1100, 1001, 1102 and 1200: two of six pairs keep their order."""
    ones = ((0, 1100), (1, 1001), (2, 1102), (FASTEST, 1200))
    agreed = agreement(table(*((number, ns, AFTERWARDS) for number, ns in ones)), AFTERWARDS)
    assert agreed.pairs == 4
    assert agreed.tau == pytest.approx((2 - 4) / 6)
    assert agreed.median_ratio == pytest.approx((1.1 + 1102 / 1002) / 2)
    assert agreement(table(), AFTERWARDS).tau is None


def test_of_several_measurements_the_median_counts() -> None:
    """1000 ns become 1400, 1100 and 1000, in the median 1100; 1001 become 900 and 902, between them 901."""
    again = ((0, 1400), (1, 900), (0, 1100), (1, 902), (0, 1000), (0, 0))
    agreed = agreement(table(*((number, ns, AFTERWARDS) for number, ns in again)), AFTERWARDS)
    assert (agreed.pairs, agreed.tau) == (2, pytest.approx(-1.0))
    assert agreed.median_ratio == pytest.approx((1.1 + 901 / 1001) / 2)


def test_the_fastest_are_compared_by_themselves() -> None:
    """Fastest are 5, then 0 to 19 but 5; of these 0 and 1 swap. 40, 50 and 60 keep their order, 30 failed."""
    again = ((0, 1100), (1, 1000), (30, 0), (40, 1050), (50, 1060), (60, 1070))
    recorded = table(*((number, ns, AFTERWARDS) for number, ns in again), (70, 100, WHILE_RECORDING))
    assert fastest_numbers(recorded).tolist() == [5, 0, 1, 2, 3, 4, *range(6, 20)]
    drawn, fastest = agreement_afterwards(recorded)
    assert (drawn.pairs, drawn.tau) == (3, pytest.approx(1.0))
    assert (fastest.pairs, fastest.tau) == (2, pytest.approx(-1.0))
