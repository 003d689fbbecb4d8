"""Stage `train`: the learned cost model, one cell per task, split, chip and seed."""

from __future__ import annotations

import logging
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from costbench.datasets.splits import read_split
from costbench.experiments.identity import (
    StageIdentity,
    code_digest,
    git_revision,
    identify,
    read_identity,
    write_identity,
)
from costbench.experiments.spec import Cell, grid
from costbench.experiments.stages.entry import start_logging
from costbench.experiments.sweep_best import best_path, read_best
from costbench.experiments.tracking import Provenance, prepare, tracking_uri
from costbench.experiments.training_run import CellResult, CellTask, Tracking, train_cell
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.params import load_section
from costbench.training.fit import TrainSpec
from costbench.workers import Backend, run_each

_log = logging.getLogger(__name__)
_EXPERIMENT = "costbench/train"
CODE = (
    "features", "training", "models", "metrics", "rng", "datasets/feature_columns", "datasets/storage",
    "experiments/training_run",
)  # fmt: skip


@dataclass(frozen=True)
class TrainParams:
    """Section `train`.

    Attributes:
        tasks: decisions to learn about.
        splits: of the stage `split`.
        chips: of the stage `features`, by name.
        seeds: one training run each.
        cache_mb: memory for kernels that are read again and again, per process.
        model: network, loss, batches and optimiser; its seed stays 0, for `seeds` say which.
        best: folder of the stage `sweep`, relative to the repository's root, whose best values of the task
            take the place of the model's; none where it is empty.
    """

    tasks: tuple[Literal["tile"], ...]
    splits: tuple[Literal["random", "manual"], ...]
    chips: tuple[str, ...]
    seeds: tuple[int, ...]
    cache_mb: int
    model: TrainSpec
    best: str = ""

    def __post_init__(self) -> None:
        for name in ("tasks", "splits", "chips", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be one or more different ones")
        if self.model.seed != 0:
            raise ValueError("model.seed is taken from seeds, and must be left out")


def run(params: Path) -> None:
    """Train the cells that are missing, and remove those that are not asked for.

    Raises:
        CostbenchError: for wrong parameters, stages that have not finished, damaged shards.
    """
    workspace = load_workspace(params)
    section = load_section(params, "train", TrainParams)
    split, features = (read_identity(workspace.stage(name)) for name in ("split", "features"))
    swept = [read_identity(workspace.root / section.best)] if section.best else []
    identity = identify(section, split.data_digest, split, features, *swept)
    cells = grid(section.tasks, section.splits, section.chips, section.seeds)
    folder = workspace.stage("train")
    for stale in sorted(folder.iterdir()) if folder.is_dir() else ():
        if stale.is_dir() and stale.name not in {cell.name for cell in cells}:
            shutil.rmtree(stale)
    # Once, in this process: two workers that create the tables at the same time would collide.
    prepare(tracking_uri(), _EXPERIMENT)
    tasks = {cell.name: _task(cell, section, workspace, identity) for cell in cells}

    def progress(name: str, result: CellResult) -> None:
        _log.info("%s: best %.4f after epoch %d", name, result.best_metric, result.best_epoch + 1)

    run_each(_train, tasks, Backend(jobs=workspace.jobs), progress)
    write_identity(folder, identity)


def _train(task: CellTask) -> CellResult:
    start_logging()  # in a worker process nobody has
    return train_cell(task)


def _task(cell: Cell, section: TrainParams, workspace: Workspace, identity: StageIdentity) -> CellTask:
    run_name = f"{workspace.name}/{cell.name}"
    spec = section.model
    if section.best:
        spec = read_best(best_path(workspace.root / section.best, cell.task), spec)
    return CellTask(
        cell=cell,
        features=workspace.stage("features"),
        split=read_split(workspace.stage("split") / f"{cell.split}.json"),
        spec=spec,
        folder=workspace.stage("train") / cell.name,
        code=code_digest(CODE),
        cache_mb=section.cache_mb,
        provenance=Provenance(identity.params_digest, identity.data_digest, git_revision(workspace.root)),
        tracking=Tracking(tracking_uri(), _EXPERIMENT, run_name),
        progress=workspace.jobs == 1 and sys.stderr.isatty(),
    )
