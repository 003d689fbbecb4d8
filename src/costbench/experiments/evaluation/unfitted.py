"""The baselines that nothing is fitted for, and ceilings: tables of functions by task, beside the functions.

A cost model that is worth its training ranks better than a random order or a count of iterations. Ceilings
mark what a cost model can reach at most: they know the machine, which a cost model must not.
What reports call each is in `costbench.baselines`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from costbench import rng
from costbench.arrays import F64
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import LoopNest, loop_nest
from costbench.compiler.spaces import TileSizes
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.execution.dotted import is_dotted
from costbench.hardware.device import Device
from costbench.hardware.noise import uniform
from costbench.hardware.simulator import simulate_nest
from costbench.hashing import mix
from costbench.models.baselines.layouts import changed_nodes
from costbench.models.user_model import UserModel, load_user_model
from costbench.target import Architecture, Target

Predict = Callable[[LoopNest, TileSizes], F64]
"""Predicts the costs of tile sizes of a lowered kernel."""
BySeed = dict[int, Predict]


@dataclass(frozen=True)
class RandomModel:
    """A `CostModel` that draws costs from (0, 1): tau is 0 on average.

    The cost is a hash of kernel and tile size, so a decision has the same cost whichever other decisions are
    in the batch.

    Attributes:
        seed: seed of the hash; each gives another ranking.
    """

    seed: int

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Returns the cost of each decision, float64 [n], uniform in (0, 1)."""
        start = rng.stream_key(self.seed, "random model", kernel.fingerprint)
        key = np.full(len(decisions), start & (2**64 - 1), dtype=np.uint64)
        bounds = np.concatenate([decisions.kernel_bounds, decisions.output_bounds], axis=1)
        for column in bounds.T.astype(np.uint64):
            key = mix(key ^ column)
        result: F64 = uniform(mix(key))
        return result

    def predict_nest(self, nest: LoopNest, decisions: TileSizes) -> F64:
        """Returns the same for a kernel that is already lowered."""
        return self.predict(nest.kernel, decisions)


@dataclass(frozen=True)
class IterationModel:
    """A `CostModel` whose cost is the number of iterations of the loop nest at a tile size.

    Among random tile sizes the count alone ranks well, because very small tiles are very slow; a useful model
    has to rank better than this.
    """

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Returns the iterations of the loop nest, float64 [n]."""
        return self.predict_nest(loop_nest(kernel), decisions)

    def predict_nest(self, nest: LoopNest, decisions: TileSizes) -> F64:
        """Returns the same for a kernel that is already lowered."""
        return nest.iterations(decisions).astype(np.float64)


def _measure_again(target: Target, seeds: tuple[int, ...]) -> BySeed:
    """Returns one more measurement of the same kernels at the same tile sizes for each seed.

    A measurement is the fastest of three runs, like that of the data set. Compiles never fail, as those of
    the measured tile sizes did not.
    """
    target = replace(target, timing=replace(target.timing, failure_rate=0.0))

    def by_device(device: Device) -> Predict:
        return lambda nest, tile_sizes: device.measure_nest(nest, nest.extents(tile_sizes)).runtime_ns.astype(
            np.float64
        )

    return {seed: by_device(Device(target, rng.stream_key(seed, "measured again"))) for seed in seeds}


def _simulate_regular_machine(target: Target, seeds: tuple[int, ...]) -> BySeed:
    """Returns the runtime without noise of the same machine without irregular generated code.

    It knows every rule of the machine but the factor of each structure of inner loops, which looks random
    (`costbench.hardware.noise`): a model without examples of a structure cannot know more.
    """
    del seeds
    timing = replace(target.timing, codegen_compute_sd=0.0, codegen_transfer_sd=0.0)
    regular = replace(target, timing=timing)
    return {0: lambda nest, sizes: simulate_nest(nest, nest.extents(sizes), regular).runtime_ns}


CEILINGS: Mapping[str, Callable[[Target, tuple[int, ...]], BySeed]] = {
    "measured_again": _measure_again,
    "regular_machine": _simulate_regular_machine,
}
"""Makes the ceilings of models that price kernels on a chip, one for each of the given seeds or one alone."""
TILE_MODELS: Mapping[str, Callable[[Target, tuple[int, ...]], BySeed]] = {
    "analytical": lambda target, seeds: {0: AnalyticalModel(target.architecture).predict_nest},
    "iterations": lambda target, seeds: {0: IterationModel().predict_nest},
    "random": lambda target, seeds: {seed: RandomModel(seed).predict_nest for seed in seeds},
    **CEILINGS,
}
"""Makes the prediction functions of a chip, one for each of the given seeds or one alone."""


def random_order(graph: LayoutGraph, seed: int) -> F64:
    """Returns costs of the configs drawn from (0, 1), float64 [c]: tau is 0 on average.

    Args:
        graph: the program and its configs.
        seed: seed of the draw; the same seed and program give the same order.
    """
    return rng.stream(seed, "random layout order", graph.collection, graph.name).random(graph.num_configs)


def default_first(graph: LayoutGraph) -> F64:
    """Returns how many nodes of each config leave the compiler's default layout, float64 [c].

    So the default comes first and what differs from it least comes next, which is what somebody does who
    trusts the compiler.
    """
    return changed_nodes(graph).astype(np.float64)


LAYOUT_ORDERS: Mapping[str, Callable[[LayoutGraph, tuple[int, ...]], dict[int, F64]]] = {
    "random": lambda graph, seeds: {seed: random_order(graph, seed) for seed in seeds},
    "default_first": lambda graph, seeds: {0: default_first(graph)},
}
"""Scores the configs of a program, for each of the given seeds or once."""


def load_user_models(names: Iterable[str], task: str, architecture: Architecture) -> dict[str, UserModel]:
    """Returns the user's own models among some names, as far as they are for a task.

    Raises:
        DataError: for one that cannot be loaded (see `load_user_model`).
    """
    models = {name: load_user_model(name, architecture) for name in names if is_dotted(name)}
    return {name: model for name, model in models.items() if task in model.tasks}
