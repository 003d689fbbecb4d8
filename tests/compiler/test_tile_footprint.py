from __future__ import annotations

import numpy as np
import pytest

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.lowering.packed import bound_bytes
from costbench.compiler.tile_footprint import copied, covered, scratchpad_bytes
from costbench.compiler.tile_space import tile_space
from costbench.target import load_target
from tests.compiler import small_kernels as small
from tests.compiler.laid_out import laid_out, transfer_axes
from tests.compiler.small_kernels import KERNELS
from tests.hlo.builder import window

ARCHITECTURE = load_target("tpu_v3").architecture


def spans(
    kernel: Kernel, *extents: tuple[int, ...], transfer: int = 0, of_copies: bool = False
) -> list[list[float]]:
    """Native tiles of a transfer's tile per physical axis, one row per tile size."""
    lengths = []
    for one in extents:
        packed, tile, _ = laid_out(kernel, one)
        measure = copied if of_copies else covered
        lengths.append([measure(axis, tile) for axis in transfer_axes(packed, transfer)])
    return lengths


def test_aligned_tiles_count_native_tiles() -> None:
    kernel, tiles = small.elementwise("f32[100,300]"), ((5, 2), (13, 3))
    assert spans(kernel, *tiles) == [[5, 2], [13, 3]]
    # 13 x 3 native tiles in 3 x 2 parts, edges cut short.
    assert spans(kernel, *tiles, of_copies=True) == [[13 / 3, 1.5], [13, 3]]
    assert [laid_out(kernel, one)[1].sizes[0] for one in tiles] == [10, 39]


def test_few_rows_take_little_of_the_scratchpad() -> None:
    # T(2,128): native tiles of 1 KiB, ten of an operand and of a result, both twice as they move.
    nest = loop_nest(small.unary("f32[100,2,256]"))
    tiles = np.array([[10, 1, 1], [100, 1, 2]])
    assert scratchpad_bytes(nest, tiles).tolist() == [2 * 2 * 10 * 1024, 2 * 200 * 1024]


def test_sums_of_few_rows_take_little_of_the_scratchpad() -> None:
    # f32[1,512] = 4 native tiles of 512 bytes, T(1,128); the depth of 1,024 in two parts.
    nest = loop_nest(small.dot("f32[1,1024]", "f32[1024,512]"))
    left, right, result, sums = 2 * 4 * 512, 2 * 64 * 4 * 4096, 4 * 512, 4 * 512
    assert scratchpad_bytes(nest, np.array([[1, 4, 4]])).tolist() == [left + right + result + sums]


def test_tiles_that_start_inside_a_native_tile_touch_one_more() -> None:
    # The copy of 32 rows into an outer axis reads them from sublanes, at any row.
    kernel = small.copy("bf16[32,5,5,256]{3,0,2,1}", "bf16[32,5,5,256]{3,2,1,0}")
    tiles = ((11, 5, 1, 2), (7, 5, 1, 2), (8, 5, 1, 2), (32, 5, 1, 2), (3, 5, 1, 2))
    # Rows 0-10, 11-21, 22-31 lie in two native tiles each; 0-6, 7-13, ... in 1, 2, 2, 2, 1; eights in one.
    # Threes: 11 tiles; of the ten cuts between them one (row 24) is at a native tile's edge.
    rows = [tile[2] for tile in spans(kernel, *tiles, of_copies=True)]
    assert rows == pytest.approx([2.0, 8 / 5, 1.0, 4.0, 13 / 11])
    # The scratchpad holds the worst case: 7 rows from the seventh sublane on, 3 rows from the sixth.
    assert [tile[2] for tile in spans(kernel, *tiles)] == [3, 2, 1, 4, 2]


def test_copies_by_counting() -> None:
    """Native tiles touched, against a count over all tiles."""
    kernel = small.copy("f32[100,3,256]{2,0,1}", "f32[100,3,256]{2,1,0}")
    for extent in (1, 2, 3, 5, 8, 13, 24, 50, 100):
        trips = -(-100 // extent)
        starts = np.arange(trips) * extent
        ends = np.minimum(starts + extent, 100)
        touched = (ends - 1) // 8 - starts // 8 + 1
        tile = (extent, 1, 2)
        assert spans(kernel, tile, of_copies=True)[0][1] == pytest.approx(touched.mean())
        assert spans(kernel, tile)[0][1] >= touched.max()


def touched(starts: np.ndarray, ends: np.ndarray, native: int) -> np.ndarray:
    """Native tiles that ranges of elements lie in."""
    return (ends - 1) // native - starts // native + 1


@pytest.mark.parametrize("extents", [(8, 3, 4), (3, 2, 1), (5, 1, 3), (1, 1, 1), (2, 3, 2)])
def test_operands_of_a_dot_by_counting(extents: tuple[int, ...]) -> None:
    """Native tiles of both sides and the result, against a count over all tiles of the nest."""
    kernel = small.dot("f32[60,500]", "f32[500,300]")
    sizes, units = (60, 300, 500), (8, 128, 128)
    ranges = []
    for size, unit, extent in zip(sizes, units, extents, strict=True):
        starts = np.arange(0, size, unit * extent)
        ranges.append((starts, np.minimum(starts + unit * extent, size)))
    rows, columns, depth = range(3)
    # (loop, elements of a native tile) of each axis; the depth is in the sublanes of the right-hand side.
    values = [((rows, 8), (depth, 128)), ((depth, 8), (columns, 128)), ((rows, 8), (columns, 128))]
    for transfer, axes in enumerate(values):
        counts = [touched(*ranges[loop], native) for loop, native in axes]
        assert spans(kernel, extents, transfer=transfer, of_copies=True)[0] == pytest.approx(
            [count.mean() for count in counts]
        )
        held = spans(kernel, extents, transfer=transfer)[0]
        assert held == [count.max() for count in counts]


@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_rows_under_a_window_by_counting(padding: tuple[int, int], stride: int, dilation: int) -> None:
    """Input rows of a convolution, against the rows that windows see, over all tiles that fit the axis."""
    kernel = small.convolution(
        windows=window((3, 3), (stride, stride), (padding, padding), window_dilation=(dilation, dilation))
    )
    out = kernel.instruction(kernel.outputs[0]).shape.dimensions[1]
    for extent in (e for e in range(1, out + 1) if out % e == 0):
        seen = []
        for start in range(0, out, extent):
            first = start * stride - padding[0]
            last = (start + extent - 1) * stride - padding[0] + 2 * dilation
            seen.append(min(last, 15) - max(first, 0) + 1)
        tile = (8, extent, laid_out_units(kernel, 2), 2, 3, 3, 1)
        # Rows are native tiles of their own. The mean is exact where windows reach beyond the end as far as
        # padding says, and padding is met in the outer tiles alone.
        exact = (out - 1) * stride - padding[0] + 2 * dilation == 15 + padding[1]
        exact &= extent * stride >= padding[0]
        mean = spans(kernel, tile, of_copies=True)[0][1]
        if exact:
            assert mean == pytest.approx(np.mean(seen))
        assert spans(kernel, tile)[0][1] >= max(seen) - 1e-9


def laid_out_units(kernel: Kernel, loop: int) -> int:
    return loop_nest(kernel).loops[loop].units


def test_padding_under_a_window_is_not_copied() -> None:
    # 16 rows, windows of 3, padded by one on both sides. Four rows at a time see 6, the outer two parts 5.
    tiles = ((8, 4, 2, 2, 3, 3, 1), (8, 16, 2, 2, 3, 3, 1))
    rows = [tile[1] for tile in spans(small.convolution(), *tiles, of_copies=True)]
    assert rows == [5.5, 16.0]
    assert [tile[1] for tile in spans(small.convolution(), *tiles)] == [6, 16]


def test_a_cut_window_copies_what_its_part_sees() -> None:
    # One row of the window at a time: 4 rows each; the first sees no row above, the last none below.
    lengths = spans(small.convolution(), (8, 4, 2, 2, 1, 3, 1), of_copies=True)
    # Over 4 parts x 3 window rows, two of twelve miss one row: 4 - 2 / 12.
    assert lengths[0][1] == pytest.approx(4 - 2 / 12)


def test_windows_in_sublanes_cross_native_tiles() -> None:
    # Columns are in sublanes: 8 of them under a window of 3, padded by one, start at the eighth sublane.
    kernel, tile = small.convolution(lhs="f32[8,16,32,128]"), (8, 16, 1, 2, 3, 3, 1)
    assert spans(kernel, tile)[0][2] == 3
    assert 2.0 < spans(kernel, tile, of_copies=True)[0][2] <= 3.0


def test_strided_windows_skip_rows() -> None:
    # 8 result rows, two apart, windows of 3: four of them see 9 rows of 16.
    kernel = small.convolution(windows=window((3, 3), (2, 2), ((0, 1), (0, 1))))
    tile = (8, 4, 1, 2, 3, 3, 1)
    assert spans(kernel, tile)[0][1] == 9
    # The second part misses the padded row.
    assert spans(kernel, tile, of_copies=True)[0][1] == 8.5


def test_moving_operands_are_doubled_and_resting_ones_are_not() -> None:
    # 64 x 512 by 512 x 384 in native tiles: 8 x 4, 64 x 3, result 8 x 3, each of 4 KiB.
    nest = loop_nest(small.dot())
    extents = np.array([[8, 3, 4], [8, 1, 4], [4, 3, 4], [8, 3, 2]])
    tiles = np.array(
        [
            32 + 192 + 24,  # everything rests
            32 + 2 * 64 + 2 * 8,  # columns move
            2 * 16 + 192 + 2 * 12,  # rows move
            2 * 16 + 2 * 96 + 24 + 24,  # depth moves, the sums take a float32 accumulator
        ]
    )
    assert scratchpad_bytes(nest, extents).tolist() == (tiles * 4096).tolist()


def test_the_accumulator_is_float32_whatever_the_result_is() -> None:
    nest = loop_nest(small.dot("bf16[64,512]", "bf16[512,384]"))
    whole, cut = scratchpad_bytes(nest, np.array([[8, 3, 4], [8, 3, 2]]))
    assert whole == (32 + 192 + 24) * 2048
    assert cut == (32 + 192 + 24) * 2048 + 24 * 4096


def test_scalars_take_no_scratchpad() -> None:
    assert scratchpad_bytes(loop_nest(small.scalar()), np.zeros((1, 0), dtype=np.int64)).tolist() == [0]


@pytest.mark.parametrize("name", KERNELS)
def test_no_tile_needs_more_than_the_bound(name: str) -> None:
    space = tile_space(KERNELS[name](), ARCHITECTURE)
    needed = scratchpad_bytes(space.nest, space.extents(np.arange(space.size)))
    assert needed.max() <= bound_bytes(space.nest.words)
    # Copies never move more than the scratchpad takes.
    for extents in space.extents(np.arange(space.size))[:: max(1, space.size // 50)]:
        packed, tile, _ = laid_out(space.nest.kernel, tuple(extents))
        for transfer in range(len(packed.transfers)):
            for axis in transfer_axes(packed, transfer):
                assert copied(axis, tile) <= covered(axis, tile) + 1e-9
