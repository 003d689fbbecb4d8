"""What may be chosen for a node: checked against the recorded runs of the real compiler."""

from __future__ import annotations

from costbench.compiler.layout.choices import NodeLayouts
from tests.compiler.small_layouts import SAME, space_of
from tests.hlo.builder import ModuleBuilder


def options_of(b: ModuleBuilder, *roots: int) -> list[NodeLayouts]:
    (node,) = space_of(b.build(*roots)).nodes
    return list(node.options)


def test_a_convolution_has_both_sequences_of_each_tensors_two_fastest_axes() -> None:
    b = ModuleBuilder()
    b.convolution(b.parameter("f32[32,8,8,128]"), b.parameter("f32[3,3,128,64]"), windows=SAME)
    found = options_of(b)
    activations, kernels = {(3, 0, 2, 1), (0, 3, 2, 1)}, {(3, 2, 1, 0), (2, 3, 1, 0)}
    assert len(found) == 8
    assert {o.output for o in found} == {o.operands[0] for o in found} == activations
    assert {o.operands[1] for o in found} == kernels


def test_a_batch_of_two_comes_into_the_lanes_of_operands_only() -> None:
    # As in the recorded 3-D U-Net, whose convolutions of 2 images have one order of their result.
    b = ModuleBuilder()
    b.convolution(b.parameter("f32[2,64,64,128]"), b.parameter("f32[3,3,128,128]"), windows=SAME)
    found = options_of(b)
    assert {o.output[:2] for o in found} == {(3, 0)}
    assert {o.operands[0][:2] for o in found} == {(3, 0), (0, 3)}
    assert {o.operands[1] for o in found} == {(3, 2, 1, 0), (2, 3, 1, 0)}


def test_the_first_option_is_what_the_compiler_does() -> None:
    b = ModuleBuilder()
    b.convolution(b.parameter("f32[32,12,12,192]"), b.parameter("f32[3,3,192,384]"), windows=SAME)
    assert options_of(b)[0] == NodeLayouts((3, 0, 2, 1), ((3, 0, 2, 1), (3, 2, 1, 0)))


def test_a_dot_has_its_matrices_either_way_round() -> None:
    b = ModuleBuilder()
    b.dot(b.parameter("f32[64,256]"), b.parameter("f32[256,512]"))
    found = options_of(b)
    assert len(found) == 8
    assert {(o.output, *o.operands) for o in found} == {
        (x, y, z) for x in ((1, 0), (0, 1)) for y in ((1, 0), (0, 1)) for z in ((1, 0), (0, 1))
    }


def test_a_reshape_that_drops_an_axis_has_all_orders_and_its_input_follows() -> None:
    # u32[1,96,96,96] -> u32[96,96,96] of the recorded U-Net: six orders, each with the input's.
    b = ModuleBuilder()
    b.reshape(b.parameter("u32[1,96,96,96]"), "u32[96,96,96]")
    found = options_of(b)
    assert len({o.output for o in found}) == 6
    for option in found:
        (source,) = option.operands
        # Axis k of the result is axis k + 1 of the input.
        assert [axis - 1 for axis in source if axis] == list(option.output)


def test_scalars_and_vectors_leave_nothing_to_choose() -> None:
    b = ModuleBuilder()
    b.reshape(b.parameter("u32[1]"), "u32[]")
    assert space_of(b.build()).nodes == ()
