from __future__ import annotations

from dataclasses import replace

import pytest

from costbench.hlo.instruction import Instruction, WindowDimension
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape


@pytest.mark.parametrize(
    ("window", "extent", "output"),
    [
        (WindowDimension(size=3), 10, 8),
        (WindowDimension(size=3, stride=2, padding_low=1, padding_high=1), 9, 5),
        (WindowDimension(size=3, window_dilation=2), 9, 5),
        (WindowDimension(size=3, base_dilation=2, padding_low=1, padding_high=1), 5, 9),
        (WindowDimension(size=3, padding_low=-2), 10, 6),
        (WindowDimension(size=11), 10, 0),
        (WindowDimension(size=1), 0, 0),
        (WindowDimension(size=2, padding_low=1, padding_high=1), 0, 1),
    ],
)
def test_window_positions(window: WindowDimension, extent: int, output: int) -> None:
    assert window.output_extent(extent) == output


def test_rewiring_changes_shape_operands_and_control_predecessors_alone() -> None:
    inst = Instruction(
        "a", Opcode.REDUCE, Shape(ElementType.F32), (1, 2), (3,), dimensions=(0,), control_predecessors=(4,)
    )
    shape = Shape(ElementType.F32, (2, 3), (0, 1))
    rewired = inst.rewire(shape, (5,), (6, 7))
    assert rewired == replace(inst, shape=shape, operands=(5,), control_predecessors=(6, 7))
    assert inst.rewire(inst.shape, inst.operands, inst.control_predecessors) == inst
