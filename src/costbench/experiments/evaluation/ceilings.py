"""Rankings that mark what a cost model of tile sizes can reach at most: they know the machine.

They are no cost models, which must not reach the machine, and are listed apart from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from costbench.arrays import F64
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.spaces import TileSizes
from costbench.experiments.evaluation.cost_models import BySeed
from costbench.experiments.evaluation.scoring import Predict
from costbench.hardware.device import Device
from costbench.hardware.simulator import simulate_nest
from costbench.rng import stream_key
from costbench.target import Target


def _measured_again(target: Target, seeds: tuple[int, ...]) -> BySeed:
    """Returns one more measurement of the same tile sizes for each seed, with noise of its own.

    A measurement is the fastest of three runs, like that of the data set. Compiles never fail, as those of
    the measured tile sizes did not.
    """
    target = replace(target, timing=replace(target.timing, failure_rate=0.0))

    def measured_by(device: Device) -> Predict:
        def predict(nest: LoopNest, tile_sizes: TileSizes) -> F64:
            return device.measure_nest(nest, nest.extents(tile_sizes)).runtime_ns.astype(np.float64)

        return predict

    return {seed: measured_by(Device(target, stream_key(seed, "measured again"))) for seed in seeds}


def _regular_machine(target: Target, seeds: tuple[int, ...]) -> BySeed:
    """Returns the runtime without noise of the same machine without irregular generated code.

    It knows every rule of the machine but the factor of each structure of inner loops, which looks random
    (`costbench.hardware.noise`): a model without examples of a structure cannot know more.
    """
    del seeds
    timing = replace(target.timing, codegen_compute_sd=0.0, codegen_transfer_sd=0.0)
    regular = replace(target, timing=timing)

    def predict(nest: LoopNest, tile_sizes: TileSizes) -> F64:
        return simulate_nest(nest, nest.extents(tile_sizes), regular).runtime_ns

    return {0: predict}


CEILINGS: Mapping[str, Callable[[Target, tuple[int, ...]], BySeed]] = {
    "measured_again": _measured_again,
    "regular_machine": _regular_machine,
}
"""By name as in rows: builds one prediction function per seed."""
