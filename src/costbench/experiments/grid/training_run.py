"""Trains one cell of the grid, the model of a task, split, chip, variant and seed, and tracks its run.

A cell is an entry of the store, whose note is `done.json` in its folder. A complete cell with the same
parameters, data and code is not trained again; a killed one is resumed after its last epoch. A cell whose
training is that of a complete cell of any experiment takes over its files.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol

import pandas as pd

from costbench.artifacts import check_sealed, digest_file, digest_files, write_json
from costbench.datasets.splits import TrainingPrograms
from costbench.datasets.storage import Shard
from costbench.execution.workers import load
from costbench.experiments.grid.cells import Cell
from costbench.experiments.grid.history import History
from costbench.experiments.tracking.runs import FOLDER, KEY, Dataset, Provenance, TrackedRun, tracked_run
from costbench.features.feature_shards import paths_of_programs, read_paths
from costbench.params import digest
from costbench.store import Entry, KeyedResult, WorkItem
from costbench.training.spec import AnyTrainSpec, FitResult, PretrainedSpec

_log = logging.getLogger(__name__)
DONE = "done.json"
HISTORY = "history.csv"


@dataclass(frozen=True)
class Tracking:
    """Where a cell is tracked: server or database, experiment, the name of its run, and further tags."""

    uri: str
    experiment: str
    run_name: str
    tags: Mapping[str, str] = field(default_factory=dict)


class Samples(Protocol):
    """Opened samples that models are trained and validated on."""

    def fit(self, task: CellTask, spec: AnyTrainSpec, logger: EpochLogger) -> FitResult:
        """Trains and writes the best model to the cell's folder; a killed call goes on where it was."""
        ...


class Training(Protocol):
    """How the cells of a task are trained: a frozen value, since it travels to the processes that train."""

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that a process loads before it trains."""
        ...

    @property
    def model_files(self) -> tuple[str, ...]:
        """Names of the files that a checkpoint consists of, the description first."""
        ...

    def open(self, task: CellTask) -> Samples:
        """Returns the samples of a cell, which cells of equal data, split and chip may share.

        Raises:
            DataError: for missing or damaged shards.
        """
        ...


class EpochLogger(Protocol):
    """Receives the metrics of an epoch and the number of training steps so far."""

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None: ...


@dataclass(frozen=True)
class CellTask:
    """One cell to train.

    Attributes:
        cell: name and seed of the cell.
        training: training of the models of its task.
        features: folder of the feature shards.
        split: the programs to train and to validate on; those to test on are unknown here.
        spec: settings of the training; its seed is the cell's.
        folder: folder of the cell.
        code: digest of the code that trains.
        cache_mb: memory for feature shards; where they need more, they are read from disk repeatedly.
        provenance: digests for tracking.
        tracking: place of the tracked run.
        progress: show a progress bar.
        cells: folder of the cells of all experiments, by experiment; those of the same training are reused.
        timing: file for the wall time of the call that finished the training, a fact of the machine; None to
            leave it.
    """

    cell: Cell
    training: Training
    features: Path
    split: TrainingPrograms
    spec: AnyTrainSpec
    folder: Path
    code: str
    cache_mb: int
    provenance: Provenance
    tracking: Tracking
    progress: bool = False
    cells: Path | None = None
    timing: Path | None = None

    @property
    def programs(self) -> tuple[str, ...]:
        """Returns the programs that are read, for training and for validation."""
        return (*self.split.train, *self.split.validation)

    @property
    def seeded(self) -> AnyTrainSpec:
        """Returns the settings with the cell's seed."""
        return replace(self.spec, seed=self.cell.seed)

    def shards(self, programs: Sequence[str]) -> list[Path]:
        """Returns the paths of the programs' feature shards, in order."""
        return paths_of_programs(self.features, self.cell.task, self.cell.chip, tuple(programs))

    @cached_property
    def data_digest(self) -> str:
        """Returns a digest of the feature shards and of which program is in which set."""
        shards = tuple(read_paths(self.shards(self.programs), self.spec.estimate, self.spec.features))
        times = tuple(path.stat().st_mtime_ns for path in shards if path.exists())
        files = _digest_shards(shards, times, self.features)
        sets = f"{','.join(self.split.train)};{','.join(self.split.validation)}"
        return hashlib.sha256(f"{files};{sets}".encode()).hexdigest()[:16]

    @property
    def pretrained(self) -> Path | None:
        """Returns the folder of the model that training starts from; None for drawn weights."""
        before: PretrainedSpec | None = getattr(self.spec, "pretrained", None)
        if before is None or self.cells is None:
            return None
        cell = replace(self.cell, chip=before.chip, variant=before.variant)
        return self.cells / before.experiment / cell.name

    def trained_from(self) -> str:
        """Returns a digest of everything that the trained model depends on.

        The names of experiment and variant are no part of it: random streams follow from the seed alone.

        Raises:
            DataError: if the model that training starts from is missing.
        """
        before: tuple[str, ...] = ()
        if self.pretrained is not None:
            check_sealed(self.pretrained / DONE)
            before = (digest_file(self.pretrained / DONE),)
        return _digest(self.cell.task, digest(self.seeded), self.data_digest, self.code, *before)

    def key(self) -> str:
        """Returns a digest of the cell's name and its training."""
        return _digest(self.cell.name, self.trained_from())

    @property
    def entry(self) -> Entry:
        """Returns where the store keeps the cell."""
        return Entry(self.folder / DONE, self.key(), None, self.trained_from(), self.cells)


@cache
def _digest_shards(shards: tuple[Path, ...], _times: tuple[int, ...], folder: Path) -> str:
    """Returns the digest of shards, which many cells of an experiment share; of changed ones, another."""
    return digest_files(shards, folder)


def _digest(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class CellResult(KeyedResult):
    """A finished cell, stored in its folder as `done.json`.

    Attributes:
        key: digest of its name and of everything that it was trained from.
        best_metric: the monitored validation metric of the best epoch, whose model is the result.
        best_epoch: the epoch of that model.
        steps: training steps done.
        execution: the GPU, or the number of threads and the matrix library, that it was trained with.
        kernels: number of kernels per step; of programs where these are the samples of the task.
        configs: largest number of decisions of each in a step.
        validations: number of validation passes.
        computed_by: implementation of the network, `compiled` kernels or the `plain` network; empty where
            there is one only.
    """

    best_metric: float
    best_epoch: int
    steps: int
    execution: str
    kernels: int = 0
    configs: int = 0
    validations: int = 0
    computed_by: str = ""


OnEpoch = Callable[[Mapping[str, float], int], None]
"""Called with the metrics of an epoch and the number of training steps so far."""


def train_cell(
    task: CellTask, *, samples: Samples | None = None, on_epoch: OnEpoch | None = None
) -> CellResult:
    """Trains a cell, unless it, or another cell of the same training, is already complete.

    Args:
        task: the cell.
        samples: opened samples of this cell or another one of the same data; opened here for None.
        on_epoch: called after every epoch; an exception from it ends the training (`RunStopped`: on purpose).

    Raises:
        DataError: for missing or damaged shards.
        DivergedError: for a loss that is no longer finite.
    """
    return task.entry.get(CellResult, lambda: _train(task, samples, on_epoch))


def train_item(item: WorkItem[CellTask]) -> CellResult:
    """Trains the cell of a work item, as `train_cell` does."""
    return train_cell(item.task)


def _train(task: CellTask, samples: Samples | None, on_epoch: OnEpoch | None) -> CellResult:
    # Torch and Lightning take seconds to import, so only a process that trains does.
    load(task.training.modules)
    samples = task.training.open(task) if samples is None else samples
    spec = task.seeded
    history = History(task.folder / HISTORY, spec.steps_per_epoch)
    with _track(task, spec, task.key()) as run:
        run.log_history(history.rows)  # of an earlier attempt that was killed
        result = samples.fit(task, spec, _EpochReport(task.tracking.run_name, history, run, on_epoch))
        _log_result(run, task, result.best_metric, result.best_epoch, result.steps)
        run.log_metrics({"seconds": result.seconds}, result.steps)
        run.set_tags({"computed_by": result.computed_by})
    if task.timing is not None:
        write_json(task.timing, {"seconds": round(result.seconds, 1)})
    kernels, configs = spec.per_step
    return CellResult(
        key=task.key(),
        best_metric=result.best_metric,
        best_epoch=result.best_epoch,
        steps=result.steps,
        execution=result.execution,
        kernels=kernels,
        configs=configs,
        validations=result.steps // spec.steps_per_epoch,
        computed_by=result.computed_by,
    )


def track_finished(task: CellTask, result: CellResult) -> None:
    """Logs a finished cell that the store has no run of, for example since the store is new."""
    spec = task.seeded
    with _track(task, spec, result.key) as run:
        run.log_history(History(task.folder / HISTORY, spec.steps_per_epoch).rows)
        _log_result(run, task, result.best_metric, result.best_epoch, result.steps)
        run.set_tags({"computed_by": result.computed_by})


def _log_result(run: TrackedRun, task: CellTask, best_metric: float, best_epoch: int, steps: int) -> None:
    run.log_metrics({"best_metric": best_metric, "best_epoch": float(best_epoch)}, steps)
    run.log_files([task.folder / HISTORY, task.folder / task.training.model_files[0]], "model")


class _EpochReport:
    """Writes an epoch's metrics to the file, then to the tracking server, and calls `on_epoch` last."""

    def __init__(self, name: str, history: History, run: TrackedRun, on_epoch: OnEpoch | None) -> None:
        self._name = name
        self._history = history
        self._run = run
        self._on_epoch = on_epoch
        # Logged by an earlier attempt: an epoch that is trained again has the same metrics.
        self._logged_steps = frozenset(step for step, _ in history.rows)

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        self._history.log_metrics(metrics, step)
        if step not in self._logged_steps:
            self._run.log_metrics(metrics, step)
        values = ", ".join(f"{name} {value:.4f}" for name, value in sorted(metrics.items()))
        _log.info("%s, step %d: %s", self._name, step, values)
        if self._on_epoch is not None:
            self._on_epoch(metrics, step)


@contextmanager
def _track(task: CellTask, spec: AnyTrainSpec, key: str) -> Iterator[TrackedRun]:
    tracking, cell = task.tracking, task.cell
    tags = {
        "task": cell.task,
        "split": cell.split,
        "chip": cell.chip,
        "variant": cell.variant,
        "seed": str(cell.seed),
        **spec.net.tags,
        "monitor": spec.monitor,
        FOLDER: str(task.folder),
        KEY: key,
        **tracking.tags,
    }
    with tracked_run(tracking.uri, tracking.experiment, tracking.run_name, task.provenance, tags) as run:
        run.log_params({"cell": asdict(cell), "model": asdict(spec)})
        if run.uri:
            sets = {"training": task.split.train, "validation": task.split.validation}
            run.log_datasets([_dataset(task, role, programs) for role, programs in sets.items()])
        yield run


def _dataset(task: CellTask, role: str, programs: Sequence[str]) -> Dataset:
    """Returns a set of programs as tracking describes it, by a table with one row per program."""
    rows = []
    for name in programs:
        shards = [Shard.open(path) for path in task.shards([name])]
        rows.append(
            {
                "program": name,
                "application": str(shards[0].metadata["application"]),
                "kernels": sum(shard.num_kernels for shard in shards),
                "samples": sum(shard.num_configs for shard in shards),
            }
        )
    contents = pd.DataFrame(rows, columns=["program", "application", "kernels", "samples"])
    return Dataset(f"{task.cell.task} {role}", task.data_digest, contents, task.features, role)
