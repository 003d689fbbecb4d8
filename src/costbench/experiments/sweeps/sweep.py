"""Runs sweeps, Optuna studies over hyper-parameters with one or several workers each, and writes the results.

With one worker per study, equal parameters give equal trials, also after a kill. With several workers, the
sampler learns from the trials that have finished by then, so the values tried depend on timing.
"""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from costbench.artifacts import write_text
from costbench.errors import DataError
from costbench.execution.workers import Backend, run_work_items
from costbench.experiments.grid.training_run import (
    CellResult,
    CellTask,
    OnEpoch,
    train_cell,
)
from costbench.experiments.sweeps.best import BestTrial, best_path, write_best
from costbench.experiments.sweeps.storage import reachable
from costbench.experiments.sweeps.study import finished_trials, open_study
from costbench.experiments.sweeps.worker import SweepTask, TrainTrial, work
from costbench.experiments.tracking.runs import KIND, PARENT, WORK, TrackedRun, tracked_run, work_of

_log = logging.getLogger(__name__)
_LOSSES = 3
"""Process losses allowed per worker of a study: its work item ends only when the whole study is finished."""


def trials_path(folder: Path, task: str) -> Path:
    """Return the path of a task's table of trials in the folder of the stage `sweep`, one row per epoch."""
    return folder / f"{task}.csv"


def sweep(tasks: Sequence[SweepTask], workers: int, backend: Backend, folder: Path) -> None:
    """Run studies until they have their numbers of trials; write the best trial and all trials of each.

    Args:
        tasks: the studies, and the training that a trial of each varies.
        workers: work items per study. Each trains trials until the study is finished; they communicate only
            through its database.
        backend: where the work items are computed.
        folder: for the results.

    Raises:
        CostbenchError: as a worker raises, or if none of the trials of a study was completed.
    """
    with ExitStack() as runs:
        opened: dict[str, _Opened] = {}
        for task in tasks:
            study = open_study(task.study)
            with reachable(task.study.storage):
                missing = max(0, task.study.trials - len(finished_trials(study)))
            _log.info("%s in %s: %d trials to finish", task.study.name, task.study.storage.name, missing)
            if missing == 0:
                _write(task, study, folder)
            else:
                run = runs.enter_context(_tracked(task))
                opened[task.study.name] = _Opened(_below(task, run), study, run)
        # First workers of all studies before second ones, so that every study starts at once.
        work_items = {
            f"{name}, worker {worker}": one.task for worker in range(workers) for name, one in opened.items()
        }
        run_work_items(work_on_study, work_items, backend, lambda _key, _none: None, _LOSSES * workers)
        for one in opened.values():
            _finish(one, folder)


@dataclass(frozen=True)
class _Opened:
    """A study whose trials are not finished, and its tracked run."""

    task: SweepTask
    study: optuna.Study
    run: TrackedRun


def _tracked(task: SweepTask) -> AbstractContextManager[TrackedRun]:
    tracking, cell, name = task.cell.tracking, task.cell.cell, task.study.name
    tags = {"task": cell.task, "split": cell.split, "chip": cell.chip, "variant": cell.variant}
    tags |= {"seed": str(cell.seed), "study": name, KIND: "sweep", WORK: work_of(name), **tracking.tags}
    return tracked_run(tracking.uri, tracking.experiment, name, task.cell.provenance, tags, goes_on=True)


def _below(task: SweepTask, run: TrackedRun) -> SweepTask:
    """Return the same sweep with its trials tracked below `run`."""
    run.log_params({"seed": task.study.seed, "startup_trials": task.study.startup_trials})
    tracking = replace(task.cell.tracking, tags={**task.cell.tracking.tags, PARENT: run.run_id})
    return replace(task, cell=replace(task.cell, tracking=tracking))


def work_on_study(task: SweepTask) -> None:
    """Train trials of a study until it has as many as it needs: a work item.

    Raises:
        CostbenchError: as `work` raises.
    """
    work(task, _training())


def _training() -> TrainTrial:
    """Return a function that trains trials one after another from the same samples in memory."""
    opened: list[object] = []

    def train(cell: CellTask, on_epoch: OnEpoch) -> CellResult:
        if not opened:
            opened.append(cell.training.open(cell))
        return train_cell(cell, opened=opened[0], on_epoch=on_epoch)

    return train


def _finish(opened: _Opened, folder: Path) -> None:
    """Write the results of a study and log the best trial to its run."""
    best = _write(opened.task, opened.study, folder)
    # Removed only if empty: workers on other machines may share the folder and still be running.
    with suppress(OSError):
        opened.task.cell.folder.rmdir()
    # Logged as tags: MLflow's parameters cannot change, and a continued sweep may find other values.
    opened.run.set_tags({f"best.{name}": str(value) for name, value in best.values.items()})
    opened.run.log_metrics({"best_metric": best.metric, "best_trial": float(best.trial)})
    opened.run.log_files([best_path(folder, best.task), trials_path(folder, best.task)], "sweep")


def _write(task: SweepTask, study: optuna.Study, folder: Path) -> BestTrial:
    with reachable(task.study.storage):
        trials = finished_trials(study)
    name = task.cell.cell.task
    write_text(trials_path(folder, name), _table(trials))
    best = _best(task, trials)
    write_best(best_path(folder, name), best)
    _log.info("%s: best %s %.4f in trial %d", best.study, best.monitor, best.metric, best.trial)
    return best


def _best(task: SweepTask, trials: dict[int, FrozenTrial]) -> BestTrial:
    complete = {
        number: trial.value
        for number, trial in trials.items()
        if trial.state is TrialState.COMPLETE and trial.value is not None
    }
    if not complete:
        raise DataError("no trial was completed", where=task.study.name, expected="a space with other values")
    sign = 1.0 if task.study.larger_is_better else -1.0
    # The first of equal ones.
    number = max(sorted(complete), key=lambda number: sign * complete[number])
    values = task.space.suggest(trials[number])
    monitor = task.space.base.monitor
    return BestTrial(task.cell.cell.task, task.study.name, number, monitor, complete[number], values)


def _table(trials: dict[int, FrozenTrial]) -> str:
    """Return a CSV table with one row per epoch of a trial: its state, metric after the epoch, and values."""
    names = sorted({name for trial in trials.values() for name in trial.params})
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["trial", "state", "seed", "epochs", "metric", *names])
    for number, trial in sorted(trials.items()):
        values = [_cell(trial.params[name]) if name in trial.params else "" for name in names]
        head: Sequence[object] = (number, trial.state.name.lower(), trial.user_attrs["seed"])
        for epochs, metric in sorted(trial.intermediate_values.items()) or [(0, float("nan"))]:
            writer.writerow([*head, epochs, "" if metric != metric else repr(metric), *values])
    return stream.getvalue()


def _cell(value: object) -> str:
    """Return a value as it is written in the parameter file."""
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value).strip('"')
