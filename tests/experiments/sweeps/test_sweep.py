"""What a sweep writes, and how an error of a worker ends it."""

from __future__ import annotations

import math
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from costbench.errors import DataError, DivergedError
from costbench.execution.workers import Backend
from costbench.experiments.grid.training_run import CellResult, CellTask, OnEpoch, Tracking
from costbench.experiments.identity import IDENTITY_FILE, StageIdentity, write_identity
from costbench.experiments.sweeps import sweep as of_sweeps
from costbench.experiments.sweeps.study import finished_trials, open_study, progress, requeue
from costbench.experiments.sweeps.sweep import SweepTask, _best, _table, sweep, work
from costbench.experiments.tracking.runs import OFF
from tests.deadline import HANGS_AFTER_S
from tests.experiments.toy_sweep import (
    EPOCHS,
    METRIC,
    metric_after,
    start_worker,
    toy_task,
    toy_training,
)
from tests.forked import start

RATE = FloatDistribution(1e-5, 1e-1, log=True)
ENCODER = CategoricalDistribution(["none", "graphsage"])


def _trial(value: float | None, rate: float, epochs: dict[int, float]) -> FrozenTrial:
    return create_trial(
        state=TrialState.PRUNED if value is None else TrialState.COMPLETE,
        value=value,
        params={"net.encoder": "none", "optimizer.learning_rate": rate},
        distributions={"net.encoder": ENCODER, "optimizer.learning_rate": RATE},
        intermediate_values=epochs,
        user_attrs={"seed": 5},
    )


def test_the_table_has_a_row_an_epoch() -> None:
    trials = {1: _trial(None, 0.25e-3, {}), 0: _trial(0.5, 1e-3, {2: 0.5, 1: 0.25})}
    assert _table(trials).splitlines() == [
        "trial,state,seed,epochs,metric,net.encoder,optimizer.learning_rate",
        "0,complete,5,1,0.25,none,0.001",
        "0,complete,5,2,0.5,none,0.001",
        "1,pruned,5,0,,none,0.00025",
    ]


def test_the_best_is_complete_and_the_first_of_equals(tmp_path: Path) -> None:
    task = toy_task("sqlite://", tmp_path)
    trials = {
        0: _trial(0.5, 1e-2, {}),
        1: _trial(0.75, 1e-3, {}),
        2: _trial(0.75, 1e-4, {}),
        3: _trial(None, 1e-5, {1: 0.9}),
    }
    best = _best(task, trials)
    assert (best.task, best.study, best.trial, best.monitor, best.metric) == ("tile", "toy", 1, "tau", 0.75)
    assert best.values == {"net.encoder": "none", "optimizer.learning_rate": 1e-3}


def test_without_a_complete_trial_there_is_no_best(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="toy: no trial was completed"):
        _best(toy_task("sqlite://", tmp_path), {0: _trial(None, 1e-3, {1: math.nan})})


def test_what_a_worker_raises_ends_the_sweep(url: str, tmp_path: Path) -> None:
    """In processes of a pool, which have a parent that cannot be asked, and find no data."""
    task = toy_task(url, tmp_path)
    untracked = replace(task, cell=replace(task.cell, tracking=Tracking(OFF, "", "")))
    with pytest.raises(DataError, match=r"a\.arrow: missing"):
        sweep([untracked], 2, Backend(jobs=2), tmp_path)


Outcome = dict[int, tuple[str, dict[str, object], float | None, dict[int, float], int]]


def outcome(task: SweepTask) -> Outcome:
    """All that a trial is, by ordinal."""
    trials = finished_trials(open_study(task.study))
    return {
        number: (
            trial.state.name,
            trial.params,
            trial.value,
            trial.intermediate_values,
            trial.user_attrs["seed"],
        )
        for number, trial in sorted(trials.items())
    }


def test_a_serial_sweep_repeats_itself(url: str, tmp_path: Path) -> None:
    outcomes = []
    for name in ("a", "b"):
        task = toy_task(f"{url}.{name}", tmp_path, trials=8, keep_percent=50.0)
        work(task, toy_training())
        outcomes.append(outcome(task))
    assert outcomes[0] == outcomes[1]
    assert list(outcomes[0]) == list(range(8))
    states = {state for state, *_ in outcomes[0].values()}
    assert states == {"COMPLETE", "PRUNED"}
    seeds = [seed for *_, seed in outcomes[0].values()]
    assert len(set(seeds)) == 8


def test_the_first_trial_has_the_values_that_it_is_given(url: str, tmp_path: Path) -> None:
    first = {"net.encoder": "none", "optimizer.learning_rate": 0.002}
    task = toy_task(url, tmp_path, trials=3)
    task = replace(task, study=replace(task.study, first=first))
    open_study(task.study)
    work(task, toy_training())
    # Opened twice, begun once.
    trials = open_study(task.study).get_trials()
    assert [trial.params == first for trial in trials] == [True, False, False]


def test_every_value_of_every_epoch_is_kept(url: str, tmp_path: Path) -> None:
    task = toy_task(url, tmp_path, trials=3)
    work(task, toy_training())
    for number, (state, params, value, epochs, seed) in outcome(task).items():
        cell = task.trial_task(number, params)
        assert state == "COMPLETE"
        assert epochs == {epoch: metric_after(cell, epoch) for epoch in range(1, EPOCHS + 1)}
        assert value == epochs[EPOCHS]
        assert cell.cell.seed == seed
        # What a trial works with is gone once it is over.
        assert not cell.folder.exists()


def test_a_study_that_has_enough_trials_is_left_alone(url: str, tmp_path: Path) -> None:
    work(toy_task(url, tmp_path, trials=2), toy_training())

    def never(_cell: CellTask, _on_epoch: OnEpoch) -> CellResult:
        raise AssertionError("no trial is wanted")

    work(toy_task(url, tmp_path, trials=2), never)
    task = toy_task(url, tmp_path, trials=3)
    work(task, toy_training())
    assert list(outcome(task)) == [0, 1, 2]


def test_the_result_is_of_as_many_trials_as_are_asked_for(url: str, tmp_path: Path) -> None:
    task = toy_task(url, tmp_path, trials=6)
    untracked = replace(task, cell=replace(task.cell, tracking=Tracking(OFF, "", "")))
    first = replace(untracked, study=replace(task.study, trials=3))
    backend = Backend()
    work(first, toy_training())
    sweep([first], 1, backend, tmp_path / "before")
    work(task, toy_training())
    sweep([untracked], 1, backend, tmp_path / "more")
    # A study of more trials, and a folder with the table of all of them.
    sweep([first], 1, backend, tmp_path / "more")
    for name in ("tile.csv", "tile.yaml"):
        assert (tmp_path / "more" / name).read_bytes() == (tmp_path / "before" / name).read_bytes()


def _killed_between_its_files(task: SweepTask, folder: Path) -> None:
    def kill(*_files: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    of_sweeps.write_best = kill
    sweep([task], 1, Backend(), folder)


def test_killed_between_its_files_a_sweep_leaves_nothing_that_counts(url: str, tmp_path: Path) -> None:
    """With the table of one study beside the best trial of another; both sweeps then write what is theirs."""
    task, folder = toy_task(url, tmp_path, trials=3), tmp_path / "sweep"
    first = replace(task, cell=replace(task.cell, tracking=Tracking(OFF, "", "")))
    second = replace(first, study=replace(task.study, name="other", seed=8))
    for one in (first, second):
        work(one, toy_training())
        sweep([one], 1, Backend(), tmp_path / one.study.name)
    sweep([first], 1, Backend(), folder)
    write_identity(folder, StageIdentity("params", "data", "code"))
    killed = start(_killed_between_its_files, second, folder)
    killed.join(timeout=HANGS_AFTER_S)
    assert killed.exitcode == -signal.SIGKILL
    assert not (folder / IDENTITY_FILE).exists()
    for one in (first, second):
        sweep([one], 1, Backend(), folder)
        for name in ("tile.csv", "tile.yaml"):
            assert (folder / name).read_bytes() == (tmp_path / one.study.name / name).read_bytes()


def test_interrupted_and_continued_is_as_not_interrupted(url: str, tmp_path: Path) -> None:
    whole = toy_task(f"{url}.whole", tmp_path, trials=6, keep_percent=50.0)
    work(whole, toy_training())
    parts = toy_task(f"{url}.parts", tmp_path, trials=6, keep_percent=50.0)
    calls = 0

    def interrupted(cell: CellTask, on_epoch: OnEpoch) -> CellResult:
        nonlocal calls
        calls += 1
        if calls in (1, 4):
            on_epoch({METRIC: metric_after(cell, 1)}, 10)
            raise KeyboardInterrupt
        return toy_training()(cell, on_epoch)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            work(parts, interrupted)
    work(parts, interrupted)
    assert outcome(parts) == outcome(whole)
    failed = [trial for trial in open_study(parts.study).trials if trial.state is TrialState.FAIL]
    assert len(failed) == 2


def test_a_trial_that_diverges_is_pruned_and_says_why(url: str, tmp_path: Path) -> None:
    task = toy_task(url, tmp_path, trials=2)

    def diverging(cell: CellTask, on_epoch: OnEpoch) -> CellResult:
        if cell.folder.name == "0000":
            raise DivergedError("the loss is no longer finite")
        return toy_training()(cell, on_epoch)

    work(task, diverging)
    assert [state for state, *_ in outcome(task).values()] == ["PRUNED", "COMPLETE"]
    assert finished_trials(open_study(task.study))[0].user_attrs["diverged"].startswith("the loss")


def test_data_that_cannot_be_read_ends_the_sweep(url: str, tmp_path: Path) -> None:
    def broken(_cell: CellTask, _on_epoch: OnEpoch) -> CellResult:
        raise DataError("damaged", where="x.arrow")

    with pytest.raises(DataError, match=r"x\.arrow: damaged"):
        work(toy_task(url, tmp_path), broken)


def test_a_trial_that_was_given_away_ends_nobody(url: str, tmp_path: Path) -> None:
    """A worker that slept so long that others took it for dead, and another finished its trial."""
    task = toy_task(url, tmp_path, trials=2)
    calls = 0

    def slept(cell: CellTask, on_epoch: OnEpoch) -> CellResult:
        nonlocal calls
        calls += 1
        if calls == 1:
            study = open_study(task.study)
            study.tell(0, state=TrialState.FAIL)
            requeue(study, 0, task.study.storage)
        return toy_training()(cell, on_epoch)

    work(task, slept)
    assert list(outcome(task)) == [0, 1]
    assert calls == 3


def test_two_workers_share_the_trials_and_a_kill_costs_one(url: str, tmp_path: Path) -> None:
    """A worker is killed in the middle of a trial; the other one repeats that trial, and the sum is right."""
    trials = 6
    task = toy_task(url, tmp_path, trials)
    study = open_study(task.study)
    victim = start_worker(url, tmp_path, trials, seconds_per_epoch=60.0)
    try:
        deadline = time.monotonic() + HANGS_AFTER_S
        while progress(study).running == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        (lost,) = [trial for trial in study.trials if trial.state is TrialState.RUNNING]
        other = start_worker(url, tmp_path, trials, seconds_per_epoch=0.05)
        while progress(study).finished == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert victim.is_alive()
    finally:
        victim.kill()
        victim.join()
    other.join(timeout=HANGS_AFTER_S)
    assert other.exitcode == 0
    assert list(outcome(task)) == list(range(trials))
    (failed,) = [trial for trial in study.trials if trial.state is TrialState.FAIL]
    assert failed.number == lost.number
    again = finished_trials(study)[0]
    assert again.params == study.trials[lost.number].params
    assert again.number != lost.number


def test_a_trials_training_is_named_after_it(url: str, tmp_path: Path) -> None:
    task = toy_task(url, tmp_path)
    first = task.trial_task(0, {"net.encoder": "none"})
    assert first == task.trial_task(0, {"net.encoder": "none"})
    assert first.tracking.run_name == "toy/0000"
    assert first.tracking.tags["trial"] == "0"
    assert first.cell.seed != task.trial_task(1, {}).cell.seed
    other = replace(task, study=replace(task.study, seed=8))
    assert first.cell.seed != other.trial_task(0, {}).cell.seed
