"""The best model goes into the registry once, as text and tensors, and comes out of it the same."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from costbench.errors import DataError
from costbench.experiments.grid.cells import Cell
from costbench.experiments.tracking.queries import CellFilter, best_runs
from costbench.experiments.tracking.registry import Registered, example, register_champion, registered_model
from costbench.experiments.tracking.runs import client_of
from costbench.serving.service import load_service
from tests.experiments.finished_cells import finish_cell, register_best, track_cell
from tests.serving.test_service import FAR

pytestmark = [
    # MLflow's own use of SQLAlchemy, and what it says of its own type hints.
    pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning"),
]
CELL = Cell("tile", "random", "tpu_v2", "main", 0)


def _load(uri: str, model: str, config: dict[str, object] | None = None) -> object:
    import mlflow

    mlflow.set_tracking_uri(uri)
    return mlflow.pyfunc.load_model(model, model_config=config)


def test_the_best_is_registered_once_and_a_better_one_takes_its_place(
    tracking_store: str, tmp_path: Path
) -> None:
    assert register_best(tracking_store, CellFilter("tile")) is None
    folder = finish_cell(tmp_path / "first", "tile", "one", 0.5)
    run_id = track_cell(tracking_store, CELL, folder, "one", 0.5)
    first = register_best(tracking_store, CellFilter("tile"))
    assert first == Registered("costbench-tile-p", "1", is_new=True)
    again = register_best(tracking_store, CellFilter("tile"))
    assert again == Registered("costbench-tile-p", "1", is_new=False)
    client = client_of(tracking_store)
    version = client.get_model_version_by_alias("costbench-tile-p", "champion")
    assert version.run_id == run_id
    assert {"split": "random", "chip": "tpu_v2", "experiment": "main"}.items() <= version.tags.items()

    better = finish_cell(tmp_path / "second", "tile", "two", 0.75, seed=1)
    track_cell(tracking_store, CELL, better, "two", 0.75)
    assert register_best(tracking_store, CellFilter("tile")) == Registered(
        "costbench-tile-p", "2", is_new=True
    )
    # Back to what it was: that version is used again.
    worse = best_runs(tracking_store, CellFilter("tile")).iloc[1]
    assert register_champion(tracking_store, worse) == Registered("costbench-tile-p", "1", is_new=False)
    assert client.get_model_version_by_alias("costbench-tile-p", "champion").version == 1


@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_the_registered_model_has_all_that_it_takes(task: str, tracking_store: str, tmp_path: Path) -> None:
    """Signature, example, no pickle; and it answers its example as the checkpoint does."""
    folder = finish_cell(tmp_path / "cell", task, "key", 0.5)
    track_cell(tracking_store, Cell(task, "random", "tpu_v2", "main", 0), folder, "key", 0.5)
    registered = register_best(tracking_store, CellFilter(task))
    assert registered is not None
    model = _load(tracking_store, registered.uri)
    assert model.metadata.get_input_schema().input_names()[0] == "kernel"  # type: ignore[attr-defined]
    assert len(model.input_example) == 1  # type: ignore[attr-defined]
    files = {path.name for path in Path(model.metadata.get_model_info().artifact_path).rglob("*")}  # type: ignore[attr-defined]
    assert not {name for name in files if name.endswith((".pkl", ".pickle"))}
    with pytest.raises(MlflowException, match=r"request 0\.kernel: .* times further out than in training"):
        model.predict(example(task))  # type: ignore[attr-defined]
    model = _load(tracking_store, registered.uri, {"limits": asdict(FAR)})
    (answer,) = model.predict(example(task))  # type: ignore[attr-defined]
    (expected,) = load_service(folder, task, "tpu_v2", FAR).answer(example(task).to_dict("records"))
    assert answer == expected


def test_champions_of_profiles_do_not_meet(tracking_store: str, tmp_path: Path) -> None:
    """A better model of a run in miniature leaves alone what the default profile has registered."""
    for name, tau in (("laptop", 0.5), ("smoke", 0.9)):
        folder = finish_cell(tmp_path / name, "tile", name, tau)
        track_cell(tracking_store, CELL, folder, name, tau, profile=name)
        register_best(tracking_store, CellFilter("tile", profile=name))
    client = client_of(tracking_store)
    for name in ("laptop", "smoke"):
        version = client.get_model_version_by_alias(f"costbench-tile-{name}", "champion")
        assert (version.version, version.tags["costbench.key"]) == (1, name)


def test_the_checkpoint_of_a_champion_can_be_loaded(tracking_store: str, tmp_path: Path) -> None:
    folder = finish_cell(tmp_path / "cell", "tile", "key", 0.5)
    track_cell(tracking_store, CELL, folder, "key", 0.5)
    register_best(tracking_store, CellFilter("tile"))
    found, *trained_for = registered_model(tracking_store, "models:/costbench-tile-p@champion")
    assert trained_for == ["tile", "tpu_v2"]
    assert (found / "weights.pt").read_bytes() == (folder / "weights.pt").read_bytes()
    for other in ("costbench-tile-other@champion", "costbench-tile-p/7", "costbench-tile-p@best", "nothing"):
        with pytest.raises(DataError, match=r"there are costbench-tile-p\)$") as caught:
            registered_model(tracking_store, f"models:/{other}")
        assert caught.value.where == f"models:/{other}"
    with pytest.raises(DataError, match="is off"):
        registered_model("", "models:/costbench-tile-p@champion")


def test_a_metric_over_few_kernels_makes_no_champion(tracking_store: str, tmp_path: Path) -> None:
    for name, tau, kernels in (("short", 0.9, 20), ("long", 0.5, 60)):
        folder = finish_cell(tmp_path / name, "tile", name, tau)
        track_cell(tracking_store, CELL, folder, name, tau, kernels=kernels)
    assert best_runs(tracking_store, CellFilter("tile"))["key"][0] == "short"
    register_best(tracking_store, CellFilter("tile"))
    version = client_of(tracking_store).get_model_version_by_alias("costbench-tile-p", "champion")
    assert version.tags["costbench.key"] == "long"


def test_a_model_that_is_gone_cannot_be_registered(tracking_store: str, tmp_path: Path) -> None:
    track_cell(tracking_store, CELL, tmp_path / "none", "key", 0.5)
    runs = best_runs(tracking_store, CellFilter("tile"))
    with pytest.raises(DataError, match="no longer there"):
        register_champion(tracking_store, runs.iloc[0])
    assert register_best(tracking_store, CellFilter("tile")) is None
