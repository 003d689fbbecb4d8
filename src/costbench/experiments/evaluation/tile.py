"""Evaluates cost models on a program's tile-size task: every model ranks the tile sizes of each kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from costbench.compiler.analytical.model import AnalyticalModel
from costbench.datasets.tile.kernels import CompiledPrograms, TileShard, shard_path
from costbench.errors import DataError
from costbench.experiments.evaluation.cost_models import COST_MODELS, ModelSources
from costbench.experiments.evaluation.fitted import fitted_costs
from costbench.experiments.evaluation.kernel_kinds import kernel_kind
from costbench.experiments.evaluation.program import ModelKey, ProgramResult, ProgramTask
from costbench.experiments.evaluation.scoring import BEST, EvaluatedKernel, Predict, evaluate_program
from costbench.experiments.grid.spec import MAIN
from costbench.features.feature_shards import FeatureShard, feature_path
from costbench.target import Architecture, load_target

if TYPE_CHECKING:
    from costbench.models.learned import LearnedCostNet

FloatArray = npt.NDArray[np.float64]


def evaluate_tiles(task: ProgramTask) -> ProgramResult:
    """Evaluates all models on one program.

    Raises:
        DataError: for a damaged shard or checkpoint, or a model that returns costs that are not finite.
    """
    target = load_target(task.chip)
    path = shard_path(task.data, task.chip, task.program)
    shard = TileShard(path, CompiledPrograms(task.data, 1), target.architecture)
    models, networks = _models(task, target.architecture)
    fitted = {(name, MAIN, 0): costs for name, costs in _fitted(task, shard).items()}
    by_name = {"/".join(map(str, key)): costs for key, costs in fitted.items()}
    kernels = (
        _evaluated(shard, index, task, {name: costs[index] for name, costs in by_name.items()})
        for index in range(len(shard))
    )
    named = {"/".join(map(str, key)): predict for key, predict in models.items()}
    found = evaluate_program(kernels, named, task.params.top_k, f"{task.program} on {task.chip}")
    keys = {"/".join(map(str, key)): key for key in (*models, *fitted)} | {BEST: (BEST, MAIN, 0)}
    return ProgramResult(
        shard.application,
        {group: {keys[name]: value for name, value in by.items()} for group, by in found.items()},
        computed_by={key: network.computed_by or "" for key, network in networks.items()},
    )


def _fitted(task: ProgramTask, shard: TileShard) -> dict[str, list[FloatArray]]:
    """Returns the costs that fitted baselines predict for the kernels of a shard, from their features.

    Raises:
        DataError: for features of other kernels, or a damaged model.
    """
    features = FeatureShard(feature_path(task.features, "tile", task.chip, task.program))
    if features.fingerprints() != shard.fingerprints() or not np.array_equal(
        features.num_configs(), shard.num_configs()
    ):
        raise DataError("features of other kernels", where=features.path, expected=f"those of {shard.path}")
    return fitted_costs(task, "tile", features)


def _evaluated(
    shard: TileShard, index: int, task: ProgramTask, costs: Mapping[str, FloatArray]
) -> EvaluatedKernel:
    measured = shard.kernel(index)
    groups = (kernel_kind(measured.kernel), *task.groups(measured.fingerprint))
    return EvaluatedKernel(
        measured.kernel, measured.tile_sizes, measured.runtime_ns, measured.runs, groups, costs
    )


def _models(
    task: ProgramTask, architecture: Architecture
) -> tuple[dict[ModelKey, Predict], dict[ModelKey, LearnedCostNet]]:
    """Returns the prediction functions of all models, and the networks of the trained ones."""
    sources = ModelSources(architecture, task.params.random_seeds)
    found: dict[ModelKey, Predict] = {}
    networks: dict[ModelKey, LearnedCostNet] = {}
    if task.checkpoints:
        # torch takes a second to import.
        from costbench.models.checkpoint import load_checkpoint
        from costbench.models.execution import device_of

        analytical = AnalyticalModel(architecture)
        for one in task.checkpoints:
            key = one.model, one.variant, one.seed
            device = device_of(one.accelerator)
            model = load_checkpoint(one.folder, analytical=analytical, device=device)
            found[key], networks[key] = model.predict, model.net
    for name in (one for one in task.models if one in COST_MODELS):
        for seed, predict in COST_MODELS[name](sources).items():
            found[name, MAIN, seed] = predict
    return found, networks
