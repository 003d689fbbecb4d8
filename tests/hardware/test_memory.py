from __future__ import annotations

import pytest

from costbench.compiler.kernel import Kernel
from costbench.hardware.machine import machine_numbers
from costbench.hardware.memory import CopyShape, box_shape, copy_ns, copy_shape
from tests.compiler import small_kernels as small
from tests.compiler.laid_out import laid_out
from tests.hardware.machines import machine, with_rules


def copies(kernel: Kernel, extents: tuple[int, ...], transfer: int = 0, chunks: str = "merged") -> CopyShape:
    packed, tile, _ = laid_out(kernel, extents)
    numbers = machine_numbers(with_rules(machine(), chunks=chunks))
    box = box_shape(packed, tile, int(packed.transfers[transfer]["box"]), numbers)
    return CopyShape(*copy_shape(packed, tile, transfer, box, numbers))


def test_bytes_are_those_of_whole_native_tiles_with_edges_cut() -> None:
    # 13 x 3 native tiles of 4 KiB in parts of 5 x 2: three and two parts.
    kernel = small.unary("f32[100,300]")
    assert copies(kernel, (5, 2)).num_bytes == pytest.approx(13 / 3 * 3 / 2 * 4096)
    assert copies(kernel, (13, 3)).num_bytes == 39 * 4096


def test_few_rows_move_few_bytes() -> None:
    # T(2,128): 100 x 1 x 2 native tiles of 1 KiB; whole ones of 8 rows would be four times as many bytes.
    kernel = small.unary("f32[100,2,256]")
    assert copies(kernel, (100, 1, 2)).num_bytes == 200 * 1024
    cut = copies(kernel, (10, 1, 1))
    assert (cut.num_bytes, cut.chunks) == (10 * 1024, 9)
    # One row of bf16 takes the place of two, T(2,128)(2,1); a vector of 300 that of 512.
    assert copies(small.unary("bf16[100,1,256]"), (100, 1, 2)).num_bytes == 200 * 512
    assert copies(small.unary("f32[300]"), (1,)).num_bytes == 2048


@pytest.mark.parametrize(
    ("tile", "chunks", "descriptors"),
    [
        # Native tiles of f32[16,64,512]: 16 x 8 x 4, row-major.
        ((16, 8, 4), 1, 1),  # everything
        ((4, 8, 4), 1, 1),  # whole planes are contiguous
        ((4, 2, 4), 4, 1),  # two rows of each of four planes: four chunks at one distance
        ((4, 1, 4), 4, 1),
        ((4, 8, 2), 32, 1),  # half of every row: planes follow at the distance of rows
        ((4, 2, 2), 8, 4),  # rows at one distance, planes at another: a descriptor for each plane
        ((4, 1, 2), 4, 1),  # one row of each plane: one distance
        ((1, 2, 2), 2, 1),
        ((1, 1, 1), 1, 1),
    ],
)
def test_chunks_and_descriptors(tile: tuple[int, ...], chunks: int, descriptors: int) -> None:
    shape = copies(small.unary("f32[16,64,512]"), tile)
    assert shape.chunks + 1 == pytest.approx(chunks)
    assert shape.descriptors + 1 == pytest.approx(descriptors)


def test_axes_of_one_native_tile_make_no_chunks() -> None:
    # 16 x 1 x 1 native tiles: 5 rows of 8 sublanes, 100 of 128 lanes.
    shape = copies(small.unary("f32[16,5,100]"), (4, 1, 1))
    assert shape.chunks == shape.descriptors == 0


@pytest.mark.parametrize(
    ("text", "columns", "conflicts"),
    [
        ("f32[256,4096]", 1, 32),  # pitch 32 x 4 KiB = 128 KiB, 32 rows of native tiles
        ("f32[256,2048]", 1, 32),  # 64 KiB
        ("f32[256,1024]", 1, 0),  # 32 KiB is short enough to reach all banks
        ("f32[256,3840]", 1, 0),  # 120 KiB is no power of two
        ("f32[256,4096]", 2, 0),  # 8 KiB at a time
        ("bf16[256,4096]", 1, 16),  # pitch 64 KiB, 32 rows of 2 KiB are 16 chunks of 4 KiB
        ("bf16[256,2048]", 1, 0),
    ],
)
def test_narrow_tiles_at_powers_of_two_share_banks(text: str, columns: int, conflicts: int) -> None:
    assert copies(small.unary(text), (32, columns)).conflicts == conflicts


@pytest.mark.parametrize(
    ("tile", "chunks", "descriptors"),
    [
        # As above, but every row of native tiles is a chunk, however it lies to the next one.
        ((16, 8, 4), 128, 1),
        ((4, 8, 4), 32, 1),
        ((4, 2, 4), 8, 1),
        ((4, 2, 2), 8, 4),
        ((1, 1, 1), 1, 1),
    ],
)
def test_an_engine_that_takes_rows(tile: tuple[int, ...], chunks: int, descriptors: int) -> None:
    shape = copies(small.unary("f32[16,64,512]"), tile, chunks="rows")
    assert shape.chunks + 1 == pytest.approx(chunks)
    assert shape.descriptors + 1 == pytest.approx(descriptors)


def test_bursts_reach_beyond_small_native_tiles() -> None:
    # 32 chunks of one native tile of 2 KiB, each with 2 KiB beside it on average; of two, still 2 KiB.
    narrow, wide = ((32, 1), (32, 2))
    packed, plain = small.unary("bf16[256,4096]"), small.unary("f32[256,4096]")
    assert copies(packed, narrow).num_bytes == 32 * 2048
    assert copies(packed, narrow, chunks="bursts").num_bytes == 32 * (2048 + 2048)
    assert copies(packed, wide, chunks="bursts").num_bytes == 32 * (4096 + 2048)
    # Native tiles of 4 KiB begin and end with a burst.
    assert copies(plain, narrow, chunks="bursts").num_bytes == copies(plain, narrow).num_bytes
    assert copies(packed, narrow, chunks="bursts").conflicts == copies(packed, narrow).conflicts == 16


def test_rows_are_fetched_one_by_one() -> None:
    # 512 rows of 1 KiB, 64 at a time.
    shape = copies(small.gather(), (8, 2))
    assert shape.rows == 64
    assert shape.num_bytes == 64 * 1024


def test_short_rows_cost_a_whole_burst() -> None:
    b = small.ModuleBuilder()
    numbers = small.GatherDimensions((), (0,), (0,), 1, (1,))
    table, indices = b.parameter("f32[10000]"), b.parameter("s32[2048,1]")
    kernel = small.finish(b, b.op("gather", table, indices, shape="f32[2048]", gather=numbers))
    shape = copies(kernel, (1,))
    assert shape.rows == 1024
    assert shape.num_bytes == 1024 * 512


def test_a_scalar_is_four_bytes() -> None:
    shape = copies(small.dynamic_slice(), (8, 2), transfer=1)
    assert shape.num_bytes == 4


def test_the_time_of_a_copy_is_the_sum_of_its_parts() -> None:
    shape = CopyShape(1000.0, 2.0, 3.0, 5.0, 7.0)
    numbers = machine_numbers(
        machine(
            read_gb_per_s=10.0,
            write_gb_per_s=5.0,
            chunk_ns=1.0,
            descriptor_ns=10.0,
            bank_ns=100.0,
            row_address_ns=1000.0,
            transfer_ns=1e9,
        )
    )
    parts = 2 * 1 + 3 * 10 + 5 * 100 + 7 * 1000
    # Issuing it is the core's work.
    assert copy_ns(shape, numbers, False) == 100 + parts
    assert copy_ns(shape, numbers, True) == 200 + parts
