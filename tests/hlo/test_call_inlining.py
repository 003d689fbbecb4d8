"""Calls are replaced by what they run; calls of calls, too, each under a name of its own."""

from __future__ import annotations

import pytest

from costbench.errors import HloError
from costbench.hlo.call_inlining import inline_calls
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.module import HloModule
from costbench.hlo.text.parser import module_from_text
from tests.hlo.builder import ModuleBuilder

NESTED = """HloModule nested

clip {
  a = f32[4] parameter(1)
  b = f32[4] parameter(0)
  ROOT low = f32[4] minimum(a, b)
}

layer {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  n = f32[4] negate(x)
  c = f32[4] call(n, y), to_apply=clip
  ROOT pair = (f32[4], f32[4]) tuple(c, x)
}

sum {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] add(p, q)
}

once {
  v = f32[4] parameter(0)
  zero = f32[] constant(0)
  ROOT total = f32[] reduce(v, zero), dimensions={0}, to_apply=sum
}

ENTRY main {
  u = f32[4] parameter(0)
  w = f32[4] parameter(1)
  first = (f32[4], f32[4]) call(u, w), to_apply=layer
  f0 = f32[4] get-tuple-element(first), index=0
  f1 = f32[4] get-tuple-element(first), index=1
  second = (f32[4], f32[4]) call(f0, f1), to_apply=layer
  s0 = f32[4] get-tuple-element(second), index=0
  ROOT all = f32[] call(s0), to_apply=once
}
"""


def listing(module: HloModule) -> list[tuple[str, list[str]]]:
    """Returns the instructions of the entry with the names of their operands."""
    body = module.entry_computation.instructions
    return [(inst.name, [body[operand].name for operand in inst.operands]) for inst in body]


def test_nested_calls_become_plain_instructions() -> None:
    flat = inline_calls(module_from_text(NESTED, where="nested"))
    assert listing(flat) == [
        ("u", []),
        ("w", []),
        ("first/n", ["u"]),
        # `clip` takes its arguments in the other order.
        ("first/low", ["w", "first/n"]),
        ("first/pair", ["first/low", "u"]),
        ("second/n", ["first/low"]),
        ("second/low", ["u", "second/n"]),
        ("second/pair", ["second/low", "first/low"]),
        ("zero", []),
        ("total", ["second/low", "zero"]),
    ]
    assert flat.entry_computation.root_instruction.name == "total"
    # What only calls ran is gone; the sum of the reduction is still called.
    assert [body.name for body in flat.computations] == ["sum", "main"]
    [reduction] = (inst for inst in flat.entry_computation.instructions if inst.name == "total")
    assert flat.computations[reduction.called[0]].name == "sum"


def test_a_module_without_calls_is_itself() -> None:
    b = ModuleBuilder()
    module = b.build(b.op("tanh", b.parameter("f32[4]")))
    assert inline_calls(module) is module


def test_calls_within_loops_and_fusions_are_inlined() -> None:
    text = """HloModule loops

relu {
  a = f32[4] parameter(0)
  ROOT t = f32[4] tanh(a)
}

fused {
  b = f32[4] parameter(0)
  ROOT c = f32[4] call(b), to_apply=relu
}

body {
  s = f32[4] parameter(0)
  ROOT f = f32[4] fusion(s), kind=kLoop, calls=fused
}

condition {
  z = f32[4] parameter(0)
  ROOT yes = pred[] constant(true)
}

ENTRY main {
  x = f32[4] parameter(0)
  ROOT w = f32[4] while(x), condition=condition, body=body
}
"""
    flat = inline_calls(inline_fusions(module_from_text(text, where="loops")))
    names = {body.name: [inst.name for inst in body.instructions] for body in flat.computations}
    assert names["body"] == ["s", "t"]
    assert set(names) == {"body", "condition", "main"}


def test_a_few_calls_may_stand_for_very_many_instructions() -> None:
    parts = ["HloModule many\n\nc0 {\n  p0 = f32[4] parameter(0)\n  ROOT t = f32[4] tanh(p0)\n}\n"]
    for level in range(1, 60):
        lines = f"p{level} = f32[4] parameter(0)\n  a{level} = f32[4] call(p{level}), to_apply=c{level - 1}"
        root = f"ROOT b{level} = f32[4] call(a{level}), to_apply=c{level - 1}"
        parts.append(f"{'ENTRY ' if level == 59 else ''}c{level} {{\n  {lines}\n  {root}\n}}\n")
    module = module_from_text("\n".join(parts), where="many")
    with pytest.raises(HloError, match=r"too many instructions with calls inlined \(expected at most 1000\)"):
        inline_calls(module, 1000)
