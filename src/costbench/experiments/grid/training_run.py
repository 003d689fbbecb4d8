"""One cell of the grid: the learned model of a task, split, chip and seed, trained, tracked and kept.

A cell's folder is whole once it holds `done.json`, which names what it was trained from. A cell that is
there for the same parameters, data and code is not trained again; one that was killed goes on after its
last epoch.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from costbench.artifacts import digest_files, read_json, write_json
from costbench.datasets.splits import Split
from costbench.datasets.storage import Shard
from costbench.errors import DataError, ParamsError
from costbench.execution.process import load
from costbench.experiments.grid.history import History
from costbench.experiments.grid.spec import Cell
from costbench.experiments.tracking.record import Dataset, TrackedRun
from costbench.experiments.tracking.runs import FOLDER, KEY, Provenance, tracked_run
from costbench.features.feature_shards import feature_path
from costbench.params import digest, parse
from costbench.training.spec import TrainSpec

if TYPE_CHECKING:
    from costbench.training.fit import FitResult
    from costbench.training.kernel_source import KernelSource

_log = logging.getLogger(__name__)
DONE = "done.json"
_STARTED = "started.json"
HISTORY = "history.csv"
TIMING = "timing.json"
"""Wall time of the call that finished the cell."""


@dataclass(frozen=True)
class Tracking:
    """Where a cell is tracked: server or database, experiment, the name of its run, and tags of its own."""

    uri: str
    experiment: str
    run_name: str
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CellTask:
    """One cell to train.

    Attributes:
        cell: which.
        features: folder of the feature shards.
        split: programs by set.
        spec: what to train and how; its seed is the cell's.
        folder: of the cell.
        code: digest of the code that trains.
        cache_mb: memory for feature shards; where they need more, they are read from disk again and again.
        provenance: for tracking.
        tracking: where to.
        progress: show a progress bar.
    """

    cell: Cell
    features: Path
    split: Split
    spec: TrainSpec
    folder: Path
    code: str
    cache_mb: int
    provenance: Provenance
    tracking: Tracking
    progress: bool = False

    @property
    def programs(self) -> tuple[str, ...]:
        """Programs that are read: those trained and those validated on."""
        return (*self.split.train, *self.split.validation)

    def shards(self, programs: Sequence[str]) -> list[Path]:
        """Feature shards of programs, in order."""
        return [feature_path(self.features, self.cell.task, self.cell.chip, name) for name in programs]

    @cached_property
    def data_digest(self) -> str:
        """Identity of what is read: feature shards, and which program is in which set."""
        files = digest_files(self.shards(self.programs), self.features)
        sets = f"{','.join(self.split.train)};{','.join(self.split.validation)}"
        return hashlib.sha256(f"{files};{sets}".encode()).hexdigest()[:16]

    def key(self) -> str:
        """Identity of all that the trained model follows from."""
        parts = (self.cell.name, digest(self.spec), self.data_digest, self.code)
        return hashlib.sha256("/".join(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class CellResult:
    """A finished cell; lies in its folder as `done.json`.

    Attributes:
        key: what it was trained from.
        best_metric: the monitored validation metric of the model that was kept.
        best_epoch: the epoch it is of.
        steps: training steps done.
        execution: the GPU, or threads and matrix library, that it ran with.
        kernels: of a step.
        configs: decisions of a kernel in a step, at most.
        validations: how often it was validated.
        computed_by: what computed the network, `compiled` kernels or the `plain` network.
    """

    key: str
    best_metric: float
    best_epoch: int
    steps: int
    execution: str
    kernels: int = 0
    configs: int = 0
    validations: int = 0
    computed_by: str = ""


def finished(folder: Path) -> CellResult | None:
    """The result of a finished cell, or None where it is not finished."""
    try:
        return parse(CellResult, read_json(folder / DONE), where=folder / DONE)
    except (DataError, ParamsError):
        return None


OnEpoch = Callable[[Mapping[str, float], int], None]
"""Is given the metrics of an epoch and the number of training steps so far."""


@dataclass(frozen=True)
class CellSources:
    """Kernels to train on and to validate on."""

    train: KernelSource
    validation: KernelSource


def open_sources(task: CellTask) -> CellSources:
    """Both sources of a cell; cells of the same data, split and chip may share them.

    Raises:
        DataError: for missing or damaged shards.
    """
    load(("costbench.training.kernel_source",))
    from costbench.training.kernel_source import KernelSource

    cache_bytes = task.cache_mb * 1024 * 1024 // 2
    train, validation = (
        KernelSource(task.shards(names), cache_bytes=cache_bytes)
        for names in (task.split.train, task.split.validation)
    )
    return CellSources(train, validation)


def train_cell(
    task: CellTask, *, sources: CellSources | None = None, on_epoch: OnEpoch | None = None
) -> CellResult:
    """Train a cell, unless it is there.

    Args:
        task: the cell.
        sources: what `open_sources` gave for it, or for another of the same data.
        on_epoch: called after every epoch; what it raises ends the training (`RunStopped`: on purpose).

    Raises:
        DataError: for missing or damaged shards.
        DivergedError: for a loss that is no longer finite.
    """
    key = task.key()
    before = finished(task.folder)
    if before is not None and before.key == key:
        return before
    _start(task.folder, key)
    # Torch and Lightning: seconds that only a process that trains has to wait for.
    load(("costbench.training.fit",))
    from costbench.training.fit import fit

    sources = open_sources(task) if sources is None else sources
    spec = replace(task.spec, seed=task.cell.seed)
    history = History(task.folder / HISTORY, spec.batch.per_epoch)
    with _tracked(task, spec, key) as run:
        run.log_history(history.rows)  # of an earlier try that was killed
        logger = _Report(task.tracking.run_name, history, run, on_epoch)
        result = fit(
            spec, sources.train, sources.validation, task.folder, logger=logger, progress=task.progress
        )
        _log_result(run, task, result.best_metric, result.best_epoch, result.steps)
        run.log_metrics({"seconds": result.seconds}, result.steps)
        run.set_tags({"computed_by": result.computed_by})
    # Apart from the result, which equal runs leave in equal bytes.
    write_json(task.folder / TIMING, {"seconds": round(result.seconds, 1)})
    return _finish(task.folder, key, result, spec)


def track_finished(task: CellTask, result: CellResult) -> None:
    """Give a finished cell the run that it would have, where the store has none: a new store, say."""
    spec = replace(task.spec, seed=task.cell.seed)
    with _tracked(task, spec, result.key) as run:
        run.log_history(History(task.folder / HISTORY, spec.batch.per_epoch).rows)
        _log_result(run, task, result.best_metric, result.best_epoch, result.steps)
        run.set_tags({"computed_by": result.computed_by})


def _log_result(run: TrackedRun, task: CellTask, best_metric: float, best_epoch: int, steps: int) -> None:
    run.log_metrics({"best_metric": best_metric, "best_epoch": float(best_epoch)}, steps)
    run.log_files([task.folder / HISTORY, task.folder / "model.json"], "model")


class _Report:
    """Writes an epoch's metrics to the file first, then to the tracking server; `on_epoch` comes last."""

    def __init__(self, name: str, history: History, run: TrackedRun, on_epoch: OnEpoch | None) -> None:
        self._name = name
        self._history = history
        self._run = run
        self._on_epoch = on_epoch
        # Of an earlier try: an epoch that is trained again has the same metrics.
        self._told = frozenset(step for step, _ in history.rows)

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        self._history.log_metrics(metrics, step)
        if step not in self._told:
            self._run.log_metrics(metrics, step)
        values = ", ".join(f"{name} {value:.4f}" for name, value in sorted(metrics.items()))
        _log.info("%s, step %d: %s", self._name, step, values)
        if self._on_epoch is not None:
            self._on_epoch(metrics, step)


def _start(folder: Path, key: str) -> None:
    """Empty the folder, unless a killed run of the very same cell left it: that one is resumed."""
    started = folder / _STARTED
    try:
        resumes = read_json(started) == {"key": key}
    except DataError:
        resumes = False
    if not resumes:
        shutil.rmtree(folder, ignore_errors=True)
        write_json(started, {"key": key})


def _finish(folder: Path, key: str, result: FitResult, spec: TrainSpec) -> CellResult:
    done = CellResult(
        key,
        result.best_metric,
        result.best_epoch,
        result.steps,
        result.execution,
        spec.batch.kernels,
        spec.batch.configs,
        result.steps // spec.batch.per_epoch,
        result.computed_by,
    )
    write_json(folder / DONE, asdict(done))
    (folder / _STARTED).unlink(missing_ok=True)
    return done


@contextmanager
def _tracked(task: CellTask, spec: TrainSpec, key: str) -> Iterator[TrackedRun]:
    tracking, cell = task.tracking, task.cell
    tags = {
        "task": cell.task,
        "split": cell.split,
        "chip": cell.chip,
        "variant": cell.variant,
        "seed": str(cell.seed),
        "encoder": spec.net.encoder,
        "reduction": spec.net.reduction,
        "monitor": spec.monitor,
        FOLDER: str(task.folder),
        KEY: key,
        **tracking.tags,
    }
    with tracked_run(tracking.uri, tracking.experiment, tracking.run_name, task.provenance, tags) as run:
        run.log_params({"cell": asdict(cell), "model": asdict(spec)})
        if run.uri:
            sets = (("training", task.split.train), ("validation", task.split.validation))
            run.log_datasets(
                [
                    Dataset(
                        f"{cell.task} {role}", task.data_digest, _contents(task, names), task.features, role
                    )
                    for role, names in sets
                ]
            )
        yield run


def _contents(task: CellTask, names: Sequence[str]) -> pd.DataFrame:
    """What a set holds, one row a program."""
    shards = [Shard.open(path) for path in task.shards(names)]
    return pd.DataFrame(
        {
            "program": list(names),
            "application": [str(shard.metadata["application"]) for shard in shards],
            "kernels": [shard.num_kernels for shard in shards],
            "samples": [shard.num_configs for shard in shards],
        }
    )
