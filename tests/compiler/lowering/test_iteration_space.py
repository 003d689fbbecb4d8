from __future__ import annotations

import numpy as np
import pytest

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.access import NO_LOOP, AxisMap
from costbench.compiler.lowering.iteration_space import (
    MAX_LOOPS,
    ContractionAxes,
    Loop,
    contraction_axes,
    iteration_space,
)
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.spaces import TileSizes
from costbench.errors import UnsupportedKernelError
from costbench.hlo.instruction import DotDimensions
from tests.compiler import small_kernels as small
from tests.compiler.laid_out import elements_in_tile
from tests.compiler.small_kernels import convolution, depthwise, dot, transposed_convolution
from tests.hlo.builder import window


def axes_of(kernel: Kernel) -> tuple[ContractionAxes, list[int]]:
    """The contraction's axes, with loop i over the result's i-th logical axis."""
    position = kernel.instructions[-1]
    rank = kernel.instruction(position).shape.rank
    axes = contraction_axes(kernel.body, position, {axis: axis for axis in range(rank)}, rank)
    return axes, list(range(rank))


def test_a_convolution_sums_over_its_window_and_input_features() -> None:
    axes, _ = axes_of(convolution(lhs="f32[8,16,16,192]", rhs="f32[3,3,192,256]"))
    # Steps of the input features are the left-hand side's 128 lanes, not the right-hand side's 8 sublanes.
    assert axes.loops == ((3, 1), (3, 1), (192, 128))
    left, right = axes.operands
    assert [m.loops for m in left] == [(0,), (1, 4), (2, 5), (6,)]
    assert [m.loops for m in right] == [(4,), (5,), (6,), (3,)]
    assert left[1].window == 3
    assert left[1].padding == 2
    # Right-hand side in native tiles: 3, 3, 192 / 8, 256 / 128.
    assert axes.kernel_axes == ((4, 3, 1), (5, 3, 1), (6, 24, 8), (3, 2, 128))


def test_strides_and_dilations_reach_the_left_side() -> None:
    windows = window((3, 3), strides=(2, 1), window_dilation=(1, 4), base_dilation=(1, 2))
    axes, _ = axes_of(convolution(windows=windows))
    rows, columns = axes.operands[0][1:3]
    assert (rows.stride, rows.dilation, rows.base_dilation) == (2, 1, 1)
    assert (columns.stride, columns.dilation, columns.base_dilation) == (1, 4, 2)


def test_a_transposed_convolution_reads_half_of_what_its_window_covers() -> None:
    left = axes_of(transposed_convolution())[0].operands[0]
    # 8 result rows under a window of 3 are 10 places, 5 of which hold a row.
    assert elements_in_tile(left[1], 8, *[8.0] * 4, *[3.0] * 2) == 5.0


def test_depthwise_features_follow_the_result() -> None:
    axes, _ = axes_of(depthwise())
    assert axes.loops == ((3, 1), (3, 1))
    left, right = axes.operands
    assert left[3] == AxisMap(loop=3, scale=1.0)
    assert right[2] == AxisMap()
    assert right[3] == AxisMap(loop=3)
    assert axes.kernel_axes[2] == (NO_LOOP, 1, 1)  # one row: T(1,128)


def test_grouped_input_features_follow_in_proportion() -> None:
    kernel = convolution(lhs="f32[8,16,16,64]", rhs="f32[3,3,16,256]", groups={"feature_group_count": 4})
    left = axes_of(kernel)[0].operands[0]
    assert left[3] == AxisMap(loop=3, scale=0.25)


def test_batch_groups_follow_the_output_features() -> None:
    # A weight gradient of a depthwise convolution: 128 groups of batch, one output feature each.
    kernel = convolution(
        lhs="f32[128,16,16,8]",
        rhs="f32[14,14,8,128]",
        windows=window((14, 14)),
        groups={"batch_group_count": 128},
    )
    axes, _ = axes_of(kernel)
    left, right = axes.operands
    assert left[0] == AxisMap(loop=3, scale=1.0)
    assert axes.loops == ((14, 1), (14, 1), (8, 128))
    assert left[3].loop == right[2].loop == 6


def test_a_dot_sums_in_the_left_sides_lanes() -> None:
    axes, _ = axes_of(dot())
    assert axes.loops == ((512, 128),)
    assert [m.loops for m in axes.operands[0]] == [(0,), (2,)]
    assert [m.loops for m in axes.operands[1]] == [(2,), (1,)]


def test_a_dot_with_its_depth_in_major_axes_sums_in_the_right_sides_units() -> None:
    # The left-hand side's depth is its major axis (unit 1), the right-hand side's is in sublanes (unit 8).
    numbers = DotDimensions((0,), (0,), (), ())
    kernel = dot("f32[512,4,64]", "f32[512,384]", numbers, "f32[4,64,384]")
    assert axes_of(kernel)[0].loops == ((512, 8),)


def test_batch_axes_of_a_dot_move_both_sides() -> None:
    numbers = DotDimensions((3,), (3,), (0, 1), (0, 1))
    for order in ("{3,2,1,0}", "{3,1,2,0}", "{1,3,2,0}"):
        kernel = dot(f"f32[4,6,32,64]{order}", f"f32[4,6,48,64]{order}", numbers, "f32[4,6,32,48]{3,2,1,0}")
        left, right = axes_of(kernel)[0].operands
        assert [m.loops for m in left] == [(0,), (1,), (2,), (4,)]
        assert [m.loops for m in right] == [(0,), (1,), (3,), (4,)]


def test_bounds_of_the_right_side_follow_its_memory_order() -> None:
    numbers = DotDimensions((1,), (1,), (), ())
    kernel = dot("f32[32,1000]", "f32[4096,1000]{0,1}", numbers, "f32[32,4096]")
    nest = loop_nest(kernel)
    # Physical order of the right-hand side: depth in sublanes (1000 / 8), columns in lanes (4096 / 128).
    assert [(a.loop, a.units, a.unit) for a in nest.kernel_axes] == [(2, 125, 8), (1, 32, 128)]
    extents = np.array([[4, 7, 4], [1, 32, 8]])
    tiles = nest.tile_sizes(extents)
    # Four steps of 128 are 64 native tiles of eight rows; eight steps reach beyond the 125 there are.
    assert tiles.kernel_bounds.tolist() == [[64, 7], [125, 32]]
    assert tiles.output_bounds.tolist() == [[4, 7], [1, 32]]
    assert nest.extents(tiles).tolist() == extents.tolist()


def test_clipped_bounds_of_a_convolution() -> None:
    # 192 input features are two steps of 128 lanes; the second reaches to 24 native tiles of eight.
    nest = loop_nest(convolution(lhs="bf16[32,12,12,192]", rhs="f32[3,3,192,384]"))
    tiles = nest.tile_sizes(np.array([[1, 1, 1, 3, 3, 1, 1], [1, 1, 1, 2, 1, 3, 2]]))
    assert tiles.kernel_bounds.tolist() == [[3, 1, 16, 3], [1, 3, 24, 2]]
    again = TileSizes(tiles.kernel_bounds, tiles.output_bounds)
    assert nest.extents(again)[:, 4:].tolist() == [[3, 1, 1], [1, 3, 2]]


def anchor_sizes(kernel: Kernel) -> tuple[int, ...]:
    return kernel.instruction(loop_nest(kernel).space.anchor).shape.dimensions


def test_units_round_up_and_are_one_at_least() -> None:
    assert [Loop(33, 8).units, Loop(32, 8).units, Loop(0, 8).units] == [5, 4, 1]


def test_anchors_are_operands_of_reductions_updates_and_the_largest_results() -> None:
    assert anchor_sizes(small.reduction("f32[64,32,256]", (0,))) == (64, 32, 256)
    assert anchor_sizes(small.dynamic_update_slice()) == (64, 256)
    assert anchor_sizes(small.two_results("f32[64,32,256]")) == (64, 32, 256)
    assert anchor_sizes(small.scatter()) == (512, 256)


def test_an_iteration_space_has_a_loop_per_axis_in_memory_order() -> None:
    kernel = small.unary("f32[32,12,256]{2,0,1}")
    space = iteration_space(kernel.body, kernel.outputs[0], contracts=False, tiled=True)
    assert space.loops == (Loop(12, 1), Loop(32, 8), Loop(256, 128))
    assert [axis.loop for axis in space.access] == [1, 0, 2]
    assert (space.num_output_loops, space.kernel_axes) == (3, ())


def test_a_contraction_adds_its_sums_only_where_the_kernel_does_it() -> None:
    kernel = small.dot()
    (position,) = kernel.instructions
    inside, outside = (
        iteration_space(kernel.body, position, contracts=contracts, tiled=True) for contracts in (True, False)
    )
    assert inside.loops == (Loop(64, 8), Loop(384, 128), Loop(512, 128, contraction=True))
    assert inside.num_output_loops == outside.num_output_loops == 2
    assert outside.loops == inside.loops[:2]
    assert outside.operand_accesses == ((), ())


def test_without_tiles_there_are_no_loops() -> None:
    kernel = small.fft()
    space = iteration_space(kernel.body, kernel.outputs[0], contracts=False, tiled=False)
    assert space.loops == ()
    assert all(axis.loops == () for axis in space.access)


def test_only_fixed_axes_may_not_be_cut() -> None:
    kernel = small.unary("f32[32,12,256]{2,0,1}")
    space = iteration_space(kernel.body, kernel.outputs[0], contracts=False, tiled=True, fixed={0})
    assert [loop.fixed for loop in space.loops] == [False, True, False]


def test_more_loops_than_a_set_of_bits_holds_are_refused() -> None:
    kernel = small.unary(f"f32[{','.join(['1'] * (MAX_LOOPS + 1))}]")
    with pytest.raises(UnsupportedKernelError, match="63 axes"):
        loop_nest(kernel)
