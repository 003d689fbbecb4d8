"""Stage `train`: trains the cost models of an experiment, one cell per split, chip, variant and seed.

An experiment with `baselines: true` has its baselines fitted here as well, once per split and chip.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from costbench import rng
from costbench.datasets.splits import TrainingPrograms, read_training_programs
from costbench.execution.workers import NO_FLAGS, BackendFlags
from costbench.experiments.grid.baseline_fit import (
    BaselineTask,
    FittedBaselines,
    baselines_folder,
    fit_baselines,
    fit_item,
)
from costbench.experiments.grid.cells import Cell, selected
from costbench.experiments.grid.experiment import Experiment, load_experiment
from costbench.experiments.grid.kernel_training import KernelTraining
from costbench.experiments.grid.layout_training import LayoutTraining
from costbench.experiments.grid.parent_run import cell_tracking, nest_cells, tracked_grid
from costbench.experiments.grid.training_run import (
    CellResult,
    CellTask,
    Tracking,
    Training,
    train_cell,
    train_item,
)
from costbench.experiments.identity import (
    StageIdentity,
    code_digest,
    git_revision,
    identify,
    read_identity,
    write_identity,
)
from costbench.experiments.imported_samples import ImportedSamples, open_imported_samples
from costbench.experiments.parameter_file import load_params
from costbench.experiments.stages.entry import shared_database
from costbench.experiments.tracking.runs import Provenance, tracking_uri
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.experiments.writer import machine
from costbench.features.feature_shards import sample_paths
from costbench.models.baselines.spec import BaselineParams
from costbench.store import Progress, WorkItem, compute, remove_outdated
from costbench.tasks import LEARNED
from costbench.training.spec import TrainParams

_log = logging.getLogger(__name__)
_EXPERIMENT = "costbench/train"
TRAININGS: Mapping[str, Training] = {"kernel": KernelTraining(), "program": LayoutTraining()}
"""How models are trained, by what a sample of their task is of.

Cells carry their entry and do not look it up, so that the code which trains the models of one kind is no part
of what those of the other follow from.
"""
_SLOW: Mapping[str, int] = {"transformer": 2, "lstm": 1}
"""Ranks of reductions by the cost of a training step; 0 for those not listed."""


def run(params: Path, experiment: str | None = None, flags: BackendFlags = NO_FLAGS) -> None:
    """Trains the cells that are missing, and remove those that the parameters no longer ask for.

    Args:
        params: the parameter file.
        experiment: entry of section `experiments`; None trains all of them, one after another.
        flags: choice of the backend on which the cells are trained.

    Raises:
        CostbenchError: for wrong parameters, stages that have not finished, damaged shards.
    """
    profile = load_params(params)
    workspace = load_workspace(profile, flags)
    section = profile.section("train", TrainParams)
    for name in selected(profile, experiment):
        experiment_alone = load_experiment(profile, name)
        imported = open_imported_samples(experiment_alone, workspace)
        before = ["split", "features"] if imported is None else []
        before += [] if experiment_alone.grid.follows == "features" else [experiment_alone.grid.follows]
        identities = tuple(read_identity(workspace.stage(stage)) for stage in before)
        loaded = load_experiment(profile, name, workspace.stage("sweep"))
        baselines = profile.section("baselines", BaselineParams) if loaded.grid.baselines else None
        _train_experiment(loaded, section, baselines, _Samples(workspace, imported), identities)


def _train_experiment(
    experiment: Experiment,
    section: TrainParams,
    baselines: BaselineParams | None,
    samples: _Samples,
    before: tuple[StageIdentity, ...],
) -> None:
    settings = experiment if baselines is None else _WithBaselines(experiment, baselines)
    workspace, imported = samples.workspace, samples.imported
    data = before[0].data_digest if imported is None else imported.digest()
    identity = identify(__name__, settings, data, *before)
    folder = workspace.stage("train") / experiment.name
    fits = [] if baselines is None else _fits(experiment, baselines, samples)
    wanted = [item.task.folder for item in fits] + [folder / cell.name for cell in experiment.cells]
    remove_outdated(folder, wanted)
    compute(fit_item, FittedBaselines, fits, workspace.backend, "sets of baselines", _log_fit)
    revision = git_revision(workspace.root)
    provenance = Provenance(identity.params_digest, identity.data_digest, revision)
    run_name = f"{workspace.name}/{experiment.name}"
    uri = shared_database(tracking_uri(), workspace.backend, "MLFLOW_TRACKING_URI")
    tracking = Tracking(uri, _EXPERIMENT, run_name, {"profile": workspace.name})

    # The run is created in this process: workers that create tables at the same time would collide.
    with tracked_grid(tracking, experiment, provenance) as (grid, cell_tracking_to):
        made = _Made(experiment, section.cache_mb, samples, provenance, cell_tracking_to)
        tasks = {task.cell.name: task for task in longest_first(map(made.task, experiment.cells))}
        items = [WorkItem(name, task, task.entry) for name, task in tasks.items()]
        results = compute(train_item, CellResult, items, workspace.backend, "cells to train", _log_cell)
        nest_cells(grid, tasks, results)
    write_identity(folder, identity)


@dataclass(frozen=True)
class _Samples:
    """The samples of an experiment: those of a workspace's stages, or imported ones if there are any."""

    workspace: Workspace
    imported: ImportedSamples | None

    @property
    def features(self) -> Path:
        """Returns the folder of the feature shards."""
        return self.workspace.stage("features") if self.imported is None else self.imported.features

    @cached_property
    def own_programs(self) -> TrainingPrograms | None:
        """Returns the programs of imported samples, made ready to be read; None where there are none."""
        return None if self.imported is None else self.imported.training_programs()

    def programs(self, split: str, task: str, chip: str) -> TrainingPrograms:
        """Returns the programs of a split that have samples."""
        found = self.own_programs
        if found is None:
            found = read_training_programs(self.workspace.stage("split") / f"{split}.json")
        return with_samples(found, self.features, task, chip)


@dataclass(frozen=True)
class _WithBaselines:
    """What the folder of an experiment with baselines depends on."""

    experiment: Experiment
    baselines: BaselineParams


def _fits(
    experiment: Experiment, baselines: BaselineParams, samples: _Samples
) -> list[WorkItem[BaselineTask]]:
    """Returns the fits of an experiment's baselines."""
    features, task = samples.features, experiment.grid.task
    folder, code = samples.workspace.stage("train") / experiment.name, code_digest(fit_baselines)
    fits = []
    spec = baselines.of_task(task)
    for name, chip in sorted({(cell.split, cell.chip) for cell in experiment.cells}):
        split = samples.programs(name, task, chip)
        for quality in ("", *experiment.grid.estimates):
            path = baselines_folder(folder, name, chip, quality)
            work = BaselineTask(task, chip, features, split, spec, baselines.seed, path, code, quality)
            fits.append(WorkItem(path.name, work, work.entry))
    return fits


def _log_fit(progress: Progress[FittedBaselines]) -> None:
    _log.info("%s: %s", progress.name, ", ".join(progress.result.models))


def _log_cell(progress: Progress[CellResult]) -> None:
    result = progress.result
    _log.info(
        "[%d/%d] %s: best %.4f after epoch %d",
        progress.done, progress.total, progress.name, result.best_metric, result.best_epoch + 1,
    )  # fmt: skip


@dataclass(frozen=True)
class _Made:
    """Settings and inputs that the cells of an experiment share."""

    experiment: Experiment
    cache_mb: int
    samples: _Samples
    provenance: Provenance
    tracking: Tracking

    def task(self, cell: Cell) -> CellTask:
        """Returns the training task of one cell."""
        workspace = self.samples.workspace
        variant = self.experiment.variants[cell.variant]
        split = self.samples.programs(cell.split, cell.task, cell.chip)
        folder = workspace.stage("train") / self.experiment.name / cell.name
        return CellTask(
            cell=cell,
            training=training_of(cell.task),
            features=self.samples.features,
            split=replace(split, train=share_of(split, variant.share, cell.seed)),
            spec=variant.spec,
            folder=folder,
            code=code_digest(train_cell, type(training_of(cell.task))),
            cache_mb=self.cache_mb,
            provenance=self.provenance,
            tracking=cell_tracking(self.tracking, cell.name, str(folder), machine()),
            progress=workspace.backend.in_this_process and sys.stderr.isatty(),
            cells=workspace.stage("train"),
            timing=workspace.stage("machine") / "train" / self.experiment.name / f"{cell.name}.json",
        )


def training_of(task: str) -> Training:
    """Returns how the models of a task are trained."""
    return TRAININGS[LEARNED[task].samples]


def longest_first(tasks: Iterable[CellTask]) -> list[CellTask]:
    """Sorts cells by samples, reduction and name, longest first, so that processes end close together."""

    def sort_key(task: CellTask) -> tuple[int, int, str]:
        spec = task.spec
        samples = spec.epochs * spec.steps_per_epoch * math.prod(spec.per_step)
        return -samples, -_SLOW.get(spec.net.tags["reduction"], 0), task.cell.name

    return sorted(tasks, key=sort_key)


def with_samples(split: TrainingPrograms, features: Path, task: str, chip: str) -> TrainingPrograms:
    """Returns the programs that have samples; some are above a task's size limit, for example."""

    def measured(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if sample_paths(features, task, chip, name))

    return TrainingPrograms(measured(split.train), measured(split.validation))


def share_of(split: TrainingPrograms, share: float, seed: int) -> tuple[str, ...]:
    """Returns a share of the training programs, rounded up; smaller shares are subsets for the same seed."""
    names = sorted(split.train)
    order = rng.stream(seed, "share of training programs").permutation(len(names))
    return tuple(sorted(names[place] for place in order[: math.ceil(share * len(names))]))
