"""A store can be copied or moved with its files, and its pages say what they show."""

from __future__ import annotations

import os
import shutil
import socket
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.experiments.grid.cells import Cell
from costbench.experiments.tracking.queries import CellFilter, experiment_pages
from costbench.experiments.tracking.registry import registered_model
from costbench.experiments.tracking.relative_artifacts import artifact_location
from costbench.experiments.tracking.runs import (
    ABOUT,
    KIND,
    OFF,
    WORK,
    client_of,
    describe,
    prepare,
    tracked_run,
)
from tests.deadline import HANGS_AFTER_S
from tests.experiments.conftest import quick_folder
from tests.experiments.finished_cells import PROVENANCE, finish_cell, register_best, track_cell
from tests.forked import start

pytestmark = [
    # MLflow's own use of SQLAlchemy, and what it says of its own type hints.
    pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning"),
]
# MLflow remembers a store by its address in a process, so another test must not use the same.
RELATIVE = "sqlite:///copied.db"


def _in_the_copy(folder: Path) -> None:
    """Reads and writes the store of a folder; leaves the size of its model's weights in `size`."""
    os.chdir(folder)
    model, _, _ = registered_model(RELATIVE, "models:/costbench-tile-p@champion")
    Path("size").write_text(str((model / "weights.pt").stat().st_size))
    Path("note.txt").write_text("new")
    with tracked_run(RELATIVE, "costbench/report", "r", PROVENANCE, {WORK: "w"}, goes_on=True) as run:
        run.log_files([Path("note.txt")], "report")


def _ends_well(process: BaseProcess) -> bool:
    process.join(HANGS_AFTER_S)
    return process.exitcode == 0


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_copy_of_the_folder_reads_and_writes_its_own_files(
    tracking_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    monkeypatch.chdir(first)
    shutil.copy(tracking_template, first / "copied.db")
    cell = finish_cell(tmp_path / "cell", "tile", "key", 0.5)
    track_cell(RELATIVE, Cell("tile", "random", "tpu_v2", "main", 0), cell, "key", 0.5)
    register_best(RELATIVE, CellFilter("tile"))
    (first / "note.txt").write_text("old")
    with tracked_run(RELATIVE, "costbench/report", "r", PROVENANCE, {"costbench.work": "w"}) as run:
        run.log_files([first / "note.txt"], "report")
    shutil.copytree(first, second)
    before = files_of(first)

    assert _ends_well(start(_in_the_copy, second))
    assert int((second / "size").read_text()) == (cell / "weights.pt").stat().st_size
    assert files_of(first) == before
    (note,) = (second / "mlruns").rglob("note.txt")
    assert note.read_text() == "new"
    shutil.rmtree(first)
    monkeypatch.chdir(second)
    assert _ends_well(start(_in_the_copy, second))


def _log_from_elsewhere(folder: Path) -> None:
    """As a worker of a cluster does, in a working folder of its own."""
    (folder / "worker").mkdir()
    os.chdir(folder / "worker")
    Path("note.txt").write_text("by a worker")
    with tracked_run(f"sqlite:///{folder}/copied.db", "costbench/train", "r", PROVENANCE) as run:
        run.log_files([Path("note.txt")], "report")


def _read_from_the_copy(folder: Path) -> None:
    os.chdir(folder)
    client = client_of(RELATIVE)
    experiment = client.get_experiment_by_name("costbench/train")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    Path("read.txt").write_text(
        Path(client.download_artifacts(run.info.run_id, "report/note.txt")).read_text()
    )


def test_a_copy_reads_what_workers_logged_to_the_whole_path_of_the_store(
    tracking_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    shutil.copy(tracking_template, first / "copied.db")
    monkeypatch.chdir(first)
    prepare(f"sqlite:///{first}/copied.db", "costbench/train")
    assert _ends_well(start(_log_from_elsewhere, first))
    first.rename(second)
    assert _ends_well(start(_read_from_the_copy, second))
    assert (second / "read.txt").read_text() == "by a worker"


def test_files_of_a_store_with_an_absolute_address_lie_where_mlflow_puts_them(tracking_store: str) -> None:
    prepare(tracking_store, "usual")
    location = client_of(tracking_store).get_experiment_by_name("usual").artifact_location
    assert Path(location).is_absolute()
    assert artifact_location("http://tracking:5000", "usual") is None
    assert artifact_location("sqlite:///:memory:", "usual") is None


def _make_a_store(uri: str, identifier: Path) -> None:
    identifier.write_text(str(prepare(uri, "new")))


def test_processes_that_make_a_store_at_the_same_time_wait_for_each_other(tmp_path: Path) -> None:
    with quick_folder() as folder:
        identifiers = [tmp_path / "first", tmp_path / "second"]
        makers = [start(_make_a_store, f"sqlite:///{folder}/mlflow.db", path) for path in identifiers]
        assert [_ends_well(maker) for maker in makers] == [True, True]
    assert identifiers[0].read_text() == identifiers[1].read_text()


def test_runs_and_experiments_say_what_they_are(tracking_store: str) -> None:
    tags = {KIND: "cell", "task": "tile", "chip": "tpu_v2", "split": "random", "seed": "3", "monitor": "tau"}
    with tracked_run(tracking_store, "costbench/train", "cell", PROVENANCE, tags) as run:
        pass
    client = client_of(tracking_store)
    said = client.get_run(run.run_id).data.tags[ABOUT]
    for name in ("tile", "tpu_v2", "random", "3"):
        assert name in said
    assert client.get_experiment_by_name("costbench/train").tags[ABOUT]


def test_a_run_of_an_unknown_kind_has_no_description() -> None:
    assert describe("other", {}) == {}
    assert "smoke" in describe("report", {"profile": "smoke"})[ABOUT]


def test_the_pages_that_list_runs(tracking_store: str) -> None:
    prepare(tracking_store, "costbench/sweep")  # without a run
    with tracked_run(tracking_store, "costbench/report", "r", PROVENANCE):
        pass
    number = client_of(tracking_store).get_experiment_by_name("costbench/report").experiment_id
    assert experiment_pages(tracking_store, "http://here:5000") == {
        "costbench/report": f"http://here:5000/#/experiments/{number}?workflowType=machine_learning"
    }
    with pytest.raises(DataError, match="is off"):
        experiment_pages(OFF, "http://here:5000")


@pytest.mark.parametrize("is_listening", [False, True], ids=["nobody listens", "nobody answers"])
def test_a_server_that_does_not_answer_is_given_up_soon(
    is_listening: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if is_listening:
            silent.listen()
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        with pytest.raises(DataError, match=f"{uri}: cannot be used for tracking: .*COSTBENCH_TRACKING=off"):
            prepare(uri, "costbench/train")
        assert time.monotonic() - start < 30.0
    # Records of a run that has begun may take longer; what the environment says stays as it is.
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "2"
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "1"
