from __future__ import annotations

import numpy as np
import pytest

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering import tables as lowering_tables
from costbench.compiler.lowering.access import WHOLE, Access, AxisMap, identity
from costbench.compiler.lowering.tables import (
    ADDRESSES,
    CONTRACTS,
    COUNT_BITS,
    CUTS,
    FIXES_AXES,
    NONE,
    NOT_PARTIAL,
    READY,
    RESULT,
    UPDATES,
    WANTED,
    WORKS,
    WRITES,
    LoweringTables,
    key_of,
    slot_of,
)
from tests.compiler import small_kernels as small
from tests.hlo.builder import ModuleBuilder

L0, L1 = AxisMap(loop=0), AxisMap(loop=1)


def applied(tables: LoweringTables, kind: int, first: int, second: int) -> int:
    """The result of a rule, as compiled code finds it."""
    key = key_of(kind, first, second)
    tables.fill(key)
    arrays = tables.arrays
    return int(arrays.results[slot_of(arrays.keys, key)])


def through(tables: LoweringTables, kind: int, position: int, number: int, access: Access) -> Access:
    slot = int(tables.arrays.operands_offsets[position]) + number
    return tables.access(applied(tables, kind, slot, tables.number(access)))


def value(kernel: Kernel, number: int = -1) -> np.void:
    """The row of one of the kernel's instructions."""
    tables, last = LoweringTables(kernel.body), kernel.instructions[number]
    tables.make_ready(np.array([last]))
    row: np.void = tables.arrays.values[last]
    return row


def test_equal_accesses_have_one_number() -> None:
    tables = LoweringTables(small.elementwise().body)
    first, second = tables.number((L0, L1)), tables.number((L1, L0))
    assert first != second
    assert tables.number((AxisMap(loop=0), AxisMap(loop=1))) == first
    assert [tables.access(number) for number in (first, second)] == [(L0, L1), (L1, L0)]


def test_accesses_pass_through_a_transpose_both_ways() -> None:
    b = ModuleBuilder()
    y = b.op("transpose", b.parameter("f32[8,16]"), shape="f32[16,8]", dimensions=(1, 0))
    tables = LoweringTables(b.build(y).entry_computation)
    assert through(tables, RESULT, y, 0, (L0, L1)) == (L1, L0)
    assert through(tables, WANTED, y, 0, (L0, L1)) == (L1, L0)


def test_a_value_that_does_not_follow_has_no_access() -> None:
    kernel = small.gather()
    tables = LoweringTables(kernel.body)
    slot = int(tables.arrays.operands_offsets[kernel.outputs[0]])
    assert applied(tables, RESULT, slot, tables.number((L0, L1))) == NONE


def test_a_contraction_prescribes_its_operands_where_its_own_loops_run() -> None:
    kernel = small.dot()
    (dot,) = kernel.instructions
    tables, access = LoweringTables(kernel.body), identity(kernel.instruction(dot).shape)
    # Rows, columns, then the depth as the third loop.
    assert through(tables, WANTED, dot, 0, access) == (AxisMap(loop=0), AxisMap(loop=2))
    assert through(tables, WANTED, dot, 1, access) == (AxisMap(loop=2), AxisMap(loop=1))
    assert through(tables, WANTED, dot, 0, (WHOLE, L1)) == (WHOLE, WHOLE)


def test_traits_say_what_is_special() -> None:
    assert value(small.dot())["traits"] == READY | CONTRACTS | WORKS
    assert value(small.sort(), 0)["fixed_axes"] == 0b10
    assert value(small.top_k(), 0)["traits"] & FIXES_AXES
    assert value(small.lone_reshape())["traits"] == READY


@pytest.mark.parametrize(
    ("kernel", "partial"),
    [
        (small.dynamic_slice(), CUTS),
        (small.strided_slice(), NOT_PARTIAL),
        (small.gather(), ADDRESSES),
        (small.scatter(), ADDRESSES),
        (small.dynamic_update_slice(), UPDATES),
        (small.unary(), NOT_PARTIAL),
    ],
)
def test_what_is_read_of_the_first_operand(kernel: Kernel, partial: int) -> None:
    assert value(kernel)["partial"] == partial


def test_the_update_is_what_an_update_in_place_writes() -> None:
    kernel = small.dynamic_update_slice()
    (update,) = kernel.outputs
    assert value(kernel)["source"] == kernel.instruction(update).operands[1]
    tables = LoweringTables(kernel.body)
    access = tables.number((L0, L1))
    rows = applied(tables, WRITES, update, access)
    assert rows & ((1 << COUNT_BITS) - 1) == 1
    arrays = tables.arrays
    copy = arrays.written[rows >> COUNT_BITS]
    assert copy["num_elements"] == 64 * 256
    assert copy["access"] == arrays.access_rows[access]


def test_tables_grow_with_what_is_entered() -> None:
    tables = LoweringTables(small.unary().body)
    slot = 0
    expected = {}
    for loop in range(700):
        number = tables.number((AxisMap(loop=loop % 50, window=1 + loop), L1))
        expected[number] = applied(tables, WANTED, slot, number)
    arrays = tables.arrays
    assert len(arrays.keys) == 2048
    results = {n: int(arrays.results[slot_of(arrays.keys, key_of(WANTED, slot, n))]) for n in expected}
    assert results == expected == {n: n for n in expected}


def test_tables_are_full_once_they_outgrow_the_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowering_tables, "_ENTRIES_PER_INSTRUCTION", 2)
    # Two parameters and their sum: more than 6 entries are too many.
    tables = LoweringTables(small.elementwise().body)
    full = []
    for loop in range(8):
        tables.number((AxisMap(loop=loop),))
        full.append(tables.is_full)
    assert full == [False] * 6 + [True] * 2
