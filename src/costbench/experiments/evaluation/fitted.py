"""Costs that the fitted baselines predict for the kernels of a test program."""

from __future__ import annotations

import numpy as np

from costbench.arrays import F64
from costbench.experiments.evaluation.program import ProgramTask
from costbench.features.feature_shards import FeatureShard
from costbench.models.baselines.fitting import BASELINES, predict_program
from costbench.models.baselines.storage import load_baselines


def fitted_costs(program: ProgramTask, task: str, shard: FeatureShard) -> dict[str, list[F64]]:
    """Return the costs of the decisions of each kernel of a shard, in order, by model; float64 [n] each.

    Args:
        program: names the models; those that are no baselines of the task are passed over.
        task: by name.
        shard: features of the program.

    Raises:
        DataError: for a damaged shard or model.
    """
    names = [name for name in program.models if name in BASELINES[task]]
    if program.fitted is None or not names:
        return {}
    models = load_baselines(program.fitted, task, names)
    ends = np.cumsum(shard.num_configs())[:-1]
    return {name: np.split(costs, ends) for name, costs in predict_program(models, shard).items()}
