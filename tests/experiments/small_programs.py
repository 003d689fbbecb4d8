"""A program that is not in the corpus, as a file."""

from __future__ import annotations

from pathlib import Path

from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.module import HloModule
from tests.hlo.builder import ModuleBuilder


def small_step() -> HloModule:
    """A layer with a gate, and the sum of its squares."""
    b = ModuleBuilder("small_step")
    x = b.parameter("f32[512,1024]")
    h = b.dot(x, b.parameter("f32[1024,2048]"))
    gate = b.op("tanh", b.dot(x, b.parameter("f32[1024,2048]")))
    y = b.op("multiply", h, gate)
    return b.build(b.reduce(b.op("multiply", y, y), (1,)))


def small_file(folder: Path) -> Path:
    path = folder / "small_step.hlo.pb"
    path.write_bytes(module_to_bytes(small_step()))
    return path


LOOP = """HloModule m

body {
  p = (s32[], f32[256,256]{1,0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = f32[256,256]{1,0} get-tuple-element(p), index=1
  w = f32[256,256]{1,0} tanh(v)
  ROOT t = (s32[], f32[256,256]{1,0}) tuple(i, w)
}

cond {
  q = (s32[], f32[256,256]{1,0}) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  ROOT r = pred[] compare(j, j), direction=LT
}

ENTRY main {
  s = (s32[], f32[256,256]{1,0}) parameter(0)
  ROOT l = (s32[], f32[256,256]{1,0}) while(s), condition=cond, body=body
}
"""
"""A loop of which nothing tells how often it runs."""
