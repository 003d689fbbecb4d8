"""A program that is not in the corpus, as a file."""

from __future__ import annotations

from pathlib import Path

from costbench.hlo.builder import ModuleBuilder
from costbench.hlo.module import HloModule
from costbench.hlo.writer import module_to_bytes


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
