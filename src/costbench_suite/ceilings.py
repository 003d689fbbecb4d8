"""Ceilings: a second measurement of the same decisions as an entry, whose error is that of noise alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench.arrays import F64
from costbench.datasets.layout_graphs import open_layout_graph
from costbench.datasets.layout_shards import layout_shard_path
from costbench.datasets.measured_kernels import (
    CompiledPrograms,
    MeasuredKernels,
    fusion_parts,
    shard_path,
)
from costbench.datasets.storage import Shard
from costbench.errors import DataError
from costbench.experiments.evaluation.layout import collection_of, measure_again
from costbench.experiments.evaluation.unfitted import CEILINGS
from costbench.features.feature_shards import sample_paths
from costbench.target import load_target
from costbench_suite.predictions import Predictions, digest_costs
from costbench_suite.task_data import TaskData
from costbench_suite.tasks import CHIP

_AGAIN, _SEED = "measured_again", 0


def measured_again(data: TaskData, work: Path) -> Predictions:
    """Returns a second measurement of all decisions, as if a model had predicted it.

    Of machines that exist it is in the data. Simulated ones measure again, with other noise.

    Args:
        data: data of a task of predictions.
        work: folder of the shards that the data were made of; read for simulated machines alone.

    Raises:
        DataError: for damaged data or shards, or shards of other decisions.
    """
    costs = {}
    for program in data.programs.index:
        if data.task.second:
            # Decisions that failed count nowhere.
            values = data.decisions(program)[data.task.second].fillna(0.0).to_numpy(np.float64)
        elif data.task.name == "layout":
            values = _layouts_again(work, program)
        else:
            values = _kernels_again(work / "generate", data.task.name, program)
        expected = len(data.table("decisions", program, ("decision",)))
        if len(values) != expected:
            raise DataError(f"{len(values)} decisions of {program}", where=work, expected=str(expected))
        costs[program] = values
    by_seed = {_SEED: costs}
    return Predictions(by_seed, digest_costs(by_seed))


def _kernels_again(generated: Path, task: str, program: str) -> F64:
    target = load_target(CHIP)
    parts = (
        fusion_parts(generated, CHIP, program)
        if task == "fusion"
        else (Shard.open(shard_path(generated, CHIP, program)),)
    )
    kernels = MeasuredKernels(parts, CompiledPrograms(generated, 1), target.architecture)
    predict = CEILINGS[_AGAIN](target, (_SEED,))[_SEED]
    return np.concatenate(
        [predict(kernel.space.nest, kernel.tile_sizes) for kernel in map(kernels.kernel, range(len(kernels)))]
    )


def _layouts_again(work: Path, program: str) -> F64:
    """Returns the runs of all configs of a program, in the order of its collections."""
    runs = measure_again(layout_shard_path(work / "generate", CHIP, program), load_target(CHIP), (_SEED,))
    graphs = (open_layout_graph(path) for path in sample_paths(work / "features", "layout", CHIP, program))
    return np.concatenate([runs[collection_of(graph).rpartition(":")[2]][_SEED] for graph in graphs])
