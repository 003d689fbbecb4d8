"""A worker of a sweep: it trains trials until the study has enough, and requeues those of lost workers.

Any number of workers on any number of machines can run on one study; they communicate only through its
database.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import optuna

from costbench.errors import DivergedError
from costbench.experiments.grid.training_run import CellResult, CellTask, OnEpoch, Tracking
from costbench.experiments.sweeps.best import with_values
from costbench.experiments.sweeps.space import Space
from costbench.experiments.sweeps.storage import reachable
from costbench.experiments.sweeps.study import (
    StudySpec,
    given_away,
    open_study,
    ordinals,
    progress,
    requeue,
    retry_lost,
    sign,
)
from costbench.experiments.tracking.runs import KIND, WORK, RunStopped, work_of
from costbench.rng import stream_key

_log = logging.getLogger(__name__)

TrainTrial = Callable[[CellTask, OnEpoch], CellResult]
"""Trains one trial and reports every epoch."""


@dataclass(frozen=True)
class SweepTask:
    """A sweep of one task.

    Attributes:
        study: where its trials are stored and how they are chosen.
        space: what the trials vary.
        cell: the training that every trial is a variant of; its `folder` is where trials work.
        metric: name of the monitored metric among those of an epoch.
    """

    study: StudySpec
    space: Space
    cell: CellTask
    metric: str

    def trial_task(self, number: int, values: Mapping[str, object]) -> CellTask:
        """Return the training of one trial.

        Args:
            number: the trial's ordinal, which names its seed, folder and tracked run.
            values: by dotted name of the hyper-parameter.
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
    """Train trials until the study has as many finished ones as are wanted.

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
    """Return the parent's process id, which changes when the parent ends; None in the main process."""
    return None if multiprocessing.parent_process() is None else os.getppid()


def _run_trial(study: optuna.Study, task: SweepTask, train: TrainTrial) -> None:
    started: list[int] = []
    try:
        study.optimize(partial(_objective, task=task, train=train, started=started), n_trials=1)
    except BaseException as error:
        if started and given_away(study, started[0]) and isinstance(error, Exception):
            # This process was taken for ended (suspended, or cut off from the database) and now cannot
            # report.
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
        raise optuna.TrialPruned(str(end)) from end
    shutil.rmtree(cell.folder, ignore_errors=True)
    trial.set_user_attr("best_epoch", result.best_epoch)
    return result.best_metric
