from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from costbench.compiler import analytical_cost
from costbench.compiler import analytical_model as analytical
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.estimate_quality import QUALITIES
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.program import compile_program, unique_kernels
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import tile_space
from costbench.datasets.tpugraphs.raw import read_tile_tuning
from costbench.errors import ChoiceError, UnsupportedKernelError
from costbench.hlo.instruction import DotDimensions
from costbench.hlo.reader import module_from_bytes
from costbench.metrics.ranking import kendall_tau
from costbench.models.cost_model import CostModel
from costbench.target import Architecture
from tests.compiler import small_kernels as small
from tests.compiler.random_kernels import kernels
from tests.compiler.small_kernels import KERNELS
from tests.compiler.test_tile_space import lowered
from tests.hlo.builder import ModuleBuilder

# A clock of 1 GHz, a byte per nanosecond, one matrix unit.
ARCHITECTURE = Architecture(
    clock_mhz=1000.0,
    num_mxus=1,
    mxu_size=128,
    hbm_gb_per_s=1.0,
    scratchpad_bytes=16 * 2**20,
    lanes=128,
    sublanes=8,
)
FAST_MEMORY = Architecture(**{**vars(ARCHITECTURE), "hbm_gb_per_s": 1e12})
EXPERT = QUALITIES["expert"]
MODEL = AnalyticalModel(ARCHITECTURE, EXPERT)
HALF = analytical_cost.HALF_EFFICIENCY_BYTES


def tiles_of(kernel: Kernel, *extents: tuple[int, ...]) -> TileSizes:
    space = tile_space(kernel, ARCHITECTURE)
    return space.nest.tile_sizes(np.array(extents, dtype=np.int64))


def some_tiles(kernel: Kernel, count: int = 40) -> TileSizes:
    space = tile_space(kernel, ARCHITECTURE)
    return space.decode(space.sample(np.random.default_rng(0), count))


def test_it_is_a_cost_model() -> None:
    assert isinstance(MODEL, CostModel)


def test_an_elementwise_kernel_by_hand() -> None:
    kernel = small.elementwise()
    # Three arrays of 32 x 4 native tiles of 4 KiB, copied in full or in four parts; each copy also pays for
    # the size at which half of the bandwidth is reached. 100 ns an iteration.
    found = MODEL.predict(kernel, tiles_of(kernel, (32, 4), (8, 4)))
    assert found == pytest.approx(
        [3 * (128 * 4096 + HALF) + 100, 4 * 3 * (32 * 4096 + HALF) + 400],
    )


def test_compute_by_hand() -> None:
    model = AnalyticalModel(FAST_MEMORY, EXPERT)
    # 128 registers, two per cycle.
    kernel = small.unary()
    assert model.predict(kernel, tiles_of(kernel, (32, 4))) == pytest.approx([64 + 100], rel=1e-6)
    # 64 rows x 512 x 384 products, 128 x 128 per cycle.
    kernel = small.dot()
    assert model.predict(kernel, tiles_of(kernel, (8, 3, 4))) == pytest.approx([768 + 100], rel=1e-6)


def test_both_sides_of_the_matrix_unit_are_padded() -> None:
    model = AnalyticalModel(FAST_MEMORY, EXPERT)
    for depth, columns in ((192, 130), (256, 256)):
        kernel = small.dot(f"f32[64,{depth}]", f"f32[{depth},{columns}]")
        assert model.predict(kernel, tiles_of(kernel, (8, 2, 2))) == pytest.approx([4 * 64 + 100], rel=1e-6)


def test_depth_outside_of_the_lanes_is_padded_to_the_matrix_unit() -> None:
    # 192 rows of depth are 24 native tiles of eight, and still two passes of 128; 4 x 64 rows, 128 columns.
    kernel = small.dot("f32[192,4,64]", "f32[192,128]", DotDimensions((0,), (0,), (), ()), "f32[4,64,128]")
    found = AnalyticalModel(FAST_MEMORY, EXPERT).predict(kernel, tiles_of(kernel, (4, 8, 1, 24)))
    assert found == pytest.approx([2 * 256 + 100], rel=1e-6)


def test_positions_of_a_filters_gradient_fill_the_depth() -> None:
    # 2 images of 12 x 16 pixels are 384 rows of depth, three passes; 9 x 128 rows, 256 columns.
    kernel = small.filter_gradient()
    found = AnalyticalModel(FAST_MEMORY, EXPERT).predict(kernel, tiles_of(kernel, (3, 3, 16, 2, 2, 12, 2)))
    assert found == pytest.approx([3 * 9 * 128 * 2 + 100], rel=1e-6)


def test_tiles_are_fetched_again() -> None:
    kernel = small.dot()
    # Rows inside columns: the left side's halves are copied for each of three columns, 6 times.
    found = MODEL.predict(kernel, tiles_of(kernel, (4, 1, 4)))
    copies = 6 * (16 * 4096 + HALF) + 3 * (64 * 4096 + HALF) + 6 * (4 * 4096 + HALF)
    assert found == pytest.approx([copies + 600])


def test_windows_have_a_halo() -> None:
    kernel = small.convolution()
    whole, halves = MODEL.predict(kernel, tiles_of(kernel, (8, 16, 2, 2, 3, 3, 1), (8, 8, 2, 2, 3, 3, 1)))
    # Two halves of 10 rows instead of 16 rows at once, of 8 images x 2 native tiles; one more of each copy
    # that moves (input, result); another iteration. It does not know that padding is not copied.
    assert halves - whole == pytest.approx(8 * 2 * (2 * 10 - 16) * 4096 + 2 * HALF + 100)


@pytest.mark.parametrize("module", [analytical, analytical_cost])
def test_it_reads_the_architecture_only(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not any(module and module.startswith("costbench.hardware") for module in modules)
    from_target = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "costbench.target"
        for alias in node.names
    ]
    assert from_target == ["Architecture"]
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not {"timing", "Timing", "Target", "load_target"} & names


def test_it_knows_nothing_of_pieces_and_banks() -> None:
    # 16 native tiles in 32 iterations: 32 pieces of 4 KiB in one case, whole rows in the other.
    kernel = small.unary("f32[16,64,512]")
    first, second = MODEL.predict(kernel, tiles_of(kernel, (2, 8, 1), (4, 1, 4)))
    assert first == pytest.approx(second)
    # Columns at a pitch of 128 KiB.
    wide = small.unary("f32[256,4096]")
    first, second = MODEL.predict(wide, tiles_of(wide, (32, 1), (1, 32)))
    assert first == pytest.approx(second)


def test_it_knows_nothing_of_drains_and_weight_loads() -> None:
    model = AnalyticalModel(FAST_MEMORY, EXPERT)
    kernel = small.dot("f32[64,512]")
    whole, rows = model.predict(kernel, tiles_of(kernel, (8, 3, 4), (1, 3, 4)))
    # Eight rows at a time would wait for weights; here only iterations count.
    assert rows - whole == pytest.approx(700, rel=1e-4)


@pytest.mark.parametrize("name", KERNELS)
def test_every_kind_of_kernel_has_a_cost(name: str) -> None:
    kernel = KERNELS[name]()
    tiles = some_tiles(kernel)
    found = MODEL.predict(kernel, tiles)
    assert found.shape == (len(tiles),)
    assert np.isfinite(found).all()
    assert (found > 0).all()


@given(kernels())
def test_costs_do_not_depend_on_company(kernel: Kernel) -> None:
    tiles = some_tiles(kernel, 12)
    together = MODEL.predict(kernel, tiles)
    alone = [MODEL.predict(kernel, tiles[i : i + 1])[0] for i in range(len(tiles))]
    assert together == pytest.approx(alone)


def test_kernels_of_a_real_program_have_a_cost(repository: Path) -> None:
    name = "unet2d_b8_train_f32"
    data = (repository / "data" / "programs" / f"{name}.hlo.pb.zst").read_bytes()
    for unique in unique_kernels(compile_program(module_from_bytes(data, where=name), name)):
        found = MODEL.predict(unique.kernel, some_tiles(unique.kernel, 8))
        assert np.isfinite(found).all()
        assert (found > 0).all()


def test_it_ranks_the_real_machines_tiles(shared_data: Path) -> None:
    chip = Architecture(**{**vars(ARCHITECTURE), "clock_mhz": 940.0, "num_mxus": 2, "hbm_gb_per_s": 450.0})
    model = AnalyticalModel(chip, EXPERT)
    taus = []
    for recorded in read_tile_tuning(shared_data / "real_tpu" / "tile_calibration.pb"):
        if len(recorded.runtime_ns) >= 5:
            predicted = model.predict(recorded.kernel, recorded.tile_sizes)
            taus.append(kendall_tau(predicted, recorded.runtime_ns.astype(np.float64)))
    assert len(taus) == 5
    assert np.mean(taus) > 0.6


# ---- what it may know ------------------------------------------------------------------------------------


def cost(kernel: Kernel, extents: tuple[int, ...], chip: Architecture = ARCHITECTURE, **rules: Any) -> float:
    model = AnalyticalModel(chip, replace(EXPERT, **rules))
    return float(model.predict(kernel, tiles_of(kernel, extents))[0])


@pytest.mark.parametrize(
    ("rules", "left", "right", "result"),
    [
        # Three columns outside of two halves of the rows.
        ({}, 6, 3, 6),
        # Rows outside of columns: the right side passes once for each half.
        ({"loop_order": "physical"}, 2, 6, 6),
        ({"refetch": "moved"}, 2, 3, 6),
        ({"refetch": "every"}, 6, 6, 6),
    ],
)
def test_refetches_follow_the_known_order_of_loops(
    rules: dict[str, str], left: int, right: int, result: int
) -> None:
    copies = left * (16 * 4096 + HALF) + right * (64 * 4096 + HALF) + result * (4 * 4096 + HALF)
    assert cost(small.dot(), (4, 1, 4), **rules) == pytest.approx(copies + 600)


def test_a_tile_that_nothing_moves_is_fetched_once_under_every_rule() -> None:
    for refetch in ("order", "moved", "every"):
        found = cost(small.dot(), (8, 3, 4), refetch=refetch, transfer_size=False)
        assert found == pytest.approx((8 * 4 + 64 * 3 + 8 * 3) * 4096 + 100)


@pytest.mark.parametrize(
    ("padding", "elements"), [("native", 16 * 256), ("lanes", 12 * 256), ("none", 12 * 200)]
)
def test_boxes_are_rounded_up_as_far_as_is_known(padding: str, elements: int) -> None:
    kernel = small.unary("f32[12,200]")
    found = cost(kernel, (2, 2), box_padding=padding)
    assert found == pytest.approx(2 * (4 * elements + HALF) + 100)


def test_without_halo_tiles_share_out_what_is_under_windows() -> None:
    kernel = small.convolution()
    whole, halves = (cost(kernel, (8, rows, 2, 2, 3, 3, 1), halo=False) for rows in (16, 8))
    # One more copy of input and result, another iteration, and no row twice.
    assert halves - whole == pytest.approx(2 * HALF + 100)


def test_products_are_rounded_up_to_the_matrix_unit_if_that_is_known() -> None:
    # Two tiles of 192 columns on average: 64 rows x 192 or 256 columns x 512.
    padded, exact = (
        cost(small.dot(), (8, 2, 4), FAST_MEMORY, matrix_padding=known) for known in (True, False)
    )
    assert padded == pytest.approx(2 * 512 + 200, rel=1e-6)
    assert exact == pytest.approx(2 * 384 + 200, rel=1e-6)


def test_transfers_by_rule() -> None:
    kernel, tile, copy = small.unary(), (32, 4), 128 * 4096
    assert cost(kernel, tile, overlap="sum") == pytest.approx(2 * (copy + HALF) + 64 + 100)
    assert cost(kernel, tile, directions="separate") == pytest.approx(copy + HALF + 100)
    assert cost(kernel, tile, transfer_size=False) == pytest.approx(2 * copy + 100)
    assert cost(kernel, tile, control=False) == pytest.approx(2 * (copy + HALF))


def test_work_by_rule() -> None:
    exponential, moved = small.unary(opcode="exponential"), small.copy()
    for known, cycles in ((True, 6 * 64), (False, 64)):
        found = cost(exponential, (32, 4), FAST_MEMORY, operation_costs=known)
        assert found == pytest.approx(cycles + 100, rel=1e-6)
    # 512 registers, two per cycle; or as if a copy left everything where it is.
    whole = tuple(tile_space(moved, ARCHITECTURE).nest.units.tolist())
    for known, cycles in ((True, 256), (False, 0)):
        assert cost(moved, whole, FAST_MEMORY, moves=known) == pytest.approx(cycles + 100, rel=1e-4)


def test_what_follows_a_contraction_by_rule() -> None:
    b = ModuleBuilder("dot and negate")
    kernel = small.finish(b, b.op("negate", b.dot(b.parameter("f32[64,512]"), b.parameter("f32[512,384]"))))
    # 768 cycles of the matrix unit; 24 registers of result, two per cycle, after four parts of the depth.
    tile = (8, 3, 1)
    assert cost(kernel, tile, FAST_MEMORY) == pytest.approx(768 + 400, rel=1e-6)
    in_turn = cost(kernel, tile, FAST_MEMORY, units="in-turn")
    assert in_turn == pytest.approx(768 + 12 + 400, rel=1e-6)
    each_time = cost(kernel, tile, FAST_MEMORY, units="in-turn", epilogue=False)
    assert each_time == pytest.approx(768 + 4 * 12 + 400, rel=1e-6)


def test_the_chips_compiler_has_a_quality_of_its_own() -> None:
    kernel = small.dot()
    tiles = tiles_of(kernel, (4, 1, 4), (8, 3, 4), (1, 1, 1))
    for name, knowledge in QUALITIES.items():
        chip = replace(ARCHITECTURE, estimate=name)
        expected = AnalyticalModel(ARCHITECTURE, knowledge).predict(kernel, tiles)
        assert AnalyticalModel(chip).predict(kernel, tiles).tolist() == expected.tolist()
    with pytest.raises(ChoiceError, match=r"unknown estimate 'oracle'.*compiler"):
        AnalyticalModel(replace(ARCHITECTURE, estimate="oracle"))


# ---- the tile that the compiler chooses ------------------------------------------------------------------


def cost_of(kernel: Kernel, extents: np.ndarray) -> float:
    nest = loop_nest(kernel)
    return float(MODEL.predict(kernel, nest.tile_sizes(extents[None]))[0])


@pytest.mark.parametrize("name", KERNELS)
def test_the_chosen_tile_of_small_kernels_is_nearly_the_best(name: str) -> None:
    space = tile_space(KERNELS[name](), ARCHITECTURE)
    chosen = MODEL.choose(space)
    ids = space.legal_ids()
    best = MODEL.predict(space.nest.kernel, space.decode(ids)).min()
    assert space.legal(space.encode(space.nest.tile_sizes(chosen[None]))).all()
    assert best <= cost_of(space.nest.kernel, chosen) <= 1.05 * best


def test_the_chosen_tile_by_hand() -> None:
    # Everything fits, so one iteration that copies everything once is cheapest.
    space = tile_space(small.elementwise(), ARCHITECTURE)
    assert MODEL.choose(space).tolist() == [32, 4]
    assert MODEL.choose(tile_space(small.fft(), ARCHITECTURE)).tolist() == []
    # Three arrays of 1024 x 8 native tiles do not fit; the largest tile has the fewest copies and iterations.
    space = tile_space(small.elementwise("f32[8192,1024]"), ARCHITECTURE)
    rows, columns = MODEL.choose(space).tolist()
    most = space.extents(space.legal_ids()).prod(axis=1).max()
    assert rows * columns == most


@given(kernels())
def test_no_neighbour_is_better_than_the_chosen_tile(kernel: Kernel) -> None:
    space = tile_space(kernel, ARCHITECTURE)
    chosen = MODEL.choose(space)
    assert chosen.tolist() == MODEL.choose(tile_space(kernel, ARCHITECTURE)).tolist()
    here = int(space.encode(space.nest.tile_sizes(chosen[None]))[0])
    around = space.neighbours(here)
    assert space.legal(np.array([here])).all()
    assert (MODEL.predict(kernel, space.decode(around)) >= cost_of(kernel, chosen) * (1 - 1e-12)).all()


def test_a_kernel_that_never_fits_is_named() -> None:
    tight = Architecture(**{**vars(ARCHITECTURE), "scratchpad_bytes": 10_000})
    kernel = small.elementwise("f32[8192,1024]")
    # Three native tiles of 4 KiB, double-buffered.
    with pytest.raises(UnsupportedKernelError, match=f"{kernel.fingerprint}.*24576 bytes.*10000 bytes"):
        AnalyticalModel(tight, EXPERT).choose(tile_space(kernel, tight))


@pytest.mark.parametrize("quality", ["expert", "compiler"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_choice_for_a_kernel_of_a_batch_is_that_for_it_alone(name: str, quality: str) -> None:
    model, kernel = AnalyticalModel(ARCHITECTURE, QUALITIES[quality]), KERNELS[name]()
    expected = model.choose(tile_space(kernel, ARCHITECTURE))
    batch = lowered(kernel, kernel)
    chosen = model.choose_each(batch, np.array([1]))
    assert chosen.shape == (1, batch.max_loops)
    assert chosen[0, : len(expected)].tolist() == expected.tolist()
    assert batch.smallest_fits(ARCHITECTURE.scratchpad_bytes).tolist() == [True, True]
