"""Evaluates cost models on a program's tile-size task: every model ranks the tile sizes of each kernel."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costbench.arrays import F64
from costbench.datasets.measured_kernels import CompiledPrograms, TileShard, shard_path
from costbench.errors import DataError
from costbench.experiments.chips import chip_of
from costbench.experiments.evaluation.ceilings import CEILINGS
from costbench.experiments.evaluation.cost_models import COST_MODELS, ModelSources, given_models
from costbench.experiments.evaluation.fitted import fitted_costs
from costbench.experiments.evaluation.kernel_kinds import kernel_kind
from costbench.experiments.evaluation.networks import network_costs
from costbench.experiments.evaluation.program import ModelKey, ProgramResult, ProgramTask
from costbench.experiments.evaluation.scoring import BEST, EvaluatedKernel, Predict, evaluate_program
from costbench.experiments.grid.spec import MAIN
from costbench.features.feature_shards import FeatureShard, feature_path
from costbench.target import Target


def evaluate_tiles(task: ProgramTask) -> ProgramResult:
    """Evaluates all models on one program.

    Raises:
        DataError: for a damaged shard or checkpoint, or a model that returns costs that are not finite.
    """
    target = chip_of(task.chip, task.chip_file)
    path = shard_path(task.data, task.chip, task.program)
    shard = TileShard(path, CompiledPrograms(task.data, 1), target.architecture)
    features = _features(task, shard)
    models = _models(task, target)
    learned, computed_by = _learned(task, features)
    asked = learned | {(name, MAIN, 0): costs for name, costs in fitted_costs(task, "tile", features).items()}
    by_name = {"/".join(map(str, key)): costs for key, costs in asked.items()}
    kernels = (
        _evaluated(shard, index, task, {name: costs[index] for name, costs in by_name.items()})
        for index in range(len(shard))
    )
    named = {"/".join(map(str, key)): predict for key, predict in models.items()}
    found = evaluate_program(kernels, named, task.params.top_k, f"{task.program} on {task.chip}")
    keys = {"/".join(map(str, key)): key for key in (*models, *asked)} | {BEST: (BEST, MAIN, 0)}
    return ProgramResult(
        shard.application,
        {group: {keys[name]: value for name, value in by.items()} for group, by in found.items()},
        computed_by=computed_by,
    )


def _features(task: ProgramTask, shard: TileShard) -> FeatureShard:
    """Returns the features of the kernels of a shard.

    Raises:
        DataError: for features of other kernels.
    """
    features = FeatureShard(feature_path(task.features, "tile", task.chip, task.program))
    if features.fingerprints() != shard.fingerprints() or not np.array_equal(
        features.num_configs(), shard.num_configs()
    ):
        raise DataError("features of other kernels", where=features.path, expected=f"those of {shard.path}")
    return features


def _evaluated(shard: TileShard, index: int, task: ProgramTask, costs: Mapping[str, F64]) -> EvaluatedKernel:
    measured = shard.kernel(index)
    groups = (kernel_kind(measured.kernel), *task.groups(measured.fingerprint))
    return EvaluatedKernel(
        measured.space.nest, measured.tile_sizes, measured.runtime_ns, measured.runs, groups, costs
    )


def _models(task: ProgramTask, target: Target) -> dict[ModelKey, Predict]:
    """Returns the prediction functions of the models that are neither trained nor fitted, and of ceilings."""
    seeds = task.params.random_seeds
    sources = ModelSources(target.architecture, seeds)
    found = {
        (name, MAIN, seed): predict
        for name in task.models
        if name in COST_MODELS
        for seed, predict in COST_MODELS[name](sources).items()
    }
    found |= {
        (name, MAIN, seed): predict
        for name in task.models
        if name in CEILINGS
        for seed, predict in CEILINGS[name](target, seeds).items()
    }
    given = given_models(task.models, "tile", target.architecture)
    return found | {(name, MAIN, 0): model.predict_nest for name, model in given.items()}


def _learned(
    task: ProgramTask, features: FeatureShard
) -> tuple[dict[ModelKey, list[F64]], dict[ModelKey, str]]:
    """Returns the costs of each kernel's tile sizes by the networks, and what computed them."""
    ends = np.cumsum(features.num_configs())[:-1]
    costs: dict[ModelKey, list[F64]] = {}
    computed_by: dict[ModelKey, str] = {}
    for one in task.checkpoints:
        key = one.model, one.variant, one.seed
        found, computed_by[key] = network_costs(features, one)
        costs[key] = np.split(found, ends)
    return costs, computed_by
