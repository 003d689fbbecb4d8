"""Lightning callbacks: save the best weights, write a resume point, stop early, log metrics, free memory.

The best weights and the resume point are written atomically after every epoch, in this order. A killed
training therefore resumes after its last whole epoch, and since an epoch's batches, dropout and learning
rates follow from its number, its result equals that of an uninterrupted one.
"""

from __future__ import annotations

import ctypes
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pytorch_lightning as pl
import torch

from costbench.artifacts import atomic_path

_LOG = logging.getLogger(__name__)


class MetricLogger(Protocol):
    """Records the metrics of each epoch, for instance on a tracking server."""

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Record metrics after training step `step`."""
        ...


class EpochReport(pl.Callback):
    """Passes the metrics of each epoch to a logger, with the number of training steps."""

    def __init__(self, logger: MetricLogger) -> None:
        self._logger = logger

    def on_train_epoch_end(self, trainer: pl.Trainer, _module: pl.LightningModule) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self._logger.log_metrics(metrics, trainer.global_step)


class BestModel(pl.Callback):
    """Calls `save` whenever the monitored metric beats all earlier epochs.

    Attributes:
        best: value of the metric, None before the first epoch.
        epoch: the epoch with that value.
    """

    def __init__(self, monitor: str, *, larger_is_better: bool, save: Callable[[], None]) -> None:
        self._monitor = monitor
        self._sign = 1.0 if larger_is_better else -1.0
        self._save = save
        self.best: float | None = None
        self.epoch = -1

    def on_train_epoch_end(self, trainer: pl.Trainer, _module: pl.LightningModule) -> None:
        value = float(trainer.callback_metrics[self._monitor])
        before = -math.inf if self.best is None else self._sign * self.best
        if self._sign * value > before:
            self.best, self.epoch = value, trainer.current_epoch
            self._save()

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "epoch": self.epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.epoch = state_dict["best"], state_dict["epoch"]


class Patience(pl.Callback):
    """Ends training after `epochs` consecutive epochs without a new best one.

    It depends on the best epoch alone. Lightning's `EarlyStopping` keeps a count of its own and always runs
    after the other callbacks of an epoch, so a resume point would hold its count of the epoch before.

    Args:
        best: callback that finds the best epoch; it has to be added before this one.
        epochs: number of epochs.
    """

    def __init__(self, best: BestModel, epochs: int) -> None:
        self._best = best
        self._epochs = epochs

    def on_train_start(self, trainer: pl.Trainer, _module: pl.LightningModule) -> None:
        # A training that was killed after its last epoch resumes with no epoch left.
        self._check(trainer, trainer.current_epoch - 1)

    def on_train_epoch_end(self, trainer: pl.Trainer, _module: pl.LightningModule) -> None:
        self._check(trainer, trainer.current_epoch)

    def _check(self, trainer: pl.Trainer, last_epoch: int) -> None:
        if self._best.best is not None and last_epoch - self._best.epoch >= self._epochs:
            trainer.should_stop = True


class FreedMemory(pl.Callback):
    """Returns freed memory to the system after every epoch, if the C library is glibc.

    Batches differ in size, which fragments the heap of a long training: it would grow for epochs.
    """

    def on_train_epoch_end(self, _trainer: pl.Trainer, _module: pl.LightningModule) -> None:
        # Other C libraries have no such function, and Windows not even a handle of the process.
        with suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).malloc_trim(0)


class ResumePoint(pl.Callback):
    """Writes the state of training, other callbacks' included, after every epoch; it has to be added last."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_epoch_end(self, trainer: pl.Trainer, _module: pl.LightningModule) -> None:
        with atomic_path(self._path) as temporary:
            trainer.save_checkpoint(temporary)


def resumable(path: Path) -> Path | None:
    """Returns `path` if training can resume from it, else None; a damaged file is removed with a warning."""
    if not path.is_file():
        return None
    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever it meets first in damaged bytes
        _LOG.warning("%s: cannot be resumed from (%s); training starts from the beginning", path, error)
        path.unlink()
        return None
    return path
