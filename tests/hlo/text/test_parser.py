"""HLO text is read as XLA itself reads it, and what is no HLO is one error that names the line."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.compiler.kernel import kernel_from_module
from costbench.compiler.trip_counts import scalar_value
from costbench.errors import HloError
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import decompress, module_from_bytes
from costbench.hlo.shape import ElementType
from costbench.hlo.text.parser import looks_like_text, module_from_text
from tests.hlo.builder import ModuleBuilder

DENSE = """// a dump
HloModule dense, is_scheduled=true, entry_computation_layout={(f32[256,512]{1,0})->f32[256,256]{1,0}}

FileNames
1 "model.py"

FunctionNames
1 "main"

ENTRY %main (a: f32[256,512], b: f32[512,256]) -> f32[256,256] {
  %a = f32[256,512]{1,0} parameter(0), metadata={op_name="x[\\"a\\"] /* no comment } */"}
  %b = f32[512,256]{1,0} parameter(1)
  %product = f32[256,256]{1,0} dot(f32[256,512]{1,0} %a, f32[512,256]{1,0} %b),
    lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,highest}
  ROOT %out = f32[256,256]{1,0} tanh(%product), sharding={replicated}, backend_config={"a":{"b":[1,2]}}
}, execution_thread="main"
"""
SHORT = """HloModule dense
ENTRY main { a = f32[256,512] parameter(0) b = f32[512,256] parameter(1)
  product = f32[256,256] dot(a, /*index=1*/b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = f32[256,256] tanh(product) }"""


@pytest.mark.parametrize("text", [DENSE, SHORT, SHORT.replace("ROOT ", ""), "\n /* x */ " + SHORT])
def test_a_module_is_the_one_that_is_built(text: str) -> None:
    builder = ModuleBuilder("dense")
    product = builder.dot(builder.parameter("f32[256,512]"), builder.parameter("f32[512,256]"))
    built = builder.build(builder.op("tanh", product))
    assert looks_like_text(text)
    read = module_from_text(text, where="x")
    assert read.name == "dense"
    assert kernel_from_module(read).fingerprint == kernel_from_module(built).fingerprint
    names = [inst.name for inst in read.entry_computation.instructions]
    assert names == ["a", "b", "product", "out"]


def test_called_computations_and_constants() -> None:
    module = module_from_text(
        """HloModule loop
        body { s = (s32[], pred[2]{0:T(256)}) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          p = pred[2]{0} get-tuple-element(s), index=1
          one = s32[] constant(-1)
          j = s32[] add(i, one), control-predecessors={p}
          ROOT t = (s32[], pred[2]{0}) tuple(j, p) }
        condition { s = (s32[], pred[2]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          limit = s32[] constant(300)
          ROOT c = pred[] compare(i, limit), direction=LT }
        ENTRY e { s = (s32[], pred[<=2]) parameter(0)
          k = f32[2,2] constant({ { 1, 2 }, { 3, 4 } })
          ROOT w = (s32[], pred[2]) while(s), condition=condition, body=body,
            backend_config="{\\"known_trip_count\\":{\\"n\\":\\"7\\"}}" }""",
        where="x",
    )
    body, condition, entry = module.computations
    assert (body.name, condition.name, entry.name) == ("body", "condition", "e")
    loop = entry.root_instruction
    assert loop.called == (0, 1)
    assert loop.trip_count == 7
    assert body.instructions[4].control_predecessors == (2,)
    assert scalar_value(body.instructions[3]) == -1
    assert scalar_value(condition.instructions[2]) == 300
    assert entry.instructions[0].shape.tuple_shapes[1].element_type is ElementType.PRED
    assert entry.instructions[1].literal == b""


def test_computations_without_names_take_none_that_comes_later() -> None:
    module = module_from_text(
        """HloModule m
        first { p = f32[8] parameter(0)
          s = ((f32[8]), f32[4], s32[]) slice-start(p), slice={[0:4]}
          ROOT d = f32[4] slice-done(s) }
        async_wrapped { p = f32[4] parameter(0) ROOT n = f32[4] negate(p) }
        nested { p = f32[4] parameter(0) ROOT n = f32[4] negate(p) }
        ENTRY e { p = f32[8] parameter(0) c = f32[4] call(p), to_apply=first
          d = f32[4] call(c), to_apply=async_wrapped f = f32[4] call(d), to_apply=nested
          ROOT g = call(f), to_apply={ ROOT h = f32[4] parameter(0) } }""",
        where="x",
    )
    names = {"first", "async_wrapped", "nested", "e", "async_wrapped.1", "nested.1"}
    assert {computation.name for computation in module.computations} == names


ONE = "HloModule m\nENTRY e { a = f32[2] parameter(0)"
NESTED = " b = f32[2] call(a), to_apply={ a = f32[2] parameter(0)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("HloModule m", "x: line 1: no entry computation"),
        ("HloModule m\nENTRY e { a = u32[] constant(-1) }", "constant(-1) (expected a value of u32[])"),
        ("HloModule m\nENTRY e { a = s32[2] parameter(0) b = complex(a, a) }", "no shape of a complex"),
        ("HloModule m\nENTRY e { a = parameter(0) }", "line 2: no shape of a parameter (expected a shape"),
        ("HloModule m\nENTRY e { a = f32[?] parameter(0) }", "an extent without a bound in f32[?]"),
        (ONE + " b = f32[2] tanh(f32[2] negate(c)) }", "no value 'c'"),
        (ONE + " b = " + "tanh(" * 70 + "a" + ")" * 70 + " }", "operands within operands (expected"),
        (ONE + NESTED, "a bracket that is not closed"),
        (ONE + NESTED * 70 + "}" * 71, "computations within computations (expected"),
        (ONE + " b = f32[1] slice-start(a), slice={[0:1]} }", "(expected ((f32[2]{0}), the shape of"),
        (ONE + " b = f32[2] reduce-window(a, a), window={size=1 pad=0_0x0_0} }", "2 of pad for 1 of size"),
        ("HloModule m\nENTRY e { a = f32[2 parameter(0) }", "line 2: no shape"),
        ("HloModule m\nENTRY e { a = g32[2] parameter(0) }", "line 2: no shape"),
        ("HloModule m\nENTRY e {\na = f32[2] tanh(b) }", "line 3: no value 'b'"),
        ("HloModule m\nENTRY e { a = f32[2] parameter(x) }", "'x'"),
        (ONE + " a = f32[2] tanh(a) }", "a second 'a'"),
        ("HloModule m\ne { a = s8[] parameter(0) } ENTRY e { a = f32[] parameter(0) }", "second computation"),
        (f"{ONE}\nb = f32[] call(a), to_apply=%f }}", "line 3: no computation 'f'"),
        (ONE + " b = f32[2] frobnicate(a) }", "unknown opcode 'frobnicate'"),
        (ONE + " b = f32[2] slice(a), slice={0:1} }", "no slice"),
        (ONE + " b = f32[2] pad(a, a), padding=1 }", "padding=1"),
        (ONE + " b = f32[3] reshape(a) }", "elements: 3"),
        (ONE + ', metadata={op_name="x" ', "a bracket that is not closed"),
        ("HloModule m\nENTRY e { }", "root"),
        ("nothing", "'nothing'"),
    ],
)  # fmt: skip
def test_what_is_no_hlo_is_one_error(text: str, message: str) -> None:
    with pytest.raises(HloError) as raised:
        module_from_text(text, where="x")
    assert message in str(raised.value)


@given(st.integers(0, len(DENSE)), st.integers(0, 12), st.text('{}()[]=,"%a1 ', max_size=3))
def test_damaged_text_raises_nothing_else(start: int, length: int, instead: str) -> None:
    damaged = DENSE[:start] + instead + DENSE[start + length :]
    try:
        module = module_from_text(damaged, where="x")
    except HloError:
        return
    assert module.entry_computation.instructions


def test_every_beginning_of_a_text_is_an_error() -> None:
    whole = DENSE.rstrip().removesuffix(', execution_thread="main"')
    module_from_text(whole, where="x")
    for end in range(len(whole) - 1):
        with pytest.raises(HloError):
            module_from_text(whole[:end], where="x")


@pytest.mark.corpus
@pytest.mark.skipif(
    importlib.util.find_spec("jaxlib") is None, reason="needs the corpus extra (jax): XLA's text"
)
@pytest.mark.parametrize("style", ["default", "short_parsable", "long"])
def test_real_programs_are_read_as_xla_reads_them(repository: Path, style: str) -> None:
    """Also shapes of operands, no `%`, no layouts: every way in which XLA prints what it can read again."""
    from jaxlib import _hlo

    count = 0
    for file in sorted((repository / "data" / "programs").glob("*.hlo.pb.zst")):
        if not file.name.startswith(
            ("alexnet_b128_train", "rnn_char", "ssd_resnet34", "wavernn_1", "openai_v0")
        ):
            continue
        count += 1
        data = decompress(file.read_bytes(), where=file.name)
        program: Any = _hlo.HloModule.from_serialized_hlo_module_proto(data)
        options = (
            _hlo.HloPrintOptions.short_parsable() if style == "short_parsable" else _hlo.HloPrintOptions()
        )
        if style == "long":
            options.print_operand_shape, options.print_percent = True, False
        text = program.to_string() if style == "default" else program.to_string(options)
        again: Any = _hlo.hlo_module_from_text(text)
        expected = module_from_bytes(again.as_serialized_hlo_module_proto(), where=file.name)
        read = module_from_text(text, where=file.name)
        assert read.entry == expected.entry
        for ours, theirs in zip(read.computations, expected.computations, strict=True):
            assert (ours.name, ours.root) == (theirs.name, theirs.root)
            for one, other in zip(ours.instructions, theirs.instructions, strict=True):
                if one.opcode is Opcode.CONSTANT:
                    assert scalar_value(one) == scalar_value(other)
                assert _without_literal(one) == _without_literal(other)
    assert count >= 3


def _without_literal(inst: Any) -> Any:
    from dataclasses import replace

    return replace(inst, literal=b"")
