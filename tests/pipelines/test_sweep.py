"""Sweeps of real trainings: what they leave, what a kill costs, and that training reads the result."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench.experiments.stages import sweep, train
from costbench.params import load_yaml
from costbench.tasks import LEARNED
from tests.deadline import HANGS_AFTER_S
from tests.pipelines.workplace import (
    EXPERIMENTS,
    TINY,
    call,
    digest_folder,
    environment,
    write_profile,
)

pytestmark = [
    pytest.mark.pipeline,
    pytest.mark.slow,
    # MLflow's own use of SQLAlchemy.
    pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning"),
]
PARAMS = Path("profiles/smoke/params.yaml")
TRIALS = 2
PARENT = "mlflow.parentRunId"


def _start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "costbench", "sweep", "--params", str(PARAMS), *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment(folder), stderr=subprocess.DEVNULL)


def _wait_for(condition: Callable[[], object], process: subprocess.Popen[bytes], pause_s: float) -> None:
    deadline = time.monotonic() + HANGS_AFTER_S
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(pause_s)
    assert process.poll() is None, "over before it could be killed"


def _studies(url: str) -> list[str]:
    return [name for name in optuna.get_all_study_names(url) if "-tile-" in name]


def test_it_leaves_the_best_trial_and_all_trials(smoke: Path) -> None:
    folder = smoke / "out" / "smoke" / "sweep"
    assert {path.name for path in folder.iterdir()} == {
        "costbench.sha256",
        "identity.json",
        *(f"{task}.{suffix}" for task in LEARNED for suffix in ("csv", "yaml")),
    }
    best: Any = load_yaml(folder / "tile.yaml")
    rows = [line.split(",") for line in (folder / "tile.csv").read_text().splitlines()]
    (*head,) = rows[0]
    trials = [dict(zip(head, row, strict=True)) for row in rows[1:]]
    assert {int(row["trial"]) for row in trials} == set(range(TRIALS))
    complete = [float(row["metric"]) for row in trials if row["state"] == "complete"]
    # Trials on tile sizes are compared by slowdown.
    assert min(complete) == best["metric"]
    (of_best,) = {row["net.hidden"] for row in trials if int(row["trial"]) == best["trial"]}
    assert int(of_best) == best["model"]["net"]["hidden"]
    # The first trial is the model as it stands; the best one is at least as good.
    assert (trials[0]["trial"], trials[0]["net.hidden"], trials[0]["net.encoder"]) == ("0", "32", "graphsage")
    # Nothing of a trial is left but its record.
    assert not list((smoke / "out" / "smoke" / "trials").iterdir())


def _tracked(folder: Path) -> list[Any]:
    """Runs of sweeps."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("costbench/sweep")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def test_trials_are_tracked_below_their_sweep(smoke: Path) -> None:
    runs = _tracked(smoke)
    parents = {run.data.tags["task"]: run for run in runs if PARENT not in run.data.tags}
    assert set(parents) == set(LEARNED)
    for task, metric in (("tile", "validation/tau"), ("fusion", "validation/mape")):
        trials = [run for run in runs if run.data.tags.get(PARENT) == parents[task].info.run_id]
        assert {run.data.tags["trial"] for run in trials} == {str(k) for k in range(TRIALS)}
        tags = {"task": task, "split": "random", "chip": "tpu_v2", "profile": "smoke", "experiment": "sweep"}
        assert all(tags.items() <= run.data.tags.items() for run in [parents[task], *trials])
        assert all({"encoder", "reduction", "seed"} <= run.data.tags.keys() for run in trials)
        assert metric in trials[0].data.metrics
        assert parents[task].data.params["seed"] == "0"


def test_a_killed_sweep_ends_with_the_same_bytes(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kill -9 within the first trial; the same stage, in this process, then goes on where it stopped."""
    out = workplace / "out" / "smoke"
    before = digest_folder(out / "sweep")
    for path in (out / "sweep", out / "trials"):
        shutil.rmtree(path)
    (out / "optuna.db").unlink()
    process = _start(workplace)
    # Its first epoch is in the history, its second not yet.
    _wait_for(lambda: list(out.glob("trials/*/0000/history.csv")), process, 0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "sweep").exists()
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workplace / 'mlflow.db'}")
    sweep.run(PARAMS)
    assert digest_folder(out / "sweep") == before
    # The record of the trial that was killed is closed, and all trials lie below one run of their study.
    runs = _tracked(workplace)
    assert {run.info.status for run in runs} <= {"FINISHED", "KILLED"}
    parents = {run.info.run_id for run in runs if PARENT not in run.data.tags}
    assert len(parents) == len(LEARNED)
    assert {run.data.tags[PARENT] for run in runs if PARENT in run.data.tags} == parents


def test_workers_of_which_one_is_killed(workplace: Path) -> None:
    """Two more trials on two processes; one of them gets a kill -9, and others take their place."""
    url = f"sqlite:///{workplace / 'out' / 'smoke' / 'optuna.db'}"
    process = _start(workplace, "--task", "tile", "--workers", "2", "--trials", str(TRIALS + 2))

    def writers() -> list[int]:
        (study,) = _studies(url)
        running = optuna.load_study(study_name=study, storage=url).get_trials(
            states=(optuna.trial.TrialState.RUNNING,)
        )
        tags = [trial.user_attrs.get(f"costbench.writer.{trial.number}", "") for trial in running]
        return [int(tag.rpartition(" ")[2]) for tag in tags if tag]

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    _wait_for(writers, process, 0.2)
    os.kill(writers()[0], signal.SIGKILL)
    assert process.wait(timeout=HANGS_AFTER_S) == 0
    (name,) = _studies(url)
    states = [trial.state.name for trial in optuna.load_study(study_name=name, storage=url).trials]
    # The pool of processes is replaced as a whole, so the other worker's trial may be started again as well.
    assert 1 <= states.count("FAIL") <= 2
    assert states.count("COMPLETE") + states.count("PRUNED") >= TRIALS + 2
    rows = (workplace / "out" / "smoke" / "sweep" / "tile.csv").read_text().splitlines()[1:]
    numbers = {int(row.split(",")[0]) for row in rows}
    # The other worker may have begun a further trial by then, which can end before the lost one is repeated.
    assert numbers >= set(range(TRIALS))
    assert len(numbers) == TRIALS + 2


def test_training_takes_the_best_values(smoke: Path) -> None:
    out = smoke / "out" / "smoke"
    best: Any = load_yaml(out / "sweep" / "tile.yaml")
    model: Any = read_json(out / "train" / "tuned-tile" / "tile-random-tpu_v2-tuned-s0" / "model.json")
    assert model["net"]["hidden"] == best["model"]["net"]["hidden"] != 8
    assert model["net"]["opcode_embedding"] == 4
    other: Any = read_json(out / "train" / "main-tile" / "tile-random-tpu_v2-main-s0" / "model.json")
    assert other["net"]["hidden"] == 8


def test_all_that_is_trained_comes_after_the_sweep(workplace: Path) -> None:
    """A dry run does not know that a sweep's result will be another, hence `--force --downstream`."""
    write_profile(workplace, "smoke", TINY)
    stage = "profiles/smoke/dvc.yaml:sweep"
    done = call(workplace, ["dvc", "repro", "--dry", "--force", "--downstream", stage])
    assert done.returncode == 0, done.stderr
    running = re.findall(r"Running stage '(?:[^':]*:)?([^']+)'", done.stdout)
    # DVC may take those behind the training in any order, but the report after what it shows.
    stages = [f"{stage}@{name}" for stage in ("evaluate", "train") for name in EXPERIMENTS]
    assert running[0] == "sweep"
    assert sorted(running[1:]) == sorted([*stages, "autotune", "register", "report"])
    for name in EXPERIMENTS:
        assert running.index(f"train@{name}") < running.index(f"evaluate@{name}") < running.index("report")


def test_a_sweep_that_has_not_run_is_one_error(workplace: Path) -> None:
    params = workplace / write_profile(workplace, "smoke", TINY)
    (workplace / "out" / "smoke" / "sweep" / "identity.json").unlink()
    with pytest.raises(DataError, match=r"sweep/identity\.json: not there \(expected the finished stage"):
        train.run(params, "tuned-tile")
