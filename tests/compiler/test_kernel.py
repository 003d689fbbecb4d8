from __future__ import annotations

import pytest

from costbench.compiler.kernel import kernel_from_module
from costbench.errors import UnsupportedKernelError
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from tests.hlo.builder import ComputationBuilder, ModuleBuilder

X = "f32[64,128]"


def softmax_part(*, flat: bool) -> HloModule:
    """exp(x - max) with its row sums: as a fusion of two outputs, or as plain instructions."""
    b = ModuleBuilder()

    def body(c: ComputationBuilder) -> tuple[int, int]:
        x, top = c.parameter(X), c.parameter("f32[64]")
        e = c.op("exponential", c.op("subtract", x, c.broadcast(top, X, (0,))))
        return e, c.reduce(e, (1,))

    if flat:
        return b.build(*body(b))

    def fused(c: ComputationBuilder) -> int:
        return c.make_tuple(*body(c))

    x, top = b.parameter(X), b.parameter("f32[64]")
    return b.build(b.fusion(fused, x, top, kind="kInput"))


def test_a_fusion_is_flattened_into_a_view() -> None:
    kernel = kernel_from_module(softmax_part(flat=False))
    opcodes = [kernel.instruction(p).opcode for p in kernel.instructions]
    assert opcodes == [
        Opcode.BROADCAST,
        Opcode.SUBTRACT,
        Opcode.EXPONENTIAL,
        Opcode.CONSTANT,
        Opcode.REDUCE,
    ]
    assert [kernel.instruction(p).parameter_number for p in kernel.inputs] == [0, 1]
    assert [kernel.instruction(p).opcode for p in kernel.outputs] == [Opcode.EXPONENTIAL, Opcode.REDUCE]
    assert kernel.nodes == kernel.inputs + kernel.instructions
    assert kernel.num_nodes == 7
    assert kernel.members == set(kernel.instructions)
    assert kernel.body is kernel.module.computations[kernel.computation]
    assert kernel.trip_count == 1


def test_fingerprints_see_the_work_and_not_how_it_is_written() -> None:
    one, two = (kernel_from_module(softmax_part(flat=flat)) for flat in (True, False))
    assert one.fingerprint == two.fingerprint
    assert len(one.fingerprint) == 32
    b = ModuleBuilder()
    b.op("tanh", b.parameter(X))
    assert kernel_from_module(b.build()).fingerprint != one.fingerprint


def test_what_no_output_needs_is_left_out() -> None:
    b = ModuleBuilder()
    x = b.parameter(X)
    b.op("negate", b.parameter(X))
    kernel = kernel_from_module(b.build(b.op("tanh", x)))
    assert [kernel.instruction(p).opcode for p in kernel.nodes] == [Opcode.PARAMETER, Opcode.TANH]


def test_parameters_alone_are_no_kernel() -> None:
    b = ModuleBuilder("empty")
    with pytest.raises(UnsupportedKernelError, match="empty: a module of parameters alone"):
        kernel_from_module(b.build(b.parameter(X)))
