from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from costbench.compiler.fusion.facts import body_facts
from costbench.compiler.fusion.heuristic import default_groups
from costbench.compiler.fusion.rules import Kind, kind_of
from costbench.compiler.kernel import Kernel
from costbench.compiler.program import CompiledProgram, compile_program, unique_kernels, verify_order
from costbench.datasets.tpugraphs.proto import tuning_pb2
from costbench.errors import HloError
from costbench.hlo.conversion import module_from_proto
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import read_module
from tests.hlo.builder import ComputationBuilder, ModuleBuilder

PROGRAMS = Path(__file__).resolve().parents[2] / "data" / "programs"
SMALL_FILE_BYTES = 25_000
LARGE_CHECKED = 6
FILES = sorted(PROGRAMS.glob("*.hlo.pb.zst"))
SMALL = [file for file in FILES if file.stat().st_size <= SMALL_FILE_BYTES]
LARGE = [file for file in FILES if file.stat().st_size > SMALL_FILE_BYTES]


def short(file: Path) -> str:
    return file.name.removesuffix(".hlo.pb.zst")


def opcodes(kernel: Kernel) -> list[str]:
    return [kernel.instruction(p).opcode.xla_name for p in kernel.instructions]


def recurrent(steps: int) -> HloModule:
    """state = tanh(state @ w), `steps` times."""
    state = "(s32[], f32[32,128], f32[128,128])"
    b = ModuleBuilder()

    def body(c: ComputationBuilder) -> int:
        p = c.parameter(state)
        w = c.get(p, 2)
        count = c.op("add", c.get(p, 0), c.constant("s32[]"))
        return c.make_tuple(count, c.op("tanh", c.dot(c.get(p, 1), w)), w)

    def condition(c: ComputationBuilder) -> int:
        return c.op("compare", c.get(c.parameter(state), 0), c.constant("s32[]"), comparison_direction="LT")

    start = b.make_tuple(b.constant("s32[]"), b.parameter("f32[32,128]"), b.parameter("f32[128,128]"))
    loop = b.get(b.while_(condition, body, start, trip_count=steps), 1)
    return b.build(b.op("tanh", b.dot(loop, b.parameter("f32[128,128]"))))


def test_kernels_of_a_loop_count_once_per_iteration() -> None:
    compiled = compile_program(recurrent(50), "recurrent")
    assert compiled.name == "recurrent"
    assert [(opcodes(k), k.trip_count) for k in compiled.kernels] == [
        (["dot", "tanh"], 50),
        (["dot", "tanh"], 1),
    ]
    # Same shapes, same work: one kernel that runs 51 times. The loop counter is no kernel.
    (unique,) = unique_kernels(compiled)
    assert unique.runs_per_program == 51
    assert unique.kernel is compiled.kernels[0]
    assert unique.fingerprint == compiled.kernels[1].fingerprint


def test_boundaries_of_a_kernel() -> None:
    b = ModuleBuilder()
    x, bias = b.parameter("f32[64,128,256]"), b.parameter("f32[256]")
    total = b.op("add", x, b.broadcast(bias, "f32[64,128,256]", (2,)))
    flat = b.reshape(total, "f32[8192,256]")
    b.dot(b.reshape(b.parameter("f32[256,512,1]"), "f32[256,512]"), flat, contracting=(0, 1))
    module = b.build()
    compiled = compile_program(module, "m")
    (kernel,) = compiled.kernels
    # The free reshape of the argument stays outside: the kernel reads its result.
    assert opcodes(kernel) == ["broadcast", "add", "reshape", "dot"]
    assert [kernel.instruction(p).opcode for p in kernel.inputs] == [
        Opcode.PARAMETER,
        Opcode.PARAMETER,
        Opcode.RESHAPE,
    ]
    assert [kernel.instruction(p).opcode for p in kernel.outputs] == [Opcode.DOT]


def test_a_program_without_work_has_no_kernels() -> None:
    b = ModuleBuilder()
    x = b.parameter("f32[64,128]")
    one = b.op("add", b.parameter("f32[]"), b.constant("f32[]"))
    compiled = compile_program(b.build(b.transpose(x, (1, 0)), one), "nothing")
    assert compiled.kernels == ()
    assert unique_kernels(compiled) == ()


def test_several_results_of_one_instruction_are_outputs_of_its_kernel() -> None:
    b = ModuleBuilder()
    bits = b.op("rng-bit-generator", b.parameter("u64[2]"), shape="(u64[2], u32[64,128])")
    b.op("negate", b.get(bits, 1))
    made, used = compile_program(b.build(), "draw").kernels
    assert opcodes(made) == ["rng-bit-generator", "get-tuple-element"]
    assert [made.instruction(p).opcode for p in made.outputs] == [Opcode.GET_TUPLE_ELEMENT]
    assert used.inputs == made.outputs


def test_compiling_twice_gives_the_same_kernels() -> None:
    first, second = (compile_program(recurrent(3), "r") for _ in range(2))
    assert [k.instructions for k in first.kernels] == [k.instructions for k in second.kernels]
    assert [u.fingerprint for u in unique_kernels(first)] == [u.fingerprint for u in unique_kernels(second)]


# ---- what holds for every program -------------------------------------------------------------------------


def by_computation(compiled: CompiledProgram) -> Iterator[tuple[HloComputation, list[Kernel]]]:
    for index, computation in enumerate(compiled.module.computations):
        kernels = [k for k in compiled.kernels if k.computation == index]
        if kernels:
            yield computation, kernels


def check_views(body: HloComputation, kernels: list[Kernel]) -> None:
    for kernel in kernels:
        inside, read = set(kernel.instructions), set(kernel.inputs)
        operands = {o for p in inside for o in body.instructions[p].operands}
        assert operands - inside == read
        assert kernel.outputs
        assert set(kernel.outputs) <= inside
        assert list(kernel.instructions) == sorted(inside)
        kinds = [kind_of(body.instructions[p].opcode) for p in inside]
        assert kinds.count(Kind.CONTRACTION) <= 1


def check_work_is_done_once(body: HloComputation, kernels: list[Kernel]) -> None:
    made: dict[int, int] = {}
    for kernel in kernels:
        for position in kernel.instructions:
            made[position] = made.get(position, 0) + 1
    graph = default_groups(body_facts(body)).graph
    for position, inst in enumerate(body.instructions):
        if kind_of(inst.opcode) is Kind.CONTROL or not graph.is_node[position]:
            continue
        if position not in made:
            assert all(leaf.num_elements <= 1 for leaf in inst.shape.leaves()), inst
        elif not graph.duplicated[position]:
            assert made[position] == 1, inst


def check(compiled: CompiledProgram) -> None:
    compiled.module.verify()
    for body, kernels in by_computation(compiled):
        check_views(body, kernels)
        check_work_is_done_once(body, kernels)
    verify_order(compiled.module, compiled.kernels)
    unique = unique_kernels(compiled)
    assert sum(u.runs_per_program for u in unique) == sum(k.trip_count for k in compiled.kernels)
    assert len({u.fingerprint for u in unique}) == len(unique)


@pytest.mark.parametrize("file", SMALL, ids=short)
def test_kernels_of_small_programs(file: Path) -> None:
    check(compile_program(read_module(file), short(file)))


@pytest.mark.slow
def test_kernels_of_large_programs() -> None:
    # A sample, for the time it takes; compiling itself checks the order of kernels of every program.
    for file in LARGE[:: max(1, len(LARGE) // LARGE_CHECKED)]:
        for body, kernels in by_computation(compile_program(read_module(file), short(file))):
            check_views(body, kernels)


def test_kernels_out_of_order_are_an_error() -> None:
    b = ModuleBuilder("twisted")
    e = b.op("exponential", b.parameter("f32[256,128]"))
    b.op("divide", e, b.broadcast(b.reduce(e, (1,)), "f32[256,128]", (0,)))
    compiled = compile_program(b.build(), "twisted")
    assert len(compiled.kernels) == 2
    with pytest.raises(HloError, match=r"twisted: main/.*: a kernel reads what no earlier kernel has made"):
        verify_order(compiled.module, compiled.kernels[::-1])


def test_kernels_of_the_recorded_program(shared_data: Path) -> None:
    data = tuning_pb2.ModuleTuningData()
    data.ParseFromString((shared_data / "real_tpu" / "layout_module.pb").read_bytes())
    compiled = compile_program(module_from_proto(data.module, where="layout_module.pb"), "unet3d")
    check(compiled)
    contractions = [k for k in compiled.kernels if "convolution" in opcodes(k)]
    assert len(contractions) == 53
    # Statistics of the batch normalisations leave with the convolutions that they describe.
    assert sum("reduce" in opcodes(k) for k in contractions) >= 14
