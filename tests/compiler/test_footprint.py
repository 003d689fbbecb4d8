from __future__ import annotations

import numpy as np
import pytest

from costbench.compiler.footprint import TileGrid, native_tile_bytes, scratchpad_bound, scratchpad_bytes
from costbench.compiler.kernel import Kernel
from costbench.compiler.loop_nest import loop_nest
from costbench.compiler.tiling import tile_space
from costbench.hlo.notation import parse_shape, window
from costbench.target import load_target
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import KERNELS

ARCHITECTURE = load_target("tpu_v3").architecture


def grid_of(kernel: Kernel, *extents: tuple[int, ...]) -> TileGrid:
    return TileGrid(loop_nest(kernel), np.array(extents, dtype=np.int64))


def spans(grid: TileGrid, transfer: int, *, copied: bool = False) -> list[list[float]]:
    """Native tiles of a transfer's tile, one row per tile size."""
    item = grid.nest.transfers[transfer]
    found = (grid.copied if copied else grid.covered)(item.shape, item.access)
    columns = [np.broadcast_to(span, (grid.count,)) for span in found]
    return np.stack(columns, axis=1).tolist()


def test_aligned_tiles_count_native_tiles() -> None:
    grid = grid_of(small.elementwise("f32[100,300]"), (5, 2), (13, 3))
    assert spans(grid, 0) == [[5, 2], [13, 3]]
    # 13 x 3 native tiles in 3 x 2 parts, edges cut short.
    assert spans(grid, 0, copied=True) == [[13 / 3, 1.5], [13, 3]]
    assert grid.registers(grid.nest.transfers[0].shape, grid.nest.transfers[0].access).tolist() == [10, 39]


def test_tiles_that_start_inside_a_native_tile_touch_one_more() -> None:
    # The copy of 32 rows into an outer axis reads them from sublanes, at any row.
    kernel = small.copy("bf16[32,5,5,256]{3,0,2,1}", "bf16[32,5,5,256]{3,2,1,0}")
    grid = grid_of(kernel, (11, 5, 1, 2), (7, 5, 1, 2), (8, 5, 1, 2), (32, 5, 1, 2), (3, 5, 1, 2))
    # Rows 0-10, 11-21, 22-31 lie in two native tiles each; 0-6, 7-13, ... in 1, 2, 2, 2, 1; eights in one.
    # Threes: 11 tiles; of the ten cuts between them one (row 24) is at a native tile's edge.
    rows = [tile[2] for tile in spans(grid, 0, copied=True)]
    assert rows == pytest.approx([2.0, 8 / 5, 1.0, 4.0, 13 / 11])
    # The scratchpad holds the worst case: 7 rows from the seventh sublane on, 3 rows from the sixth.
    assert [tile[2] for tile in spans(grid, 0)] == [3, 2, 1, 4, 2]


def test_copies_by_counting() -> None:
    """Native tiles touched, against a count over all tiles."""
    kernel = small.copy("f32[100,3,256]{2,0,1}", "f32[100,3,256]{2,1,0}")
    for extent in (1, 2, 3, 5, 8, 13, 24, 50, 100):
        trips = -(-100 // extent)
        starts = np.arange(trips) * extent
        ends = np.minimum(starts + extent, 100)
        touched = (ends - 1) // 8 - starts // 8 + 1
        grid = grid_of(kernel, (extent, 1, 2))
        assert spans(grid, 0, copied=True)[0][1] == pytest.approx(touched.mean())
        assert spans(grid, 0)[0][1] >= touched.max()


def test_padding_under_a_window_is_not_copied() -> None:
    # 16 rows, windows of 3, padded by one on both sides. Four rows at a time see 6, the outer two parts 5.
    grid = grid_of(small.convolution(), (8, 4, 2, 2, 3, 3, 1), (8, 16, 2, 2, 3, 3, 1))
    rows = [tile[1] for tile in spans(grid, 0, copied=True)]
    assert rows == [5.5, 16.0]
    assert [tile[1] for tile in spans(grid, 0)] == [6, 16]


def test_a_cut_window_copies_what_its_part_sees() -> None:
    # One row of the window at a time: 4 rows each; the first sees no row above, the last none below.
    grid = grid_of(small.convolution(), (8, 4, 2, 2, 1, 3, 1))
    # Over 4 parts x 3 window rows, two of twelve miss one row: 4 - 2 / 12.
    assert spans(grid, 0, copied=True)[0][1] == pytest.approx(4 - 2 / 12)


def test_windows_in_sublanes_cross_native_tiles() -> None:
    # Columns are in sublanes: 8 of them under a window of 3, padded by one, start at the eighth sublane.
    grid = grid_of(small.convolution(lhs="f32[8,16,32,128]"), (8, 16, 1, 2, 3, 3, 1))
    assert spans(grid, 0)[0][2] == 3
    assert 2.0 < spans(grid, 0, copied=True)[0][2] <= 3.0


def test_strided_windows_skip_rows() -> None:
    # 8 result rows, two apart, windows of 3: four of them see 9 rows of 16.
    kernel = small.convolution(windows=window((3, 3), (2, 2), ((0, 1), (0, 1))))
    grid = grid_of(kernel, (8, 4, 1, 2, 3, 3, 1))
    assert spans(grid, 0)[0][1] == 9
    # The second part misses the padded row.
    assert spans(grid, 0, copied=True)[0][1] == 8.5


@pytest.mark.parametrize(("type_name", "num_bytes"), [("f32", 4096), ("bf16", 2048), ("pred", 1024)])
def test_a_native_tile_has_1024_elements(type_name: str, num_bytes: int) -> None:
    assert native_tile_bytes(parse_shape(f"{type_name}[64,256]")) == num_bytes
    assert native_tile_bytes(parse_shape(f"{type_name}[5000]")) == num_bytes
    assert native_tile_bytes(parse_shape(f"{type_name}[]")) == num_bytes / 1024


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
    assert needed.max() <= scratchpad_bound(space.nest)
    # Copies never move more than the scratchpad takes.
    grid = TileGrid(space.nest, space.extents(np.arange(space.size)))
    for transfer in space.nest.transfers:
        for copied, covered in zip(
            grid.copied(transfer.shape, transfer.access),
            grid.covered(transfer.shape, transfer.access),
            strict=True,
        ):
            assert (np.asarray(copied) <= np.asarray(covered) + 1e-9).all()
