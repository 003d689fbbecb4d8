"""Two small kernels with all their tile sizes, made by hand."""

from __future__ import annotations

from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import tile_space
from costbench.target import load_target
from tests.hlo.builder import ModuleBuilder


def tanh_kernel(rows: int = 64) -> Kernel:
    """One elementwise instruction over f32[rows, 512]."""
    builder = ModuleBuilder("tanh")
    builder.op("tanh", builder.parameter(f"f32[{rows},512]"))
    return kernel_from_module(builder.build())


def all_tiles(kernel: Kernel) -> TileSizes:
    """Every legal tile size, in order of number."""
    space = tile_space(kernel, load_target("tpu_v2").architecture)
    return space.decode(space.legal_ids())
