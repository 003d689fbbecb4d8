from __future__ import annotations

import pytest

from costbench.errors import HloError
from costbench.hlo.opcode import Opcode
from tests.hlo.builder import ComputationBuilder, ModuleBuilder, convolution_numbers, window


def test_inferred_shapes() -> None:
    b = ModuleBuilder()
    x, w = b.parameter("bf16[2,9,9,6]"), b.parameter("bf16[3,3,2,12]")
    same = window((3, 3), (2, 2), ((1, 1), (1, 1)))
    shapes = {
        b.op("tanh", x): "bf16[2,9,9,6]{3,2,1,0}",
        b.op("compare", x, x, comparison_direction="GT"): "pred[2,9,9,6]{3,2,1,0}",
        b.op("clamp", b.constant("bf16[]"), x, b.constant("bf16[]")): "bf16[2,9,9,6]{3,2,1,0}",
        b.convolution(x, w, windows=same, groups={"feature_group_count": 3}): "bf16[2,5,5,12]{3,2,1,0}",
        b.reduce(x, (1, 2)): "bf16[2,6]{1,0}",
        b.reduce_window(x, window((1, 3, 3, 1), (1, 3, 3, 1)), "maximum"): "bf16[2,3,3,6]{3,2,1,0}",
        b.transpose(x, (3, 0, 1, 2)): "bf16[6,2,9,9]{3,2,1,0}",
        b.slice_of(x, (0, 1, 1, 0), (2, 4, 9, 6)): "bf16[2,3,8,6]{3,2,1,0}",
        b.pad(
            x, b.constant("bf16[]"), [(0, 0, 0), (1, 2, 1), (0, -1, 0), (0, 0, 0)]
        ): "bf16[2,20,8,6]{3,2,1,0}",
        b.concatenate([x, x], 3): "bf16[2,9,9,12]{3,2,1,0}",
        b.convert(x, "f32"): "f32[2,9,9,6]{3,2,1,0}",
        b.make_tuple(x, b.constant("s32[]")): "(bf16[2,9,9,6]{3,2,1,0}, s32[])",
    }
    assert {str(b.shape(value)) for value in shapes} == set(shapes.values())
    assert {value: str(b.shape(value)) for value in shapes} == shapes
    b.build()


def test_dots_put_batch_axes_first() -> None:
    b = ModuleBuilder()
    queries, keys = b.parameter("f32[4,12,128,64]"), b.parameter("f32[4,12,256,64]")
    scores = b.dot(queries, keys, (3, 3), batch=[(0, 0), (1, 1)])
    assert b.shape(scores).dimensions == (4, 12, 128, 256)
    assert b.shape(b.dot(b.parameter("f32[5,7]"), b.parameter("f32[7,3]"))).dimensions == (5, 3)
    b.build()


def test_reducers_are_shared_and_made_per_type() -> None:
    b = ModuleBuilder()
    x = b.parameter("f32[4,4]")
    b.reduce(x, (0,))
    b.reduce(x, (1,))
    b.reduce(b.convert(x, "bf16"), (1,))
    assert [c.name for c in b.build().computations] == ["add.f32", "add.bf16", "main"]


def test_loops_and_fusions() -> None:
    b = ModuleBuilder()
    start = b.make_tuple(b.constant("s32[]"), b.parameter("f32[4]"))
    shape = b.shape(start)

    def condition(c: ComputationBuilder) -> int:
        return c.op("compare", c.get(c.parameter(shape), 0), c.constant("s32[]"))

    def body(c: ComputationBuilder) -> int:
        p = c.parameter(shape)
        return c.make_tuple(c.get(p, 0), c.fusion(lambda f: f.op("tanh", f.parameter("f32[4]")), c.get(p, 1)))

    b.while_(condition, body, start, trip_count=5)
    module = b.build()
    root = module.entry_computation.root_instruction
    assert (root.opcode, root.trip_count) == (Opcode.WHILE, 5)
    assert module.computations[root.called[0]].root_instruction.opcode is Opcode.TUPLE
    assert module.computations[root.called[1]].root_instruction.opcode is Opcode.COMPARE


def test_several_roots_become_a_tuple_and_the_last_instruction_is_the_default() -> None:
    b = ModuleBuilder("two")
    x = b.op("tanh", b.parameter("f32[4]"))
    assert b.build().entry_computation.root == x
    assert str(b.build(x, 0).entry_computation.root_instruction.shape) == "(f32[4]{0}, f32[4]{0})"


def test_nonsense_is_refused() -> None:
    b = ModuleBuilder()
    with pytest.raises(HloError, match="needs a shape"):
        b.op("iota")
    with pytest.raises(HloError, match="unknown opcode"):
        b.op("frobnicate", b.parameter("f32[]"))


def test_convolution_labels() -> None:
    numbers = convolution_numbers("f01b_i01o->01bf")
    assert (numbers.input_batch, numbers.input_feature, numbers.input_spatial) == (3, 0, (1, 2))
    assert (numbers.kernel_output_feature, numbers.kernel_spatial) == (3, (1, 2))
    assert (numbers.output_batch, numbers.output_feature, numbers.output_spatial) == (2, 3, (0, 1))
    with pytest.raises(HloError, match="no dimension labels"):
        convolution_numbers("b01f-01io")


def test_windows_fill_in_neutral_values() -> None:
    (dimension,) = window((3,))
    assert (dimension.stride, dimension.padding_low, dimension.window_dilation) == (1, 0, 1)
    assert dimension.output_extent(10) == 8
    assert window((3,), (2,), ((1, 1),), (2,), (2,))[0].output_extent(5) == (9 + 2 - 5) // 2 + 1
