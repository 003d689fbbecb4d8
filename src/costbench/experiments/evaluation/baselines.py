"""Cost models that know next to nothing: what any model has to beat before its tau means anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.tiling.sizes import TileSizes
from costbench.hardware.codegen import uniform
from costbench.hashing.splitmix64 import mix
from costbench.rng import stream_key

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RandomModel:
    """A `CostModel` that draws costs from (0, 1): tau is 0 on average.

    The draw is a hash of kernel and tile size, so a decision costs the same whichever others are asked
    for with it.

    Attributes:
        seed: another one is another ranking.
    """

    seed: int

    def predict(self, kernel: Kernel, decisions: TileSizes) -> FloatArray:
        """Cost of each decision, float64 [n], uniform in (0, 1)."""
        start = stream_key(self.seed, "random model", kernel.fingerprint)
        key = np.full(len(decisions), start & (2**64 - 1), dtype=np.uint64)
        bounds = np.concatenate([decisions.kernel_bounds, decisions.output_bounds], axis=1)
        for column in bounds.T.astype(np.uint64):
            key = mix(key ^ column)
        result: FloatArray = uniform(mix(key))
        return result


@dataclass(frozen=True)
class IterationModel:
    """A `CostModel` that sees only how many iterations a tile size leads to: fewer is better.

    Among random tile sizes the count alone ranks well, because tiny tiles are terrible; a model is worth
    something where it does better than this.
    """

    def predict(self, kernel: Kernel, decisions: TileSizes) -> FloatArray:
        """Iterations of the loop nest, float64 [n]."""
        return loop_nest(kernel).iterations(decisions).astype(np.float64)
