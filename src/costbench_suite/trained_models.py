"""Predictions of models that an experiment of costbench has trained on the suite's data."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from costbench.arrays import F64
from costbench.errors import DataError
from costbench.experiments.evaluation.fusion import scaled_estimates
from costbench.experiments.evaluation.layout import baseline_scores
from costbench.experiments.evaluation.program import EvaluateParams, ModelKey, ProgramTask
from costbench.experiments.evaluation.shard_costs import fitted_costs, network_costs
from costbench.experiments.grid.cells import MAIN
from costbench.experiments.grid.experiment import load_experiment
from costbench.experiments.parameter_file import load_params
from costbench.experiments.stages.evaluate import evaluation_tasks
from costbench.experiments.workspace import load_workspace
from costbench.features.feature_shards import FeatureShard, feature_path, paths_of_programs
from costbench.features.roofline import read_roofline
from costbench_suite.predictions import Predictions, digest_costs
from costbench_suite.task_data import TaskData

ANALYTICAL = "analytical"
"""The compiler's own estimate, as reports call it."""


def predict_experiment(params: Path, experiment: str, data: TaskData) -> dict[str, Predictions]:
    """Returns the predictions of all models of an experiment, by name: `MODEL`, or `MODEL@VARIANT`.

    These are the trained networks, the fitted baselines, and the estimate. Of networks the processor time of
    all predictions is known.

    Args:
        params: parameter file of the profile, such as `profiles/suite/params.yaml`.
        experiment: entry of section `experiments`, trained.
        data: data of the experiment's task.

    Raises:
        DataError: for an experiment of another task, or one that lacks trained models or some programs.
    """
    profile = load_params(params)
    workspace = load_workspace(profile)
    section = profile.section("evaluate", EvaluateParams)
    loaded = load_experiment(profile, experiment)
    if loaded.grid.task != data.task.learned:
        problem = f"is of the task {loaded.grid.task}"
        expected = data.task.learned or f"predictions of other models: costbench has none of {data.task.name}"
        raise DataError(problem, where=experiment, expected=expected)
    costs: dict[ModelKey, dict[str, F64]] = {}
    spent: dict[str, float] = defaultdict(float)
    predict = _PREDICT[data.task.learned]
    for task in evaluation_tasks(loaded, section, workspace).values():
        networks = {checkpoint.key for checkpoint in task.program.checkpoints}
        start = time.process_time()
        for key, values in predict(task.program, data.task.learned):
            costs.setdefault(key, {})[task.program.program] = values
            # Baselines are asked together.
            spent[_name(key)] += time.process_time() - start if key in networks else 0.0
            start = time.process_time()
    models: dict[str, dict[int, dict[str, F64]]] = {}
    for key, by_program in costs.items():
        missing = set(data.programs.index) - set(by_program)
        if missing:
            problem = f"no predictions of {len(missing)} programs by {_name(key)}"
            raise DataError(problem, where=experiment, expected="all folds")
        in_order = {program: by_program[program] for program in data.programs.index}
        models.setdefault(_name(key), {})[key[2]] = in_order
    return {
        name: Predictions(by_seed, digest_costs(by_seed), predict_s=spent[name] or None)
        for name, by_seed in models.items()
    }


def _name(key: ModelKey) -> str:
    """Returns the name of a model with its variant, whichever seed."""
    model, variant, _ = key
    return model if variant == MAIN else f"{model}@{variant}"


def _predict_kernels(program: ProgramTask, task: str) -> Iterator[tuple[ModelKey, F64]]:
    """Yields the costs of all decisions of a program's kernels by each model."""
    shard = FeatureShard(feature_path(program.features, task, program.chip, program.program))
    if shard.is_recorded and program.fitted is not None:
        shard = shard.with_roofline(read_roofline(program.fitted))
    for checkpoint in program.checkpoints:
        yield checkpoint.key, network_costs(shard, checkpoint)[0]
    for key, parts in fitted_costs(program, task, shard).items():
        yield key, np.concatenate(parts)
    if ANALYTICAL in program.models:
        yield (ANALYTICAL, MAIN, 0), _estimates(shard, task)


def _estimates(shard: FeatureShard, task: str) -> F64:
    """Returns the estimates of all decisions; those of fusions are scaled, 1 ns where no scale is known."""
    if task == "fusion":
        return np.nan_to_num(scaled_estimates(shard), nan=1.0)
    return np.concatenate([shard.analytical_ns(index) for index in range(len(shard))])


def _predict_layouts(program: ProgramTask, task: str) -> Iterator[tuple[ModelKey, F64]]:
    from costbench.datasets.layout_graphs import open_layout_graph
    from costbench.models.baselines.fitting import classes_of, load_baselines
    from costbench.models.layout.model import load_layout_model

    paths = paths_of_programs(program.features, task, program.chip, (program.program,))
    graphs = [open_layout_graph(path) for path in paths]
    for checkpoint in program.checkpoints:
        network = load_layout_model(checkpoint.folder)
        scores = [network.predict(graph, np.arange(graph.num_configs)) for graph in graphs]
        yield checkpoint.key, np.concatenate(scores)
    names = [name for name in program.models if name in classes_of(task)]
    fitted = load_baselines(program.fitted, task, names) if program.fitted is not None else {}
    parts: dict[ModelKey, list[F64]] = {}
    for graph in graphs:
        rows = np.arange(graph.num_configs)
        scores_of = baseline_scores(graph, rows, program.models, program.params.random_seeds, fitted)
        for key, of_graph in scores_of.items():
            parts.setdefault(key, []).append(of_graph)
    for key, of_graphs in parts.items():
        yield key, np.concatenate(of_graphs)


_PREDICT: Mapping[str, Callable[[ProgramTask, str], Iterator[tuple[ModelKey, F64]]]] = {
    "tile": _predict_kernels,
    "fusion": _predict_kernels,
    "layout": _predict_layouts,
}
