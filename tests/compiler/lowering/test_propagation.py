from __future__ import annotations

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.access import WHOLE, Access, AxisMap, identity
from costbench.compiler.lowering.anchors import anchor_of
from costbench.compiler.lowering.propagation import Propagation
from costbench.compiler.lowering.value_tables import ValueTables
from costbench.hlo.builder import ModuleBuilder
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import finish

L0, L1 = AxisMap(loop=0), AxisMap(loop=1)


def accesses(kernel: Kernel) -> list[Access]:
    """Of inputs, then instructions."""
    tables = ValueTables(kernel.body)
    values = [tables[p] for p in kernel.instructions]
    anchor = anchor_of(kernel, tables)
    start = tables.number(identity(anchor.shape))
    found = Propagation(tables, kernel, values, anchor, start).run()
    assert found.keys() == set(kernel.nodes)
    return [tables.accesses[found[p]] for p in kernel.nodes]


def test_a_reduction_keeps_what_it_does_not_sum() -> None:
    b = ModuleBuilder()
    kernel = finish(b, b.reduce(b.op("tanh", b.parameter("f32[64,256]")), (0,)))
    of_input, of_zero, of_tanh, of_sum = (accesses(kernel)[i] for i in (0, 1, 2, 3))
    assert sorted([of_input, of_zero, of_tanh, of_sum], key=len) == [(), (L1,), (L0, L1), (L0, L1)]


def test_a_broadcast_row_moves_with_its_axis_only() -> None:
    b = ModuleBuilder()
    row = b.broadcast(b.op("exponential", b.parameter("f32[256]")), "f32[64,256]", (1,))
    found = accesses(finish(b, b.op("add", b.parameter("f32[64,256]"), row)))
    assert sorted(found, key=len) == [(L1,), (L1,), (L0, L1), (L0, L1), (L0, L1)]


def test_what_nothing_links_to_the_anchor_follows_it_if_it_looks_alike() -> None:
    b = ModuleBuilder()
    first = b.op("tanh", b.parameter("f32[64,256]"))
    kernel = finish(b, first, b.op("exponential", b.parameter("f32[64,256]")))
    assert accesses(kernel) == [(L0, L1)] * 4


def test_what_looks_different_is_taken_whole() -> None:
    b = ModuleBuilder()
    kernel = finish(b, b.op("tanh", b.parameter("f32[64,256]")), b.op("tanh", b.parameter("f32[8,4]")))
    assert sorted(accesses(kernel)) == sorted([(L0, L1)] * 2 + [(WHOLE, WHOLE)] * 2)


def test_an_input_serves_all_its_users() -> None:
    b = ModuleBuilder()
    x = b.parameter("f32[64,64]")
    turned = b.op("transpose", x, shape="f32[64,64]", dimensions=(1, 0))
    found = accesses(finish(b, b.op("add", x, turned)))
    # One use wants rows by loop 0, the other by loop 1.
    assert found[0] == (WHOLE, WHOLE)
    assert found[1:].count((L0, L1)) == 2


def test_indices_of_a_scatter_follow_its_updates() -> None:
    kernel = small.scatter()
    found = dict(zip(kernel.nodes, accesses(kernel), strict=True))
    (scatter,) = kernel.outputs
    table, indices, updates = kernel.instruction(scatter).operands
    assert found[updates] == (L0, L1)
    assert found[indices] == (L0, WHOLE)
    assert found[table] == (WHOLE, WHOLE)
