from __future__ import annotations

from pathlib import Path

import pytest

from costbench.compiler.kernel import Kernel, kernel_from_module, kernel_module
from costbench.compiler.program import compile_program, unique_kernels
from costbench.errors import UnsupportedKernelError
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import module_from_bytes, read_module
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


PROGRAMS = Path(__file__).resolve().parents[2] / "data" / "programs"


def kernels(module: HloModule) -> tuple[Kernel, ...]:
    return compile_program(module, "m").kernels


def there_and_back(kernel: Kernel) -> Kernel:
    return kernel_from_module(module_from_bytes(module_to_bytes(kernel_module(kernel)), where="kernel"))


def test_one_output_is_the_root() -> None:
    b = ModuleBuilder()
    b.op("tanh", b.op("add", b.parameter("f32[64,128]"), b.parameter("f32[64,128]")))
    (kernel,) = kernels(b.build())
    module = kernel_module(kernel, "adds")
    entry = module.entry_computation
    assert (module.name, entry.name) == ("adds", "adds")
    assert [i.opcode for i in entry.instructions] == [
        Opcode.PARAMETER,
        Opcode.PARAMETER,
        Opcode.ADD,
        Opcode.TANH,
    ]
    assert [i.parameter_number for i in entry.instructions[:2]] == [0, 1]
    assert entry.root == 3


def test_several_outputs_are_a_tuple_and_reducers_come_along() -> None:
    b = ModuleBuilder()
    x = b.parameter("f32[256,128]")
    e = b.op("exponential", b.parameter("f32[256,128]"))
    b.op("divide", b.op("add", e, x), b.broadcast(b.reduce(e, (1,)), "f32[256,128]", (0,)))
    first, second = kernels(b.build())
    module = kernel_module(first)
    root = module.entry_computation.root_instruction
    assert root.opcode is Opcode.TUPLE
    assert [str(s) for s in root.shape.tuple_shapes] == ["f32[256,128]{1,0}", "f32[256]{0}"]
    assert [c.name for c in module.computations] == ["add.f32", "kernel"]
    assert len(kernel_module(second).computations) == 1
    for kernel in (first, second):
        assert there_and_back(kernel).fingerprint == kernel.fingerprint
        assert there_and_back(kernel).num_nodes == kernel.num_nodes


@pytest.mark.parametrize("name", ["alexnet_b128_train_f32", "rnn_ptb_lstm_b20_train_f32"])
def test_real_kernels_keep_their_fingerprints(name: str) -> None:
    unique = unique_kernels(compile_program(read_module(PROGRAMS / f"{name}.hlo.pb.zst"), name))
    assert len(unique) > 30
    for unique_kernel in unique:
        again = there_and_back(unique_kernel.kernel)
        assert again.fingerprint == unique_kernel.fingerprint == unique_kernel.kernel.fingerprint
        assert len(again.inputs) == len(unique_kernel.kernel.inputs)
        assert [again.instruction(p).shape for p in again.outputs] == [
            unique_kernel.kernel.instruction(p).shape for p in unique_kernel.kernel.outputs
        ]
