"""Runs sweeps, Optuna studies over hyper-parameters with one or several workers each, and writes the results.

With one worker per study, equal parameters give equal trials, also after a kill. With several workers, the
sampler learns from the trials that have finished by then, so the values tried depend on timing. Any number of
workers on any number of machines can run on one study; they communicate only through its database, and
requeue the trials of lost workers.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from costbench.artifacts import read_bytes, write_text
from costbench.errors import DataError, DivergedError
from costbench.execution.workers import Backend, run_work_items
from costbench.experiments.grid.training_run import (
    CellResult,
    CellTask,
    OnEpoch,
    Samples,
    Tracking,
    train_cell,
)
from costbench.experiments.identity import IDENTITY_FILE
from costbench.experiments.sweeps.best import BestTrial, best_path, with_values, write_best
from costbench.experiments.sweeps.space import Space
from costbench.experiments.sweeps.study import (
    AGAIN,
    StudySpec,
    check_study,
    finished_trials,
    open_study,
    ordinals,
    progress,
    reachable,
    requeue,
    retry_lost,
    seal_trial,
    sign,
    was_requeued,
)
from costbench.experiments.tracking.runs import (
    KIND,
    PARENT,
    WORK,
    RunStopped,
    TrackedRun,
    tracked_run,
    work_of,
)
from costbench.params import load_yaml
from costbench.rng import stream_key

_log = logging.getLogger(__name__)

TrainTrial = Callable[[CellTask, OnEpoch], CellResult]
"""Trains one trial and reports every epoch."""


@dataclass(frozen=True)
class SweepTask:
    """A sweep of one task.

    Attributes:
        study: database and choice of the trials.
        space: ranges of the hyper-parameters that trials vary.
        cell: the training that every trial is a variant of; its `folder` is where trials work.
        metric: name of the monitored metric among those of an epoch.
    """

    study: StudySpec
    space: Space
    cell: CellTask
    metric: str

    def trial_task(self, number: int, values: Mapping[str, object]) -> CellTask:
        """Returns the training of one trial.

        Args:
            number: the trial's ordinal, which names its seed, folder and tracked run.
            values: values by dotted name of the hyper-parameter.
        """
        cell, tracking = self.cell.cell, self.cell.tracking
        # 31 bits: the range of seeds that every library accepts.
        seed = stream_key(self.study.seed, "trial", number) % 2**31
        tags = {
            **tracking.tags,
            "study": self.study.name,
            "trial": str(number),
            KIND: "trial",
            WORK: work_of(self.study.name, str(number)),
        }
        return replace(
            self.cell,
            cell=replace(cell, seed=seed),
            spec=with_values(self.space.base, values, where=f"trial {number} of {self.study.name}"),  # type: ignore[arg-type]
            folder=self.cell.folder / f"{number:04d}",
            tracking=Tracking(tracking.uri, tracking.experiment, f"{self.study.name}/{number:04d}", tags),
        )


def work(task: SweepTask, train: TrainTrial) -> None:
    """Trains trials until the study has its number of finished ones.

    A worker that finds all remaining trials running elsewhere waits, since their workers may be killed.

    Raises:
        DataError: if the database is lost, or data cannot be read.
        ParamsError: if values of a trial cannot be combined.
    """
    study = open_study(task.study)
    pause_s = min(2.0, task.study.storage.heartbeat_s / 2)
    parent = _parent()
    with reachable(task.study.storage):
        while _parent() == parent:
            retry_lost(study, task.study.storage)
            now = progress(study)
            if now.finished >= task.study.trials:
                return
            if now.may_start(task.study.trials):
                _run_trial(study, task, train)
            else:
                time.sleep(pause_s)


def _parent() -> int | None:
    """Returns the parent's process id, which changes when the parent ends; None in the main process."""
    return None if multiprocessing.parent_process() is None else os.getppid()


def _run_trial(study: optuna.Study, task: SweepTask, train: TrainTrial) -> None:
    started: list[int] = []
    try:
        study.optimize(partial(_objective, task=task, train=train, started=started), n_trials=1)
    except BaseException as error:
        if started and was_requeued(study, started[0]) and isinstance(error, Exception):
            # This process was suspended, or cut off from the database: others thought that it had ended, and
            # it cannot report.
            _log.warning("%s: trial %d was given to another worker", task.study.name, started[0])
            return
        # Interrupted, or a fault of the machine: not caused by the values.
        if started and study.get_trials(deepcopy=False)[started[0]].state is optuna.trial.TrialState.FAIL:
            requeue(study, started[0], task.study.storage)
        raise


def _objective(trial: optuna.Trial, task: SweepTask, train: TrainTrial, started: list[int]) -> float:
    started.append(trial.number)
    sign(trial)
    trials = trial.study.get_trials(deepcopy=False)
    number = ordinals(trials)[trial.number]
    reported = set(trials[trial.number].intermediate_values)
    cell = task.trial_task(number, task.space.suggest(trial))
    trial.set_user_attr("ordinal", number)
    trial.set_user_attr("seed", cell.cell.seed)
    per_epoch = cell.spec.steps_per_epoch

    def on_epoch(metrics: Mapping[str, float], step: int) -> None:
        epoch = step // per_epoch
        # A trial that is resumed after a kill may report its last epoch twice.
        if epoch not in reported:
            trial.report(metrics[task.metric], epoch)
        if trial.should_prune():
            raise RunStopped

    try:
        result = train(cell, on_epoch)
    except (RunStopped, DivergedError) as end:
        shutil.rmtree(cell.folder, ignore_errors=True)
        if isinstance(end, DivergedError):
            trial.set_user_attr("diverged", end.problem)
        seal_trial(trial)
        raise optuna.TrialPruned(str(end)) from end
    shutil.rmtree(cell.folder, ignore_errors=True)
    trial.set_user_attr("best_epoch", result.best_epoch)
    seal_trial(trial, result.best_metric)
    return result.best_metric


_LOSSES = 3
"""Process losses allowed per worker of a study: its work item ends only when the whole study is finished."""


def trials_path(folder: Path, task: str) -> Path:
    """Returns the path of a task's table of trials in the folder of the stage `sweep`, one row per epoch."""
    return folder / f"{task}.csv"


def sweep(tasks: Sequence[SweepTask], workers: int, backend: Backend, folder: Path) -> None:
    """Runs studies until they have their numbers of trials; writes the best trial and all trials of each.

    The folder has no identity from when the first of these files is written; the stage writes it afterwards.

    Args:
        tasks: the studies, and the training that a trial of each varies.
        workers: work items per study. Each trains trials until the study is finished; they communicate only
            through its database.
        backend: backend on which the work items are computed.
        folder: folder that results are written to.

    Raises:
        CostbenchError: as a worker raises, or if none of the trials of a study was completed.
    """
    with ExitStack() as runs:
        opened: list[_OpenStudy] = []
        for task in tasks:
            study = open_study(task.study)
            check_study(study, task.study.storage)
            with reachable(task.study.storage):
                missing = max(0, task.study.trials - len(finished_trials(study)))
            _log.info("%s in %s: %d trials to finish", task.study.name, task.study.storage.name, missing)
            run = None
            if missing > 0:
                run = runs.enter_context(_track_study(task))
                run.log_params({"seed": task.study.seed, "startup_trials": task.study.startup_trials})
                tracking = replace(task.cell.tracking, tags={**task.cell.tracking.tags, PARENT: run.run_id})
                task = replace(task, cell=replace(task.cell, tracking=tracking))
            opened.append(_OpenStudy(task, study, run))
        unfinished = [one.task for one in opened if one.run is not None]
        # First workers of all studies before second ones, so that every study starts at once.
        work_items = {
            f"{task.study.name}, worker {worker}": task for worker in range(workers) for task in unfinished
        }
        run_work_items(work_on_study, work_items, backend, lambda _key, _none: None, _LOSSES * workers)
        results = [_result(one.task, one.study, folder) for one in opened]
        # A sweep that is killed from here on has not finished: its tables may be those of two sweeps.
        Path(folder, IDENTITY_FILE).unlink(missing_ok=True)
        for best, table in results:
            # A table beside the best trial of its study is checked, so it must never be that of another.
            best_path(folder, best.task).unlink(missing_ok=True)
            write_text(trials_path(folder, best.task), table)
            write_best(best_path(folder, best.task), best)
        for one, (best, _) in zip(opened, results, strict=True):
            if one.run is not None:
                _log_best(one.run, best, folder)
                # Removed only if empty: workers on other machines may share the folder and still be running.
                with suppress(OSError):
                    one.task.cell.folder.rmdir()


@dataclass(frozen=True)
class _OpenStudy:
    """A study, and its tracked run; None where its trials are finished."""

    task: SweepTask
    study: optuna.Study
    run: TrackedRun | None


def _track_study(task: SweepTask) -> AbstractContextManager[TrackedRun]:
    tracking, cell, name = task.cell.tracking, task.cell.cell, task.study.name
    tags = {"task": cell.task, "split": cell.split, "chip": cell.chip, "variant": cell.variant}
    tags |= {"seed": str(cell.seed), "study": name, KIND: "sweep", WORK: work_of(name), **tracking.tags}
    return tracked_run(tracking.uri, tracking.experiment, name, task.cell.provenance, tags, goes_on=True)


def work_on_study(task: SweepTask) -> None:
    """Trains trials of a study until it has as many as it needs: a work item.

    Raises:
        CostbenchError: as `work` raises.
    """
    samples: Samples | None = None

    def train(cell: CellTask, on_epoch: OnEpoch) -> CellResult:
        nonlocal samples  # opened once for all trials
        samples = cell.training.open(cell) if samples is None else samples
        return train_cell(cell, samples=samples, on_epoch=on_epoch)

    work(task, train)


def _log_best(run: TrackedRun, best: BestTrial, folder: Path) -> None:
    # Logged as tags: MLflow's parameters cannot change, and a continued sweep may find other values.
    run.set_tags({f"best.{name}": str(value) for name, value in best.values.items()})
    run.log_metrics({"best_metric": best.metric, "best_trial": float(best.trial)})
    run.log_files([best_path(folder, best.task), trials_path(folder, best.task)], "sweep")


def _result(task: SweepTask, study: optuna.Study, folder: Path) -> tuple[BestTrial, str]:
    """Returns the best trial of a finished study and the table of its trials."""
    check_study(study, task.study.storage)
    with reachable(task.study.storage):
        trials = finished_trials(study)
    _check_table(task, _table(trials), folder)
    # An earlier sweep may have asked for more trials of this study than this one does.
    first = dict(sorted(trials.items())[: task.study.trials])
    best = _best(task, first)
    _log.info("%s: best %s %.4f in trial %d", best.study, best.monitor, best.metric, best.trial)
    return best, _table(first)


def _check_table(task: SweepTask, table: str, folder: Path) -> None:
    """Compares the trials with the table that an earlier run made of them.

    Raises:
        DataError: naming the database and the trial that differs.
    """
    database, path = task.study.storage.name, trials_path(folder, task.cell.cell.task)
    best = best_path(folder, task.cell.cell.task)
    if not (path.exists() and best.exists() and load_yaml(best).get("study") == task.study.name):
        return
    rows = set(table.splitlines())
    header, *earlier = read_bytes(path).decode("utf-8", errors="replace").splitlines() or [""]
    changed = [row for row in earlier if row not in rows]
    if header in rows and changed:
        first_changed = changed[0].partition(",")[0]
        problem = f"trial {first_changed} of {task.study.name} differs from {path}"
        raise DataError(problem, where=database, expected=f"what was written there; {AGAIN}")


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
    """Returns a CSV table with a row for each epoch of a trial: its state, metric after it, and values."""
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
    """Returns a value as it is written in the parameter file."""
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value).strip('"')
