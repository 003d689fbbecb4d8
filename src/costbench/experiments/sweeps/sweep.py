"""A sweep: a study over hyper-parameters, worked on by one process or several, and what comes out of it.

Serially, equal parameters give equal trials, also after a kill. Several workers each see what the others have
finished by then, so which values are tried depends on their timing.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import multiprocessing
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from costbench.artifacts import write_text
from costbench.errors import CostbenchError, DataError
from costbench.experiments.grid.training_run import (
    CellResult,
    CellSources,
    CellTask,
    OnEpoch,
    open_sources,
    train_cell,
)
from costbench.experiments.stages.entry import start_logging
from costbench.experiments.sweeps.best import BestTrial, best_path, write_best
from costbench.experiments.sweeps.storage import reachable
from costbench.experiments.sweeps.study import finished_trials, open_study
from costbench.experiments.sweeps.worker import SweepTask, TrainTrial, work
from costbench.experiments.tracking.runs import KIND, PARENT, WORK, tracked_run, work_of

_log = logging.getLogger(__name__)
_DEATHS = 3


def trials_path(folder: Path, task: str) -> Path:
    """Where the trials of a task lie in the folder of the stage `sweep`, one row an epoch."""
    return folder / f"{task}.csv"


def sweep(task: SweepTask, workers: int, folder: Path) -> BestTrial:
    """Bring a study to its number of trials, and write the best one and all of them.

    Args:
        task: the study and what a trial is.
        workers: processes; with 1 the work is done in this one.
        folder: for the results.

    Raises:
        CostbenchError: as a worker raises, or if none of the trials was completed.
    """
    study = open_study(task.study)
    with reachable(task.study.storage):
        missing = task.study.trials - len(finished_trials(study))
    name = task.study.name
    _log.info("%s in %s: %d trials to finish", name, task.study.storage.name, max(0, missing))
    if missing <= 0:
        return _write(task, study, folder)
    tracking, cell = task.cell.tracking, task.cell.cell
    tags = {"task": cell.task, "split": cell.split, "chip": cell.chip, "variant": cell.variant}
    tags |= {"seed": str(cell.seed), "study": name, KIND: "sweep", WORK: work_of(name), **tracking.tags}
    where = tracking.uri, tracking.experiment, name
    with tracked_run(*where, task.cell.provenance, tags, goes_on=True) as run:
        run.log_params({"seed": task.study.seed, "startup_trials": task.study.startup_trials})
        tags = {**tracking.tags, PARENT: run.run_id}
        nested = replace(task, cell=replace(task.cell, tracking=replace(tracking, tags=tags)))
        if workers == 1:
            work(nested, _training())
        else:
            _work_side_by_side(nested, workers)
        best = _write(task, study, folder)
        # Empty, unless workers on other machines share it and still work.
        with suppress(OSError):
            task.cell.folder.rmdir()
        # Tags and not settings: a sweep that is gone on with may find others.
        run.set_tags({f"best.{name}": str(value) for name, value in best.values.items()})
        run.log_metrics({"best_metric": best.metric, "best_trial": float(best.trial)})
        run.log_files([best_path(folder, best.task), trials_path(folder, best.task)], "sweep")
    return best


def _training() -> TrainTrial:
    """Trains trials one after another, all from the same kernels in memory."""
    opened: list[CellSources] = []

    def train(cell: CellTask, on_epoch: OnEpoch) -> CellResult:
        if not opened:
            opened.append(open_sources(cell))
        return train_cell(cell, sources=opened[0], on_epoch=on_epoch)

    return train


def _work_side_by_side(task: SweepTask, count: int) -> None:
    """Workers as processes; one that is killed is replaced, one that raises ends all."""
    context = multiprocessing.get_context("spawn")
    workers = [_Worker(context, task) for _ in range(count)]
    deaths = 0
    try:
        while workers:
            ready = wait([worker.answer for worker in workers])
            for worker in [worker for worker in workers if worker.answer in ready]:
                workers.remove(worker)
                if worker.survived():
                    continue
                deaths += 1
                if deaths > _DEATHS * count:
                    raise DataError(f"{deaths} workers died", where=task.study.name, expected="enough memory")
                _log.warning("%s: a worker died; another takes its place", task.study.name)
                workers.append(_Worker(context, task))
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process that works on a study, and says how it ended."""

    def __init__(self, context: SpawnContext, task: SweepTask) -> None:
        self.answer, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work_in_process, args=(task, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def survived(self) -> bool:
        """Wait for its end; whether it finished. Raises: what it raised."""
        try:
            error: BaseException | None = self.answer.recv()
        except EOFError:
            return False
        finally:
            self._process.join()
            self.answer.close()
        if error is not None:
            raise error
        return True

    def stop(self) -> None:
        """End it now; its trial is queued again by the next worker of the study."""
        self._process.terminate()
        self._process.join()


def _work_in_process(task: SweepTask, answer: Connection) -> None:
    start_logging()
    with suppress(BrokenPipeError):
        try:
            work(task, _training())
        except CostbenchError as error:
            answer.send(error)
        else:
            answer.send(None)


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
    # Of equal ones the first.
    number = max(sorted(complete), key=lambda number: sign * complete[number])
    values = task.space.suggest(trials[number])
    monitor = task.space.base.monitor
    return BestTrial(task.cell.cell.task, task.study.name, number, monitor, complete[number], values)


def _table(trials: dict[int, FrozenTrial]) -> str:
    """One row an epoch of a trial: its state, metric after the epoch, and values."""
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
    """As the parameter file has it."""
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value).strip('"')
