"""Kernels of several layouts lowered side by side are those lowered in their programs."""

from __future__ import annotations

import numpy as np

from benchmarks.layout_compiler import compile_with_layouts
from costbench.compiler.layout.packed.compile import NewPart, PackedCompiler
from costbench.compiler.layout.packed.pool import KernelPool
from costbench.compiler.layout.space import LayoutSpace
from costbench.compiler.lowering.loop_nest import LoopNest, Lowering
from tests.compiler.small_layouts import space_of, two_convolutions


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


def assert_alike(found: LoopNest, wanted: LoopNest) -> None:
    assert found.loops == wanted.loops
    assert found.kernel_axes == wanted.kernel_axes
    assert len(found.words) == len(wanted.words)


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
    for one in alone:
        lowered, (name,) = one.lower()
        assert_alike(lowered.nest(0), nests[name])
