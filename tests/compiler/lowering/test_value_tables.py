from __future__ import annotations

import pytest

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering import value_tables
from costbench.compiler.lowering.access import WHOLE, AxisMap, identity
from costbench.compiler.lowering.value_tables import CONTRACTS, READS_PART, WORKS, ValueTables
from costbench.hlo.builder import ModuleBuilder
from tests.compiler import small_kernels as small

L0, L1 = AxisMap(loop=0), AxisMap(loop=1)


def test_equal_accesses_have_one_number() -> None:
    tables = ValueTables(small.elementwise().body)
    first, second = tables.number((L0, L1)), tables.number((L1, L0))
    assert first != second
    assert tables.number((AxisMap(loop=0), AxisMap(loop=1))) == first
    assert tables.accesses == [(L0, L1), (L1, L0)]


def test_accesses_pass_through_a_transpose_both_ways() -> None:
    b = ModuleBuilder()
    x = b.parameter("f32[8,16]")
    y = b.op("transpose", x, shape="f32[16,8]", dimensions=(1, 0))
    tables = ValueTables(b.build(y).entry_computation)
    (source, results), (operand, wanted) = tables[y].results[0], tables[y].wanted[0]
    assert source == operand == x
    number = tables.number((L0, L1))
    assert tables.accesses[results[number] or 0] == (L1, L0)
    assert tables.accesses[wanted[number]] == (L1, L0)


def test_a_value_that_does_not_follow_has_no_access() -> None:
    body = small.gather().body
    tables = ValueTables(body)
    _, results = tables[len(body.instructions) - 1].results[0]
    assert results[tables.number((L0, L1))] is None


def test_a_contraction_prescribes_its_operands_where_its_own_loops_walk() -> None:
    kernel = small.dot()
    (dot,) = kernel.instructions
    tables = ValueTables(kernel.body)
    (_, left), (_, right) = tables[dot].wanted
    walk = tables.number(identity(tables[dot].shape))
    # Rows, columns, then the depth as the third loop.
    assert tables.accesses[left[walk]] == (AxisMap(loop=0), AxisMap(loop=2))
    assert tables.accesses[right[walk]] == (AxisMap(loop=2), AxisMap(loop=1))
    assert tables.accesses[left[tables.number((WHOLE, L1))]] == (WHOLE, WHOLE)


def test_traits_tell_what_is_special() -> None:
    def traits(kernel: Kernel) -> int:
        return ValueTables(kernel.body)[kernel.instructions[-1]].traits

    assert traits(small.dot()) == CONTRACTS | WORKS
    assert traits(small.gather()) == READS_PART | WORKS
    assert traits(small.lone_reshape()) == 0


def test_the_update_is_what_an_update_in_place_writes() -> None:
    kernel = small.dynamic_update_slice()
    (update,) = kernel.outputs
    tables = ValueTables(kernel.body)
    assert tables[update].source == tables[update].inst.operands[1]
    (transfer,) = tables.writes[update, tables.number((L0, L1))]
    assert transfer.position == update
    assert transfer.shape.dimensions == tables[tables[update].source].shape.dimensions
    assert tables.writes[update, 0] is tables.writes[update, 0]


def test_tables_fill_up_with_what_passes_through_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_tables, "_ENTRIES_PER_INSTRUCTION", 2)
    kernel = small.elementwise()
    tables = ValueTables(kernel.body)
    # Two parameters and their sum: more than 6 entries are too many.
    full = []
    for loop in range(8):
        tables.number((AxisMap(loop=loop),))
        full.append(tables.is_full)
    assert full == [False] * 6 + [True] * 2
