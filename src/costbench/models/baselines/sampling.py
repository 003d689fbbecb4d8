"""Draws the samples that baselines are fitted to, as evenly as the batches that networks are trained on.

Applications differ hundredfold in their number of kernels. Here each counts the same, and within it every
kernel, as in the balanced batches of `costbench.training.batches` (lpm2021, section 4, 'Imbalances'):
kernels are drawn without replacement, as many of each application as fit the budget, and count by
`KernelTable.kernel_weights`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from costbench import rng
from costbench.arrays import I64
from costbench.errors import DataError
from costbench.features.feature_shards import FeatureShard
from costbench.models.baselines.spec import SampleSpec
from costbench.models.baselines.table import KernelTable, chosen_tables


def sampled_kernels(
    paths: Sequence[Path], spec: SampleSpec, seed: int, *, min_configs: int = 1
) -> KernelTable:
    """Return `sampled_table` of the feature shards at some paths."""
    return sampled_table([FeatureShard(path) for path in paths], spec, seed, min_configs=min_configs)


def sampled_table(
    shards: Sequence[FeatureShard], spec: SampleSpec, seed: int, *, min_configs: int = 1
) -> KernelTable:
    """Return decisions of kernels that have a choice of tile sizes, drawn evenly from all applications.

    The analytical model was not made for kernels without a choice, and evaluation leaves them out.

    Args:
        shards: of some programs.
        spec: how many kernels and decisions.
        seed: of the draws; what is drawn from an application does not depend on other applications.
        min_configs: kernels with fewer decisions are left out (2 for a loss over pairs).

    Returns:
        Kernels in the order of the shards.

    Raises:
        DataError: for damaged shards, or if no kernel is left.
    """
    by_application: dict[str, list[tuple[int, int]]] = {}
    counts = [shard.num_configs() for shard in shards]
    for number, shard in enumerate(shards):
        usable = (shard.space_sizes() > 1) & (counts[number] >= min_configs)
        own = [(number, kernel) for kernel in np.flatnonzero(usable).tolist()]
        by_application.setdefault(shard.application, []).extend(own)
    by_application = {name: places for name, places in sorted(by_application.items()) if places}
    quota = quotas({name: len(places) for name, places in by_application.items()}, spec.kernels)
    drawn: list[list[int]] = [[] for _ in shards]
    for name, places in by_application.items():
        order = rng.stream(seed, "baseline kernels", name).permutation(len(places))[: quota[name]]
        for number, kernel in (places[place] for place in np.sort(order).tolist()):
            drawn[number].append(kernel)
    draw = rng.stream(seed, "baseline decisions")
    parts: list[KernelTable] = []
    applications = sorted(by_application)
    for number, (shard, chosen) in enumerate(zip(shards, drawn, strict=True)):
        if chosen:
            configs = [_choose(draw, int(counts[number][kernel]), spec.configs) for kernel in chosen]
            application = applications.index(shard.application)
            parts.extend(chosen_tables(shard, np.array(chosen, np.int64), configs, application))
    if not parts:
        raise DataError(
            f"none of {sum(map(len, shards))} kernels has {min_configs} or more decisions", field="kernels"
        )
    return KernelTable.joined(parts)


def quotas(available: Mapping[str, int], budget: int) -> dict[str, int]:
    """Return how many kernels to take of each application: all of small ones, equally many of the others.

    The number of the others is the largest with which the sum is at most `budget`, but at least 1.
    """
    left, quota = budget, dict.fromkeys(available, 0)
    for rank, (name, count) in enumerate(sorted(available.items(), key=lambda item: (item[1], item[0]))):
        quota[name] = max(1, min(count, left // (len(available) - rank)))
        left -= quota[name]
    return quota


def _choose(draw: np.random.Generator, available: int, wanted: int) -> I64:
    """Return `wanted` different positions below `available`, ascending; all if there are no more."""
    if available <= wanted:
        return np.arange(available)
    return np.sort(draw.choice(available, size=wanted, replace=False)).astype(np.int64)
