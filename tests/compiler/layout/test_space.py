from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.compiler.layout.rules import NodeLayouts
from costbench.hlo.opcode import Opcode
from tests.compiler.small_layouts import SAME, dot_and_add, layout_features, space_of, two_convolutions
from tests.hlo.builder import ComputationBuilder, ModuleBuilder

SPACE = space_of(two_convolutions())


def test_nodes_come_in_program_order_with_their_numbers_of_options() -> None:
    assert [node.opcode for node in SPACE.nodes] == [
        Opcode.CONVOLUTION,
        Opcode.CONVOLUTION,
        Opcode.RESHAPE,
    ]
    assert SPACE.num_choices[:2].tolist() == [8, 8]
    assert SPACE.default.tolist() == [0, 0, 0]
    assert SPACE.default.dtype == np.int16


def test_alike_nodes_are_tied() -> None:
    assert SPACE.ties.tolist() == [0, 0, 1]


def test_nodes_that_never_run_are_not_configured() -> None:
    # The reducer's own dot could not be reached by any config.
    b = ModuleBuilder()

    def unused(c: ComputationBuilder) -> int:
        return c.dot(c.parameter("f32[64,64]"), c.parameter("f32[64,64]"))

    b.computation("unused", unused)
    b.op("negate", b.parameter("f32[64,64]"))
    assert space_of(b.build()).nodes == ()


@given(st.integers(0, 2**32))
def test_everything_drawn_is_legal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    configs = SPACE.sample(rng, 5)
    near = SPACE.neighbours(configs[0], rng, 5)
    child = SPACE.crossover(configs[1], configs[2], rng)
    assert configs.dtype == near.dtype == child.dtype == np.int16
    assert configs.shape == near.shape == (5, 3)
    assert SPACE.legal(configs).all()
    assert SPACE.legal(near).all()
    assert SPACE.legal(child[None]).all()
    assert (near != configs[0]).any(axis=1).all()
    assert ((child == configs[1]) | (child == configs[2])).all()


def test_a_step_changes_one_node_or_all_alike() -> None:
    near = SPACE.neighbours(SPACE.default, np.random.default_rng(0), 200)
    changed = {tuple(np.flatnonzero(row).tolist()) for row in near}
    assert changed == {(0,), (1,), (0, 1), (2,)}


def test_equal_streams_draw_equal_configs() -> None:
    first, second = (SPACE.sample(np.random.default_rng(7), 20) for _ in range(2))
    assert first.tobytes() == second.tobytes()
    assert len(np.unique(first, axis=0)) > 5


def test_what_is_no_config_is_not_legal() -> None:
    configs = np.array([[0, 0, 0], [8, 0, 0], [0, -1, 0]], dtype=np.int16)
    assert SPACE.legal(configs).tolist() == [True, False, False]
    assert SPACE.legal(configs[:, :2]).tolist() == [False] * 3
    with pytest.raises(ValueError, match="no layout config"):
        SPACE.decode(configs[1])


def test_features_name_output_input_and_kernel_and_fill_up_with_minus_one() -> None:
    features = layout_features(SPACE, SPACE.default[None])
    absent = [-1] * 6
    two_fastest = [3, 0, *absent[2:]]
    assert features.shape == (1, 3, 18)
    assert features.dtype == np.int8
    # A convolution names two axes a tensor, as in the recorded runs; a reshape all of them, and no kernel.
    assert features[0, 0].tolist() == [*two_fastest, *two_fastest, 3, 2, *absent[2:]]
    reshape = SPACE.nodes[2].options[0]
    assert features[0, 2].tolist() == [*reshape.output, -1, -1, -1, *reshape.operands[0], -1, -1, *absent]


def test_features_follow_the_options() -> None:
    space = space_of(dot_and_add())
    options = space.nodes[0].options
    configs = np.arange(len(options), dtype=np.int16)[:, None]
    features = layout_features(space, configs)
    for row, option in zip(features[:, 0], options, strict=True):
        assert tuple(row[[0, 1, 6, 7, 12, 13]]) == (*option.output, *option.operands[0], *option.operands[1])


def options_of(b: ModuleBuilder, *roots: int) -> list[NodeLayouts]:
    (node,) = space_of(b.build(*roots)).nodes
    return list(node.options)


def test_a_convolution_has_both_sequences_of_each_tensors_two_fastest_axes() -> None:
    b = ModuleBuilder()
    b.convolution(b.parameter("f32[32,8,8,128]"), b.parameter("f32[3,3,128,64]"), windows=SAME)
    options = options_of(b)
    activations, kernels = {(3, 0, 2, 1), (0, 3, 2, 1)}, {(3, 2, 1, 0), (2, 3, 1, 0)}
    assert len(options) == 8
    assert {o.output for o in options} == {o.operands[0] for o in options} == activations
    assert {o.operands[1] for o in options} == kernels


def test_a_batch_of_two_comes_into_the_lanes_of_operands_only() -> None:
    # As in the recorded 3-D U-Net, whose convolutions of 2 images have one order of their result.
    b = ModuleBuilder()
    b.convolution(b.parameter("f32[2,64,64,128]"), b.parameter("f32[3,3,128,128]"), windows=SAME)
    options = options_of(b)
    assert {o.output[:2] for o in options} == {(3, 0)}
    assert {o.operands[0][:2] for o in options} == {(3, 0), (0, 3)}
    assert {o.operands[1] for o in options} == {(3, 2, 1, 0), (2, 3, 1, 0)}


def test_the_first_option_is_what_the_compiler_does() -> None:
    b = ModuleBuilder()
    b.convolution(b.parameter("f32[32,12,12,192]"), b.parameter("f32[3,3,192,384]"), windows=SAME)
    assert options_of(b)[0] == NodeLayouts((3, 0, 2, 1), ((3, 0, 2, 1), (3, 2, 1, 0)))


def test_a_dot_has_its_matrices_either_way_round() -> None:
    b = ModuleBuilder()
    b.dot(b.parameter("f32[64,256]"), b.parameter("f32[256,512]"))
    options = options_of(b)
    assert len(options) == 8
    assert {(o.output, *o.operands) for o in options} == {
        (x, y, z) for x in ((1, 0), (0, 1)) for y in ((1, 0), (0, 1)) for z in ((1, 0), (0, 1))
    }


def test_a_reshape_that_drops_an_axis_has_all_orders_and_its_input_follows() -> None:
    # u32[1,96,96,96] -> u32[96,96,96] of the recorded U-Net: six orders, each with the input's.
    b = ModuleBuilder()
    b.reshape(b.parameter("u32[1,96,96,96]"), "u32[96,96,96]")
    options = options_of(b)
    assert len({o.output for o in options}) == 6
    for option in options:
        (source,) = option.operands
        # Axis k of the result is axis k + 1 of the input.
        assert [axis - 1 for axis in source if axis] == list(option.output)


def test_scalars_and_vectors_leave_nothing_to_choose() -> None:
    b = ModuleBuilder()
    b.reshape(b.parameter("u32[1]"), "u32[]")
    assert space_of(b.build()).nodes == ()
