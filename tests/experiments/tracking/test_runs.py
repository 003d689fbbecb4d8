"""Runs begin, end, go on, and do not stay open when their process is gone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.experiments.tracking.registry import registered_model
from costbench.experiments.tracking.runs import (
    DEFAULT_URI,
    OFF,
    PARENT,
    WORK,
    RunStopped,
    client_of,
    prepare,
    tracked_run,
    tracking_uri,
    work_of,
)
from tests.deadline import HANGS_AFTER_S
from tests.experiments.finished_cells import PROVENANCE
from tests.forked import start

# MLflow's own use of SQLAlchemy.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning")
REPOSITORY = Path(__file__).resolve().parents[3]


def _status(uri: str, run_id: str) -> str:
    status: str = client_of(uri).get_run(run_id).info.status
    return status


def test_a_run_can_be_found_by_what_it_follows_from(tracking_store: str) -> None:
    with tracked_run(tracking_store, "train", "cell", PROVENANCE, {"task": "tile"}) as run:
        assert _status(tracking_store, run.run_id) == "RUNNING"
    stored = client_of(tracking_store).get_run(run.run_id)
    assert stored.info.status == "FINISHED"
    wanted = {
        "task": "tile",
        "git_revision": "abc+changes",
        "costbench.params_digest": "params16",
        "costbench.data_digest": "data16",
        "mlflow.source.git.commit": "abc",
    }
    assert wanted.items() <= stored.data.tags.items()


def test_a_run_that_raises_is_marked_failed(tracking_store: str) -> None:
    with (
        pytest.raises(KeyError),
        tracked_run(tracking_store, "train", "broken", PROVENANCE) as run,
    ):
        raise KeyError("broken")
    assert _status(tracking_store, run.run_id) == "FAILED"


def test_a_run_that_is_stopped_on_purpose_has_not_failed(tracking_store: str) -> None:
    tags = {PARENT: "above", "trial": "3"}
    with (
        pytest.raises(RunStopped),
        tracked_run(tracking_store, "sweep", "pruned", PROVENANCE, tags) as run,
    ):
        raise RunStopped
    stored = client_of(tracking_store).get_run(run.run_id)
    assert stored.info.status == "KILLED"
    assert tags.items() <= stored.data.tags.items()


def _begin_and_die(uri: str, work: str, identifier: Path) -> None:
    with tracked_run(uri, "train", "cell", PROVENANCE, {WORK: work}) as run:
        identifier.write_text(run.run_id)
        os._exit(9)


def _killed(uri: str, work: str, folder: Path) -> str:
    """A run whose process dies without a word; its identifier."""
    process = start(_begin_and_die, uri, work, folder / "identifier")
    process.join(HANGS_AFTER_S)
    assert process.exitcode == 9
    return (folder / "identifier").read_text()


def test_a_killed_run_does_not_stay_open_and_a_living_one_is_left_alone(
    tracking_store: str, tmp_path: Path
) -> None:
    lost = _killed(tracking_store, "one", tmp_path)
    assert _status(tracking_store, lost) == "RUNNING"
    with tracked_run(tracking_store, "train", "alive", PROVENANCE, {WORK: "two"}) as alive:
        assert _status(tracking_store, lost) == "KILLED"
        with tracked_run(tracking_store, "train", "other", PROVENANCE, {WORK: "three"}):
            assert _status(tracking_store, alive.run_id) == "RUNNING"


def test_a_new_try_ends_the_record_of_the_last(tracking_store: str) -> None:
    """Also where nobody can see whether its process is gone: it ran on another machine."""
    client = client_of(tracking_store)
    prepare(tracking_store, "train")
    place = client.get_experiment_by_name("train")
    assert place is not None
    tags = {WORK: "cell", "costbench.writer": "elsewhere/boot 1"}
    elsewhere = client.create_run(place.experiment_id, tags=tags).info.run_id
    with tracked_run(tracking_store, "train", "other", PROVENANCE, {WORK: "another"}):
        assert _status(tracking_store, elsewhere) == "RUNNING"
    with tracked_run(tracking_store, "train", "cell", PROVENANCE, {WORK: "cell"}) as run:
        assert _status(tracking_store, elsewhere) == "KILLED"
        assert _status(tracking_store, run.run_id) == "RUNNING"


def test_the_run_of_a_grid_is_gone_on_with(tracking_store: str, tmp_path: Path) -> None:
    lost = _killed(tracking_store, "grid", tmp_path)
    for revision in ("first", "second"):
        tags = {WORK: "grid", "variant": revision}
        with tracked_run(tracking_store, "train", "grid", PROVENANCE, tags, goes_on=True) as run:
            assert run.run_id == lost
            assert _status(tracking_store, lost) == "RUNNING"
        assert _status(tracking_store, lost) == "FINISHED"
    assert client_of(tracking_store).get_run(lost).data.tags["variant"] == "second"
    with tracked_run(tracking_store, "train", "grid", PROVENANCE, {WORK: "other"}, goes_on=True) as run:
        assert run.run_id != lost


def test_names_of_work_are_the_same_everywhere_and_keep_parts_apart() -> None:
    code = "from costbench.experiments.tracking.runs import work_of; print(work_of('a', 'bc'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == work_of("a", "bc")
    assert work_of("a", "bc") != work_of("ab", "c")


def _write_twenty_epochs(uri: str, name: str, log: Path) -> None:
    with (
        log.open("w") as file,
        redirect_stderr(file),
        tracked_run(uri, "train", name, PROVENANCE) as run,
    ):
        for epoch in range(20):
            run.log_metrics({"loss": 1.0, "tau": 0.5}, epoch)


def test_two_writers_share_a_file(tracking_store: str, tmp_path: Path) -> None:
    """Two processes with twenty transactions each, at the same time: SQLite lets them wait for each other."""
    prepare(tracking_store, "train")
    names = ("first", "second")
    writers = [start(_write_twenty_epochs, tracking_store, name, tmp_path / name) for name in names]
    for writer in writers:
        writer.join(HANGS_AFTER_S)
    errors = "".join((tmp_path / name).read_text() for name in names)
    assert [writer.exitcode for writer in writers] == [0, 0], errors
    assert "not tracked" not in errors
    client = client_of(tracking_store)
    place = client.get_experiment_by_name("train")
    assert place is not None
    runs = client.search_runs([place.experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["first", "second"]
    assert {len(client.get_metric_history(run.info.run_id, "loss")) for run in runs} == {20}


def test_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tracking_uri() == DEFAULT_URI
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    assert tracking_uri() == "http://tracking:5000"
    monkeypatch.setenv("COSTBENCH_TRACKING", "off")
    assert tracking_uri() == OFF


def test_tracking_that_is_off_leaves_nothing_and_loads_nothing(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from costbench.experiments.tracking.runs import Provenance, prepare, tracked_run, tracking_uri\n"
        "prepare(tracking_uri(), 'train')\n"
        "with tracked_run(tracking_uri(), 'train', 'x', Provenance('p', 'd', 'r'), goes_on=True) as run:\n"
        "    run.log_metrics({'loss': 1.0})\n"
        "sys.exit('mlflow' in sys.modules)"
    )
    environment = os.environ | {"COSTBENCH_TRACKING": "off", "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["http", "postgresql+psycopg"])
def test_a_server_that_is_not_there_is_one_error_without_its_password(scheme: str) -> None:
    """At once: MLflow tries to reach a database for an hour."""
    pytest.importorskip("psycopg", reason="needs the extra `sweep-postgres`")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    uri = f"{scheme}://me:secret@127.0.0.1:{port}/costbench"
    for use in (lambda: prepare(uri, "train"), lambda: registered_model(uri, "models:/m@champion")):
        with pytest.raises(DataError, match="refused") as caught:
            use()
        assert "secret" not in str(caught.value)
        assert "me:***@127.0.0.1" in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("sqlite://", "a database in memory"),
        ("sqlite:///:memory:", "a database in memory"),
        ("sqlite:///file:x?mode=memory&uri=true", "a database in memory"),
        ("postgresql+pg8000://127.0.0.1/x", "pg8000"),
    ],
)
def test_a_database_that_cannot_hold_runs_is_one_error(uri: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        prepare(uri, "train")


def test_a_database_with_the_tables_of_studies_is_one_error(study_template: Path, tmp_path: Path) -> None:
    """Optuna's and MLflow's tables cannot share a database, whichever comes first."""
    shutil.copy(study_template, tmp_path / "studies.db")
    with pytest.raises(DataError, match=r"studies\.db: cannot be used for tracking: has tables of another"):
        prepare(f"sqlite:///{tmp_path}/studies.db", "train")


def test_a_store_that_cannot_be_used_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be used for tracking"):
        prepare(f"file:{tmp_path}", "train")
