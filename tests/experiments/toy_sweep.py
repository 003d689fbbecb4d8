"""A sweep whose training is a formula: what the database, the sampler and the pruner make of it is real."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from math import log10
from multiprocessing.process import BaseProcess
from pathlib import Path

from costbench.datasets.splits import TrainingPrograms
from costbench.experiments.grid.cells import Cell
from costbench.experiments.grid.training_run import CellResult, CellTask, OnEpoch, Tracking
from costbench.experiments.stages.train import TRAININGS
from costbench.experiments.sweeps.space import Range, resolve
from costbench.experiments.sweeps.study import PrunerSpec, StorageSpec, StudySpec
from costbench.experiments.sweeps.sweep import SweepTask, TrainTrial, work
from costbench.experiments.tracking.runs import Provenance
from costbench.training.spec import BatchSpec, TrainSpec
from tests.forked import start

EPOCHS = 3
METRIC = "validation/tau"
RANGES: Mapping[str, Range] = {
    "net.encoder": Range(choices=("none", "graphsage")),
    "net.max_neighbors": Range(low=1, high=20, when={"net.encoder": ("graphsage",)}),
    "optimizer.learning_rate": Range(low=1e-5, high=1e-1, log=True),
}
IDENTITY = {"space": "a", "data": "b"}


def toy_task(url: str, folder: Path, trials: int = 6, *, keep_percent: float = 100.0) -> SweepTask:
    """A sweep of `RANGES` in the database `url`."""
    model = TrainSpec(batch=BatchSpec(per_epoch=10), epochs=EPOCHS)
    study = StudySpec(
        name="toy",
        storage=StorageSpec(url, heartbeat_s=1),
        larger_is_better=True,
        identity=IDENTITY,
        trials=trials,
        seed=7,
        startup_trials=3,
        pruner=PrunerSpec(keep_percent, startup_trials=2),
    )
    cell = CellTask(
        cell=Cell("tile", "random", "tpu_v2", "sweep", 7),
        training=TRAININGS["kernel"],
        features=folder,
        split=TrainingPrograms(("a",), ("b",)),
        spec=model,
        folder=folder / "trials",
        code="code",
        cache_mb=1,
        provenance=Provenance("p", "d", "r"),
        tracking=Tracking("unused", "unused", "", {"profile": "toy"}),
    )
    return SweepTask(study, resolve(RANGES, model, "params.yaml", "space"), cell, METRIC)


def metric_after(cell: CellTask, epochs: int) -> float:
    """Grows with the epochs, and is the larger the nearer the learning rate is to 0.001."""
    return epochs / EPOCHS - abs(log10(cell.spec.optimizer.learning_rate) + 3.0) / 4.0


def toy_training(seconds_per_epoch: float = 0.0) -> TrainTrial:
    """Leaves a folder as training does, and the process's number of trials in `begun` beside it."""

    def train(cell: CellTask, on_epoch: OnEpoch) -> CellResult:
        cell.folder.mkdir(parents=True, exist_ok=True)
        for epoch in range(1, EPOCHS + 1):
            time.sleep(seconds_per_epoch)
            on_epoch({METRIC: metric_after(cell, epoch)}, 10 * epoch)
        return CellResult("key", metric_after(cell, EPOCHS), EPOCHS - 1, 10 * EPOCHS, "toy")

    return train


def start_worker(url: str, folder: Path, trials: int, seconds_per_epoch: float) -> BaseProcess:
    """A worker in a process of its own."""
    return start(_work, url, folder, trials, seconds_per_epoch)


def _work(url: str, folder: Path, trials: int, seconds_per_epoch: float) -> None:
    work(toy_task(url, folder, trials), toy_training(seconds_per_epoch))


def renamed(task: SweepTask, **identity: str) -> SweepTask:
    """The same study name, made from something else."""
    return replace(task, study=replace(task.study, identity={**task.study.identity, **identity}))
