from __future__ import annotations

import pytest

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.anchors import Loop, anchor_of, native_units, walk_over
from costbench.compiler.lowering.value_tables import ValueTables
from costbench.hlo.text.notation import parse_shape
from tests.compiler import small_kernels as small


def anchor_sizes(kernel: Kernel) -> tuple[int, ...]:
    return anchor_of(kernel, ValueTables(kernel.body)).shape.dimensions


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("f32[]", ()),
        ("f32[5000]", (1024,)),
        ("bf16[64,256]", (8, 128)),
        ("pred[2,3,64,256]", (1, 1, 8, 128)),
    ],
)
def test_native_units(shape: str, expected: tuple[int, ...]) -> None:
    assert native_units(parse_shape(shape)) == expected


def test_units_round_up_and_are_one_at_least() -> None:
    assert [Loop(33, 8).units, Loop(32, 8).units, Loop(0, 8).units] == [5, 4, 1]


def test_anchors_are_operands_of_reductions_updates_and_the_largest_results() -> None:
    assert anchor_sizes(small.reduction("f32[64,32,256]", (0,))) == (64, 32, 256)
    assert anchor_sizes(small.dynamic_update_slice()) == (64, 256)
    assert anchor_sizes(small.two_results("f32[64,32,256]")) == (64, 32, 256)
    assert anchor_sizes(small.scatter()) == (512, 256)


def test_a_walk_has_a_loop_per_axis_in_memory_order() -> None:
    kernel = small.unary("f32[32,12,256]{2,0,1}")
    tables = ValueTables(kernel.body)
    walk = walk_over(tables, (kernel.outputs[0], False))
    assert walk.loops == (Loop(12, 1), Loop(32, 8), Loop(256, 128))
    assert [axis.loop for axis in tables.accesses[walk.access]] == [1, 0, 2]
    assert (walk.num_output_loops, walk.kernel_axes) == (3, ())


def test_a_contraction_adds_its_sums_only_where_the_kernel_does_it() -> None:
    kernel = small.dot()
    (dot,) = kernel.instructions
    tables = ValueTables(kernel.body)
    inside, outside = walk_over(tables, (dot, True)), walk_over(tables, (dot, False))
    assert inside.loops == (Loop(64, 8), Loop(384, 128), Loop(512, 128, contraction=True))
    assert inside.num_output_loops == outside.num_output_loops == 2
    assert outside.loops == inside.loops[:2]
    assert outside.operand_accesses == ((), ())


def test_only_the_sorted_axis_of_the_anchor_is_fixed() -> None:
    kernel = small.sort()
    tables = ValueTables(kernel.body)
    values = [tables[p] for p in kernel.instructions]
    anchor = anchor_of(kernel, tables)
    walk = walk_over(tables, (anchor.position, False))
    assert [loop.fixed for loop in walk.loops] == [False, False]
    assert [loop.fixed for loop in walk.with_fixed_axes(anchor.shape, values).loops] == [False, True]
    assert walk.with_fixed_axes(anchor.shape, []).loops == walk.loops
