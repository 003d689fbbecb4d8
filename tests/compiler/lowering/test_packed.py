from __future__ import annotations

import numpy as np
import pytest

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.access import AxisMap
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.lowering.packed import (
    AFTER_CONTRACTION,
    BOX,
    IS_OUTPUT,
    IS_UNMAPPED,
    KIND,
    LIMIT,
    MASK,
    NATIVE_BYTES,
    NODE_BOX,
    POSITION,
    SIZE,
    PackedNest,
    pack,
    unpacked,
)
from costbench.hlo.builder import ModuleBuilder
from tests.compiler import small_kernels as small
from tests.compiler.laid_out import transfer_axes
from tests.compiler.small_kernels import KERNELS, finish


def packed_nest(kernel: Kernel) -> PackedNest:
    packed = pack(loop_nest(kernel))
    return unpacked(packed.ints, packed.floats)


def test_a_dot_in_numbers() -> None:
    # 64 x 512 by 512 x 384: 8 x 3 native tiles of results, 4 of depth.
    found = packed_nest(small.dot())
    assert found.head.tolist()[:2] == [2, found.transfers[2, BOX]]
    assert found.loops.tolist() == [[8, 8, 64], [3, 128, 384], [4, 128, 512]]
    # Columns of the right-hand side outermost, sums innermost.
    assert found.order.tolist() == [1, 0, 2]
    masks = [int(found.boxes[int(box), MASK]) for box in found.transfers[:, BOX]]
    assert masks == [0b101, 0b110, 0b011]
    assert found.transfers[:, IS_OUTPUT].tolist() == [0, 0, 1]
    assert found.transfers[:, NATIVE_BYTES].tolist() == [4096] * 3
    assert transfer_axes(found, 1)[:, SIZE].tolist() == [512, 384]
    assert transfer_axes(found, 1)[:, LIMIT].tolist() == [64, 3]


@pytest.mark.parametrize("name", KERNELS)
def test_every_axis_of_every_value_is_there(name: str) -> None:
    nest = loop_nest(KERNELS[name]())
    found = unpacked(pack(nest).ints, pack(nest).floats)
    for transfer, item in enumerate(nest.transfers):
        axes = transfer_axes(found, transfer)
        order = list(reversed(item.shape.layout))
        assert axes[:, SIZE].tolist() == [item.shape.dimensions[axis] for axis in order]
        fields = len(AxisMap._fields)
        assert [tuple(row) for row in axes[:, :fields]] == [tuple(item.access[axis]) for axis in order]
        mask = sum(1 << loop for loop in item.loops)
        assert found.boxes[int(found.transfers[transfer, BOX]), MASK] == mask
    assert found.nodes[:, POSITION].tolist() == list(nest.kernel.nodes)


def test_values_that_are_cut_alike_share_a_box() -> None:
    # Two inputs, five instructions and the output: one box.
    b = ModuleBuilder()
    value = b.op("add", b.parameter("f32[256,512]"), b.parameter("f32[256,512]"))
    for _ in range(4):
        value = b.op("negate", value)
    found = packed_nest(finish(b, value))
    assert len(found.nodes) == 7
    assert set(found.nodes[:, NODE_BOX]) == {0}
    assert len(found.boxes) == 1 + 1


def test_the_epilogue_of_a_contraction_is_marked() -> None:
    b = ModuleBuilder()
    product = b.dot(b.op("negate", b.parameter("f32[64,512]")), b.parameter("f32[512,384]"))
    found = packed_nest(finish(b, b.op("negate", product)))
    assert (found.nodes[:, KIND] == AFTER_CONTRACTION).sum() == 1


def test_a_kernel_without_loops_works_on_vectors() -> None:
    # c64[64,256] without loops to cut it: its box is whole, or one vector of as many elements.
    found = packed_nest(small.fft())
    assert len(found.loops) == len(found.order) == 0
    assert not found.boxes[:, MASK].any()
    assert set(found.boxes[:, IS_UNMAPPED]) <= {0, 1}


def test_a_nest_is_packed_once() -> None:
    nest = loop_nest(small.dot())
    assert pack(nest) is pack(nest)
    assert np.array_equal(pack(nest).floats, pack(loop_nest(small.dot())).floats)
