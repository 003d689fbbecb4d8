from __future__ import annotations

from pathlib import Path

import pytest

from costbench.compiler.kernel import Kernel
from costbench.hardware.vector_unit import LANE_MOVES, VECTOR_COSTS, VectorAmounts, moved_rows
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import decompress
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import finish
from tests.hardware.machines import breakdown, machine, price
from tests.hlo.builder import ModuleBuilder

CONTROL = {Opcode.WHILE, Opcode.CALL, Opcode.CONDITIONAL, Opcode.FUSION, Opcode.CUSTOM_CALL}
"""What never is inside a kernel."""


def test_known_costs() -> None:
    assert VECTOR_COSTS[Opcode.ADD] == VectorAmounts(simple=1.0)
    assert VECTOR_COSTS[Opcode.RESHAPE] == VectorAmounts()
    assert VECTOR_COSTS[Opcode.DIVIDE] == VectorAmounts(simple=3.0, transcendental=1.0)


def test_no_cost_is_negative() -> None:
    for cost in VECTOR_COSTS.values():
        assert min(cost.simple, cost.transcendental, cost.random) >= 0.0


def test_every_operation_of_the_corpus_has_a_routine(repository: Path) -> None:
    names: set[str] = set()
    for file in sorted((repository / "data" / "programs").glob("*.hlo.pb.zst")):
        # Names alone: reading whole modules would take seconds.
        module = hlo_pb2.HloModuleProto.FromString(decompress(file.read_bytes(), where=file.name))
        names.update(inst.opcode for computation in module.computations for inst in computation.instructions)
    assert len(names) > 40
    opcodes = {Opcode.from_name(name) for name in names} - CONTROL
    assert {opcode.xla_name for opcode in opcodes if opcode not in VECTOR_COSTS} == set()


def moves(kernel: Kernel) -> float:
    return moved_rows(kernel.body, kernel.instruction(kernel.instructions[-1]))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("{2,1,0}", "{2,1,0}", 0.0),
        ("{2,1,0}", "{2,0,1}", 1.0),  # other rows share a register
        ("{2,1,0}", "{1,2,0}", LANE_MOVES),  # other elements share a row
        ("{0,1,2}", "{2,1,0}", LANE_MOVES),
    ],
)
def test_copies(source: str, target: str, expected: float) -> None:
    assert moves(small.copy(f"f32[32,64,256]{source}", f"f32[32,64,256]{target}")) == expected


@pytest.mark.parametrize(
    ("order", "expected"), [((1, 0, 2), 1.0), ((0, 2, 1), LANE_MOVES), ((2, 1, 0), LANE_MOVES)]
)
def test_transposes(order: tuple[int, ...], expected: float) -> None:
    b = ModuleBuilder()
    assert moves(finish(b, b.transpose(b.parameter("f32[32,64,256]"), order))) == expected


def test_a_transpose_that_names_the_same_memory_anew_is_free() -> None:
    b = ModuleBuilder()
    value = b.parameter("f32[32,64,256]{2,1,0}")
    made = b.op("transpose", value, shape="f32[64,32,256]{2,0,1}", dimensions=(1, 0, 2))
    assert moves(finish(b, made)) == 0.0


@pytest.mark.parametrize(
    ("target", "expected"), [("f32[16,16,16,128]", 0.0), ("f32[4096,128]", 1.0), ("f32[256,2048]", 1.0)]
)
def test_reshapes(target: str, expected: float) -> None:
    b = ModuleBuilder()
    assert moves(finish(b, b.reshape(b.parameter("f32[256,16,128]"), target))) == expected


@pytest.mark.parametrize(
    ("sizes", "axis", "expected"),
    [
        ((96, 160), 0, 0.0),  # the second starts at a multiple of eight rows
        ((100, 156), 0, 1.0),
        ((128, 256), 1, 0.0),
        ((100, 256), 1, LANE_MOVES / 2),
    ],
)
def test_concatenations(sizes: tuple[int, int], axis: int, expected: float) -> None:
    b = ModuleBuilder()
    shapes = [f"f32[{n},512]" if axis == 0 else f"f32[64,{n}]" for n in sizes]
    assert moves(finish(b, b.concatenate([b.parameter(s) for s in shapes], axis))) == expected


@pytest.mark.parametrize(
    ("starts", "expected"),
    [((0, 0, 0), 0.0), ((5, 0, 0), 0.0), ((0, 16, 0), 0.0), ((0, 3, 0), 1.0), ((0, 0, 7), LANE_MOVES / 2)],
)
def test_slices(starts: tuple[int, ...], expected: float) -> None:
    b = ModuleBuilder()
    value = b.parameter("f32[32,64,512]")
    limits = tuple(start + size for start, size in zip(starts, (8, 32, 256), strict=True))
    assert moves(finish(b, b.slice_of(value, starts, limits))) == expected


def test_strides_in_sublanes_gather_rows() -> None:
    assert moves(small.strided_slice()) == 1.0


@pytest.mark.parametrize(("axis", "expected"), [(0, 0.0), (1, 1.0), (2, 1.0)])
def test_reversals(axis: int, expected: float) -> None:
    b = ModuleBuilder()
    assert moves(finish(b, b.op("reverse", b.parameter("f32[4,64,256]"), dimensions=(axis,)))) == expected


def test_indexed_rows_land_anywhere() -> None:
    for make in (small.gather, small.scatter, small.dynamic_slice, small.dynamic_update_slice):
        assert moves(make()) == 1.0


def test_arithmetic_moves_nothing() -> None:
    assert moves(small.elementwise()) == 0.0


# f32[256,512] is 32 x 4 registers.
WHOLE = (32, 4)


def test_an_operation_takes_its_cycles_on_every_register() -> None:
    assert price(small.elementwise(), machine(vector_cycles=0.5), WHOLE) == [128 * 0.5]
    assert price(small.unary(times=3), machine(vector_cycles=0.5), WHOLE) == [3 * 128 * 0.5]


def test_edge_tiles_run_in_full() -> None:
    # 5 rows of registers: in one piece, in parts of 3 (one of six is not there), one by one.
    kernel = small.unary("f32[40,128]")
    assert price(kernel, machine(vector_cycles=1.0), (5, 1), (3, 1), (1, 1)) == [5, 6, 5]


def test_native_tiles_of_few_rows_share_registers() -> None:
    # T(2,128): 200 native tiles, four to a register; ten of them start 20 iterations of three registers.
    kernel = small.unary("f32[100,2,256]")
    assert price(kernel, machine(vector_cycles=1.0), (100, 1, 2), (10, 1, 1)) == [50, 20 * 3]
    # T(1,128): eight to a register.
    assert price(small.unary("f32[100,1,256]"), machine(vector_cycles=1.0), (100, 1, 2)) == [25]


def test_every_loop_of_a_tile_has_a_prologue() -> None:
    slow = machine(vector_cycles=2.0, unroll_registers=3.0)
    # 128 registers and 3 lost in each of one or four iterations, two cycles each.
    assert price(small.unary(), slow, WHOLE, (8, 4)) == [2 * (128 + 3), 2 * (128 + 4 * 3)]


@pytest.mark.parametrize(
    ("opcode", "simple", "transcendental"),
    [("exponential", 2, 1), ("tanh", 2, 1), ("logistic", 3, 2), ("sqrt", 2, 1), ("negate", 1, 0)],
)
def test_transcendentals(opcode: str, simple: int, transcendental: int) -> None:
    kernel = small.unary(opcode=opcode)
    assert price(kernel, machine(transcendental_cycles=4.0), WHOLE) == [128 * transcendental * 4.0]
    assert price(kernel, machine(vector_cycles=1.0), WHOLE) == [128 * simple]


def test_random_bits() -> None:
    assert price(small.random_bits(), machine(random_cycles=5.0), WHOLE) == [128 * 5.0]


def test_a_reduction_works_on_what_it_reads() -> None:
    # 64 x 4 x 2 registers in, 4 x 2 out.
    assert price(small.reduction(), machine(vector_cycles=1.0), (64, 4, 2)) == [512]


@pytest.mark.parametrize(
    ("dimensions", "lanes", "sublanes"),
    [((0,), 0, 0), ((1,), 0, 1), ((2,), 1, 0), ((1, 2), 1, 1)],
)
def test_reducing_lanes_and_sublanes_takes_the_cross_lane_unit(
    dimensions: tuple[int, ...], lanes: int, sublanes: int
) -> None:
    slow = machine(cross_lane_ns=100.0, cross_sublane_ns=1.0)
    kernel = small.reduction(dimensions=dimensions)
    # Once per iteration, whatever the tile.
    expected = 100 * lanes + sublanes
    assert price(kernel, slow, (64, 4, 2), (16, 4, 2)) == [expected, 4 * expected]


def test_latencies_of_the_cross_lane_unit_overlap() -> None:
    b = ModuleBuilder()
    value = b.parameter("f32[64,256]")
    kernel = finish(b, b.reduce(value, (1,)), b.reduce(value, (1,), "maximum"))
    assert price(kernel, machine(cross_lane_ns=100.0), (8, 2)) == [100]


@pytest.mark.parametrize(
    ("type_name", "factor"), [("f32", 1.0), ("s32", 1.0), ("bf16", 3.0), ("u16", 3.0), ("pred", 3.0)]
)
def test_moving_rows_between_sublanes(type_name: str, factor: float) -> None:
    # 64 x 4 x 2 registers of 8 rows each change their sublane.
    kernel = small.copy(f"{type_name}[32,64,256]{{2,1,0}}", f"{type_name}[32,64,256]{{2,0,1}}")
    slow = machine(row_move_cycles=0.25, packed_move_factor=3.0, cross_sublane_ns=7.0)
    assert price(kernel, slow, (64, 4, 2)) == [64 * 4 * 2 * 8 * 0.25 * factor + 7]
    assert price(kernel, slow, (16, 4, 2)) == [64 * 4 * 2 * 8 * 0.25 * factor + 4 * 7]


def test_copies_that_keep_sublanes_and_lanes_move_nothing() -> None:
    kernel = small.copy("f32[4,32,64,256]{3,2,1,0}", "f32[4,32,64,256]{3,2,0,1}")
    assert price(kernel, machine(row_move_cycles=1.0, cross_sublane_ns=1.0), (32, 4, 8, 2)) == [0]


def test_work_after_a_contraction_runs_once_per_result_tile() -> None:
    b = ModuleBuilder()
    before = b.op("negate", b.parameter("f32[64,512]"))
    product = b.dot(before, b.parameter("f32[512,384]"))
    kernel = finish(b, b.op("negate", b.op("negate", product)))
    slow = machine(vector_cycles=1.0)
    # 32 registers of the left side before; 24 of the result, twice, after.
    assert breakdown(kernel, slow, (8, 3, 4)).vector_ns.tolist() == [32 + 2 * 24]
    # In two steps of depth each sees half of the left side, and the result is finished once.
    assert breakdown(kernel, slow, (8, 3, 2)).vector_ns.tolist() == [32 + 2 * 24]
    # Three steps of columns work on the whole left side each.
    assert breakdown(kernel, slow, (8, 1, 4)).vector_ns.tolist() == [3 * 32 + 2 * 24]


def test_windows_work_on_every_place() -> None:
    # 8 x 8 x 1 x 1 registers of results, nine places, one and a half operations each.
    assert price(small.pooling(), machine(vector_cycles=1.0), (8, 8, 1, 1)) == [64 * 9 * 1.5]
    # 8 x 8 x 1 registers of sources, four places, three operations; and 8 x 16 x 2 of results.
    times = price(small.pooling_gradient(), machine(vector_cycles=1.0), (8, 16, 2, 1))
    assert times == [64 * 4 * 3 + 256]


def test_a_sort_exchanges_in_rounds() -> None:
    # 64 registers of keys; log2(1024) = 10 rounds of rounds: 55 exchanges of 6 operations on two operands.
    assert price(small.sort(), machine(vector_cycles=1.0), (8, 8)) == [64 * 55 * 6 * 2]
    # For the largest only, ten rounds on one operand.
    assert price(small.top_k(), machine(vector_cycles=1.0), (8, 1)) == [64 * 10 * 6]


def test_an_update_in_place_works_on_the_update() -> None:
    kernel = small.dynamic_update_slice()
    times = price(kernel, machine(vector_cycles=1.0, row_move_cycles=0.125), (8, 2))
    # 8 x 2 registers: an operation each, and eight rows moved at an eighth of a cycle.
    assert times == [16 + 16]


def test_a_kernel_without_tiles_works_on_everything_at_once() -> None:
    # c64[64,256] is 16 registers; eight rounds of six operations.
    assert price(small.fft(), machine(vector_cycles=1.0), ()) == [16 * 8 * 6]
    # f32[32,5,5,256] is 32 x 5 x 1 x 2 registers of 8 rows.
    assert price(small.lone_reshape(), machine(row_move_cycles=1.0), ()) == [320 * 8]
