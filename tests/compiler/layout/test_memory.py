from __future__ import annotations

import numpy as np

from costbench.arrays import I16
from costbench.compiler.layout.choices import NodeLayouts
from costbench.compiler.layout.packed.compile import PackedCompiler
from costbench.compiler.layout.space import LayoutSpace
from tests.compiler.small_layouts import dot_and_add, space_of
from tests.hlo.builder import ModuleBuilder

MATRIX = 64 * 512 * 4
ARGUMENTS = 64 * 256 * 4 + 256 * 512 * 4 + MATRIX


def peak(space: LayoutSpace, config: I16) -> int:
    (part,) = PackedCompiler(space).compile(config)
    return part.peak_bytes


def test_arguments_and_the_result_are_in_memory() -> None:
    space = space_of(dot_and_add())
    assert peak(space, space.default) == ARGUMENTS + MATRIX


def test_a_value_is_freed_after_its_last_reader() -> None:
    # Turned, the product is stored, copied, and added: never all three are needed at once.
    space = space_of(dot_and_add())
    option = space.nodes[0].options.index(NodeLayouts((0, 1), ((1, 0), (1, 0))))
    # Product f32[64,512]{0,1}: 64 in 128 lanes, so twice its size; its copy beside it is the peak.
    assert peak(space, np.array([option], np.int16)) == ARGUMENTS + 2 * MATRIX + MATRIX


def test_padding_counts() -> None:
    b = ModuleBuilder()
    value = b.op("negate", b.parameter("f32[16,8,5]"))
    b.reshape(b.op("sine", value), "f32[16,40]")
    # Lanes are padded to 128, in the argument, in what is made of it, and in the reshape, which moves it.
    space = space_of(b.build())
    assert peak(space, space.default) == 2 * (16 * 8 * 128 * 4) + 16 * 128 * 4
