from __future__ import annotations

import dataclasses

import pytest

from costbench.errors import HloError
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape
from tests.hlo.builder import ModuleBuilder

VECTOR = Shape(ElementType.F32, (4,), (0,))


def test_users_parameters_and_offsets() -> None:
    b = ModuleBuilder()
    x, y = b.parameter("f32[4,4]"), b.parameter("f32[4,4]")
    product = b.op("multiply", x, x)
    module = b.build(b.reduce(b.op("add", product, y), (0,)))
    body = module.entry_computation
    assert body.users[x] == (product,)
    assert body.users[body.root] == ()
    assert body.parameters == (0, 1)
    assert module.offsets == (0, 3, 9)
    assert module.num_instructions == 9


def test_parameters_are_sorted_by_number_wherever_they_are_stored() -> None:
    p = [Instruction(f"p{n}", Opcode.PARAMETER, VECTOR, parameter_number=n) for n in (2, 0, 1)]
    module = HloModule("m", (HloComputation("main", tuple(p), 0),), 0).verify()
    assert module.entry_computation.parameters == (1, 2, 0)


def test_a_module_without_computations_or_entry_is_refused() -> None:
    with pytest.raises(HloError, match="no computations"):
        HloModule("m", (), 0).verify()
    one = HloComputation("main", (Instruction("p", Opcode.PARAMETER, VECTOR),), 0)
    with pytest.raises(HloError, match="entry computation 1"):
        HloModule("m", (one,), 1).verify()
    with pytest.raises(HloError, match="root 1 does not exist"):
        HloModule("m", (dataclasses.replace(one, root=1),), 0).verify()


def test_calling_a_later_computation_is_refused() -> None:
    call = Instruction("c", Opcode.CALL, VECTOR, called=(0,))
    with pytest.raises(HloError, match=r"main/c: calls computation 0 \(expected one stored before 0\)"):
        HloModule("m", (HloComputation("main", (call,), 0),), 0).verify()


def test_impossible_windows_are_refused() -> None:
    b = ModuleBuilder()
    b.convolution(b.parameter("f32[1,8,8,2]"), b.parameter("f32[3,3,2,4]"))
    module = b.build()
    inst = module.entry_computation.root_instruction
    bad = dataclasses.replace(inst, window=(dataclasses.replace(inst.window[0], stride=0), inst.window[1]))
    body = module.entry_computation
    broken = dataclasses.replace(body, instructions=(*body.instructions[:-1], bad))
    with pytest.raises(HloError, match="expected a size, a stride and dilations of 1 or more"):
        dataclasses.replace(module, computations=(broken,)).verify()
