"""A study in a real PostgreSQL: workers that start at once, one that is killed, and Optuna's own tools."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from optuna.trial import TrialState

from costbench.errors import DataError
from costbench.experiments.sweeps.study import finished_trials, open_study, progress
from tests.deadline import HANGS_AFTER_S
from tests.experiments.postgres import postgres_server
from tests.experiments.toy_sweep import renamed, start_worker, toy_task

pytestmark = pytest.mark.slow
TRIALS = 8


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    pytest.importorskip("psycopg", reason="needs the extra `sweep-postgres`")
    with postgres_server() as url:
        yield url


def _optuna(arguments: Sequence[str]) -> list[dict[str, object]]:
    """What the command `optuna` prints."""
    command = [str(Path(sys.executable).parent / "optuna"), *arguments, "-f", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_AFTER_S)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def test_workers_on_an_empty_server(url: str, tmp_path: Path) -> None:
    """Three at once: each may be the first to create tables and study. One is killed within a trial."""
    workers = [start_worker(url, tmp_path, TRIALS, seconds) for seconds in (60.0, 0.2, 0.2)]
    victim = workers[0]
    try:
        deadline = time.monotonic() + HANGS_AFTER_S
        study = None
        while time.monotonic() < deadline:
            # Its own connection, as a fourth machine.
            study = study or open_study(toy_task(url, tmp_path, TRIALS).study)
            owners = [
                str(value).rpartition(" ")[2]
                for trial in study.trials
                if trial.state is TrialState.RUNNING
                for value in trial.user_attrs.values()
            ]
            if str(victim.pid) in owners and progress(study).finished > 0:
                break
            time.sleep(0.1)
        assert study is not None
        assert str(victim.pid) in owners
    finally:
        victim.kill()
        victim.join()
    for worker in workers[1:]:
        worker.join(timeout=HANGS_AFTER_S)
    assert [worker.exitcode for worker in workers[1:]] == [0, 0]
    finished = finished_trials(study)
    # Two that see at the same moment that one trial is missing may both begin it.
    assert set(range(TRIALS)) <= set(finished)
    assert len(finished) <= TRIALS + 1
    (lost,) = [trial for trial in study.trials if trial.state is TrialState.FAIL]
    (again,) = [trial for trial in finished.values() if trial.system_attrs.get("failed_trial") == lost.number]
    assert again.params == lost.params
    assert all(trial.intermediate_values.keys() == {1, 2, 3} for trial in finished.values())

    with pytest.raises(DataError, match="made from another space"):
        open_study(renamed(toy_task(url, tmp_path), space="other").study)

    (row,) = _optuna(["studies", "--storage", url])
    assert row["name"] == "toy"
    assert row["n_trials"] == len(study.trials)
    rows = _optuna(["trials", "--storage", url, "--study-name", "toy"])
    assert len(rows) == len(study.trials)
    assert {row["state"] for row in rows} == {"COMPLETE", "FAIL"}
