from __future__ import annotations

from pathlib import Path

from hypothesis import given

from costbench.compiler.fingerprints import module_fingerprint
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import read_module
from costbench.hlo.text.parser import module_from_text
from tests.hlo.builder import ComputationBuilder, ModuleBuilder
from tests.hlo.random_modules import modules

X = "f32[4]"


def opcodes(module: HloModule) -> list[str]:
    return [inst.opcode.xla_name for inst in module.entry_computation.instructions]


def test_nested_fusions_become_plain_instructions() -> None:
    def inner(c: ComputationBuilder) -> int:
        return c.op("tanh", c.parameter(X))

    def outer(c: ComputationBuilder) -> int:
        return c.op("negate", c.fusion(inner, c.parameter(X)))

    b = ModuleBuilder()
    b.op("add", b.fusion(outer, b.parameter(X)), b.parameter(X))
    plain = ModuleBuilder()
    x = plain.parameter(X)
    plain.op("add", plain.op("negate", plain.op("tanh", x)), plain.parameter(X))
    flat = inline_fusions(b.build())
    assert opcodes(flat) == ["parameter", "tanh", "negate", "parameter", "add"]
    assert module_fingerprint(flat) == module_fingerprint(plain.build())


def test_members_of_an_inlined_tuple_become_the_values_themselves() -> None:
    def both(c: ComputationBuilder) -> int:
        x = c.parameter(X)
        return c.make_tuple(c.op("tanh", x), c.op("negate", x))

    b = ModuleBuilder()
    pair = b.fusion(both, b.parameter(X))
    b.op("subtract", b.get(pair, 1), b.get(pair, 0))
    body = inline_fusions(b.build()).entry_computation
    root = body.root_instruction
    assert [body.instructions[o].opcode for o in root.operands] == [Opcode.NEGATE, Opcode.TANH]


def test_a_fusion_that_returns_its_argument_vanishes() -> None:
    b = ModuleBuilder()
    b.op("tanh", b.fusion(lambda c: c.parameter(X), b.parameter(X)))
    assert opcodes(inline_fusions(b.build())) == ["parameter", "tanh"]


@given(modules())
def test_no_fusion_is_left_and_other_computations_do_not_move(module: HloModule) -> None:
    flat = inline_fusions(module)
    assert "fusion" not in opcodes(flat)
    assert flat.computations[:-1] == module.computations[:-1]
    assert flat.entry_computation.root_instruction.shape == module.entry_computation.root_instruction.shape
    assert inline_fusions(flat) == flat


def test_computations_that_run_are_taken_apart_and_bodies_stay(repository: Path) -> None:
    module = read_module(repository / "tests/hlo/corpus/fusion_in_loop.hlo")
    flat = inline_fusions(module)
    names = [computation.name for computation in module.computations]
    assert [computation.name for computation in flat.computations] == names
    body = flat.computations[names.index("body")]
    assert Opcode.FUSION not in {inst.opcode for inst in body.instructions}
    assert [inst.opcode for inst in body.instructions].count(Opcode.EXPONENTIAL) == 1
    assert flat.computations[names.index("fused")] is module.computations[names.index("fused")]


def test_a_pair_becomes_what_it_runs_where_it_is_done(repository: Path) -> None:
    flat = inline_fusions(read_module(repository / "tests/hlo/corpus/async_slice.hlo")).entry_computation
    assert [inst.opcode.xla_name for inst in flat.instructions] == ["parameter", "slice", "negate"]
    flat = inline_fusions(
        read_module(repository / "tests/hlo/corpus/collective_starts.hlo")
    ).entry_computation
    wanted = ["parameter", "all-reduce", "all-gather", "collective-permute", "negate"]
    assert [inst.opcode.xla_name for inst in flat.instructions] == wanted
    assert [inst.name for inst in flat.instructions] == ["p", "b", "d", "f", "out"]


def test_a_start_that_something_else_reads_stays() -> None:
    module = module_from_text(
        """HloModule m
        ENTRY e { p = f32[8] parameter(0)
          s = (f32[8], f32[8], u32[]) copy-start(p)
          d = f32[8] copy-done(s)
          ROOT t = (f32[8], (f32[8], f32[8], u32[])) tuple(d, s) }""",
        where="x",
    )
    assert inline_fusions(module).entry_computation.opcodes == module.entry_computation.opcodes
