from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from costbench.arrays import F64, I64
from costbench.autotuning.kernel_costs import EstimatedKernels, MeasuredKernels, TiledKernels
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.fingerprints import ModuleFingerprints
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import LoopNest, Lowering
from costbench.compiler.program import compile_program
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import TileSpace, tile_space
from costbench.hardware.device import Device, Measurement
from costbench.target import load_target
from tests.hlo.builder import ModuleBuilder

TARGET = load_target("tpu_v3")
ANALYTICAL = AnalyticalModel(TARGET.architecture)


@pytest.fixture
def kernels() -> tuple[Kernel, ...]:
    """A product of matrices, and a sum that is too long for the same kernel's loops."""
    b = ModuleBuilder("two")
    product = b.dot(b.parameter("f32[1024,512]"), b.parameter("f32[512,2048]"))
    return compile_program(b.build(b.reduce(b.op("tanh", product), (0,))), "two").kernels


def tiled(kernels: Sequence[Kernel]) -> TiledKernels:
    return TiledKernels(Lowering(kernels[0].module), TARGET.architecture, ANALYTICAL)


@dataclass
class Fussy:
    """A machine that refuses every tile of more than one native tile along some loop; runtimes are 7 ns."""

    tried: list[list[int]] = field(default_factory=list)

    def measure_kernels(
        self, nests: Sequence[LoopNest], extents: Sequence[I64], names: Sequence[str]
    ) -> Measurement:
        self.tried += [tile.tolist() for tile in extents]
        failed = np.array([tile.max(initial=1) > 1 for tile in extents], dtype=bool)
        seconds = np.zeros(len(nests))
        return Measurement(np.where(failed, 0, 7), failed, 0.0, seconds)


def test_estimates_and_measurements_are_at_the_chosen_tile(kernels: tuple[Kernel, ...]) -> None:
    fingerprints = ModuleFingerprints(kernels[0].module)
    estimated = EstimatedKernels(tiled(kernels)).costs(kernels)
    measured = MeasuredKernels(tiled(kernels), Device(TARGET), fingerprints).costs(kernels)
    for kernel, estimate, runtime in zip(kernels, estimated, measured, strict=True):
        space = tile_space(kernel, TARGET.architecture)
        chosen = ANALYTICAL.choose(space)[None]
        assert estimate == ANALYTICAL.predict(kernel, space.nest.tile_sizes(chosen))[0]
        assert runtime == Device(TARGET).measure_nest(space.nest, chosen).runtime_ns[0]


@dataclass
class Counting:
    """The compiler's tile model, which says how often it was asked to choose."""

    asked: int = 0

    def choose(self, space: TileSpace) -> I64:
        self.asked += 1
        return ANALYTICAL.choose(space)

    def predict_nest(self, nest: LoopNest, decisions: TileSizes) -> F64:
        return ANALYTICAL.predict_nest(nest, decisions)


def test_kernels_lowered_last_are_kept(kernels: tuple[Kernel, ...]) -> None:
    (kernel,) = kernels[:1]
    other = replace(kernel)  # equal, and not the same
    model, lowering = Counting(), Lowering(kernel.module)
    keeping = TiledKernels(lowering, TARGET.architecture, model, capacity=1)
    asked = []
    for one in (kernel, kernel, other, kernel):
        assert_same(keeping.tiled([one]), tiled([one]).tiled([one]))
        asked.append(model.asked)
    assert asked == [1, 1, 2, 3]


def assert_same(
    tiled_kernels: list[tuple[int, TileSpace, I64]],
    expected: list[tuple[int, TileSpace, I64]],
) -> None:
    assert [(index, space.size, tile.tolist()) for index, space, tile in tiled_kernels] == [
        (index, space.size, tile.tolist()) for index, space, tile in expected
    ]


def test_a_refused_tile_is_followed_by_the_next_smaller_one(kernels: tuple[Kernel, ...]) -> None:
    machine = Fussy()
    fingerprints = ModuleFingerprints(kernels[0].module)
    assert (MeasuredKernels(tiled(kernels), machine, fingerprints).costs(kernels[:1]) == 7.0).all()
    for before, after in zip(machine.tried, machine.tried[1:], strict=False):
        longest = before.index(max(before))
        assert after[longest] < before[longest]
        assert after[:longest] + after[longest + 1 :] == before[:longest] + before[longest + 1 :]
    assert set(machine.tried[-1]) == {1}


def test_the_next_smaller_tile_by_hand() -> None:
    # 8 x 4 native tiles: extents {1, 2, 3, 4, 8} x {1, 2, 4}.
    b = ModuleBuilder("tanh")
    b.op("tanh", b.parameter("f32[64,512]"))
    space = tile_space(compile_program(b.build(), "tanh").kernels[0], TARGET.architecture)
    steps = [np.array([8, 4])]
    while (smaller := space.smaller(steps[-1])) is not None:
        steps.append(smaller)
    assert [step.tolist() for step in steps] == [
        [8, 4], [4, 4], [3, 4], [3, 2], [2, 2], [1, 2], [1, 1],
    ]  # fmt: skip


def test_a_kernel_without_a_legal_tile_costs_infinity(kernels: tuple[Kernel, ...]) -> None:
    tiny = replace(TARGET.architecture, scratchpad_bytes=1024)
    small = TiledKernels(Lowering(kernels[0].module), tiny, AnalyticalModel(tiny))
    assert EstimatedKernels(small).costs(kernels[:1]).tolist() == [math.inf]
