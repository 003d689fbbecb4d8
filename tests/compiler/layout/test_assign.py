from __future__ import annotations

from pathlib import Path

import pytest

from costbench.compiler.layout.assign import assign_layouts
from costbench.compiler.layout.rules import reduced_layout
from costbench.compiler.tiled_memory import is_bitcast
from costbench.datasets.tpugraphs.proto import tuning_pb2
from costbench.hlo.conversion import module_from_proto
from costbench.hlo.instruction import GatherDimensions, Instruction, WindowDimension
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from tests.hlo.builder import ComputationBuilder, ModuleBuilder

SAME = (WindowDimension(3, padding_low=1, padding_high=1),) * 2


def by_opcode(module: HloModule, opcode: Opcode) -> list[Instruction]:
    return [i for c in module.computations for i in c.instructions if i.opcode is opcode]


def operand(module: HloModule, inst: Instruction, number: int = 0) -> Instruction:
    return module.entry_computation.instructions[inst.operands[number]]


def conv_shapes(x: str, w: str) -> tuple[str, str, str]:
    """Result, input and kernel of a convolution, in the orders they are given."""
    b = ModuleBuilder()
    module = assign_layouts(b.build(b.convolution(b.parameter(x), b.parameter(w), windows=SAME)))
    (conv,) = by_opcode(module, Opcode.CONVOLUTION)
    return (str(conv.shape), str(operand(module, conv, 0).shape), str(operand(module, conv, 1).shape))


def test_convolutions_lie_as_in_the_recorded_alexnet() -> None:
    # fusion.191 of the recorded tile runs: f32[32,12,12,384]{3,0,2,1}, its kernel f32[3,3,192,384]{3,2,1,0}.
    assert conv_shapes("f32[32,12,12,192]", "f32[3,3,192,384]") == (
        "f32[32,12,12,384]{3,0,2,1}",
        "f32[32,12,12,192]{3,0,2,1}",
        "f32[3,3,192,384]{3,2,1,0}",
    )


def test_a_small_batch_stays_in_the_sublanes_unless_the_image_pads_less() -> None:
    # T(4,128) holds four images, as T(2,128) holds the two of the recorded 3-D U-Net.
    out, image, _ = conv_shapes("bf16[4,56,56,64]", "bf16[3,3,64,64]")
    assert (out, image) == ("bf16[4,56,56,64]{3,0,2,1}", "bf16[4,56,56,64]{3,0,2,1}")
    # Five images are padded to eight, 56 columns not at all.
    out, image, _ = conv_shapes("bf16[5,56,56,64]", "bf16[3,3,64,64]")
    assert (out, image) == ("bf16[5,56,56,64]{3,2,1,0}", "bf16[5,56,56,64]{3,2,1,0}")


def test_three_channels_do_not_fill_lanes() -> None:
    # 128 images fill the lanes; 32 do not, but the columns do.
    assert conv_shapes("f32[128,224,224,3]", "f32[3,3,3,64]")[1] == "f32[128,224,224,3]{0,3,2,1}"
    assert conv_shapes("f32[32,224,224,3]", "f32[3,3,3,64]")[1] == "f32[32,224,224,3]{2,3,1,0}"


def test_elementwise_neighbours_take_the_order_of_a_convolution_without_copies() -> None:
    b = ModuleBuilder()
    conv = b.convolution(b.parameter("f32[32,8,8,128]"), b.parameter("f32[3,3,128,128]"), windows=SAME)
    bias = b.broadcast(b.parameter("f32[128]"), "f32[32,8,8,128]", (3,))
    b.reduce(
        b.op("maximum", b.op("add", conv, bias), b.op("iota", shape="f32[32,8,8,128]", dimensions=(0,))), (1,)
    )
    module = assign_layouts(b.build())
    entry = module.entry_computation
    shapes = {str(i.shape) for i in entry.instructions if i.shape.rank == 4 and i.operands}
    assert shapes == {"f32[32,8,8,128]{3,0,2,1}"}
    assert str(entry.root_instruction.shape) == "f32[32,8,128]{2,0,1}"
    # Only the argument, which comes in row-major order, has to be turned.
    assert [str(i.shape) for i in by_opcode(module, Opcode.COPY)] == ["f32[32,8,8,128]{3,0,2,1}"]


def test_two_users_in_one_order_share_a_copy() -> None:
    b = ModuleBuilder()
    x, w = b.parameter("f32[32,8,8,128]"), b.parameter("f32[3,3,128,128]")
    module = assign_layouts(
        b.build(b.convolution(x, w, windows=SAME), b.convolution(x, b.op("negate", w), windows=SAME))
    )
    assert len(by_opcode(module, Opcode.COPY)) == 1


def test_a_transpose_is_free_and_a_copy_moves_the_data() -> None:
    b = ModuleBuilder()
    x = b.parameter("f32[256,512]")
    b.op("add", b.transpose(x, (1, 0)), b.parameter("f32[512,256]"))
    module = assign_layouts(b.build())
    (transpose,) = by_opcode(module, Opcode.TRANSPOSE)
    assert str(transpose.shape) == "f32[512,256]{0,1}"
    assert is_bitcast(transpose, operand(module, transpose).shape)
    assert [str(i.shape) for i in by_opcode(module, Opcode.COPY)] == ["f32[512,256]{1,0}"]


def test_a_dot_is_made_transposed_where_that_saves_a_copy() -> None:
    # The gradient of a weight, transposed back to the weight it updates.
    b = ModuleBuilder()
    x, g, w = b.parameter("f32[64,256]"), b.parameter("f32[64,512]"), b.parameter("f32[512,256]")
    gradient = b.dot(x, g, contracting=(0, 0))
    b.op("subtract", w, b.transpose(gradient, (1, 0)))
    module = assign_layouts(b.build())
    (dot,) = by_opcode(module, Opcode.DOT)
    assert str(dot.shape) == "f32[256,512]{0,1}"
    assert by_opcode(module, Opcode.COPY) == []


def test_batch_axes_of_a_dot_stay_out_of_the_tile() -> None:
    b = ModuleBuilder()
    heads = b.transpose(b.parameter("f32[16,128,8,64]"), (0, 2, 1, 3))
    other = b.parameter("f32[16,8,64,128]")
    b.dot(heads, other, contracting=(3, 2), batch=((0, 0), (1, 1)))
    module = assign_layouts(b.build())
    (dot,) = by_opcode(module, Opcode.DOT)
    for number in (0, 1):
        assert set(operand(module, dot, number).shape.layout[:2]) == {2, 3}


def test_loop_state_is_kept_as_a_batched_dot_reads_it() -> None:
    # Keys of an attention, one more position per step: heads outside, positions and features in the tile.
    state = "(s32[], f32[4,128,8,64])"
    b = ModuleBuilder()
    query = "f32[4,8,16,64]"

    def body(c: ComputationBuilder) -> int:
        p = c.parameter(state)
        keys, count = c.get(p, 1), c.get(p, 0)
        heads = c.transpose(keys, (0, 2, 1, 3))
        score = c.dot(c.broadcast(c.constant("f32[]"), query), heads, (3, 3), ((0, 0), (1, 1)))
        new = c.transpose(c.slice_of(score, (0, 0, 0, 0), (4, 8, 1, 64)), (0, 2, 1, 3))
        zero = c.constant("s32[]")
        updated = c.op("dynamic-update-slice", keys, new, zero, count, zero, zero, shape=c.shape(keys))
        return c.make_tuple(count, updated)

    def condition(c: ComputationBuilder) -> int:
        return c.op("compare", c.get(c.parameter(state), 0), c.constant("s32[]"), comparison_direction="LT")

    keys = b.broadcast(b.constant("f32[]"), "f32[4,128,8,64]")
    start = b.make_tuple(b.constant("s32[]"), keys)
    module = assign_layouts(b.build(b.get(b.while_(condition, body, start, trip_count=3), 0)))
    (loop,) = by_opcode(module, Opcode.WHILE)
    # Positions and features in the tile; row-major order would have heads and features there.
    assert str(loop.shape) == "(s32[], f32[4,128,8,64]{3,1,2,0})"
    assert all(copy.shape.num_elements < 4 * 8 * 128 * 64 for copy in by_opcode(module, Opcode.COPY))


def test_a_reshape_that_moves_data_runs_in_row_major_order() -> None:
    # As reshape.39 and copy.24 of the recorded AlexNet: row-major on both sides, a copy for what is not.
    b = ModuleBuilder()
    conv = b.convolution(b.parameter("f32[32,5,5,256]"), b.parameter("f32[3,3,256,256]"), windows=SAME)
    b.dot(b.reshape(conv, "f32[32,6400]"), b.parameter("f32[6400,128]"))
    module = assign_layouts(b.build())
    (reshape,) = by_opcode(module, Opcode.RESHAPE)
    source = operand(module, reshape)
    assert (source.opcode, str(source.shape)) == (Opcode.COPY, "f32[32,5,5,256]{3,2,1,0}")
    assert str(reshape.shape) == "f32[32,6400]{1,0}"
    assert not is_bitcast(reshape, source.shape)


def test_loop_state_has_one_order_everywhere() -> None:
    b = ModuleBuilder()
    state = "(s32[], f32[512,10])"

    def body(c: ComputationBuilder) -> int:
        p = c.parameter(state)
        table = c.get(p, 1)
        return c.make_tuple(c.op("add", c.get(p, 0), c.constant("s32[]")), c.op("negate", table))

    def condition(c: ComputationBuilder) -> int:
        return c.op("compare", c.get(c.parameter(state), 0), c.constant("s32[]"), comparison_direction="LT")

    start = b.make_tuple(b.constant("s32[]"), b.parameter("f32[512,10]"))
    loop = b.while_(condition, body, start, trip_count=3)
    module = assign_layouts(b.build(b.get(loop, 1)))
    assert {str(i.shape) for i in by_opcode(module, Opcode.WHILE)} == {"(s32[], f32[512,10]{0,1})"}
    tables = {str(i.shape) for i in by_opcode(module, Opcode.GET_TUPLE_ELEMENT) if i.tuple_index == 1}
    assert tables == {"f32[512,10]{0,1}"}
    assert {str(i.shape) for i in by_opcode(module, Opcode.NEGATE)} == {"f32[512,10]{0,1}"}
    assert by_opcode(module, Opcode.COPY) == []


def test_constant_arrays_are_made_in_the_order_that_is_wanted() -> None:
    b = ModuleBuilder()
    zeros = b.broadcast(b.constant("f32[]"), "f32[32,8,8,128]")
    conv = b.convolution(b.parameter("f32[32,8,8,128]"), b.parameter("f32[3,3,128,128]"), windows=SAME)
    row_major = b.reshape(zeros, "f32[32,64,16,8]")
    module = assign_layouts(b.build(b.op("add", conv, zeros), row_major))
    made = {str(i.shape) for i in by_opcode(module, Opcode.BROADCAST)}
    assert made == {"f32[32,8,8,128]{3,0,2,1}", "f32[32,8,8,128]{3,2,1,0}"}


def test_rows_of_a_table_lie_in_lanes_for_a_lookup() -> None:
    b = ModuleBuilder()
    rows = GatherDimensions((1,), (0,), (0,), 1, (1, 650))
    table, indices = b.parameter("f32[10000,650]"), b.parameter("s32[700,1]")
    b.op("gather", table, indices, shape="f32[700,650]", gather=rows)
    module = assign_layouts(b.build())
    (gather,) = by_opcode(module, Opcode.GATHER)
    assert operand(module, gather).shape.layout == (1, 0)  # compact would be {0,1}
    assert gather.shape.layout == (1, 0)


def test_a_reduction_keeps_the_order_of_the_axes_it_leaves() -> None:
    assert reduced_layout((3, 0, 2, 1), (1,)) == (2, 0, 1)  # u16[32,12,384]{2,0,1} in fusion.191
    assert reduced_layout((3, 0, 2, 1), (0, 1, 2)) == (0,)


def test_layouts_are_repeatable() -> None:
    b = ModuleBuilder()
    conv = b.convolution(b.parameter("f32[32,8,8,128]"), b.parameter("f32[3,3,128,128]"), windows=SAME)
    module = b.build(b.reshape(conv, "f32[32,8192]"))
    assert assign_layouts(module) == assign_layouts(module)


def test_layouts_of_the_input_do_not_matter() -> None:
    def module(order: str) -> HloModule:
        b = ModuleBuilder()
        b.op("negate", b.parameter(f"f32[64,256]{order}"))
        return assign_layouts(b.build())

    assert module("{0,1}") == module("{1,0}")


@pytest.fixture(scope="module")
def real(shared_data: Path) -> tuning_pb2.ModuleTuningData:
    data = tuning_pb2.ModuleTuningData()
    data.ParseFromString((shared_data / "real_tpu" / "layout_module.pb").read_bytes())
    return data


def test_arguments_lie_as_in_the_recorded_program(real: tuning_pb2.ModuleTuningData) -> None:
    module = module_from_proto(real.module, where="layout_module.pb")
    recorded = module.entry_computation.instructions[module.entry_computation.parameters[0]].shape
    ours = assign_layouts(module).entry_computation
    shape = ours.instructions[ours.parameters[0]].shape
    assert shape == recorded
    assert sum(leaf.rank > 1 for leaf in shape.leaves()) == 56


def test_lanes_are_those_that_the_real_compiler_chose(real: tuning_pb2.ModuleTuningData) -> None:
    """The default run of the recorded program says which axes every convolution has in lanes and sublanes.

    The batch of two is in the sublanes. Ours differ only for arrays of four features.
    """
    module = assign_layouts(module_from_proto(real.module, where="layout_module.pb"))
    named = {i.name: (c, i) for c in module.computations for i in c.instructions}
    nodes = [i.name for c in real.module.computations for i in c.instructions]
    (default,) = [run for run in real.runs if run.is_default]
    lanes, kernels = [], []
    for node, config in zip(
        real.config_index_to_node, default.module_config.layout_config.nodes, strict=True
    ):
        computation, conv = named[nodes[node]]
        if conv.opcode is not Opcode.CONVOLUTION:
            continue
        shapes = [conv.shape, *(computation.instructions[o].shape for o in conv.operands)]
        recorded = [tuple(tensor.dims) for tensor in config.tensors]
        lanes += [
            shape.layout[:2] == order[:2]
            for shape, order in zip(shapes, recorded, strict=True)
            if 4 not in shape.dimensions
        ]
        weights = [k for k, shape in enumerate(shapes) if set(shape.dimensions[:3]) <= {1, 2, 3}]
        kernels += [shapes[k].layout[:2] == recorded[k] for k in weights]
    assert len(lanes) > 140
    assert all(lanes)
    assert len(kernels) == 53
    assert all(kernels)
    assert by_opcode(module, Opcode.COPY) == []
