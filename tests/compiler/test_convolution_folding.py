from __future__ import annotations

from costbench.compiler.convolution_folding import fold_reversals
from costbench.hlo.instruction import WindowDimension
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from tests.hlo.builder import ModuleBuilder

SAME = (WindowDimension(3, padding_low=1, padding_high=1),) * 2


def backward(axes: tuple[int, ...], *, also_returned: bool = False) -> HloModule:
    b = ModuleBuilder()
    w = b.op("reverse", b.parameter("f32[3,3,64,64]"), dimensions=axes)
    conv = b.convolution(b.parameter("f32[8,9,9,64]"), w, labels="b01f_01oi->b01f", windows=SAME)
    return b.build(conv, w) if also_returned else b.build(conv)


def opcodes(module: HloModule) -> list[Opcode]:
    return [i.opcode for i in module.entry_computation.instructions]


def test_reversed_weights_turn_the_window() -> None:
    module = fold_reversals(backward((0, 1))).verify()
    assert opcodes(module) == [Opcode.PARAMETER, Opcode.PARAMETER, Opcode.CONVOLUTION]
    conv = module.entry_computation.root_instruction
    assert [w.reversal for w in conv.window] == [True, True]
    assert conv.operands == (1, 0)


def test_only_the_reversed_axes_turn() -> None:
    conv = fold_reversals(backward((1,))).entry_computation.root_instruction
    assert [w.reversal for w in conv.window] == [False, True]


def test_reversed_features_are_no_matter_of_the_window() -> None:
    module = backward((0, 3))
    assert fold_reversals(module) == module


def test_a_reversal_that_is_read_elsewhere_stays() -> None:
    module = fold_reversals(backward((0, 1), also_returned=True)).verify()
    assert opcodes(module).count(Opcode.REVERSE) == 1
    (conv,) = [i for i in module.entry_computation.instructions if i.opcode is Opcode.CONVOLUTION]
    assert [w.reversal for w in conv.window] == [True, True]
