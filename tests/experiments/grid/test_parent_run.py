"""A grid is one run with one finished run below it for each cell, whoever trained them and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costbench.datasets.splits import TrainingPrograms
from costbench.experiments.grid.experiment import Experiment, Grid, Variant
from costbench.experiments.grid.parent_run import cell_tracking, nest_cells, tracked_grid
from costbench.experiments.grid.training_run import CellResult, CellTask, Tracking
from costbench.experiments.stages.train import TRAININGS
from costbench.experiments.tracking.runs import (
    FOLDER,
    KEY,
    KIND,
    OFF,
    PARENT,
    Provenance,
    client_of,
    tracked_run,
)
from costbench.training.spec import TrainSpec
from tests.experiments.finished_cells import PROVENANCE, finish_cell, result_of

# MLflow's own use of SQLAlchemy.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning")
EXPERIMENT = Experiment(
    "main", Grid("tile", ("random", "manual"), ("tpu_v2",), (0,)), {"main": Variant(TrainSpec())}
)
METRICS = {"tile-manual-tpu_v2-main-s0": 0.25, "tile-random-tpu_v2-main-s0": 0.5}


def _train(uri: str, folder: Path, provenance: Provenance = PROVENANCE, trained: tuple[str, ...] = ()) -> str:
    """What the stage does, with cells that take no time; the grid's run. `trained`: cells to train now."""
    tracking = Tracking(uri, "costbench/train", "p/main", {"profile": "p"})
    tasks: dict[str, CellTask] = {}
    results: dict[str, CellResult] = {}
    with tracked_grid(tracking, EXPERIMENT, provenance) as (grid, of_cells):
        for cell in EXPERIMENT.cells:
            place = finish_cell(folder / cell.name, "tile", f"key-{cell.name}", METRICS[cell.name])
            where = cell_tracking(of_cells, cell.name, str(place), "here")
            split = TrainingPrograms(("a",), ("b",))
            tasks[cell.name] = CellTask(
                cell, TRAININGS["kernel"], folder, split, TrainSpec(), place, "code", 1, provenance, where
            )
            results[cell.name] = result_of(f"key-{cell.name}", METRICS[cell.name])
            if cell.name in trained:
                tags = {**where.tags, KEY: results[cell.name].key, FOLDER: str(place)}
                with tracked_run(uri, where.experiment, where.run_name, provenance, tags) as run:
                    run.log_metrics({"best_metric": METRICS[cell.name]})
        nest_cells(grid, tasks, results)
    return grid.run_id


def _children(uri: str, parent: str) -> dict[str, str]:
    """By name: the run."""
    client = client_of(uri)
    place = client.get_experiment_by_name("costbench/train")
    assert place is not None
    query = f"tags.`{PARENT}` = '{parent}' and tags.`{KIND}` = 'cell'"
    found = client.search_runs([place.experiment_id], query)
    assert all(run.info.status == "FINISHED" for run in found)
    names = {run.info.run_name: run.info.run_id for run in found}
    assert len(names) == len(found)
    return names


NAMES = {f"p/main/{name}" for name in METRICS}


def test_cells_are_trained_below_the_grid_and_kept_there(tracking_store: str, tmp_path: Path) -> None:
    first = _train(tracking_store, tmp_path, trained=tuple(METRICS))
    children = _children(tracking_store, first)
    assert set(children) == NAMES
    # Again, with nothing to train: no run more.
    assert _train(tracking_store, tmp_path) == first
    assert _children(tracking_store, first) == children
    grid = client_of(tracking_store).get_run(first)
    wanted = {"task": "tile", "split": "random,manual", "experiment": "main", "profile": "p", KIND: "grid"}
    assert wanted.items() <= grid.data.tags.items()
    assert grid.data.params["cells"] == "2"
    assert grid.data.metrics["best/random/tpu_v2/validation/tau"] == 0.5
    assert grid.data.metrics["best/manual/tpu_v2/validation/tau"] == 0.25


def test_kept_cells_move_below_a_new_grid(tracking_store: str, tmp_path: Path) -> None:
    """Other parameters train one cell again; the other one stays as it is, and is listed with it."""
    first = _train(tracking_store, tmp_path, trained=tuple(METRICS))
    kept = _children(tracking_store, first)["p/main/tile-random-tpu_v2-main-s0"]
    other = replace(PROVENANCE, params_digest="other")
    second = _train(tracking_store, tmp_path, other, trained=("tile-manual-tpu_v2-main-s0",))
    assert second != first
    children = _children(tracking_store, second)
    assert set(children) == NAMES
    assert children["p/main/tile-random-tpu_v2-main-s0"] == kept


def test_a_cell_that_is_trained_again_counts_once(tracking_store: str, tmp_path: Path) -> None:
    """Somebody removed the folder, and the same training made the same model again."""
    grid = _train(tracking_store, tmp_path, trained=tuple(METRICS))
    before = _children(tracking_store, grid)
    assert _train(tracking_store, tmp_path, trained=("tile-random-tpu_v2-main-s0",)) == grid
    after = _children(tracking_store, grid)
    assert set(after) == NAMES
    assert after["p/main/tile-random-tpu_v2-main-s0"] != before["p/main/tile-random-tpu_v2-main-s0"]
    assert after["p/main/tile-manual-tpu_v2-main-s0"] == before["p/main/tile-manual-tpu_v2-main-s0"]


def test_where_nothing_is_tracked_a_grid_is_trained_all_the_same(tmp_path: Path) -> None:
    assert _train(OFF, tmp_path, trained=tuple(METRICS)) == ""
