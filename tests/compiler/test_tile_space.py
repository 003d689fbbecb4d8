from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import Lowering
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_footprint import scratchpad_bytes
from costbench.compiler.tile_space import MAX_UNITS, KernelBatch, TileSpace, balanced_splits, tile_space
from costbench.datasets.tpugraphs.raw import TuningKernel, read_tile_tuning
from costbench.errors import SpaceTooLargeError, UnsupportedKernelError
from costbench.target import load_target
from tests.compiler import small_kernels as small
from tests.compiler.random_kernels import kernels
from tests.compiler.small_kernels import KERNELS, as_arrays

ARCHITECTURE = load_target("tpu_v3").architecture


def space_of(kernel: Kernel) -> TileSpace:
    return tile_space(kernel, ARCHITECTURE)


@pytest.fixture(scope="module")
def calibration(shared_data: Path) -> dict[str, TuningKernel]:
    recorded = read_tile_tuning(shared_data / "real_tpu" / "tile_calibration.pb")
    return {kernel.name: kernel for kernel in recorded}


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (26, [1, 2, 3, 4, 5, 6, 7, 9, 13, 26]),
        (5, [1, 2, 3, 5]),
        (4, [1, 2, 4]),
        (1, [1]),
        (12, [1, 2, 3, 4, 6, 12]),
    ],
)
def test_balanced_splits(units: int, expected: list[int]) -> None:
    assert balanced_splits(units).tolist() == expected


@given(st.integers(1, 400))
def test_a_balanced_split_is_the_smallest_for_its_number_of_parts(units: int) -> None:
    for extent in balanced_splits(units).tolist():
        parts = math.ceil(units / extent)
        assert math.ceil(units / parts) == extent


@given(st.integers(1, 3000))
def test_balanced_splits_are_all_quotients_rounded_up(units: int) -> None:
    assert balanced_splits(units).tolist() == sorted({-(-units // n) for n in range(1, units + 1)})


def test_balanced_splits_of_a_long_loop_need_no_list_of_its_tiles() -> None:
    splits = balanced_splits(MAX_UNITS)
    # m = 2^32 - 1: 65,535 values below the root, as many above it, and 0, each plus one.
    assert len(splits) == 131_071
    assert splits[[0, 1, -2, -1]].tolist() == [1, 2, 1 << 31, 1 << 32]


def test_a_large_space_is_sampled_but_not_listed() -> None:
    # Axes of 4 have the candidates 1, 2 and 4.
    space = space_of(small.elementwise(f"f32[{'4,' * 16}8,128]"))
    assert space.size == 3**16
    ids = space.sample(np.random.default_rng(0), 100)
    assert len(ids) == 100
    assert space.legal(ids).all()
    with pytest.raises(
        SpaceTooLargeError, match=rf"{space.size} tile sizes to list \(expected at most 16777216"
    ):
        space.legal_ids()
    with pytest.raises(SpaceTooLargeError, match=r"a sample of 20000000 tile sizes"):
        space.sample(np.random.default_rng(0), 20_000_000)


def test_a_loop_of_too_many_tiles_is_refused_with_the_limit() -> None:
    # One native tile of 8 x 128 for each element of the leading axis.
    with pytest.raises(
        SpaceTooLargeError, match=r"8589934592 native tiles along loop 0 \(expected at most 4294967296"
    ):
        space_of(small.elementwise("f32[8589934592,8,128]"))


def test_the_space_is_a_cross_product_in_order() -> None:
    space = space_of(small.elementwise("f32[40,512]"))
    # 5 rows of native tiles: 1, 2, 3, 5; 4 columns: 1, 2, 4.
    assert space.radices == (4, 3)
    assert space.size == 12
    expected = [[a, b] for a in (1, 2, 3, 5) for b in (1, 2, 4)]
    assert space.decode(np.arange(12)).output_bounds.tolist() == expected


def test_tiles_that_overflow_the_scratchpad_are_illegal() -> None:
    # Three arrays of 8192 x 1024 floats, 1024 x 8 native tiles; double-buffered, 16 MiB hold 682 of each.
    space = space_of(small.elementwise("f32[8192,1024]"))
    ids = np.arange(space.size)
    tiles = space.extents(ids).prod(axis=1)
    whole = tiles == 8192
    assert space.legal(ids).tolist() == ((tiles <= 16 * 1024 // (3 * 2 * 4)) & ~whole).tolist()
    assert space.legal_ids().tolist() == ids[space.legal(ids)].tolist()


def test_a_kernel_without_tiles_has_one_decision() -> None:
    for make in (small.scalar, small.lone_reshape, small.fft):
        space = space_of(make())
        assert space.size == 1
        assert space.legal_ids().tolist() == [0]
        assert space.encode(space.decode(np.array([0]))).tolist() == [0]
        assert space.neighbours(0).tolist() == []


def test_the_sorted_axis_stays_whole() -> None:
    space = space_of(small.sort())
    assert set(space.decode(space.legal_ids()).output_bounds[:, 1].tolist()) == {8}


def test_an_extent_that_is_no_balanced_split_is_refused() -> None:
    space = space_of(small.elementwise("f32[32,512]"))
    tile = TileSizes(np.zeros((1, 0), dtype=np.int64), np.array([[3, 1]]))
    with pytest.raises(UnsupportedKernelError, match=r"extent 3 of loop 0.*\[1, 2, 4\]"):
        space.encode(tile)


def test_neighbours_are_one_candidate_away() -> None:
    space = space_of(small.elementwise("f32[40,512]"))
    centre = int(space.encode(TileSizes(np.zeros((1, 0), dtype=np.int64), np.array([[3, 2]])))[0])
    bounds = space.decode(space.neighbours(centre)).output_bounds.tolist()
    assert sorted(bounds) == [[2, 2], [3, 1], [3, 4], [5, 2]]


def test_neighbours_at_the_limit_of_the_scratchpad_are_legal() -> None:
    space = space_of(small.elementwise("f32[8192,1024]"))
    for identifier in space.legal_ids().tolist():
        assert space.legal(space.neighbours(identifier)).all()


def test_all_legal_tiles_are_sampled_where_there_are_no_more() -> None:
    space = space_of(small.elementwise("f32[8192,1024]"))
    ids = space.sample(np.random.default_rng(0), 10_000)
    assert ids.tolist() == space.legal_ids().tolist()


@pytest.mark.parametrize("count", [10, 200])
def test_samples_are_distinct_legal_and_ascending(count: int) -> None:
    # 200 of 1,260 are listed first, 10 are drawn.
    space = space_of(small.convolution())
    ids = space.sample(np.random.default_rng(0), count)
    assert len(ids) == count
    assert (np.diff(ids) > 0).all()
    assert space.legal(ids).all()
    assert ids.tolist() == space.sample(np.random.default_rng(0), count).tolist()
    assert ids.tolist() != space.sample(np.random.default_rng(1), count).tolist()


def test_drawing_is_uniform() -> None:
    space = space_of(small.elementwise("f32[8192,1024]"))
    legal = space.legal_ids()
    counts = dict.fromkeys(legal.tolist(), 0)
    rng = np.random.default_rng(0)
    rounds = 4000
    assert space.size > 8 * 4, "so few that they are drawn, not listed"
    for _ in range(rounds):
        for identifier in space.sample(rng, 4).tolist():
            counts[identifier] += 1
    expected = rounds * 4 / len(legal)
    # A multinomial count deviates by more than five standard deviations once in a million.
    assert max(abs(c - expected) for c in counts.values()) < 5 * math.sqrt(expected)


def test_drawing_from_a_space_with_hardly_any_legal_tile_finds_them_all() -> None:
    space = space_of(small.unary("f32[2,4099,8,128]{3,1,2,0}", "sqrt"))
    tight = TileSpace(
        space.nest, space.candidates, type(ARCHITECTURE)(**{**vars(ARCHITECTURE), "scratchpad_bytes": 40_000})
    )
    legal = tight.legal_ids()
    assert 0 < len(legal) < 0.05 * tight.size
    assert tight.sample(np.random.default_rng(0), len(legal)).tolist() == legal.tolist()


@given(kernels())
def test_numbers_and_bounds_correspond(kernel: Kernel) -> None:
    space = space_of(kernel)
    ids = np.unique(np.random.default_rng(0).integers(space.size, size=50))
    tiles = space.decode(ids)
    assert space.encode(tiles).tolist() == ids.tolist()
    assert tiles.output_bounds.shape == (len(ids), space.nest.num_output_loops)
    assert (tiles.output_bounds >= 1).all()
    assert (tiles.kernel_bounds >= 1).all()


@given(kernels())
def test_legal_means_that_it_fits(kernel: Kernel) -> None:
    space = space_of(kernel)
    ids = np.unique(np.random.default_rng(0).integers(space.size, size=50))
    needed = scratchpad_bytes(space.nest, space.extents(ids))
    assert space.legal(ids).tolist() == (needed <= ARCHITECTURE.scratchpad_bytes).tolist()
    # The largest tile holds every operand once, the smallest is never larger than it.
    first, last = scratchpad_bytes(space.nest, space.extents(np.array([0, space.size - 1])))
    assert first <= 2 * last


@pytest.mark.parametrize("name", KERNELS)
def test_every_kind_of_kernel_has_legal_tiles(name: str) -> None:
    space = space_of(KERNELS[name]())
    assert len(space.legal_ids()) >= 1


# ---- the real machine ------------------------------------------------------------------------------------


def test_recorded_tiles_are_in_the_space(calibration: dict[str, TuningKernel]) -> None:
    for kernel in calibration.values():
        space = space_of(kernel.kernel)
        ids = space.encode(kernel.tile_sizes)
        assert space.legal(ids).all(), kernel.name
        again = space.decode(ids)
        assert again.kernel_bounds.tolist() == kernel.tile_sizes.kernel_bounds.tolist()
        assert again.output_bounds.tolist() == kernel.tile_sizes.output_bounds.tolist()


def test_the_spaces_are_as_large_as_the_samples_imply(calibration: dict[str, TuningKernel]) -> None:
    """The file records a tenth of a kernel's tiles, rounded up, and then its default once more.

    So r runs with the default among them mean 10 (r - 2) + 1 to 10 (r - 1) tiles.
    """
    checked = 0
    for kernel in calibration.values():
        runs = len(kernel.runtime_ns) + kernel.num_failed
        if not kernel.is_default.any() or runs < 3:
            continue
        size = len(space_of(kernel.kernel).legal_ids())
        assert 0.95 * (10 * (runs - 2) + 1) <= size <= 1.05 * 10 * (runs - 1), kernel.name
        checked += 1
    assert checked == 5


def test_the_space_of_the_convolution_is_as_large_as_half_of_its_sample_implies(
    calibration: dict[str, TuningKernel],
) -> None:
    """Of the convolution the file holds one half of the recorded tenth, and not the default."""
    kernel = calibration["fusion.191"]
    runs = len(kernel.runtime_ns) + kernel.num_failed
    assert runs == 293
    assert not kernel.is_default.any()
    size = len(space_of(kernel.kernel).legal_ids())
    assert size == pytest.approx(2 * runs * 10, rel=0.05)


def test_a_reshape_is_recorded_without_a_tile(calibration: dict[str, TuningKernel]) -> None:
    kernel = calibration["reshape.39"]
    assert kernel.tile_sizes.output_bounds.shape == (2, 0)
    assert space_of(kernel.kernel).size == 1


def lowered(*kernels: Kernel) -> KernelBatch:
    """A batch of kernels of one computation."""
    return KernelBatch(Lowering(kernels[0].module).lower(kernels[0].computation, as_arrays(kernels)))


@pytest.mark.parametrize("name", KERNELS)
def test_tiles_are_numbered_as_in_their_space(name: str) -> None:
    kernel = KERNELS[name]()
    space, batch = tile_space(kernel, ARCHITECTURE), lowered(kernel, kernel, kernel)
    assert len(batch) == 3
    ids = np.array([0, space.size // 2, space.size - 1])
    extents = space.extents(ids)
    assert batch.max_loops == extents.shape[1]
    numbers, sizes = batch.numbered(np.arange(3), extents)
    assert numbers.tolist() == ids.tolist()
    assert sizes.tolist() == [space.size] * 3


def test_the_smallest_tile_fits_or_not() -> None:
    batch = lowered(small.elementwise("f32[256,512]"))
    # Three arrays of one native tile each, double-buffered.
    needed = 3 * 2 * 8 * 128 * 4
    assert batch.smallest_fits(needed).tolist() == [True]
    assert batch.smallest_fits(needed - 1).tolist() == [False]


def test_a_space_with_too_many_tiles_to_number_is_left_out() -> None:
    # 2^33 native tiles along one loop.
    kernel = small.unary(f"pred[{2**43}]")
    batch = lowered(kernel, kernel)
    assert batch.candidates.is_numbered.tolist() == [False]
    assert batch.smallest_fits(1e30).tolist() == [False, False]
