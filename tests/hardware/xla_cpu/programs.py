"""A small program for tests of XLA's backend for processors."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

from costbench.hardware.xla_cpu.program import MachineProgram
from costbench.hlo.conversion import module_from_proto, module_to_bytes
from costbench.hlo.module import HloModule
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.text.parser import proto_from_text

TEXT = """HloModule small

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[256,512]{1,0} parameter(0)
  w = f32[512,128]{1,0} parameter(1)
  e = f32[256,512]{1,0} exponential(x)
  n = f32[256,512]{1,0} negate(e)
  m = f32[256,512]{1,0} multiply(n, e)
  d = f32[256,128]{1,0} dot(m, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  one = f32[] constant(1)
  ones = f32[256,128]{1,0} broadcast(one), dimensions={}
  p = f32[256,128]{1,0} add(d, ones)
  t = f32[256,128]{1,0} tanh(p)
  zero = f32[] constant(0)
  r = f32[256]{0} reduce(t, zero), dimensions={1}, to_apply=sum
  ROOT out = (f32[256,128]{1,0}, f32[256]{0}) tuple(t, r)
}
"""


def small_module() -> HloModule:
    module = module_from_proto(proto_from_text(TEXT, where="small"), where="small")
    values = {"one": 1.0, "zero": 0.0}
    entry = module.entry_computation
    instructions = tuple(
        replace(inst, literal=_literal(values[inst.name])) if inst.name in values else inst
        for inst in entry.instructions
    )
    return replace(
        module, computations=(*module.computations[:-1], replace(entry, instructions=instructions))
    )


def _literal(value: float) -> bytes:
    """Returns XLA's LiteralProto of an f32 scalar; field 8 has the values, which text is read without."""
    shape = hlo_pb2.LiteralProto(shape=hlo_pb2.ShapeProto(element_type=11, layout=hlo_pb2.LayoutProto()))
    return shape.SerializeToString() + b"\x42\x04" + struct.pack("<f", value)


def small_program() -> MachineProgram:
    return MachineProgram(small_module(), "small")


def write_small(folder: Path) -> Path:
    path = folder / "small.hlo.pb"
    path.write_bytes(module_to_bytes(small_module()))
    return path
