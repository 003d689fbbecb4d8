"""What a sweep writes, and how an error of a worker ends it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from costbench.errors import DataError
from costbench.execution.workers import Backend
from costbench.experiments.grid.training_run import Tracking
from costbench.experiments.sweeps.sweep import _best, _table, sweep
from costbench.experiments.tracking.runs import OFF
from tests.experiments.toy_sweep import toy_task

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
    """In processes of their own, which find no data."""
    task = toy_task(url, tmp_path)
    untracked = replace(task, cell=replace(task.cell, tracking=Tracking(OFF, "", "")))
    with pytest.raises(DataError, match=r"a\.arrow: missing"):
        sweep([untracked], 2, Backend(jobs=2), tmp_path)
