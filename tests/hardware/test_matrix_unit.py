from __future__ import annotations

import pytest

from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.hardware.matrix_unit import contraction_roles
from costbench.hlo.instruction import DotDimensions
from tests.compiler import small_kernels as small
from tests.hardware.machines import breakdown, machine, price
from tests.hlo.builder import window


def test_roles_of_a_dot() -> None:
    numbers = DotDimensions((2,), (1,), (0,), (0,))
    nest = loop_nest(small.dot("f32[6,64,512]", "f32[6,512,384]", numbers, "f32[6,64,384]{1,2,0}"))
    roles = contraction_roles(nest.space)
    # The result lies as batch, columns, rows.
    assert (roles.batch, roles.columns, roles.rows, roles.depth) == ((0,), (1,), (2,), (3,))


def test_roles_of_a_convolution() -> None:
    roles = contraction_roles(loop_nest(small.convolution()).space)
    assert set(roles.rows) == {0, 1, 2}
    assert roles.columns == (3,)
    assert roles.taps == (4, 5)
    assert roles.depth == (6,)
    assert roles.num_groups == 1


def test_passes_stream_rows() -> None:
    # 64 rows through ceil(512 / 128) x ceil(384 / 128) blocks.
    assert price(small.dot(), machine(), (8, 3, 4)) == [64 * 4 * 3]
    # The same in six iterations of a third of the columns and half of the rows.
    assert price(small.dot(), machine(), (4, 1, 4)) == [64 * 4 * 3]


def test_two_matrix_units_share_the_passes() -> None:
    assert price(small.dot(), machine(num_mxus=2), (8, 3, 4)) == [64 * 4 * 3 / 2]


@pytest.mark.parametrize("depth", [129, 192, 256])
def test_depth_is_padded_to_the_matrix_unit(depth: int) -> None:
    kernel = small.dot(f"f32[64,{depth}]", f"f32[{depth},128]")
    assert price(kernel, machine(), (8, 1, 2)) == [64 * 2]


def test_columns_are_padded_to_the_matrix_unit() -> None:
    assert price(small.dot("f32[64,128]", "f32[128,130]"), machine(), (8, 2, 1)) == [64 * 2]


def test_few_rows_wait_for_weights() -> None:
    slow = machine(weight_load_cycles=100.0)
    # 64 rows are fewer than the 100 cycles that 128 weights take.
    assert price(small.dot(), slow, (8, 3, 4)) == [100 * 12]
    assert price(small.dot("f32[256,512]"), slow, (32, 3, 4)) == [256 * 12]
    # Cut into rows of 64, each part loads the weights again.
    assert price(small.dot("f32[256,512]"), slow, (8, 3, 4)) == [4 * 100 * 12]


def test_a_batch_repeats_the_passes() -> None:
    numbers = DotDimensions((2,), (1,), (0,), (0,))
    kernel = small.dot("f32[6,64,512]", "f32[6,512,384]", numbers, "f32[6,64,384]")
    assert price(kernel, machine(), (6, 8, 3, 4)) == [6 * 64 * 12]


def test_every_tap_of_a_window_is_a_pass() -> None:
    # 8 x 16 x 16 rows, 9 taps, 1 block of depth, 2 of columns.
    assert price(small.convolution(), machine(), (8, 16, 2, 2, 3, 3, 1)) == [2048 * 9 * 2]


def test_taps_between_the_elements_of_a_dilated_base_are_skipped() -> None:
    # Of 9 taps, 9 / (2 x 2) meet an element.
    assert price(small.transposed_convolution(), machine(), (8, 16, 2, 2, 3, 3, 1)) == [2048 * 9 / 4 * 2]


def test_strided_and_dilated_windows_run_as_many_taps_as_plain_ones() -> None:
    windows = window((3, 3), (2, 2), ((0, 1), (0, 1)), window_dilation=(1, 1))
    assert price(small.convolution(windows=windows), machine(), (8, 8, 1, 2, 3, 3, 1)) == [512 * 9 * 2]


def test_positions_fill_the_depth_where_no_lanes_are_summed() -> None:
    # A filter's gradient: features of both sides in lanes, 2 images of 12 x 16 pixels summed. 384 of these
    # are three blocks of 128 rows, 9 x 128 rows stream through each of two columns.
    whole, cut = price(small.filter_gradient(), machine(), (3, 3, 16, 2, 2, 12, 2), (3, 3, 16, 2, 2, 4, 2))
    assert whole == 9 * 128 * 3 * 2
    # Three tiles of 4 x 16 pixels hold 128 each.
    assert cut == whole
    assert contraction_roles(loop_nest(small.filter_gradient()).space).taps_fill_depth


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [("f32[2,14,18,128]{0,3,2,1}", "f32[2,12,16,256]"), ("f32[2,14,18,128]", "f32[2,12,16,256]{0,3,2,1}")],
)
def test_every_position_is_a_pass_where_the_depth_lies_in_lanes(lhs: str, rhs: str) -> None:
    assert not contraction_roles(loop_nest(small.filter_gradient(lhs, rhs)).space).taps_fill_depth


def test_every_position_of_a_small_window_is_a_pass() -> None:
    batch_in_lanes = small.convolution(lhs="f32[128,16,16,8]{0,3,2,1}", rhs="f32[3,3,8,256]")
    assert not contraction_roles(loop_nest(batch_in_lanes).space).taps_fill_depth


def test_groups_leave_the_matrix_unit_nearly_empty() -> None:
    kernel = small.convolution(
        lhs="f32[8,16,16,64]", rhs="f32[3,3,16,256]", groups={"feature_group_count": 4}
    )
    # Four groups of one block each; on the vector unit it would be 16 products an element.
    slow_vectors = machine(vector_cycles=1e6)
    assert price(kernel, slow_vectors, (8, 16, 2, 2, 3, 3)) == [4 * 2048 * 9]


def test_a_depthwise_convolution_runs_on_the_vector_unit() -> None:
    # 2048 rows are 256 registers, 9 taps, a multiply and an add each.
    parts = breakdown(small.depthwise(), machine(vector_cycles=0.5), (8, 16, 2, 1, 3, 3))
    assert parts.matrix_ns.tolist() == [0]
    assert parts.vector_ns.tolist() == [256 * 9 * 2 * 0.5]


def test_batch_groups_are_groups_of_columns() -> None:
    kernel = small.convolution(
        lhs="f32[128,16,16,8]",
        rhs="f32[14,14,8,128]",
        windows=window((14, 14)),
        groups={"batch_group_count": 128},
    )
    # One group per column: 128 passes of ceil(8 / 128) blocks for each of 196 taps; 3 rows of
    # T(4,128) fill 16.
    times = price(kernel, machine(vector_cycles=1e6), (1, 3, 1, 1, 14, 14, 1))
    assert times == [128 * 196 * 16]


def test_the_matrix_unit_is_drained_in_every_iteration() -> None:
    drained = machine(dot_drain_ns=10.0, convolution_drain_ns=1000.0)
    plain = 64 * 12
    assert price(small.dot(), drained, (8, 3, 4)) == [plain + 10]
    # 2 x 3 x 2 iterations.
    assert price(small.dot(), drained, (4, 1, 2)) == [plain + 12 * 10]
    convolution = price(small.convolution(), drained, (8, 16, 2, 2, 3, 3, 1), (4, 16, 2, 1, 3, 3, 1))
    assert convolution == [2048 * 18 + 1000, 2048 * 18 + 4 * 1000]


def test_a_cut_depth_adds_up_partial_sums() -> None:
    adding = machine(accumulate_cycles=1.0)
    plain = 64 * 12
    # 8 x 3 registers of sums, two or four times.
    times = price(small.dot(), adding, (8, 3, 4), (8, 3, 2), (8, 3, 1))
    assert times == [plain, plain + 2 * 24, plain + 4 * 24]


def test_edge_tiles_run_in_full() -> None:
    # 3 blocks of columns in parts of 2: the second part runs a block that is not there.
    assert price(small.dot(), machine(), (8, 2, 4)) == [64 * 4 * 4]


def test_a_window_in_sublanes_shifts_rows() -> None:
    shifting = machine(row_move_cycles=1.0)
    # Columns (16) are in sublanes. Rows outermost: no window there.
    plain = 2048 * 18
    # Eight of nine taps shift 2048 rows of one block of depth, a quarter of a move each.
    assert price(small.convolution(), shifting, (8, 16, 2, 2, 3, 3, 1)) == [plain + 8 * 2048 / 4]
    windows = window((3, 1), padding=((1, 1), (0, 0)))
    tall = small.convolution(rhs="f32[3,1,128,256]", windows=windows)
    assert price(tall, shifting, (8, 16, 2, 2, 3, 1, 1)) == [2048 * 3 * 2]
