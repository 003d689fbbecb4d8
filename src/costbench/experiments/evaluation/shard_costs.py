"""Costs of the kernels of a feature shard, by trained networks and by fitted baselines."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from costbench.arrays import F64, I64
from costbench.baselines import BASELINES
from costbench.experiments.evaluation.program import Checkpoint, ModelKey, ProgramTask
from costbench.experiments.grid.cells import MAIN
from costbench.features.feature_shards import FeatureShard
from costbench.features.roofline import read_roofline
from costbench.models.baselines.fitting import classes_of, load_baselines, predict_program

_KERNELS, _ROWS = 256, 32_768
"""Largest number of kernels, and of (node, decision) pairs, per pass: those stay in the caches."""


def network_costs(shard: FeatureShard, checkpoint: Checkpoint) -> tuple[F64, str]:
    """Returns the costs of all decisions of all kernels, and what computed them.

    Features were computed once for all networks; kernels share network passes.

    Returns:
        float64 [D], the decisions of a kernel one after another; `compiled` or `plain`.

    Raises:
        DataError: for a damaged checkpoint, or costs that are not finite.
    """
    # torch takes a second to import.
    from costbench.models.checkpoint import load_checkpoint
    from costbench.models.execution import device_of

    model = load_checkpoint(checkpoint.folder, device=device_of(checkpoint.accelerator))
    spec = model.net.spec
    estimated = shard.with_estimate(spec.estimate, spec.features)
    roofline = read_roofline(checkpoint.folder)
    columns, decisions = estimated.with_roofline(roofline).columns, shard.num_configs()
    costs = [
        model.predict_packed(
            columns.pack(np.arange(first, last), [np.arange(count) for count in decisions[first:last]])
        )
        for first, last in _passes(shard.num_nodes(), decisions)
    ]
    return np.concatenate([np.empty(0), *costs]), model.net.computed_by or ""


def _passes(nodes: I64, decisions: I64) -> Iterator[tuple[int, int]]:
    """Yields the first kernel of each pass and the one behind its last; decisions are padded to the most."""
    first = 0
    while first < len(nodes):
        rows = np.cumsum(nodes[first : first + _KERNELS]) * np.maximum.accumulate(
            decisions[first : first + _KERNELS]
        )
        last = first + max(1, int(np.searchsorted(rows, _ROWS, side="right")))
        yield first, last
        first = last


def fitted_costs(program: ProgramTask, task: str, shard: FeatureShard) -> dict[ModelKey, list[F64]]:
    """Returns the costs of the decisions of each kernel of a shard, in order, by model; float64 [n] each.

    The variant of a model that was fitted to estimates of a further quality is that quality, and that of
    boosted trees of a budget is the budget.

    Args:
        program: program that names the models; those that are no fitted baselines are passed over.
        task: name of the task.
        shard: features of the program. Those of an imported one hold no analytical estimates, so models that
            read estimates are passed over.

    Raises:
        DataError: for a damaged shard or model.
    """
    can_read = {name: not (program.imported and BASELINES[name].reads_estimate) for name in classes_of(task)}
    known = [name for name, readable in can_read.items() if readable]
    available = [name for name in program.models if name in known]
    fitted = {} if program.fitted is None else {(MAIN, 0, ""): (program.fitted, available)}
    estimating = [name for name in available if BASELINES[name].reads_estimate]
    fitted |= {(quality, 0, quality): (folder, estimating) for quality, folder in program.fitted_to.items()}
    boosted = [name for name in known if BASELINES[name].is_boosted]
    fitted |= {(*budget, ""): (folder, boosted) for budget, folder in program.fitted_with.items()}
    ends = np.cumsum(shard.num_configs())[:-1]
    costs_of: dict[ModelKey, list[F64]] = {}
    for (variant, seed, quality), (folder, names) in fitted.items():
        if not names:
            continue
        estimated = (shard.with_estimate(quality) if quality else shard).with_roofline(read_roofline(folder))
        for name, costs in predict_program(load_baselines(folder, task, names), estimated).items():
            costs_of[name, variant, seed] = np.split(costs, ends)
    return costs_of
