"""When a cell is trained, resumed, or left as it is. Training itself is tested with `training.fit`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from costbench.experiments.grid.training_run import CellResult, _finish, _start, finished
from costbench.training.fit import FitResult
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


def test_a_finished_cell_that_no_longer_fits_starts_empty(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    _start(folder, "first")
    spec = TrainSpec(batch=BatchSpec(kernels=4, configs=8, per_epoch=10))
    done = _finish(folder, "first", FitResult(folder, 0.5, 3, 40, 1.25, "fp32", "compiled"), spec)
    assert (done.kernels, done.configs, done.validations) == (4, 8, 4)
    assert done.computed_by == "compiled"
    assert finished(folder) == done
    # No wall time: equal runs leave equal bytes.
    assert "seconds" not in json.loads((folder / "done.json").read_text())
    _start(folder, "second")
    assert finished(folder) is None
