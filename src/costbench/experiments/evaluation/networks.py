"""Costs that trained networks predict for the kernels of a test program, from its feature shard.

Features were computed once for all networks; kernels share network passes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from costbench.arrays import F64, I64
from costbench.experiments.evaluation.program import Checkpoint
from costbench.features.feature_shards import FeatureShard

_KERNELS, _ROWS = 256, 32_768
"""Largest number of kernels, and of (node, decision) pairs, per pass: those stay in the caches."""


def network_costs(shard: FeatureShard, checkpoint: Checkpoint) -> tuple[F64, str]:
    """Return the costs of all decisions of all kernels, and what computed them.

    Returns:
        float64 [D], the decisions of a kernel one after another; `compiled` or `plain`.

    Raises:
        DataError: for a damaged checkpoint, or costs that are not finite.
    """
    # torch takes a second to import.
    from costbench.models.checkpoint import load_checkpoint
    from costbench.models.execution import device_of

    model = load_checkpoint(checkpoint.folder, device=device_of(checkpoint.accelerator))
    columns, decisions = shard.columns, shard.num_configs()
    costs = [
        model.predict_packed(
            columns.pack(np.arange(first, last), [np.arange(count) for count in decisions[first:last]])
        )
        for first, last in _passes(shard.num_nodes(), decisions)
    ]
    return np.concatenate([np.empty(0), *costs]), model.net.computed_by or ""


def _passes(nodes: I64, decisions: I64) -> Iterator[tuple[int, int]]:
    """Yield the first kernel of each pass and the one behind its last; decisions are padded to the most."""
    first = 0
    while first < len(nodes):
        rows = np.cumsum(nodes[first : first + _KERNELS]) * np.maximum.accumulate(
            decisions[first : first + _KERNELS]
        )
        last = first + max(1, int(np.searchsorted(rows, _ROWS, side="right")))
        yield first, last
        first = last
