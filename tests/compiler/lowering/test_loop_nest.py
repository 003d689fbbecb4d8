from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering import tables
from costbench.compiler.lowering.loop_nest import LoopNest, Lowering, loop_nest
from costbench.compiler.lowering.packed import AFTER_CONTRACTION, unpacked
from costbench.compiler.spaces import TileSizes
from costbench.errors import UnsupportedKernelError
from costbench.hlo.instruction import DotDimensions, SliceDimension
from tests.compiler import small_kernels as small
from tests.compiler.laid_out import Copy, copies_of
from tests.compiler.random_kernels import kernels
from tests.compiler.small_kernels import as_arrays, finish
from tests.hlo.builder import ComputationBuilder, ModuleBuilder


def units(nest: LoopNest) -> list[int]:
    return [loop.units for loop in nest.loops]


def order(nest: LoopNest) -> list[int]:
    """Loops of more than one native tile, outermost first."""
    return unpacked(nest.words).order.tolist()


def reads(nest: LoopNest) -> list[tuple[int, ...]]:
    return [copy.loops for copy in copies_of(nest) if not copy.is_output]


def writes(nest: LoopNest) -> list[tuple[int, ...]]:
    return [copy.loops for copy in copies_of(nest) if copy.is_output]


def after_contraction(nest: LoopNest) -> list[str]:
    """Opcodes of what runs on the finished sums of a contraction."""
    nodes = unpacked(nest.words).nodes
    positions = nodes["position"][nodes["kind"] == AFTER_CONTRACTION]
    return [nest.kernel.instruction(int(p)).opcode.xla_name for p in positions]


def test_loops_run_in_memory_order_major_first() -> None:
    nest = loop_nest(small.unary("f32[32,12,10,256]{3,0,2,1}"))
    # Memory order of the axes is 1, 2, 0, 3: 12, 10, 32 in sublanes, 256 in lanes.
    assert [(loop.extent, loop.unit) for loop in nest.loops] == [(12, 1), (10, 1), (32, 8), (256, 128)]
    assert units(nest) == [12, 10, 4, 2]
    assert order(nest) == [0, 1, 2, 3]


def test_the_unit_of_a_vector_is_a_register() -> None:
    assert units(loop_nest(small.vector())) == [10]


def test_edge_units_count_whole() -> None:
    assert units(loop_nest(small.unary("f32[33,129]"))) == [5, 2]


def test_a_reduction_runs_over_its_operand_and_sums_inside() -> None:
    nest = loop_nest(small.reduction("f32[64,32,256]", (0,)))
    assert units(nest) == [64, 4, 2]
    assert order(nest) == [1, 2, 0]
    assert reads(nest) == [(0, 1, 2)]
    assert writes(nest) == [(1, 2)]


def test_several_results_run_over_the_largest() -> None:
    nest = loop_nest(small.two_results())
    assert units(nest) == [64, 4, 2]
    # The value itself moves with every loop, so none of them is a mere sum.
    assert order(nest) == [0, 1, 2]
    assert writes(nest) == [(0, 1, 2), (1, 2)]


def test_a_contraction_runs_over_columns_first() -> None:
    nest = loop_nest(small.convolution())
    assert units(nest) == [8, 16, 2, 2, 3, 3, 1]
    assert [loop.contraction for loop in nest.loops] == [False] * 4 + [True] * 3
    # The last loop has one native tile.
    assert order(nest) == [3, 0, 1, 2, 4, 5]


def test_columns_of_a_dot_with_batches_run_inside_the_batch() -> None:
    numbers = DotDimensions((2,), (1,), (0,), (0,))
    nest = loop_nest(small.dot("f32[6,64,512]", "f32[6,512,384]", numbers, "f32[6,64,384]"))
    assert units(nest) == [6, 8, 3, 4]
    # The batch moves both sides, columns only the right one.
    assert order(nest) == [2, 0, 1, 3]
    assert reads(nest) == [(0, 1, 3), (0, 2, 3)]


def test_an_epilogue_runs_after_the_contraction() -> None:
    b = ModuleBuilder()
    product = b.dot(b.op("tanh", b.parameter("f32[64,512]")), b.parameter("f32[512,384]"))
    bias = b.broadcast(b.parameter("f32[384]"), "f32[64,384]", (1,))
    nest = loop_nest(finish(b, b.op("add", product, bias)))
    assert after_contraction(nest) == ["add"]
    assert reads(nest) == [(0, 2), (1, 2), (1,)]


def test_nothing_runs_after_where_nothing_is_contracted() -> None:
    assert after_contraction(loop_nest(small.elementwise())) == []


def test_a_change_of_memory_order_reads_in_another_order() -> None:
    nest = loop_nest(small.copy("f32[32,64,256]{2,1,0}", "f32[32,64,256]{2,0,1}"))
    assert units(nest) == [64, 4, 2]
    read, write = copies_of(nest)
    # Each in its own memory order: the source's rows are the result's planes.
    assert [m.loop for m in read.maps] == [1, 0, 2]
    assert [m.loop for m in write.maps] == [0, 1, 2]


@pytest.mark.parametrize("make", [small.scalar, small.fft, small.lone_reshape])
def test_kernels_without_tiles(make: object) -> None:
    nest = loop_nest(make())  # type: ignore[operator]
    assert not nest.is_tiled
    tiles = nest.tile_sizes(np.zeros((1, 0), dtype=np.int64))
    assert tiles.output_bounds.shape == (1, 0)
    assert nest.extents(tiles).shape == (1, 0)
    assert nest.iterations(tiles).tolist() == [1]


def test_a_sorted_axis_is_not_cut() -> None:
    nest = loop_nest(small.sort())
    assert [loop.fixed for loop in nest.loops] == [False, True]
    assert reads(nest) == [(0, 1), (0, 1)]


def test_the_searched_axis_of_a_top_k_is_read_whole() -> None:
    nest = loop_nest(small.top_k())
    assert reads(nest) == [(0,)]


def test_an_update_in_place_copies_the_update_only() -> None:
    nest = loop_nest(small.dynamic_update_slice())
    assert units(nest) == [8, 2]
    arrays = [c for c in copies_of(nest) if c.sizes]
    assert [(c.sizes, c.is_output) for c in arrays] == [((64, 256), False), ((64, 256), True)]


def test_a_slice_copies_the_slice_only() -> None:
    nest = loop_nest(small.dynamic_slice())
    assert [c.sizes for c in copies_of(nest) if c.sizes] == [(64, 256), (64, 256)]


def test_a_strided_slice_copies_what_it_steps_over() -> None:
    read = copies_of(loop_nest(small.strided_slice()))[0]
    assert read.sizes == (256, 512)
    assert read.maps[0].scale == 2.0


def test_a_gather_copies_rows_by_address() -> None:
    nest = loop_nest(small.gather())
    table, indices, result = copies_of(nest)
    assert table.row_elements == 256
    assert table.sizes == (512, 256)
    assert indices.row_elements == result.row_elements == 0
    assert indices.loops == (0,)


def test_a_scatter_reads_and_writes_the_rows_it_touches() -> None:
    nest = loop_nest(small.scatter())
    assert units(nest) == [64, 2]
    copies = [(c.sizes, c.is_output, c.row_elements) for c in copies_of(nest)]
    assert copies == [
        ((512, 256), False, 256),
        ((512, 1), False, 0),
        ((512, 256), False, 0),
        ((512, 256), True, 256),
    ]


def test_values_inside_a_loop_are_kernels_like_others() -> None:
    # A while loop's body holds the kernel; its parameter is a tuple whose members come in from outside.
    b = ModuleBuilder()
    state = b.make_tuple(b.parameter("s32[]"), b.parameter("f32[64,256]"))
    shape = b.shape(state)

    def condition(c: ComputationBuilder) -> int:
        return c.op("compare", c.get(c.parameter(shape), 0), c.constant("s32[]"), comparison_direction="LT")

    def body(c: ComputationBuilder) -> int:
        p = c.parameter(shape)
        return c.make_tuple(c.get(p, 0), c.op("tanh", c.get(p, 1)))

    module = b.build(b.while_(condition, body, state, trip_count=7))
    position = next(i for i, c in enumerate(module.computations) if c.name.startswith("body"))
    instructions = module.computations[position].instructions
    tanh = next(i for i, inst in enumerate(instructions) if inst.opcode.xla_name == "tanh")
    kernel = type(small.scalar())(module, position, (tanh,), instructions[tanh].operands, (tanh,), 7)
    nest = loop_nest(kernel)
    assert units(nest) == [8, 2]
    assert [c.loops for c in copies_of(nest)] == [(0, 1), (0, 1)]


def test_two_contractions_are_too_many() -> None:
    b = ModuleBuilder("two")
    first = b.dot(b.parameter("f32[64,64]"), b.parameter("f32[64,64]"))
    kernel = finish(b, b.dot(first, b.parameter("f32[64,64]")))
    with pytest.raises(UnsupportedKernelError, match="several contractions"):
        loop_nest(kernel)


@pytest.mark.parametrize(
    ("kernel_bounds", "output_bounds", "message"),
    [
        ([[]], [[1]], "rank 0"),
        ([[1]], [[1, 1]], "rank 1"),
        ([[]], [[0, 1]], "outside"),
        ([[]], [[33, 1]], "outside"),
    ],
)
def test_foreign_bounds_are_refused(
    kernel_bounds: list[list[int]], output_bounds: list[list[int]], message: str
) -> None:
    nest = loop_nest(small.elementwise())
    tiles = TileSizes(
        np.array(kernel_bounds, dtype=np.int64).reshape(1, -1), np.array(output_bounds, dtype=np.int64)
    )
    with pytest.raises(UnsupportedKernelError, match=message):
        nest.extents(tiles)


def test_bounds_of_the_right_side_beyond_its_end_are_refused() -> None:
    nest = loop_nest(small.dot())
    with pytest.raises(UnsupportedKernelError, match="outside"):
        nest.extents(TileSizes(np.array([[65, 3]]), np.array([[8, 3]])))


def test_iterations_multiply_over_all_loops() -> None:
    nest = loop_nest(small.dot())
    # 8 / 3 -> 3 row steps, 3 / 2 -> 2 column steps, 4 native tiles of depth (512 / 128) one by one.
    tiles = nest.tile_sizes(np.array([[3, 2, 1], [8, 3, 4]]))
    assert nest.iterations(tiles).tolist() == [24, 1]


def part(kernel: Kernel, positions: set[int]) -> Kernel:
    """The kernel of some of a kernel's instructions."""
    body = kernel.body
    outside = {o for p in positions for o in body.instructions[p].operands} - positions
    leaving = tuple(p for p in sorted(positions) if not body.users[p] or set(body.users[p]) - positions)
    return Kernel(
        kernel.module, kernel.computation, tuple(sorted(positions)), tuple(sorted(outside)), leaving
    )


def contents(nest: LoopNest) -> list[object]:
    space = nest.space
    return [space.anchor, space.contracts, space.access, space.loops, space.kernel_axes, nest.words.tobytes()]


@pytest.mark.parametrize("entries", [0, 64])
@given(kernels(), st.data())
def test_kernels_of_one_program_are_lowered_together_as_alone(
    entries: int, kernel: Kernel, data: st.DataObject
) -> None:
    lowering = Lowering(kernel.module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_ENTRIES_PER_INSTRUCTION", entries)
        for _ in range(3):
            other = part(kernel, data.draw(st.sets(st.sampled_from(kernel.instructions), min_size=1)))
            assert contents(lowering.loop_nest(other)) == contents(loop_nest(other))


def test_a_contraction_that_another_kernel_does_has_no_loops_here() -> None:
    b = ModuleBuilder()
    product = b.dot(b.parameter("f32[64,512]"), b.parameter("f32[512,384]"))
    kernel = finish(b, b.reduce(product, (0,)))
    reduction = part(kernel, {p for p in kernel.instructions if p != product})
    lowering = Lowering(kernel.module)
    assert units(lowering.loop_nest(kernel)) == [8, 3, 4]
    nest = lowering.loop_nest(reduction)
    assert nest.space.anchor == product
    assert units(nest) == [8, 3]
    assert nest.contraction is None


def test_a_kernel_of_another_program_is_refused() -> None:
    with pytest.raises(UnsupportedKernelError, match="another program"):
        Lowering(small.dot().module).loop_nest(small.dot())


def user_list(*users: str) -> list[Copy]:
    """Copies of a kernel that reads rows of one parameter in several ways."""
    b = ModuleBuilder()
    table = b.parameter("f32[256,512]")
    made = {
        "slice": lambda: b.op("slice", table, shape="f32[64,512]", slices=cut(0, 64)),
        "other slice": lambda: b.op("slice", table, shape="f32[64,512]", slices=cut(128, 192)),
        "negate": lambda: b.op("negate", table),
    }
    kernel = finish(b, *(made[user]() for user in users))
    return [copy for copy in copies_of(loop_nest(kernel)) if not copy.is_output]


def cut(start: int, limit: int) -> tuple[SliceDimension, ...]:
    return SliceDimension(start, limit, 1), SliceDimension(0, 512, 1)


def test_a_parameter_that_is_only_sliced_is_copied_slice_by_slice() -> None:
    assert [copy.sizes for copy in user_list("slice")] == [(64, 512)]
    assert [copy.sizes for copy in user_list("slice", "other slice")] == [(64, 512)] * 2
    # Who reads all of it has the slices, too.
    assert [copy.sizes for copy in user_list("slice", "negate")] == [(256, 512)]


def test_members_of_a_tuple_are_written_one_by_one_however_many_there_are() -> None:
    b = ModuleBuilder()
    state = b.make_tuple(*(b.op("negate", b.parameter(f"f32[{8 + i},128]")) for i in range(300)))
    module = b.build(state)
    body = module.entry_computation
    position = next(i for i, inst in enumerate(body.instructions) if inst.opcode.xla_name == "tuple")
    kernel = Kernel(module, module.entry, (position,), body.instructions[position].operands, (position,))
    written = [copy for copy in copies_of(loop_nest(kernel)) if copy.is_output]
    assert [copy.sizes for copy in written] == [(8 + i, 128) for i in range(300)]


def test_a_kernel_is_lowered_alone_as_among_others() -> None:
    kernel = small.two_results()
    lowered = Lowering(kernel.module).lower(kernel.computation, as_arrays([kernel, kernel]))
    assert len(lowered) == 2
    for number in range(2):
        nest = lowered.nest(number)
        assert nest.kernel.nodes == kernel.nodes
        assert nest.kernel.outputs == kernel.outputs
        assert contents(nest) == contents(loop_nest(kernel))
