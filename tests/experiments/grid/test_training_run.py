"""What a cell follows from; the store and `training.fit` have tests of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costbench.datasets.splits import TrainingPrograms
from costbench.errors import DataError
from costbench.experiments.grid.cells import Cell
from costbench.experiments.grid.training_run import (
    CellResult,
    CellTask,
    Tracking,
    train_cell,
)
from costbench.experiments.stages.train import TRAININGS
from costbench.experiments.tracking.runs import OFF, Provenance
from costbench.features.feature_shards import feature_path
from costbench.training.spec import BatchSpec, TrainSpec

SPEC = TrainSpec(batch=BatchSpec(kernels=4, configs=8, per_epoch=10))


@pytest.fixture
def task(tmp_path: Path) -> CellTask:
    """A cell below `tmp_path/train`, of shards that no training can read."""
    features = tmp_path / "features"
    for name in "abv":
        path = feature_path(features, "tile", "tpu_v2", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"shard of {name}")
    cell = Cell("tile", "random", "tpu_v2", "main", 0)
    cells = tmp_path / "train"
    programs = TrainingPrograms(("a", "b"), ("v",))
    nowhere = Provenance("", "", ""), Tracking(OFF, "", "")
    place = cells / "mine" / cell.name
    return CellTask(
        cell, TRAININGS["kernel"], features, programs, SPEC, place, "code", 1, *nowhere, cells=cells
    )


def renamed(task: CellTask, variant: str, experiment: str) -> CellTask:
    """The same training as a variant of another experiment."""
    cell = replace(task.cell, variant=variant)
    return replace(task, cell=cell, folder=task.folder.parents[1] / experiment / cell.name)


def test_names_are_no_part_of_a_training_and_all_else_is(task: CellTask) -> None:
    other = renamed(task, "scale-100", "data-tile")
    assert (other.trained_from(), other.key() == task.key()) == (task.trained_from(), False)
    different = [
        replace(task, cell=replace(task.cell, seed=1)),
        replace(task, spec=replace(SPEC, epochs=SPEC.epochs + 1)),
        replace(task, split=TrainingPrograms(("a",), ("v",))),
        replace(task, split=TrainingPrograms(("a", "b"), ("b",))),
        replace(task, code="other code"),
    ]
    assert len({task.trained_from(), *(one.trained_from() for one in different)}) == 1 + len(different)
    feature_path(task.features, "tile", "tpu_v2", "a").write_text("another shard")
    assert replace(task).trained_from() != task.trained_from()


def finish(task: CellTask) -> CellResult:
    """A complete cell whose files say what they are."""
    task.entry.begin()
    for name in ("model.json", "weights.pt", "history.csv"):
        (task.folder / name).write_text(f"{name} of {task.cell.name}")
    result = CellResult(task.key(), 0.5, 3, 40, "fp32", 4, 8, 4, "compiled")
    return task.entry.keep(result)


def test_a_training_that_another_cell_has_done_is_not_done_again(task: CellTask) -> None:
    done = finish(task)
    assert train_cell(task) == done
    other = renamed(task, "scale-100", "data-tile")
    result = train_cell(other)
    assert result == replace(done, key=other.key())
    for name in ("model.json", "weights.pt", "history.csv"):
        assert (other.folder / name).read_bytes() == (task.folder / name).read_bytes()


def test_without_one_the_shards_are_read(task: CellTask) -> None:
    finish(task)
    for other in (
        renamed(replace(task, code="other code"), "scale-100", "data-tile"),
        replace(renamed(task, "scale-100", "data-tile"), cells=None),
    ):
        with pytest.raises(DataError, match=r"a\.arrow"):
            train_cell(other)
        assert [path.name for path in other.folder.iterdir()] == ["done.started"]


def test_restored_results_without_weights_are_no_trained_cell(task: CellTask) -> None:
    finish(task)
    (task.folder / "weights.pt").unlink()
    with pytest.raises(DataError, match=r"a\.arrow"):
        train_cell(task)
    assert [path.name for path in task.folder.iterdir()] == ["done.started"]
