"""Which trial is which, what they draw, and what becomes of those whose worker died."""

from __future__ import annotations

import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from costbench.errors import CostbenchError, DataError
from costbench.experiments.sweeps.study import (
    ENVIRONMENT,
    OrdinalSampler,
    PrunerSpec,
    StorageSpec,
    check_study,
    finished_trials,
    open_storage,
    open_study,
    ordinals,
    progress,
    retry_lost,
    storage_url,
)
from costbench.experiments.sweeps.sweep import work
from tests.deadline import HANGS_AFTER_S
from tests.experiments.toy_sweep import renamed, toy_task, toy_training

# A process that opens a database silences these for itself.
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


def _trial(number: int, repeats: int | None = None) -> FrozenTrial:
    trial = create_trial(
        state=TrialState.PRUNED, system_attrs={} if repeats is None else {"failed_trial": repeats}
    )
    trial.number = number
    return trial


def test_retries_take_no_place_of_their_own() -> None:
    # 0, 1 (died, repeated by 3, which died, repeated by 4), 2, 5
    trials = [_trial(0), _trial(1), _trial(2), _trial(3, 1), _trial(4, 1), _trial(5)]
    assert ordinals(trials) == [0, 1, 2, 1, 1, 3]


def test_a_study_is_joined_by_the_same_sweep_only(url: str, tmp_path: Path) -> None:
    task = toy_task(url, tmp_path)
    open_study(task.study)
    assert open_study(task.study).study_name == "toy"
    with pytest.raises(DataError) as caught:
        open_study(renamed(task, space="other", code="new").study)
    assert "toy: there is a study of this name made from another code, space" in str(caught.value)


@pytest.mark.filterwarnings("ignore:Heartbeat of storage:UserWarning")  # `optimize` would start one
def test_a_waiting_trial_is_claimed_once(url: str, tmp_path: Path) -> None:
    """By several workers that look for it at the same moment."""
    spec = toy_task(url, tmp_path).study
    study = open_study(spec)
    for number in range(20):
        study.enqueue_trial({"x": number / 20})
    start = threading.Barrier(4)

    def claim() -> list[int]:
        worker = open_study(spec)
        start.wait()
        return [worker.ask().number for _ in range(5)]

    with ThreadPoolExecutor(4) as workers:
        claims = [workers.submit(claim) for _ in range(4)]
        numbers = [number for claimed in claims for number in claimed.result()]
    assert sorted(numbers) == list(range(20))


def test_a_transaction_on_sqlite_locks_before_it_reads(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    storage = open_storage(StorageSpec(f"sqlite:///{file}"))
    with storage.engine.begin() as transaction, closing(sqlite3.connect(file, timeout=0)) as other:
        transaction.exec_driver_sql("SELECT * FROM trials")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")


def test_a_study_of_somebody_else_is_left_alone(url: str, tmp_path: Path) -> None:
    theirs = optuna.create_study(study_name="toy", storage=url, direction="maximize")
    theirs.add_trial(create_trial(value=1.0))
    with pytest.raises(DataError, match="made from another data, space"):
        open_study(toy_task(url, tmp_path).study)


def _draws(steps: list[int]) -> list[dict[str, float]]:
    """Values of trials in one study, by samplers that are made again after each of `steps` trials."""
    study = optuna.create_study(direction="maximize")
    for trials in steps:
        study.sampler = OrdinalSampler(seed=1, startup_trials=2)
        for _ in range(trials):
            trial = study.ask()
            x = trial.suggest_float("x", -1.0, 1.0)
            y = trial.suggest_categorical("y", ["a", "b", "c"])
            study.tell(trial, x + (y == "b"))
    return [trial.params for trial in study.trials]


def test_draws_follow_from_the_ordinal() -> None:
    whole = _draws([8])
    assert _draws([3, 1, 4]) == whole
    assert len({str(params) for params in whole}) == 8


def test_two_samplers_of_one_seed_do_not_draw_the_same() -> None:
    """As two workers do that start at the same time."""
    study = optuna.create_study()
    values = []
    for _ in range(2):
        study.sampler = OrdinalSampler(seed=1, startup_trials=5)
        values.append(study.ask().suggest_float("x", 0.0, 1.0))
    assert values[0] != values[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep_percent": 0.0}, "keep_percent is 0.0"),
        ({"startup_trials": 0}, "startup_trials is 0"),
        ({"warmup_epochs": 0}, "warmup_epochs is 0"),
    ],
)
def test_pruners_that_cannot_be(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrunerSpec(**settings)  # type: ignore[arg-type]


def test_a_pruner_that_keeps_all_prunes_none() -> None:
    assert isinstance(PrunerSpec(100.0).build(), optuna.pruners.NopPruner)


OTHER_MACHINE = """
import sys, optuna, warnings
from optuna.storages import RDBStorage
warnings.simplefilter("ignore")
storage = RDBStorage(sys.argv[1], heartbeat_interval=1)
study = optuna.load_study(study_name="toy", storage=storage)
def objective(trial):
    trial.suggest_float("x", 0.0, 1.0)
    trial.report(0.25, 1)
    print("begun", flush=True)
    import time; time.sleep(60)
study.optimize(objective, n_trials=1)
"""


def test_a_heartbeat_that_stops_gives_the_trial_back(url: str, tmp_path: Path) -> None:
    """Killed where its process cannot be seen from here: it leaves no name of its own."""
    task = toy_task(url, tmp_path)
    study = open_study(task.study)
    with subprocess.Popen([sys.executable, "-c", OTHER_MACHINE, url], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        retry_lost(study, task.study.storage)
        assert (progress(study).running, progress(study).waiting) == (1, 0)
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + HANGS_AFTER_S
    while progress(study).waiting == 0 and time.monotonic() < deadline:
        time.sleep(0.2)
        retry_lost(study, task.study.storage)
    failed, again = study.trials
    assert (failed.state, again.state) == (TrialState.FAIL, TrialState.WAITING)
    assert again.params == failed.params
    assert again.intermediate_values == {1: 0.25}
    assert ordinals(study.trials) == [0, 0]
    assert finished_trials(study) == {}


def test_what_is_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert storage_url(None, tmp_path) == f"sqlite:///{tmp_path}/optuna.db"
    monkeypatch.setenv(ENVIRONMENT, "sqlite:///theirs.db")
    assert storage_url(None, tmp_path) == "sqlite:///theirs.db"
    assert storage_url("sqlite:///mine.db", tmp_path) == "sqlite:///mine.db"


def test_folders_and_tables_are_created_once(tmp_path: Path) -> None:
    spec = StorageSpec(f"sqlite:///{tmp_path}/new/folder/optuna.db", heartbeat_s=7)
    assert open_storage(spec).get_all_studies() == []
    again = open_storage(spec)
    assert again.get_all_studies() == []
    assert (again.heartbeat_interval, again.grace_period) == (7, 21)


def test_passwords_stay_out_of_messages() -> None:
    spec = StorageSpec("postgresql+psycopg://me:secret@127.0.0.1:1/costbench")
    assert "secret" not in spec.name
    assert spec.name.startswith("postgresql+psycopg://me:***@127.0.0.1:1")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("optuna.db", "storage: no URL of a database (expected such as sqlite:////"),
        ("redis://127.0.0.1/0", "storage: no URL of a database"),
        ("oracle+nodriver://127.0.0.1/x", "storage: no URL of a database"),
        ("mysql+pymysql://127.0.0.1/x", "storage: no URL of a database"),
        ("postgresql+pg8000://127.0.0.1/x", "the driver pg8000 is not installed"),
        ("sqlite:////dev/null/optuna.db", "/dev/null"),
        ("sqlite://", "sqlite://: a database in memory (expected a file, which all workers open, such as"),
        ("sqlite:///:memory:", "a database in memory (expected a file"),
        ("sqlite:///file:x?mode=memory&uri=true", "a database in memory (expected a file"),
    ],
)
def test_storages_that_cannot_be_used(url: str, message: str) -> None:
    with pytest.raises((CostbenchError, OSError)) as caught:
        open_storage(StorageSpec(url))
    assert message in str(caught.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "optuna.db").write_text("this is text, not a database" * 100)
    with pytest.raises(CostbenchError, match=r"cannot be used: .*not a database"):
        open_storage(StorageSpec(f"sqlite:///{tmp_path}/optuna.db"))


def test_a_database_with_the_tables_of_tracked_runs_is_one_error(
    tracking_template: Path, tmp_path: Path
) -> None:
    shutil.copy(tracking_template, tmp_path / "mlflow.db")
    with pytest.raises(CostbenchError, match=r"mlflow\.db: "):
        open_storage(StorageSpec(f"sqlite:///{tmp_path}/mlflow.db"))


def test_a_server_that_is_not_there() -> None:
    pytest.importorskip("psycopg", reason="needs the extra `sweep-postgres`")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(CostbenchError, match=r"cannot be used: .*refused") as caught:
        open_storage(StorageSpec(f"postgresql+psycopg://me:secret@127.0.0.1:{port}/costbench"))
    assert "secret" not in str(caught.value)


CHANGES = {
    "a result": "UPDATE trial_values SET value = value + 1",
    "a metric of an epoch": "UPDATE trial_intermediate_values SET intermediate_value = 0.125 WHERE step = 1",
    "a value": "UPDATE trial_params SET param_value = 0.03 WHERE param_name = 'optimizer.learning_rate'",
    "a seed": "UPDATE trial_user_attributes SET value_json = '1' WHERE key = 'seed'",
    "the order": "UPDATE trials SET number = 5 - number",
    "a state": "UPDATE trials SET state = 'COMPLETF' WHERE number = 1",
    "text that is no JSON": "UPDATE trial_user_attributes SET value_json = '{' WHERE key = 'seed'",
    "a study": "UPDATE study_directions SET direction = 'MAXIMIZF'",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose study has its three trials. To be read, not changed."""
    folder = tmp_path_factory.mktemp("finished")
    task = toy_task(f"sqlite:///{folder / 'optuna.db'}", folder, trials=3)
    work(task, toy_training())
    check_study(open_study(task.study), task.study.storage)
    return folder / "optuna.db"


@pytest.mark.parametrize("change", CHANGES)
def test_changed_trials_are_not_believed(finished: Path, tmp_path: Path, change: str) -> None:
    path = shutil.copy(finished, tmp_path / "optuna.db")
    task = toy_task(f"sqlite:///{path}", tmp_path, trials=3)
    with closing(sqlite3.connect(path)) as database:
        database.execute(CHANGES[change])
        database.commit()
    with pytest.raises(DataError, match=r"optuna\.db: damaged: .*`costbench sweep` makes both again"):
        check_study(open_study(task.study), task.study.storage)


def test_a_damaged_page_of_the_database_is_noticed(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "optuna.db"
    task = toy_task(f"sqlite:///{path}", tmp_path, trials=3)
    whole = bytearray(finished.read_bytes())
    whole[4096 * 3 : 4096 * 3 + 8] = b"\xff" * 8
    path.write_bytes(whole)
    with pytest.raises(DataError, match=r"optuna\.db: (damaged|cannot be used): .*makes both again"):
        check_study(open_study(task.study), task.study.storage)
