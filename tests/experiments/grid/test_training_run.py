"""When a cell is trained, resumed, reused, or left as it is; `training.fit` has tests of its own."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from costbench.artifacts import read_json
from costbench.datasets.splits import TrainingPrograms
from costbench.errors import DataError
from costbench.experiments.grid.spec import Cell
from costbench.experiments.grid.training_run import (
    CellResult,
    CellTask,
    Tracking,
    _finish,
    _start,
    finished,
    train_cell,
)
from costbench.experiments.grid.trainings.by_task import TRAININGS
from costbench.experiments.tracking.runs import OFF, Provenance
from costbench.features.feature_shards import feature_path
from costbench.training.lightning_run import FitResult
from costbench.training.spec import BatchSpec, TrainSpec

RESULT = CellResult(key="k", best_metric=0.5, best_epoch=3, steps=40, execution="fp32")


def test_a_cell_is_finished_when_it_says_so(tmp_path: Path) -> None:
    assert finished(tmp_path / "none") is None
    (tmp_path / "done.json").write_text("{")
    assert finished(tmp_path) is None
    (tmp_path / "done.json").write_text(json.dumps(asdict(RESULT)))
    assert finished(tmp_path) == RESULT


def test_a_killed_cell_keeps_its_folder_and_another_one_starts_empty(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    _start(folder, "first")
    (folder / "resume.ckpt").write_text("")
    _start(folder, "first")
    assert (folder / "resume.ckpt").exists()
    _start(folder, "second")
    assert not (folder / "resume.ckpt").exists()


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
        cell, TRAININGS[cell.task], features, programs, SPEC, place, "code", 1, *nowhere, cells=cells
    )


def test_a_finished_cell_that_no_longer_fits_starts_empty(task: CellTask) -> None:
    _start(task.folder, task.key())
    done = _finish(task, FitResult(task.folder, 0.5, 3, 40, 1.25, "fp32", "compiled"))
    assert (done.kernels, done.configs, done.validations) == (4, 8, 4)
    assert (done.computed_by, done.key, done.training) == ("compiled", task.key(), task.trained_from())
    assert finished(task.folder) == done
    # No wall time: equal runs leave equal bytes.
    assert "seconds" not in json.loads((task.folder / "done.json").read_text())
    _start(task.folder, "second")
    assert finished(task.folder) is None


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
    _start(task.folder, task.key())
    for name in ("model.json", "weights.pt", "history.csv", "timing.json"):
        (task.folder / name).write_text(f"{name} of {task.cell.name}")
    return _finish(task, FitResult(task.folder, 0.5, 3, 40, 1.25, "fp32", "compiled"))


def test_a_training_that_another_cell_has_done_is_not_done_again(task: CellTask) -> None:
    done = finish(task)
    other = renamed(task, "scale-100", "data-tile")
    result = train_cell(other)
    assert result == replace(done, key=other.key())
    assert {path.name for path in other.folder.iterdir()} == {path.name for path in task.folder.iterdir()}
    for path in task.folder.iterdir():
        if path.name != "done.json":
            assert (other.folder / path.name).read_bytes() == path.read_bytes()
    # It stands for itself: the first cell may go.
    shutil.rmtree(task.folder)
    assert train_cell(other) == result
    assert train_cell(task) == done


@pytest.mark.parametrize("damage", ["weights.pt", "done.json", "training", "nothing shared"])
def test_otherwise_it_is_trained(task: CellTask, damage: str) -> None:
    done = finish(task)
    other = renamed(task, "scale-100", "data-tile")
    if damage == "training":
        (task.folder / "done.json").write_text(json.dumps(asdict(replace(done, training="of other code"))))
    elif damage == "nothing shared":
        other = replace(other, cells=None)
    else:
        (task.folder / damage).unlink()
    with pytest.raises(DataError, match=r"a\.arrow"):
        train_cell(other)
    assert read_json(other.folder / "started.json") == {"key": other.key()}
    assert not (other.folder / "weights.pt").exists()


def test_restored_results_without_weights_are_no_trained_cell(task: CellTask) -> None:
    done = finish(task)
    assert train_cell(task) == done
    (task.folder / "weights.pt").unlink()
    with pytest.raises(DataError, match=r"a\.arrow"):
        train_cell(task)
    assert [path.name for path in task.folder.iterdir()] == ["started.json"]
