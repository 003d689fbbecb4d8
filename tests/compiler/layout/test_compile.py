from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.layout_compiler import (
    LayoutCompiler,
    ReferenceOrders,
    compile_with_layouts,
    layouts_of,
    peak_bytes,
)
from costbench.arrays import I16
from costbench.compiler.layout.compile import KernelPool, NewPart, PackedCompiler
from costbench.compiler.layout.orders import OrderTables
from costbench.compiler.layout.rules import NodeLayouts
from costbench.compiler.layout.space import LayoutSpace
from costbench.compiler.lowering.loop_nest import LoopNest, Lowering
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import read_module
from tests.compiler.small_layouts import SAME, dot_and_add, space_of, two_convolutions
from tests.fuzz.programs import programs
from tests.hlo.builder import ModuleBuilder


def assert_equal_compiles(space: LayoutSpace, configs: I16) -> None:
    """Compiles configs in turn both ways and compares kernels, their hashes and memory."""
    compiler, reference = PackedCompiler(space), LayoutCompiler(space)
    for config in configs:
        parts, expected = compiler.compile(config), reference.compile(config)
        assert len(parts) == len(expected)
        for ours, theirs in zip(parts, expected, strict=True):
            assert (ours.computation, ours.trip_count) == (theirs.computation, theirs.trip_count)
            assert ours.hashes.tolist() == theirs.hashes.tolist()
            assert ours.peak_bytes == peak_bytes(theirs)
            if isinstance(ours, NewPart):
                for positions, expected_positions in zip(ours.kernels, theirs.arrays, strict=True):
                    assert positions.tolist() == expected_positions.tolist()


def drawn(space: LayoutSpace, count: int, seed: int = 0) -> I16:
    """The default, random configs, and what genetic search makes of them: steps and crossovers."""
    rng = np.random.default_rng(seed)
    some = np.concatenate([space.default[None], space.sample(rng, count)])
    steps = space.neighbours(space.default, rng, count)
    crossed = [space.crossover(config, other, rng) for config, other in zip(some, steps, strict=False)]
    return np.concatenate([some, steps, *(child[None] for child in crossed), some])


@pytest.mark.parametrize("module", [dot_and_add(), two_convolutions(), *programs()], ids=lambda m: m.name)
def test_small_programs_of_every_opcode(module: HloModule) -> None:
    space = space_of(module)
    assert_equal_compiles(space, drawn(space, 6))


@pytest.mark.parametrize(
    "name",
    [
        "alexnet_b128_train_f32",
        "mobilenet_b32_infer_f32",
        "rnn_char_b64_infer_f32",
        "ranking_b16_infer_f32",
        "smartcompose_b8_infer_f32",
        "wavernn_3_b1_infer_bf16",
    ],
)
def test_programs_of_the_corpus(repository: Path, name: str) -> None:
    space = space_of(read_module(repository / "data" / "programs" / f"{name}.hlo.pb.zst"))
    assert_equal_compiles(space, drawn(space, 3))


def random_network(choices: list[int]) -> HloModule:
    """A program of convolutions, dots, reshapes, transposes, residual sums and reductions."""
    b = ModuleBuilder("network")
    value = b.parameter("f32[8,4,4,16]")
    earlier = value
    for choice in choices:
        if choice == 0:
            value = b.convolution(value, b.parameter("f32[3,3,16,16]"), windows=SAME)
        elif choice == 1:
            value = b.op("tanh", value)
        elif choice == 2:
            value = b.op("add", value, earlier)
        elif choice == 3:
            flat = b.reshape(value, "f32[128,16]")
            value = b.reshape(b.dot(flat, b.parameter("f32[16,16]")), "f32[8,4,4,16]")
        elif choice == 4:
            value = b.op("transpose", value, shape="f32[8,4,4,16]", dimensions=(0, 2, 1, 3))
        elif choice == 5:
            means = b.broadcast(b.reduce(value, (0, 1, 2), "add"), "f32[8,4,4,16]", (3,))
            value = b.op("subtract", value, means)
        else:
            earlier = value
    return b.build(value, earlier)


@settings(max_examples=40, deadline=None)
@given(
    choices=st.lists(st.integers(0, 6), min_size=1, max_size=14),
    seed=st.integers(0, 2**16),
)
def test_random_networks(choices: list[int], seed: int) -> None:
    space = space_of(random_network(choices))
    assert_equal_compiles(space, drawn(space, 4, seed))


@pytest.mark.parametrize("name", ["alexnet_b128_train_f32", "rnn_gru_b128_train_f32"])
def test_orders_are_those_of_the_reference(repository: Path, name: str) -> None:
    space = space_of(read_module(repository / "data" / "programs" / f"{name}.hlo.pb.zst"))
    tables, reference = OrderTables(space.classes, space.nodes), ReferenceOrders(space)
    for config in drawn(space, 4):
        orders = tables.by_class(tables.assign(config.astype(np.int64)))
        assert orders == reference.assign(layouts_of(space, config))


def test_a_layout_met_before_is_not_compiled_again() -> None:
    space = space_of(two_convolutions())
    compiler = PackedCompiler(space)
    first, again = (compiler.compile(space.default)[0] for _ in range(2))
    assert isinstance(first, NewPart)
    assert not isinstance(again, NewPart)
    assert first.key == again.key
    assert first.hashes is again.hashes


def test_rules_are_asked_once_about_instructions_that_repeat() -> None:
    compiler = PackedCompiler(space_of(two_convolutions()))
    compiler.compile(compiler.space.default)
    opcodes = [inst.opcode for inst in compiler.facts.instructions]
    # Filters and rectifiers are alike; one convolution reads an argument, the other a result.
    assert opcodes.count(Opcode.PARAMETER) == 2
    assert opcodes.count(Opcode.MAXIMUM) == 1
    assert opcodes.count(Opcode.CONVOLUTION) == 2


def test_the_oldest_layouts_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costbench.compiler.layout.compile.MAX_STORED_KERNELS", 4)
    space = space_of(two_convolutions())
    compiler = PackedCompiler(space)
    configs = drawn(space, 6)
    hashes = [compiler.compile(config)[0].hashes.tolist() for config in configs]
    assert isinstance(compiler.compile(space.default)[0], NewPart)
    again = [compiler.compile(config)[0].hashes.tolist() for config in configs]
    assert hashes == again


def test_a_config_of_another_program_is_refused() -> None:
    with pytest.raises(ValueError, match="no layout config"):
        PackedCompiler(space_of(dot_and_add())).compile(np.zeros(2, np.int16))


def filled(space: LayoutSpace) -> tuple[KernelPool, dict[str, LoopNest]]:
    """A pool with the kernels of the default and of four random configs; their loop nests by fingerprint."""
    compiler = PackedCompiler(space)
    pool = KernelPool(space.module, compiler.facts)
    nests: dict[str, LoopNest] = {}
    for config in np.concatenate([space.default[None], space.sample(np.random.default_rng(2), 4)]):
        for part in compiler.compile(config):
            if isinstance(part, NewPart):
                for number in range(len(part.hashes)):
                    pool.add(part, number)
        program = compile_with_layouts(space, config, "p")
        lowering = Lowering(program.module)
        for kernel in program.kernels:
            nests[kernel.fingerprint] = lowering.loop_nest(kernel)
    return pool, nests


def assert_alike(nest: LoopNest, expected: LoopNest) -> None:
    assert nest.loops == expected.loops
    assert nest.kernel_axes == expected.kernel_axes
    assert len(nest.words) == len(expected.words)


def test_names_and_loops_are_those_of_the_programs() -> None:
    pool, nests = filled(space_of(two_convolutions()))
    count = len(pool)
    lowered, names = pool.lower()
    assert len(pool) == 0
    assert len(lowered) == len(names) == count > len(nests)
    assert set(names) == set(nests)
    for number, name in enumerate(names):
        assert_alike(lowered.nest(number), nests[name])
        assert lowered.nest(number).kernel.fingerprint == name


def test_kernels_can_be_taken_apart() -> None:
    pool, nests = filled(space_of(two_convolutions()))
    count = len(pool)
    alone = pool.take()
    assert (len(pool), len(alone)) == (0, count)
    for pool_of_one in alone:
        lowered, (name,) = pool_of_one.lower()
        assert_alike(lowered.nest(0), nests[name])


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
