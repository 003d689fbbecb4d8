"""Evaluates cost models on imported tile kernels, of which there are features and no compiled programs.

The models are those that read features alone: trained networks, fitted baselines and random rankings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from costbench import rng
from costbench.arrays import F64
from costbench.datasets.storage import Shard
from costbench.errors import DataError
from costbench.experiments.evaluation.fitted import fitted_costs
from costbench.experiments.evaluation.networks import network_costs
from costbench.experiments.evaluation.program import ModelKey, ProgramResult, ProgramTask
from costbench.experiments.evaluation.scoring import ALL_KERNELS, BEST
from costbench.experiments.grid.spec import MAIN
from costbench.features.feature_shards import FeatureShard, feature_path
from costbench.metrics.measures import mean_without_nan
from costbench.metrics.ranking import PairCounts, count_pairs, tau_of
from costbench.metrics.tpugraphs import (
    TILE_TOP_K,
    OrderedPairs,
    mean_slowdown,
    pooled_accuracy,
    top_k_slowdown,
)

_TASK = "tile"
_RANDOM = "random"
_CORRECTS_ESTIMATES = "trees_analytical"
"""Not asked: the analytical estimates of imported kernels are constant."""


def evaluate_imported_tiles(task: ProgramTask) -> ProgramResult:
    """Return how well the models order the tile sizes of a program's kernels, over those with runtimes.

    Metrics are `kendall_tau`, a mean over kernels that have different runtimes, `opa` and `kernel_top_1`, 5
    and 10 (percent), as in `scoring.evaluate_program`; those that weigh kernels by executions are not
    defined, since the data set does not tell them. Groups are all kernels and those that training has not
    seen.

    Raises:
        DataError: for a damaged shard or checkpoint, a program without runtimes, costs that are not finite.
    """
    path = feature_path(task.features, _TASK, task.chip, task.program)
    shard = FeatureShard(path)
    labelled = Shard.open(path).metadata["labelled"]
    kernels = [index for index in range(len(shard)) if labelled[index]]
    if not kernels:
        raise DataError("no kernel has runtimes", where=path)
    costs, computed_by = _costs(task, shard)
    members = {ALL_KERNELS: kernels}
    for index in kernels:
        for group in task.groups(shard.fingerprint(index)):
            members.setdefault(group, []).append(index)
    runtimes = {index: shard.runtime_ns(index).astype(np.float64) for index in kernels}
    found: dict[str, dict[ModelKey, dict[str, float]]] = {}
    for group, indices in sorted(members.items()):
        true = [runtimes[index] for index in indices]
        found[group] = {key: tile_rows(true, [own[index] for index in indices]) for key, own in costs.items()}
        found[group][BEST, MAIN, 0] = {"kernels": float(len(indices))}
    return ProgramResult(shard.application, found, computed_by=computed_by)


def tile_rows(runtimes: Sequence[F64], costs: Sequence[F64]) -> dict[str, float]:
    """Return the metrics of a model over some kernels; one that is not defined is left out.

    Args:
        runtimes: of the tile sizes of each kernel, float64 [n], on a scale of the kernel's own.
        costs: float64 [n] each, lower is faster.

    Raises:
        DataError: if costs are of another number than runtimes, or not finite.
    """
    for true, cost in zip(runtimes, costs, strict=True):
        if cost.shape != true.shape or not np.isfinite(cost).all():
            expected = f"{len(true)} finite numbers"
            raise DataError(f"costs of shape {list(cost.shape)}", where="tile kernel", expected=expected)
    pairs = [count_pairs(cost, true) for true, cost in zip(runtimes, costs, strict=True)]
    values = {
        "kendall_tau": mean_without_nan([tau_of(one) for one in pairs]),
        "opa": pooled_accuracy(map(_ordered, pairs)),
    }
    for k in TILE_TOP_K:
        slowdowns = [top_k_slowdown(true, cost, k) for true, cost in zip(runtimes, costs, strict=True)]
        values[f"kernel_top_{k}"] = 100.0 * mean_slowdown(slowdowns)
    return {name: value for name, value in values.items() if not np.isnan(value)}


def _ordered(pairs: PairCounts) -> OrderedPairs:
    return OrderedPairs(pairs.concordant, pairs.total - pairs.tied_measured)


def _costs(
    task: ProgramTask, shard: FeatureShard
) -> tuple[Mapping[ModelKey, Sequence[F64]], dict[ModelKey, str]]:
    """Return the costs of each kernel's tile sizes by model, and what computed those of networks."""
    counts = shard.num_configs()
    ends = np.cumsum(counts)[:-1]
    costs: dict[ModelKey, Sequence[F64]] = {}
    computed_by: dict[ModelKey, str] = {}
    for one in task.checkpoints:
        key = one.model, one.variant, one.seed
        found, computed_by[key] = network_costs(shard, one)
        costs[key] = np.split(found, ends)
    asked = tuple(name for name in task.models if name != _CORRECTS_ESTIMATES)
    fitted = fitted_costs(replace(task, models=asked), _TASK, shard)
    costs |= {(name, MAIN, 0): own for name, own in fitted.items()}
    for seed in task.params.random_seeds if _RANDOM in task.models else ():
        costs[_RANDOM, MAIN, seed] = list(_random(shard, seed))
    return costs, computed_by


def _random(shard: FeatureShard, seed: int) -> Iterator[F64]:
    """Yield costs in [0, 1) of the tile sizes of each kernel, drawn by its fingerprint."""
    for index, count in enumerate(shard.num_configs()):
        yield rng.stream(seed, "random imported tiles", shard.fingerprint(index)).random(int(count))
