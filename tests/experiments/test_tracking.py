"""What goes into MLflow comes out of it again."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from costbench.errors import DataError
from costbench.experiments.tracking import (
    DEFAULT_URI,
    Provenance,
    RunStopped,
    TrackedRun,
    prepare,
    tracked_run,
    tracking_uri,
)

# MLflow's own use of SQLAlchemy.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning")
PROVENANCE = Provenance("params16", "data16", "abc+changes")


def _stored(run: TrackedRun):  # type: ignore[no-untyped-def]
    from mlflow import MlflowClient

    return MlflowClient(run.uri).get_run(run.run_id)


def test_a_run_keeps_all_it_is_told(tracking_store: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    table = tmp_path / "table.csv"
    table.write_text("a,b\n")
    with tracked_run(tracking_store, "train", "tile-random", PROVENANCE) as run:
        run.log_params({"net": {"hidden": 64}, "seed": 0})
        run.log_history((epoch, {"loss": 1.0 / epoch, "tau": 0.1 * epoch}) for epoch in range(1, 4))
        run.log_metrics({"tile/random τ": 0.5})
        run.log_dataset("tile", "digest", pd.DataFrame({"program": ["a"]}), tmp_path, "training")
        run.log_files([table], "loose")
        (tmp_path / "tables").mkdir()
        (tmp_path / "tables" / "table.csv").write_text("a,b\n")
        run.log_folder(tmp_path / "tables")
    stored = _stored(run)
    assert stored.info.status == "FINISHED"
    assert stored.data.params == {"net.hidden": "64", "seed": "0"}
    assert stored.data.metrics["tau"] == pytest.approx(0.3)
    assert stored.data.metrics["tile/random τ"] == 0.5
    assert [m.value for m in MlflowClient(tracking_store).get_metric_history(run.run_id, "loss")] == [
        1.0,
        0.5,
        pytest.approx(1 / 3),
    ]
    assert stored.inputs.dataset_inputs[0].dataset.digest == "digest"
    assert stored.data.tags["costbench.data_digest"] == "data16"
    assert stored.data.tags["mlflow.source.git.commit"] == "abc"
    for folder in ("loose", "tables"):
        (file,) = MlflowClient(tracking_store).list_artifacts(run.run_id, folder)
        assert file.path == f"{folder}/table.csv"


def test_a_run_that_raises_is_marked_failed(tracking_store: str) -> None:
    with (
        pytest.raises(KeyError),
        tracked_run(tracking_store, "train", "broken", PROVENANCE) as run,
    ):
        raise KeyError("broken")
    assert _stored(run).info.status == "FAILED"


def test_a_run_that_is_stopped_on_purpose_has_not_failed(tracking_store: str) -> None:
    tags = {"mlflow.parentRunId": "above", "costbench.trial": "3"}
    with (
        pytest.raises(RunStopped),
        tracked_run(tracking_store, "sweep", "pruned", PROVENANCE, tags) as run,
    ):
        raise RunStopped
    stored = _stored(run)
    assert stored.info.status == "KILLED"
    assert tags.items() <= stored.data.tags.items()


def test_many_metrics_take_few_calls(tracking_store: str) -> None:
    with tracked_run(tracking_store, "train", "long", PROVENANCE) as run:
        run.log_history((step, {"loss": float(step)}) for step in range(1100))
    assert _stored(run).data.metrics["loss"] == 1099.0


def test_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tracking_uri() == DEFAULT_URI
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    assert tracking_uri() == "http://tracking:5000"


def test_a_store_that_cannot_be_used_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be used for tracking"):
        prepare(f"file:{tmp_path}", "train")
