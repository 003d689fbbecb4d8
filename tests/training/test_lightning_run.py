from __future__ import annotations

import logging
import os
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from costbench.training.lightning_run import (
    BestModel,
    EpochReport,
    FreedMemory,
    Patience,
    find_resume_point,
)


def trainer(value: float, epoch: int) -> Any:
    metrics = {"metric": torch.tensor(value), "other": torch.tensor(2.0)}
    return SimpleNamespace(callback_metrics=metrics, current_epoch=epoch, global_step=10 * epoch + 10)


@pytest.mark.parametrize(
    ("larger_is_better", "values", "saved_at"),
    [
        (True, [0.1, 0.3, 0.3, 0.2, 0.4], [0, 1, 4]),
        (False, [5.0, 6.0, 4.0, 4.0], [0, 2]),
        (True, [-0.5, -0.6], [0]),
    ],
)
def test_only_better_epochs_are_saved(
    larger_is_better: bool, values: list[float], saved_at: list[int]
) -> None:
    epochs: list[int] = []
    best = BestModel("metric", larger_is_better=larger_is_better, save=lambda: epochs.append(epoch))
    for epoch, value in enumerate(values):
        best.on_train_epoch_end(trainer(value, epoch), SimpleNamespace())  # type: ignore[arg-type]
    assert epochs == saved_at
    assert best.epoch == saved_at[-1]
    assert best.best == pytest.approx(values[saved_at[-1]])


def test_the_best_epoch_survives_an_interruption() -> None:
    best = BestModel("metric", larger_is_better=True, save=lambda: None)
    best.on_train_epoch_end(trainer(0.7, 3), SimpleNamespace())  # type: ignore[arg-type]
    saves: list[int] = []
    again = BestModel("metric", larger_is_better=True, save=lambda: saves.append(1))
    again.load_state_dict(best.state_dict())
    again.on_train_epoch_end(trainer(0.6, 4), SimpleNamespace())  # type: ignore[arg-type]
    assert saves == []
    assert (again.best, again.epoch) == (pytest.approx(0.7), 3)


@pytest.mark.parametrize(
    ("values", "ends_after"),
    [
        ([0.1, 0.2, 0.2, 0.1, 0.3], 3),
        ([0.3, 0.2, 0.1], 2),
        ([0.1, 0.05, 0.2, 0.15, 0.3], None),
    ],
)
def test_training_ends_when_two_epochs_in_a_row_are_no_better(
    values: list[float], ends_after: int | None
) -> None:
    best = BestModel("metric", larger_is_better=True, save=lambda: None)
    patience = Patience(best, 2)
    ended = []
    for epoch, value in enumerate(values):
        state = trainer(value, epoch)
        state.should_stop = False
        best.on_train_epoch_end(state, SimpleNamespace())  # type: ignore[arg-type]
        patience.on_train_epoch_end(state, SimpleNamespace())  # type: ignore[arg-type]
        ended.append(state.should_stop)
    assert (ended.index(True) if True in ended else None) == ends_after


@pytest.mark.parametrize(("epochs_done", "ends"), [(3, False), (4, True)])
def test_training_resumed_after_its_last_epoch_ends_at_once(epochs_done: int, ends: bool) -> None:
    best = BestModel("metric", larger_is_better=True, save=lambda: None)
    best.load_state_dict({"best": 0.7, "epoch": 1})
    state = trainer(0.0, epochs_done)
    state.should_stop = False
    Patience(best, 2).on_train_start(state, SimpleNamespace())  # type: ignore[arg-type]
    assert state.should_stop is ends


def test_every_epoch_is_reported_by_its_last_step() -> None:
    class Rows(list[tuple[int, dict[str, float]]]):
        def log_metrics(self, metrics: dict[str, float], step: int = 0) -> None:
            self.append((step, metrics))

    rows = Rows()
    EpochReport(rows).on_train_epoch_end(trainer(0.5, 1), SimpleNamespace())  # type: ignore[arg-type]
    assert rows == [(20, {"metric": 0.5, "other": 2.0})]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_holes_of_the_heap_go_back_to_the_system() -> None:
    # Blocks of the heap, not mapped one by one; every tenth stays, so nothing is freed at the end.
    blocks = [bytearray(b"x" * 100_000) for _ in range(1000)]
    kept = blocks[::10]
    del blocks
    before = resident_bytes()
    FreedMemory().on_train_epoch_end(trainer(0.5, 1), SimpleNamespace())  # type: ignore[arg-type]
    assert before - resident_bytes() > 50_000_000
    assert len(kept) == 100


def test_a_damaged_resume_point_is_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "resume.ckpt"
    assert find_resume_point(path) is None
    torch.save({"epoch": 1}, path)
    assert find_resume_point(path) == path
    path.write_bytes(path.read_bytes()[:100])
    with caplog.at_level(logging.WARNING):
        assert find_resume_point(path) is None
    assert "resume.ckpt" in caplog.text
    assert not path.exists()
