from __future__ import annotations

import pytest

from costbench.compiler.lowering.access import (
    WHOLE,
    Access,
    AxisMap,
    access_loops,
    identity,
    is_elementwise,
    operand_access,
    reshaped,
    result_access,
    through_window,
    whole,
    wider,
)
from costbench.hlo.instruction import GatherDimensions, SliceDimension, WindowDimension
from costbench.hlo.shape import parse_shape
from tests.compiler.laid_out import elements_in_tile
from tests.hlo.builder import ModuleBuilder

L0, L1, L2 = AxisMap(loop=0), AxisMap(loop=1), AxisMap(loop=2)


def operands(b: ModuleBuilder, root: int, access: Access) -> list[Access]:
    """What each operand of the last instruction must provide."""
    body = b.build(root).entry_computation
    inst = body.instructions[root]
    return [operand_access(body, inst, number, access) for number in range(len(inst.operands))]


def test_an_axis_without_loop_is_whole() -> None:
    assert elements_in_tile(WHOLE, 77) == 77


@pytest.mark.parametrize(("elements", "expected"), [(16, 16), (100, 77)])
def test_a_plain_axis_is_covered_as_far_as_it_goes(elements: int, expected: int) -> None:
    assert elements_in_tile(L0, 77, elements) == expected


@pytest.mark.parametrize(
    ("size", "stride", "dilation", "tile", "expected"),
    [
        (3, 1, 1, 4, 6),  # 4 neighbours of 3: 4 + 2
        (3, 2, 1, 4, 9),  # starts 0, 2, 4, 6, the last reaches to 8
        (3, 1, 2, 4, 8),  # each reaches over 5: 4 + 4
        (5, 3, 2, 2, 12),  # starts 0 and 3, each reaches over 9
        (1, 2, 1, 4, 7),  # starts 0, 2, 4, 6
    ],
)
def test_a_window_widens_the_tile(size: int, stride: int, dilation: int, tile: int, expected: int) -> None:
    window = WindowDimension(size, stride, window_dilation=dilation)
    assert elements_in_tile(through_window(L0, window), 1000, tile) == expected
    # The same as a contraction describes its left-hand side.
    direct = AxisMap(loop=0, window=size, stride=stride, dilation=dilation)
    assert elements_in_tile(direct, 1000, tile) == expected


def test_a_dilated_base_has_fewer_elements_under_the_window() -> None:
    # 4 windows of 3, one apart, cover 6 places, every second of which holds an element.
    axis = through_window(L0, WindowDimension(3, base_dilation=2))
    assert elements_in_tile(axis, 1000, 4) == 3


@pytest.mark.parametrize("tile", [1, 2, 7])
def test_windows_on_windows(tile: int) -> None:
    # First (nearer to the result) windows of 3, dilated to 5, one apart; they read windows of 3, two apart.
    outer, inner = WindowDimension(3, window_dilation=2), WindowDimension(3, 2)
    middle = tile + 4
    expected = (middle - 1) * 2 + 3
    assert elements_in_tile(through_window(through_window(L0, outer), inner), 1000, tile) == expected
    contraction = AxisMap(loop=0, window=3, dilation=2)
    assert elements_in_tile(through_window(contraction, inner), 1000, tile) == expected


def test_padding_of_the_outer_window_counts_in_steps_of_the_inner_one() -> None:
    outer = WindowDimension(3, padding_low=1, padding_high=1)
    inner = WindowDimension(2, 2, padding_low=1)
    # The two padded rows of the value between would have read two rows each.
    assert through_window(through_window(L0, outer), inner).padding == 2 * 2 + 1


def test_a_window_cut_by_a_loop_reaches_over_its_part() -> None:
    axis = AxisMap(loop=0, window_loop=1, window=5)
    assert elements_in_tile(axis, 1000, 4, 5) == 8
    assert elements_in_tile(axis, 1000, 4, 2) == 5


def test_a_tile_smaller_than_a_window_is_clipped_to_the_axis() -> None:
    assert elements_in_tile(AxisMap(loop=0, window=9), 5, 1) == 5


def test_broadcast_and_transpose_rename_axes() -> None:
    b = ModuleBuilder()
    root = b.broadcast(b.parameter("f32[32]"), "f32[8,32,16]", (1,))
    assert operands(b, root, (L0, L1, L2)) == [(L1,)]
    b = ModuleBuilder()
    root = b.transpose(b.parameter("f32[2,3,4]"), (2, 0, 1))
    # Axis 0 of the result is axis 2 of the operand.
    assert operands(b, root, (L0, L1, L2)) == [(L1, L2, L0)]


def test_a_broadcast_of_an_axis_of_one_element_needs_it_whole() -> None:
    b = ModuleBuilder()
    root = b.broadcast(b.parameter("f32[1,32]"), "f32[8,32]", (0, 1))
    assert operands(b, root, (L0, L1)) == [(WHOLE, L1)]


def test_a_reduction_needs_the_summed_axes_whole() -> None:
    b = ModuleBuilder()
    root = b.reduce(b.parameter("f32[2,3,4]"), (1,))
    assert operands(b, root, (L0, L1)) == [(L0, WHOLE, L1), ()]


def test_parts_of_a_concatenation_move_in_proportion() -> None:
    b = ModuleBuilder()
    root = b.concatenate([b.parameter("f32[25,8]"), b.parameter("f32[75,8]")], 0)
    first, second = operands(b, root, (L0, L1))
    assert elements_in_tile(first[0], 25, 40) == 10
    assert elements_in_tile(second[0], 75, 40) == 30
    assert first[1] == second[1] == L1


def test_a_strided_slice_reads_what_it_steps_over() -> None:
    b = ModuleBuilder()
    ranges = (SliceDimension(4, 24, 2), SliceDimension(0, 8, 1))
    root = b.op("slice", b.parameter("f32[100,8]"), shape="f32[10,8]", slices=ranges)
    (access,) = operands(b, root, (L0, L1))
    assert elements_in_tile(access[0], 100, 5) == 10
    assert access[1] == L1


def test_an_update_in_place_moves_with_what_it_updates() -> None:
    b = ModuleBuilder()
    value, update, zero = b.parameter("f32[100,8]"), b.parameter("f32[20,8]"), b.parameter("s32[]")
    root = b.op("dynamic-update-slice", value, update, zero, zero, shape="f32[100,8]")
    accesses = operands(b, root, (L0, L1))
    assert accesses[0] == (L0, L1)
    assert elements_in_tile(accesses[1][0], 20, 10) == 2
    assert accesses[2] == accesses[3] == ()


def test_a_table_is_read_anywhere_and_its_indices_follow_the_batch() -> None:
    b = ModuleBuilder()
    numbers = GatherDimensions((1,), (0,), (0,), 1, (1, 64))
    table, indices = b.parameter("f32[1000,64]"), b.parameter("s32[32,1]")
    root = b.op("gather", table, indices, shape="f32[32,64]", gather=numbers)
    assert operands(b, root, (L0, L1)) == [(WHOLE, WHOLE), (L0, WHOLE)]


def test_a_merged_axis_moves_the_major_part() -> None:
    merged = reshaped((L0, L1, L2), parse_shape("f32[4,6,8]"), parse_shape("f32[24,8]"))
    # One step of the major axis is six elements of the merged one.
    assert elements_in_tile(merged[0], 24, 2, 6) == 12
    assert merged[1] == L2


def test_a_split_axis_moves_the_major_part() -> None:
    split = reshaped((L0, L1), parse_shape("f32[24,8]"), parse_shape("f32[4,6,8]"))
    assert elements_in_tile(split[0], 4, 12) == 2
    assert split[1:] == (WHOLE, L1)


def test_reshapes_by_ones_change_nothing() -> None:
    access = reshaped((L0, L1), parse_shape("f32[24,8]"), parse_shape("f32[1,24,1,8,1]"))
    assert [m for m in access if m.loops] == [L0, L1]
    assert access[1] == L0
    assert access[3] == L1


def test_results_follow_their_operands() -> None:
    b = ModuleBuilder()
    x = b.parameter("f32[2,3,4]")
    root = b.reduce(b.transpose(x, (2, 0, 1)), (0,))
    body = b.build(root).entry_computation
    transposed = result_access(body, body.instructions[1], 0, (L0, L1, L2))
    assert transposed == (L2, L0, L1)
    assert result_access(body, body.instructions[root], 0, transposed) == (L0, L1)


def test_nothing_follows_through_a_contraction() -> None:
    b = ModuleBuilder()
    root = b.dot(b.parameter("f32[8,8]"), b.parameter("f32[8,8]"))
    body = b.build(root).entry_computation
    assert result_access(body, body.instructions[root], 0, (L0, L1)) is None
    assert operand_access(body, body.instructions[root], 0, (L0, L1)) == (WHOLE, WHOLE)


def test_two_uses_get_what_serves_both() -> None:
    window = AxisMap(loop=0, window=3)
    assert wider(None, (L0,)) == (L0,)
    assert wider((L0, L1), (L0, L1)) == (L0, L1)
    assert wider((L0,), (L1,)) == (WHOLE,)
    assert wider((L0,), (WHOLE,)) == (WHOLE,)
    assert wider((L0,), (window,)) == (window,)


def test_loops_of_an_access() -> None:
    assert access_loops((L2, WHOLE, AxisMap(loop=0, window_loop=5))) == (0, 2, 5)
    assert access_loops(whole(parse_shape("f32[2,2]"))) == ()


def test_the_loops_of_an_anchor_follow_its_memory_order() -> None:
    assert identity(parse_shape("f32[2,3]{1,0}")) == (L0, L1)
    assert identity(parse_shape("f32[2,3,4]{0,2,1}")) == (L2, L0, L1)
    assert identity(parse_shape("f32[]")) == ()


def test_only_element_by_element_operations_keep_every_access() -> None:
    b = ModuleBuilder()
    x = b.parameter("f32[8,8]")
    product, turned = b.op("tanh", x), b.op("transpose", x, shape="f32[8,8]", dimensions=(1, 0))
    body = b.build(product, turned).entry_computation
    shape = body.instructions[x].shape
    assert is_elementwise(body.instructions[product], shape)
    assert not is_elementwise(body.instructions[turned], shape)
    assert not is_elementwise(body.instructions[product], parse_shape("f32[8]"))
    assert not is_elementwise(body.instructions[body.root], body.instructions[body.root].shape)
