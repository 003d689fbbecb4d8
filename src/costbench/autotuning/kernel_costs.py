"""Prices kernels at the tile size that the compiler chooses, by measuring or by the compiler's tile model.

A search over fusion configs produces new kernels all the time; a `KernelCosts` takes a batch of them and
returns nanoseconds. A kernel of which no tile fits the scratchpad costs infinity: its program does not
compile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from costbench.arrays import F64, I64
from costbench.autotuning.evaluators import Measured
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.fingerprints import ModuleFingerprints
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import LoopNest, Lowering
from costbench.compiler.tile_space import TileSpace, nest_tile_space
from costbench.models.user_model import UserModel
from costbench.target import Architecture


class KernelCosts(Protocol):
    """Prices kernels of one program."""

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        """Returns nanoseconds of each kernel, float64 [k]; infinite for one that cannot run."""
        ...


@dataclass(frozen=True, eq=False)
class TiledKernels:
    """Lowers kernels of a program and chooses their tiles, as the compiler of a chip does.

    Attributes:
        lowering: lowering of the program.
        architecture: architecture of the chip.
        tiles: the compiler's tile model.
        capacity: number of recently lowered kernels that are kept, for several pricers of the same kernels.
    """

    lowering: Lowering
    architecture: Architecture
    tiles: AnalyticalModel
    capacity: int = 0
    _kept: OrderedDict[Kernel, tuple[TileSpace, I64] | None] = field(
        default_factory=OrderedDict, init=False, repr=False
    )

    def tiled(self, kernels: Sequence[Kernel]) -> list[tuple[int, TileSpace, I64]]:
        """Returns index, tile space and chosen extents of every kernel of which a tile fits."""
        tiled_kernels = []
        for index, kernel in enumerate(kernels):
            tiled = self._kept[kernel] if kernel in self._kept else self._tiled(kernel)
            if tiled is not None:
                tiled_kernels.append((index, *tiled))
        return tiled_kernels

    def _tiled(self, kernel: Kernel) -> tuple[TileSpace, I64] | None:
        space = nest_tile_space(self.lowering.loop_nest(kernel), self.architecture)
        tiled = (space, self.tiles.choose(space)) if space.has_legal_tile else None
        if self.capacity:
            self._kept[kernel] = tiled
            if len(self._kept) > self.capacity:
                self._kept.popitem(last=False)
        return tiled


@dataclass(frozen=True, eq=False)
class EstimatedKernels:
    """Kernel costs estimated by the compiler's tile model.

    Its scale differs between kinds of kernels, so it compares programs badly (lpm2021, section 7.3, leaves it
    out of the fusion autotuner); it is offered because it needs no training.

    Attributes:
        tiled: lowering and choice of tiles of the kernels.
    """

    tiled: TiledKernels

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        """Returns estimated nanoseconds, float64 [k]."""
        costs_ns = np.full(len(kernels), np.inf)
        for index, space, extents in self.tiled.tiled(kernels):
            tile = space.nest.tile_sizes(extents[None])
            costs_ns[index] = self.tiled.tiles.predict_nest(space.nest, tile)[0]
        return costs_ns


@dataclass(frozen=True, eq=False)
class GivenKernels:
    """Kernel costs by a cost model of the user's own, one kernel at a time.

    Attributes:
        tiled: lowering and choice of tiles of the kernels.
        model: predicts nanoseconds.
    """

    tiled: TiledKernels
    model: UserModel

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        """Returns predicted nanoseconds, float64 [k]."""
        costs_ns = np.full(len(kernels), np.inf)
        for index, space, extents in self.tiled.tiled(kernels):
            costs_ns[index] = self.model.predict_ns(kernels[index], space.nest.tile_sizes(extents[None]))
        return costs_ns


class KernelDevice(Protocol):
    """A machine that runs many kernels, one tile size of each."""

    def measure_kernels(
        self, nests: Sequence[LoopNest], extents: Sequence[I64], fingerprints: Sequence[str], /
    ) -> Measured:
        """Compiles and runs the kernels."""
        ...


@dataclass(frozen=True, eq=False)
class MeasuredKernels:
    """Kernel costs measured on a machine.

    Where the machine refuses a tile near the limit of the scratchpad, the next smaller one is tried.

    Attributes:
        tiled: lowering and choice of tiles of the kernels.
        device: runs them.
        fingerprints: fingerprints of the program's kernels.
    """

    tiled: TiledKernels
    device: KernelDevice
    fingerprints: ModuleFingerprints

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        """Returns measured nanoseconds, float64 [k]."""
        costs_ns = np.full(len(kernels), np.inf)
        waiting = self.tiled.tiled(kernels)
        names = {}
        for index, _, _ in waiting:
            k = kernels[index]
            names[index] = self.fingerprints.subgraph(k.computation, k.inputs, k.instructions, k.outputs)
        while waiting:
            nests, extents = [space.nest for _, space, _ in waiting], [tile for _, _, tile in waiting]
            measured = self.device.measure_kernels(nests, extents, [names[index] for index, _, _ in waiting])
            refused = []
            for number, (index, space, tile) in enumerate(waiting):
                if not measured.failed[number]:
                    costs_ns[index] = float(measured.runtime_ns[number])
                elif (smaller := space.smaller(tile)) is not None:
                    refused.append((index, space, smaller))
            waiting = refused
        return costs_ns
