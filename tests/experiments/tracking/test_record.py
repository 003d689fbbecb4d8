"""What is told of a run comes out of MLflow again; a store that is lost is no reason to stop."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sqlalchemy import event

from costbench.experiments.tracking.runs import OFF, Dataset, TrackedRun, client_of, tracked_run
from tests.experiments.finished_cells import PROVENANCE

# MLflow's own use of SQLAlchemy.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning")


def test_a_run_keeps_all_it_is_told(tracking_store: str, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,b\n")
    with tracked_run(tracking_store, "train", "tile-random", PROVENANCE) as run:
        run.log_params({"net": {"hidden": 64}, "seed": 0})
        run.log_history((epoch, {"loss": 1.0 / epoch, "tau": 0.1 * epoch}) for epoch in range(1, 4))
        run.log_metrics({"tile/random τ": 0.5})
        contents = pd.DataFrame({"program": ["a"]})
        run.log_datasets([Dataset(role, "digest", contents, tmp_path, role) for role in ("one", "two")])
        run.set_tags({"best": "1"})
        run.set_tags({"best": "2"})
        run.log_files([table], "loose")
        (tmp_path / "tables").mkdir()
        (tmp_path / "tables" / "table.csv").write_text("a,b\n")
        run.log_folder(tmp_path / "tables")
    client = client_of(tracking_store)
    stored = client.get_run(run.run_id)
    assert stored.data.params == {"net.hidden": "64", "seed": "0"}
    assert stored.data.metrics["tau"] == pytest.approx(0.3)
    assert stored.data.metrics["tile/random τ"] == 0.5
    history = client.get_metric_history(run.run_id, "loss")
    assert [metric.value for metric in history] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert [entry.dataset.digest for entry in stored.inputs.dataset_inputs] == ["digest", "digest"]
    assert stored.data.tags["best"] == "2"
    for folder in ("loose", "tables"):
        (file,) = client.list_artifacts(run.run_id, folder)
        assert file.path == f"{folder}/table.csv"


def test_a_data_set_that_another_process_makes_at_the_same_time_is_logged_all_the_same(
    tracking_store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other one makes it between MLflow's look and MLflow's insertion."""
    from mlflow.store.tracking.dbmodels.models import SqlDataset

    raced = []

    def make_first(_mapper: object, connection: Any, target: Any) -> None:
        if not raced:
            raced.append(target.name)
            columns = {column.key: getattr(target, column.key) for column in SqlDataset.__table__.columns}
            names = ", ".join(columns)
            with sqlite3.connect(connection.engine.url.database) as other:
                values = ["1" * 32 if key == "dataset_uuid" else value for key, value in columns.items()]
                marks = ", ".join("?" * len(values))
                other.execute(f"INSERT INTO datasets ({names}) VALUES ({marks})", values)

    event.listen(SqlDataset, "before_insert", make_first)
    try:
        with tracked_run(tracking_store, "race", "run", PROVENANCE) as run, caplog.at_level(logging.WARNING):
            run.log_datasets([Dataset("set", "digest", pd.DataFrame({"a": ["b"]}), tmp_path, "training")])
    finally:
        event.remove(SqlDataset, "before_insert", make_first)
    assert raced == ["set"]
    assert not caplog.messages
    (entry,) = client_of(tracking_store).get_run(run.run_id).inputs.dataset_inputs
    assert (entry.dataset.name, entry.dataset.digest) == ("set", "digest")


def test_many_metrics_take_few_calls(tracking_store: str) -> None:
    with tracked_run(tracking_store, "train", "long", PROVENANCE) as run:
        run.log_history((step, {"loss": float(step)}) for step in range(1100))
    assert client_of(tracking_store).get_run(run.run_id).data.metrics["loss"] == 1099.0


def test_what_cannot_be_told_is_a_warning(
    tracking_store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No such run, a value that may not change, a file that is not there."""
    with tracked_run(tracking_store, "train", "run", PROVENANCE) as run, caplog.at_level(logging.WARNING):
        TrackedRun(tracking_store, "train", "0" * 32).log_metrics({"loss": 1.0})
        run.log_params({"seed": 1})
        run.log_params({"seed": 2})
        run.log_files([tmp_path / "none"], "files")
    ours = [record for record in caplog.records if record.name.startswith("costbench")]
    assert len(ours) == 3
    assert all("not tracked" in record.getMessage() for record in ours)
    stored = client_of(tracking_store).get_run(run.run_id)
    assert stored.info.status == "FINISHED"
    assert stored.data.params == {"seed": "1"}


def test_without_a_store_nothing_is_told(tmp_path: Path) -> None:
    run = TrackedRun(OFF, "train", "")
    run.log_params({"seed": 1})
    run.log_metrics({"loss": 1.0})
    run.set_tags({"a": "b"})
    run.log_folder(tmp_path)
    run.end("FINISHED")
    assert list(tmp_path.iterdir()) == []
