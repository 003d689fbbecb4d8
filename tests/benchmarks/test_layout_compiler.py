from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.layout_compiler import LayoutCompiler, compile_with_layouts
from costbench.arrays import I16
from costbench.compiler.layout.rules import NodeLayouts
from costbench.compiler.layout.space import LayoutSpace
from costbench.compiler.program import CompiledProgram, compile_program
from costbench.compiler.tiled_memory import is_bitcast, padded_bytes
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import read_module
from tests.compiler.small_layouts import SAME, dot_and_add, space_of, two_convolutions
from tests.hlo.builder import ModuleBuilder


def config_of(space: LayoutSpace, *wanted: NodeLayouts | None) -> I16:
    """The config with these orders; the default's where there is None."""
    return np.array(
        [node.options.index(w) if w else 0 for node, w in zip(space.nodes, wanted, strict=True)], np.int16
    )


def copies(program: CompiledProgram) -> list[Instruction]:
    body = program.module.entry_computation
    return [inst for inst in body.instructions if inst.opcode is Opcode.COPY]


def outline(program: CompiledProgram) -> list[tuple[object, ...]]:
    return [(k.fingerprint, k.instructions, k.inputs, k.outputs, k.trip_count) for k in program.kernels]


def test_a_transposed_dot_is_copied_once() -> None:
    module = dot_and_add()
    space = space_of(module)
    assert copies(compile_with_layouts(space, space.default, "p")) == []
    config = config_of(space, NodeLayouts((0, 1), ((1, 0), (1, 0))))
    program = compile_with_layouts(space, config, "p")
    # The sum lies like the argument in it, so the product is turned round: 64 x 512 numbers of 4 bytes.
    (copy,) = copies(program)
    assert str(copy.shape) == "f32[64,512]{1,0}"
    assert padded_bytes(copy.shape) == 64 * 512 * 4 == 131_072
    # The dot, the copy and the sum run apart; by default one kernel does it all.
    assert (len(compile_program(module, "p").kernels), len(program.kernels)) == (1, 3)


def test_operands_are_taken_either_way_round_without_a_copy() -> None:
    space = space_of(dot_and_add())
    config = config_of(space, NodeLayouts((1, 0), ((0, 1), (0, 1))))
    assert copies(compile_with_layouts(space, config, "p")) == []


def test_nothing_is_made_with_two_numbers_in_the_lanes() -> None:
    b = ModuleBuilder()
    image = b.op("negate", b.broadcast(b.parameter("f32[128]"), "f32[2,64,64,128]", (3,)))
    b.convolution(image, b.parameter("f32[3,3,128,128]"), windows=SAME)
    space = space_of(b.build())
    default = space.nodes[0].options[0]
    wished = NodeLayouts(default.output, ((0, 3, 2, 1), default.operands[1]))
    program = compile_with_layouts(space, config_of(space, wished), "p")
    assert program.module == compile_with_layouts(space, space.default, "p").module


def test_neighbours_follow_a_convolution() -> None:
    space = space_of(two_convolutions())
    default = space.nodes[0].options[0]
    turned = NodeLayouts((0, 3, 2, 1), default.operands)
    program = compile_with_layouts(space, config_of(space, turned, None, None), "p")
    body = program.module.entry_computation.instructions
    orders = [i.shape.layout for i in body if i.opcode in (Opcode.CONVOLUTION, Opcode.MAXIMUM)]
    # The first rectifier takes its convolution's order; the second convolution reads it as it is.
    assert orders == [(0, 3, 2, 1), (0, 3, 2, 1), (3, 0, 2, 1), (3, 0, 2, 1)]
    # 32 images fill a quarter of 128 lanes: four times the bytes of 8 x 8 x 128 x 32 numbers.
    first = next(i for i in body if i.opcode is Opcode.MAXIMUM)
    assert padded_bytes(first.shape) == 4 * (32 * 8 * 8 * 128 * 4)


def test_a_reshape_between_free_orders_costs_the_copies_around_it() -> None:
    space = space_of(two_convolutions())
    as_made = NodeLayouts((2, 0, 1), ((3, 0, 2, 1),))
    row_major = NodeLayouts((2, 1, 0), ((3, 2, 1, 0),))
    found = {}
    for chosen in (as_made, row_major):
        program = compile_with_layouts(space, config_of(space, None, None, chosen), "p")
        (reshape,) = [i for i in program.module.entry_computation.instructions if i.opcode is Opcode.RESHAPE]
        source = program.module.entry_computation.instructions[reshape.operands[0]]
        assert is_bitcast(reshape, source.shape)
        found[reshape.shape.layout] = len(copies(program))
    # The argument is copied in any case; row-major order needs the second convolution's result copied, too.
    assert found == {(2, 0, 1): 1, (2, 1, 0): 2}


def test_a_reshape_that_would_move_data_can_be_a_copy_instead() -> None:
    b = ModuleBuilder()
    b.reshape(b.parameter("f32[32,5,5,256]"), "f32[32,6400]")
    module = b.build()
    space = space_of(module)
    assert space.nodes[0].options[0] == NodeLayouts((1, 0), ((3, 2, 1, 0),))
    program = compile_with_layouts(space, config_of(space, NodeLayouts((0, 1), ((0, 3, 2, 1),))), "p")
    (reshape,) = [i for i in program.module.entry_computation.instructions if i.opcode is Opcode.RESHAPE]
    (copy,) = copies(program)
    assert is_bitcast(reshape, copy.shape)
    # 32 numbers in 128 lanes: what is copied takes four times its size.
    assert padded_bytes(copy.shape) == 4 * 32 * 5 * 5 * 256 * 4
    assert [k.instruction(k.outputs[0]).opcode for k in program.kernels] == [Opcode.COPY]


@pytest.mark.parametrize(
    "name", ["alexnet_b128_train_f32", "rnn_char_b64_infer_f32", "rnn_gru_b128_train_f32"]
)
def test_the_default_config_is_what_the_compiler_does(repository: Path, name: str) -> None:
    module = read_module(repository / "data" / "programs" / f"{name}.hlo.pb.zst")
    space = space_of(module)
    ours, theirs = compile_with_layouts(space, space.default, name), compile_program(module, name)
    assert ours.module == theirs.module
    assert outline(ours) == outline(theirs)


def executions(program: CompiledProgram) -> Counter[str]:
    found: Counter[str] = Counter()
    for kernel in program.kernels:
        found[kernel.fingerprint] += kernel.trip_count
    return found


@pytest.mark.parametrize("name", ["alexnet_b128_train_f32", "rnn_char_b64_infer_f32"])
def test_kernels_by_hash_are_those_of_the_compiled_program(repository: Path, name: str) -> None:
    space = space_of(read_module(repository / "data" / "programs" / f"{name}.hlo.pb.zst"))
    compiler = LayoutCompiler(space)
    rng = np.random.default_rng(0)
    named: dict[int, str] = {}
    for config in np.concatenate([space.sample(rng, 3), space.neighbours(space.default, rng, 2)]):
        found: Counter[str] = Counter()
        for part in compiler.compile(config):
            for number, key in enumerate(part.hashes.tolist()):
                fingerprint = part.kernel(number, part.program(space.module)).fingerprint
                assert named.setdefault(key, fingerprint) == fingerprint
                found[fingerprint] += part.trip_count
        assert found == executions(compile_with_layouts(space, config, name))
    assert len(set(named.values())) == len(named)


def test_configs_that_differ_in_nothing_that_counts_have_one_key() -> None:
    space = space_of(dot_and_add())
    compiler = LayoutCompiler(space)
    operands_turned = config_of(space, NodeLayouts((1, 0), ((0, 1), (0, 1))))
    result_turned = config_of(space, NodeLayouts((0, 1), ((1, 0), (1, 0))))
    keys = [compiler.key(*compiler.assign(c)) for c in (space.default, operands_turned, result_turned)]
    assert keys[0] == keys[1] != keys[2]


def test_a_config_of_another_program_is_refused() -> None:
    space = space_of(dot_and_add())
    with pytest.raises(ValueError, match="no layout config"):
        compile_with_layouts(space, np.zeros(2, np.int16), "p")


def test_every_config_of_a_small_program_compiles() -> None:
    module: HloModule = dot_and_add()
    space = space_of(module)
    for option in range(int(space.num_choices[0])):
        program = compile_with_layouts(space, np.array([option], np.int16), "p")
        assert program.kernels[-1].outputs
