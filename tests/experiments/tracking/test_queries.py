"""The best run is the best of those that were asked for, and says whether its model is still there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costbench.errors import ChoiceError, DataError
from costbench.experiments.grid.cells import Cell
from costbench.experiments.tracking.queries import (
    CellFilter,
    best_runs,
    experiment_pages,
    find_runs,
    to_records,
)
from costbench.experiments.tracking.registry import registered_model
from costbench.experiments.tracking.runs import OFF
from tests.experiments.finished_cells import finish_cell, track_cell

# MLflow's own use of SQLAlchemy.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning")


def _names(uri: str, wanted: CellFilter) -> list[tuple[str, float]]:
    runs = best_runs(uri, wanted)
    return list(zip(runs["variant"], runs["metric"], strict=True))


def test_the_best_come_first(tracking_store: str, tmp_path: Path) -> None:
    """A larger tau is better, a smaller MAPE; of equal ones the name decides."""
    for variant, split, tau in (
        ("a", "random", 0.5),
        ("b", "random", 0.7),
        ("c", "manual", 0.9),
        ("d", "random", 0.7),
    ):
        track_cell(tracking_store, Cell("tile", split, "tpu_v2", variant, 0), tmp_path, "k", tau)
    for variant, mape in (("a", 30.0), ("b", 20.0)):
        track_cell(tracking_store, Cell("fusion", "random", "tpu_v3", variant, 0), tmp_path, "k", mape)
    track_cell(
        tracking_store, Cell("tile", "random", "tpu_v2", "e", 0), tmp_path, "k", 0.1,
        experiment="other", profile="q", monitor="ape",
    )  # fmt: skip
    assert _names(tracking_store, CellFilter("tile")) == [("c", 0.9), ("b", 0.7), ("d", 0.7), ("a", 0.5)]
    assert _names(tracking_store, CellFilter("tile", split="random", variant="a")) == [("a", 0.5)]
    assert _names(tracking_store, CellFilter("tile", monitor="ape", profile="q")) == [("e", 0.1)]
    assert _names(tracking_store, CellFilter("fusion", chip="tpu_v3")) == [("b", 20.0), ("a", 30.0)]
    assert find_runs(tracking_store, CellFilter("tile", experiment="other")).empty


def test_a_model_that_was_trained_anew_is_no_longer_there(tracking_store: str, tmp_path: Path) -> None:
    folder = finish_cell(tmp_path / "cell", "tile", "new", 0.5)
    cell = Cell("tile", "random", "tpu_v2", "main", 0)
    for key, metric in (("old", 0.75), ("new", 0.5)):
        track_cell(tracking_store, cell, folder, key, metric)
    runs = best_runs(tracking_store, CellFilter("tile"))
    assert list(runs["key"]) == ["old", "new"]
    assert list(runs["is_there"]) == [False, True]
    told = json.loads(json.dumps(to_records(runs)))[1]
    assert told["path"] == str(folder)
    assert told["metric"] == 0.5
    assert told["params"]["model.net.hidden"] == "8"
    assert told["git_revision"] == "abc+changes"


def test_a_restored_result_is_no_model(tracking_store: str, tmp_path: Path) -> None:
    folder = finish_cell(tmp_path / "cell", "tile", "k", 0.5)
    track_cell(tracking_store, Cell("tile", "random", "tpu_v2", "main", 0), folder, "k", 0.5)
    assert list(find_runs(tracking_store, CellFilter("tile"))["is_there"]) == [True]
    (folder / "weights.pt").unlink()
    assert list(find_runs(tracking_store, CellFilter("tile"))["is_there"]) == [False]


def test_runs_that_are_no_finished_cells_do_not_count(tracking_store: str, tmp_path: Path) -> None:
    cell = Cell("tile", "random", "tpu_v2", "main", 0)
    track_cell(tracking_store, cell, tmp_path, "k", 0.9, **{"costbench.kind": "trial"})
    assert find_runs(tracking_store, CellFilter("tile")).empty


@pytest.mark.parametrize(
    "wanted", [CellFilter("layers"), CellFilter("tile", monitor="loss"), CellFilter("tile", chip="a'b")]
)
def test_what_cannot_be_asked_for_is_one_error(tracking_store: str, wanted: CellFilter) -> None:
    with pytest.raises(ChoiceError):
        find_runs(tracking_store, wanted)


def test_none_is_an_error_that_says_what_to_do(tracking_store: str) -> None:
    with pytest.raises(DataError, match="costbench train"):
        best_runs(tracking_store, CellFilter("tile"))
    with pytest.raises(DataError, match="COSTBENCH_TRACKING: is off"):
        best_runs(OFF, CellFilter("tile"))


def test_reading_makes_no_store(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    for read in (
        lambda: best_runs(uri, CellFilter("tile")),
        lambda: experiment_pages(uri, uri),
        lambda: registered_model(uri, "models:/costbench-tile-p@champion"),
    ):
        with pytest.raises(DataError) as error:
            read()
        assert error.value.where == uri
    assert not list(tmp_path.iterdir())
