from __future__ import annotations

from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.program import compile_program, unique_kernels
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import tile_space
from costbench.errors import UnsupportedKernelError
from costbench.hardware.machine import CHOICES
from costbench.hardware.simulator import Breakdown, simulate, simulate_nest, soft_maximum
from costbench.hlo.reader import module_from_bytes
from costbench.target import Target, load_target
from tests.compiler import small_kernels as small
from tests.compiler.random_kernels import kernels
from tests.compiler.small_kernels import KERNELS, finish
from tests.hardware.machines import breakdown, changed, machine, price, with_rules
from tests.hlo.builder import ModuleBuilder

V2, V3 = load_target("tpu_v2"), load_target("tpu_v3")
TILE = 4096.0
"""Bytes of a native tile of float32."""


def some_tiles(kernel: Kernel, count: int = 40) -> TileSizes:
    space = tile_space(kernel, V3.architecture)
    return space.decode(space.sample(np.random.default_rng(0), count))


def parts_of(parts: Breakdown) -> dict[str, np.ndarray]:
    return {field.name: getattr(parts, field.name) for field in fields(Breakdown)}


# ---- one effect at a time --------------------------------------------------------------------------------


def test_a_launch_costs_once() -> None:
    assert price(small.elementwise(), machine(launch_ns=300.0), (32, 4), (1, 1)) == [300, 300]


def test_control_costs_per_iteration() -> None:
    slow = machine(iteration_ns=10.0)
    # 32 x 4 native tiles in parts of 5 x 2: 7 x 2 iterations.
    assert price(small.elementwise(), slow, (32, 4), (5, 2), (1, 1)) == [10, 140, 1280]
    assert price(small.fft(), slow, ()) == [10]


def test_everything_is_copied_at_least_once() -> None:
    reading, writing = machine(read_gb_per_s=2.0), machine(write_gb_per_s=4.0)
    for tile in ((32, 4), (8, 4), (1, 1), (5, 2)):
        assert price(small.elementwise(), reading, tile) == pytest.approx([2 * 128 * TILE / 2])
        assert price(small.elementwise(), writing, tile) == pytest.approx([128 * TILE / 4])


@pytest.mark.parametrize(
    ("tile", "left", "right", "result"),
    [
        # 8 x 4 native tiles by 64 x 3 into 8 x 3; columns run outermost, depth innermost.
        ((8, 3, 4), 32, 192, 24),
        ((8, 1, 4), 32, 192, 24),  # the left side rests while columns pass
        ((4, 3, 4), 32, 192, 24),  # the right side rests while rows pass
        ((4, 1, 4), 3 * 32, 192, 24),  # rows start over for each of three columns
        ((8, 1, 2), 3 * 32, 192, 24),  # so does depth
        ((8, 3, 1), 32, 192, 24),
        ((4, 3, 2), 32, 2 * 192, 24),  # depth starts over for each half of the rows
        ((4, 1, 2), 3 * 32, 2 * 192, 24),
    ],
)
def test_tiles_are_fetched_again_when_their_index_changes(
    tile: tuple[int, int, int], left: int, right: int, result: int
) -> None:
    assert copied_in(small.dot(), tile) == pytest.approx((left + right) * TILE)
    slow = machine(write_gb_per_s=1e-9)
    assert price(small.dot(), slow, tile)[0] / 1e9 == pytest.approx(result * TILE)


def copied_in(kernel: Kernel, tile: tuple[int, ...]) -> float:
    """Bytes read, from a machine so slow at it that nothing else counts."""
    return price(kernel, machine(read_gb_per_s=1e-9), tile)[0] / 1e9


def test_rows_of_a_convolution_share_a_halo() -> None:
    # f32[8,16,16,128]: per image 16 rows of 2 x 1 native tiles; windows of three rows.
    kernel = small.convolution()
    weights = 9 * 16 * 2
    whole = copied_in(kernel, (8, 16, 2, 2, 3, 3, 1)) / TILE
    halves = copied_in(kernel, (8, 8, 2, 2, 3, 3, 1)) / TILE
    rows = copied_in(kernel, (8, 1, 2, 2, 3, 3, 1)) / TILE
    assert whole == pytest.approx(8 * 16 * 2 + weights, rel=1e-3)
    # Two halves see 9 rows each; sixteen single rows 3, the outer two 2.
    assert halves == pytest.approx(8 * 18 * 2 + weights, rel=1e-3)
    assert rows == pytest.approx(8 * (16 * 3 - 2) * 2 + weights, rel=1e-3)


def test_copies_and_compute_overlap() -> None:
    # 4 iterations of 32 registers: 3 x 32 native tiles copied at 10 ns each, 320 ns of compute each.
    kernel = small.unary("f32[256,512]")
    balanced = machine(
        read_gb_per_s=TILE / 10.0, write_gb_per_s=1e30, vector_cycles=10.0, overlap_exponent=500.0
    )
    # Fill, three overlapped iterations, the last one's compute.
    assert price(kernel, balanced, (8, 4)) == pytest.approx([320 + 3 * 320 + 320], rel=3e-3)
    # Three times as much compute hides the copies, a third of it is hidden by them.
    busy = changed(balanced, vector_cycles=30.0)
    assert price(kernel, busy, (8, 4)) == pytest.approx([320 + 4 * 960])
    idle = changed(balanced, vector_cycles=2.0)
    assert price(kernel, idle, (8, 4)) == pytest.approx([320 + 3 * 320 + 64])


@pytest.mark.parametrize("exponent", [1.0, 2.0, 4.0])
def test_the_overlap_is_soft(exponent: float) -> None:
    kernel = small.unary("f32[256,512]")
    soft = machine(read_gb_per_s=TILE / 10.0, vector_cycles=10.0, overlap_exponent=exponent)
    # Where both take 320 ns, an iteration takes 2^(1/q) of it.
    expected = 320 + 3 * 320 * 2 ** (1 / exponent) + 320
    assert price(kernel, soft, (8, 4)) == pytest.approx([expected])


@pytest.mark.parametrize(
    ("rule", "even", "uneven"),
    [
        ("power", 320 * 2**0.5, (320**2 + 160**2) ** 0.5),
        ("maximum", 320, 320),
        ("share", 320 * 2**0.5, 320 + (2**0.5 - 1) * 160),
    ],
)
def test_rules_of_the_overlap(rule: str, even: float, uneven: float) -> None:
    kernel = small.unary("f32[256,512]")
    # An iteration copies for 320 ns and computes for 320 or 160; three of four overlap.
    for cycles, expected in ((10.0, even), (5.0, uneven)):
        target = machine(read_gb_per_s=TILE / 10.0, vector_cycles=cycles, overlap_exponent=2.0)
        (runtime,) = price(kernel, with_rules(target, overlap=rule), (8, 4))
        assert runtime == pytest.approx(320 + 3 * expected + 32 * cycles)


def test_the_soft_maximum_lies_between_maximum_and_sum() -> None:
    pairs = ((0.0, 0.0), (1.0, 1.0), (3.0, 4.0), (5.0, 0.0))
    maxima = [soft_maximum(a, b, 2.0) for a, b in pairs]
    assert maxima == pytest.approx([0, np.sqrt(2), 5, 5])
    for a, b in pairs:
        assert soft_maximum(a, b, 1.0) == pytest.approx(a + b)
        for exponent in (1.5, 3.0, 10.0):
            assert max(a, b) <= soft_maximum(a, b, exponent) <= a + b


def test_one_tile_overlaps_nothing() -> None:
    # Copy in, compute, copy out, one after the other; in four parts only the first and the last are bare.
    kernel = small.unary("f32[256,512]")
    even = machine(read_gb_per_s=TILE / 10.0, write_gb_per_s=TILE / 10.0, vector_cycles=10.0)
    assert price(kernel, even, (32, 4)) == pytest.approx([3 * 1280])
    # Reads and writes share the memory: 640 ns of copies beside 320 of compute.
    assert price(kernel, even, (8, 4)) == pytest.approx([320 + 3 * 640 + 320 + 320])


def test_the_first_transition_has_nothing_to_hide_the_first_copy_behind() -> None:
    kernel = small.unary("f32[256,512]")
    parts = breakdown(kernel, machine(read_gb_per_s=1.0, write_gb_per_s=2.0), (8, 4))
    assert parts.fill_ns.tolist() == [32 * TILE]
    assert parts.drain_ns.tolist() == [32 * TILE / 2]


def test_the_core_issues_copies() -> None:
    issuing = machine(transfer_ns=5.0)
    # Two inputs and a result in four iterations: 12 copies.
    assert price(small.elementwise(), issuing, (8, 4)) == [12 * 5]
    # Of a dot's sides only the one that changes is copied again: left 1, right 3, result 3.
    parts = breakdown(small.dot(), issuing, (8, 1, 4))
    outside = parts.fill_ns + parts.drain_ns + parts.iteration_ns
    assert outside.tolist() == [(1 + 3 + 3) * 5]


def test_issuing_hides_behind_large_copies() -> None:
    slow = machine(read_gb_per_s=1.0, transfer_ns=100.0)
    # Two copies before, one after; what lies between runs while memory is busy.
    assert price(small.elementwise(), slow, (8, 4)) == pytest.approx([2 * 128 * TILE + 3 * 100])


def test_pieces_and_banks_cost_in_every_copy() -> None:
    # Half of each of 32 rows: 31 pieces beyond the first in each of 3 copies of 2 tiles.
    assert price(small.elementwise(), machine(chunk_ns=1.0), (32, 2)) == [31 * 3 * 2]
    wide = small.elementwise("f32[256,4096]")
    # One column at a time at a pitch of 128 KiB: each native tile is in conflict, 32 x 32 in 3 arrays.
    assert price(wide, machine(bank_ns=1.0), (32, 1)) == [3 * 1024]
    assert price(wide, machine(bank_ns=1.0), (32, 2)) == [0]


def test_generated_code_varies_with_structure() -> None:
    regular = machine(vector_cycles=1.0)
    varied = changed(regular, codegen_compute_sd=0.1)
    kernel = small.unary("f32[256,512]")
    plain, irregular = (breakdown(kernel, target, (32, 4), (8, 4), (32, 2)) for target in (regular, varied))
    factor = irregular.vector_ns / plain.vector_ns
    # Both innermost extents count up to eight: the first two tiles run the same loops.
    assert factor[0] == pytest.approx(factor[1])
    assert factor[2] != pytest.approx(factor[0])


@pytest.mark.parametrize(
    ("text", "tile", "full", "native", "rows"),
    [
        # Five rows of native tiles in parts of three: six, five, and 36 of 40 rows of elements.
        ("f32[36,128]", (3, 1), 6, 5, 4.5),
        ("f32[36,128]", (1, 1), 5, 5, 5),  # a register is the least
        # In one piece nothing is beyond the edge but the rows of the last native tile.
        ("f32[36,128]", (5, 1), 5, 5, 4.5),
        # Lanes stay whole: 300 of them are three native tiles.
        ("f32[40,300]", (5, 2), 20, 15, 15),
        # Four native tiles of T(2,128) share a register: 10 of them in parts of 4 are 3 registers or 2.5.
        ("f32[10,2,128]", (4, 1, 1), 3, 2.5 + 0.5, 2.5 + 0.5),
    ],
)
def test_rules_of_tiles_at_the_edge(
    text: str, tile: tuple[int, ...], full: float, native: float, rows: float
) -> None:
    kernel, target = small.unary(text), machine(vector_cycles=1.0)
    times = [price(kernel, with_rules(target, edges=edges), tile)[0] for edges in ("full", "native", "rows")]
    assert times == pytest.approx([full, native, rows])


@pytest.mark.parametrize("edges", ["native", "rows"])
def test_the_matrix_unit_takes_edge_tiles_in_full(edges: str) -> None:
    target = machine(weight_load_cycles=1.0, dot_drain_ns=10.0)
    # Three of eight rows of native tiles at a time.
    assert price(small.dot(), with_rules(target, edges=edges), (3, 3, 4)) == price(
        small.dot(), target, (3, 3, 4)
    )


@pytest.mark.parametrize("rule", [(name, choice) for name, known in CHOICES.items() for choice in known[1:]])
def test_rules_change_what_they_say_alone(rule: tuple[str, str]) -> None:
    name, choice = rule
    kernel = small.unary("bf16[200,300]", times=3)
    tiles = some_tiles(kernel)
    plain, other = (simulate(kernel, tiles, target) for target in (V3, with_rules(V3, **{name: choice})))
    check_parts(other)
    assert (other.vector_ns != plain.vector_ns).any() == (name == "edges")
    assert (other.fill_ns != plain.fill_ns).any() == (name == "chunks")
    assert (other.runtime_ns != plain.runtime_ns).any()


# ---- what always holds -----------------------------------------------------------------------------------


def check_parts(parts: Breakdown) -> None:
    values = parts_of(parts)
    for name, value in values.items():
        assert (value >= -1e-6).all(), name
    assert parts.runtime_ns == pytest.approx(np.sum(list(values.values()), axis=0))
    assert np.isfinite(parts.runtime_ns).all()
    assert (parts.runtime_ns > 0).all()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("target", [V2, V3], ids=lambda t: t.name)
def test_parts_add_up(name: str, target: Target) -> None:
    kernel = KERNELS[name]()
    check_parts(simulate(kernel, some_tiles(kernel), target))


@given(kernels())
def test_parts_of_random_kernels_add_up(kernel: Kernel) -> None:
    check_parts(simulate(kernel, some_tiles(kernel), V3))


@given(kernels())
def test_many_tiles_at_once_cost_what_each_costs_alone(kernel: Kernel) -> None:
    tiles = some_tiles(kernel, 12)
    together = simulate(kernel, tiles, V3).runtime_ns
    alone = [simulate(kernel, tiles[i : i + 1], V3).runtime_ns[0] for i in range(len(tiles))]
    assert together == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize(
    "better",
    [
        {"read_gb_per_s": 2 * V3.timing.read_gb_per_s},
        {"write_gb_per_s": 2 * V3.timing.write_gb_per_s},
        {"chunk_ns": 0.0},
        {"descriptor_ns": 0.0},
        {"bank_ns": 0.0},
        {"transfer_ns": 0.0},
        {"iteration_ns": 0.0},
        {"weight_load_cycles": 1.0},
        {"vector_cycles": 0.1},
        {"cross_sublane_ns": 0.0},
        {"overlap_exponent": 2 * V3.timing.overlap_exponent},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_better_machine_is_never_slower(better: dict[str, float]) -> None:
    faster = changed(V3, **better)
    for make in (small.dot, small.convolution, small.elementwise, small.copy, small.two_results):
        kernel = make()
        tiles = some_tiles(kernel)
        before, after = (simulate(kernel, tiles, target).runtime_ns for target in (V3, faster))
        assert (after <= before * (1 + 1e-12)).all()
    clocked = replace(V3, architecture=replace(V3.architecture, clock_mhz=2 * V3.architecture.clock_mhz))
    tiles = some_tiles(small.dot())
    assert (
        simulate(small.dot(), tiles, clocked).runtime_ns <= simulate(small.dot(), tiles, V3).runtime_ns
    ).all()


def test_the_older_chip_is_slower() -> None:
    for make in (small.dot, small.convolution, small.elementwise, small.copy):
        kernel = make()
        tiles = some_tiles(kernel)
        quiet = [changed(t, codegen_compute_sd=0.0, codegen_transfer_sd=0.0) for t in (V2, V3)]
        older, newer = (simulate(kernel, tiles, target).runtime_ns for target in quiet)
        assert (older > newer).all()


def test_an_operation_without_a_routine_is_refused() -> None:
    b = ModuleBuilder("cpu")
    kernel = finish(b, b.op("all-reduce", b.parameter("f32[64,256]")))
    tiles = TileSizes(np.zeros((1, 0), dtype=np.int64), np.array([[8, 2]]))
    with pytest.raises(UnsupportedKernelError, match="no routine for 'all-reduce'"):
        simulate(kernel, tiles, V3)


def test_tiles_of_another_kernel_are_refused() -> None:
    with pytest.raises(UnsupportedKernelError, match="tile of rank"):
        simulate(small.dot(), some_tiles(small.convolution()), V3)


PROGRAMS = (
    "dlrm_b2048_train_f32",
    "nmt_small_b64_train_f32",
    "resnet_v2_18_b64_train_f32",
    "small_bert_L2_H128_b64_train_bf16",
    "unet2d_b8_train_f32",
    "wavernn_3_b1_infer_bf16",
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kernel_of_real_programs_has_a_price(name: str, repository: Path) -> None:
    data = (repository / "data" / "programs" / f"{name}.hlo.pb.zst").read_bytes()
    compiled = compile_program(module_from_bytes(data, where=name), name)
    for unique in unique_kernels(compiled):
        space = tile_space(unique.kernel, V3.architecture)
        ids = space.sample(np.random.default_rng(0), 8)
        assert len(ids), "no tile fits the scratchpad"
        check_parts(simulate_nest(space.nest, space.extents(ids), V3))


def test_breakdowns_are_plain_arrays() -> None:
    parts = simulate_nest(loop_nest(small.scalar()), np.zeros((3, 0), dtype=np.int64), V3)
    assert {value.shape for value in asdict(parts).values()} == {(3,)}


def test_a_dot_with_prologue_and_epilogue() -> None:
    b = ModuleBuilder()
    left = b.op("exponential", b.parameter("f32[64,512]"))
    product = b.dot(left, b.parameter("f32[512,384]"))
    kernel = finish(b, b.reduce(b.op("negate", product), (1,)))
    timed = machine(
        vector_cycles=1.0,
        transcendental_cycles=10.0,
        accumulate_cycles=100.0,
        dot_drain_ns=7.0,
        cross_lane_ns=50.0,
    )
    parts = breakdown(kernel, timed, (8, 3, 2))
    # Twice half of the depth: 2 blocks x 3 columns x 64 rows, and the drain.
    assert parts.matrix_ns.tolist() == [2 * (2 * 3 * 64 + 7)]
    # In each half 8 x 2 registers of exponentials (two simple operations and a transcendental) and 24
    # registers of sums; once 24 registers negated and 24 reduced over lanes.
    assert parts.vector_ns.tolist() == [2 * (16 * (2 + 10) + 24 * 100) + 24 + 24 + 50]


def test_without_a_contraction_everything_runs_in_every_iteration() -> None:
    for tile, registers in (((32, 4), 128), ((8, 1), 8)):
        parts = breakdown(small.unary(times=2), machine(vector_cycles=1.0), tile)
        assert parts.vector_ns.tolist() == [2 * registers * (128 // registers)]
        assert parts.matrix_ns.tolist() == [0]


def test_alike_values_are_summed_before_they_are_priced() -> None:
    # Element types differ, tiles do not.
    b = ModuleBuilder()
    value = b.op("negate", b.parameter("f32[256,512]"))
    kernel = finish(b, b.op("negate", b.convert(value, "bf16")))
    assert breakdown(kernel, machine(vector_cycles=1.0), (32, 4)).vector_ns == pytest.approx([3 * 128])
