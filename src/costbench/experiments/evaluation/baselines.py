"""Trivial baselines, a random ranking and an iteration count; a useful cost model must rank better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import LoopNest, loop_nest
from costbench.compiler.spaces import TileSizes
from costbench.hardware.noise import uniform
from costbench.hashing.splitmix64 import mix
from costbench.rng import stream_key


@dataclass(frozen=True)
class RandomModel:
    """A `CostModel` that draws costs from (0, 1): tau is 0 on average.

    The cost is a hash of kernel and tile size, so a decision has the same cost whichever other decisions are
    in the batch.

    Attributes:
        seed: of the hash; each seed gives another ranking.
    """

    seed: int

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Return the cost of each decision, float64 [n], uniform in (0, 1)."""
        start = stream_key(self.seed, "random model", kernel.fingerprint)
        key = np.full(len(decisions), start & (2**64 - 1), dtype=np.uint64)
        bounds = np.concatenate([decisions.kernel_bounds, decisions.output_bounds], axis=1)
        for column in bounds.T.astype(np.uint64):
            key = mix(key ^ column)
        result: F64 = uniform(mix(key))
        return result

    def predict_nest(self, nest: LoopNest, decisions: TileSizes) -> F64:
        """Does the same for a kernel that is already lowered."""
        return self.predict(nest.kernel, decisions)


@dataclass(frozen=True)
class IterationModel:
    """A `CostModel` whose cost is the number of iterations of the loop nest at a tile size.

    Among random tile sizes the count alone ranks well, because very small tiles are very slow; a useful model
    has to rank better than this.
    """

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Return the iterations of the loop nest, float64 [n]."""
        return self.predict_nest(loop_nest(kernel), decisions)

    def predict_nest(self, nest: LoopNest, decisions: TileSizes) -> F64:
        """Does the same for a kernel that is already lowered."""
        return nest.iterations(decisions).astype(np.float64)
