"""What every training with Lightning shares: the trainer, its callbacks, its result and its resume point.

The best weights and the resume point are written atomically after every epoch, in this order. A killed
training therefore resumes after its last whole epoch, and since an epoch's batches, dropout and learning
rates follow from its number, its result equals that of an uninterrupted one.
"""

from __future__ import annotations

import ctypes
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import TQDMProgressBar
from torch.utils.data import DataLoader

from costbench import params
from costbench.artifacts import atomic_path, digest_bytes, remove_stale_temporaries
from costbench.errors import DataError
from costbench.execution.dotted import is_part, source_digest
from costbench.models.execution import apply_execution, describe_execution, device_of, flush_denormals
from costbench.training.lightning_module import CostModelModule
from costbench.training.spec import AnyTrainSpec, FitResult, monitored_metric

_LOG = logging.getLogger(__name__)


class MetricLogger(Protocol):
    """Records the metrics of each epoch, for instance on a tracking server."""

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Records metrics after training step `step`."""
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


def find_resume_point(path: Path) -> Path | None:
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


RESUME_FILE = "resume.ckpt"
_NOTES = (
    ".*does not have many workers.*",
    ".*GPU available but not used.*",
    # The weights of an LSTM are one parameter each, which cuDNN copies for each step.
    ".*RNN module weights are not part of single contiguous chunk.*",
    # Lightning 2.6 calls what torch 2.13 deprecates.
    ".*isinstance.treespec, LeafSpec.*",
)


class TrainingRun:
    """One training: its trainer, its callbacks, its resume point.

    Args:
        spec: what is trained and how.
        folder: folder of the checkpoint and of the resume point.
        logger: receives the metrics of every epoch; None for none.
        progress: whether a progress bar is shown.

    Raises:
        ParamsError: if a GPU is required and none is available.
    """

    def __init__(
        self, spec: AnyTrainSpec, folder: Path, logger: MetricLogger | None, *, progress: bool
    ) -> None:
        self._started = time.perf_counter()
        self._device = device_of(spec.accelerator)
        self._spec, self._folder, self._logger, self._progress = spec, folder, logger, progress
        remove_stale_temporaries(folder)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Runs a block with the run's settings; random draws in it leave those after it as they were."""
        execution = apply_execution(self._spec.execution)
        with _quiet(), execution, flush_denormals(), torch.random.fork_rng(devices=[]):
            yield

    def train(
        self,
        module: CostModelModule,
        train: DataLoader[Any],
        validation: DataLoader[Any],
        *,
        save: Callable[[], None],
        identity: str,
    ) -> FitResult:
        """Trains from the resume point on, if there is one, and saves the model of the best epoch.

        Args:
            module: network, loss and optimiser.
            train: loader of training batches, whose sampler plans one epoch after another.
            validation: loader of validation batches, the same ones every epoch.
            save: writes the checkpoint.
            identity: what the training depends on beside the spec; a resume point of another one is removed.

        Raises:
            DataError: if training ends before its first epoch, or the loss is no longer finite.
        """
        spec = self._spec
        metric, larger_is_better = monitored_metric(spec.monitor)
        best = BestModel(metric, larger_is_better=larger_is_better, save=save)
        resume = self._resume_file(identity)
        refresh = max(1, spec.steps_per_epoch // 20)
        callbacks: list[pl.Callback] = [
            best,
            Patience(best, spec.patience),
            *([] if self._logger is None else [EpochReport(self._logger)]),
            *([TQDMProgressBar(refresh_rate=refresh)] if self._progress else []),
            FreedMemory(),
            ResumePoint(resume),
        ]
        trainer = pl.Trainer(
            accelerator="gpu" if self._device.type == "cuda" else "cpu",
            devices=1,
            precision="bf16-mixed" if spec.precision == "bf16" else "32-true",
            max_epochs=spec.epochs,
            callbacks=callbacks,
            # The CPU kernels are deterministic anyway; the switch would only make torch fill new tensors.
            deterministic=self._device.type != "cpu",
            num_sanity_val_steps=0,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=self._progress,
            use_distributed_sampler=False,
        )
        trainer.fit(module, train, validation, ckpt_path=find_resume_point(resume), weights_only=True)
        if best.best is None:
            raise DataError("training ended before its first epoch", where=self._folder)
        resume.unlink(missing_ok=True)
        return FitResult(
            checkpoint=self._folder,
            best_metric=best.best,
            best_epoch=best.epoch,
            steps=trainer.global_step,
            seconds=time.perf_counter() - self._started,
            execution=describe_execution(spec.execution, self._device),
            computed_by=getattr(module.net, "computed_by", None) or "",
        )

    def _resume_file(self, identity: str) -> Path:
        """Returns the file of the resume point; files of other runs in the folder are removed."""
        parts = sorted({source_digest(part) for part in _parts_of(asdict(self._spec))})
        settings = params.digest(self._spec)
        digest = digest_bytes(f"{settings} {parts} {identity} {torch.__version__}".encode())
        path = self._folder / f"{digest[:16]}.{RESUME_FILE}"
        for other in sorted(self._folder.glob(f"*.{RESUME_FILE}")):
            if other != path:
                other.unlink()
        return path


def _parts_of(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields the dotted paths of a user's own parts among settings."""
    for value in values.values():
        if isinstance(value, Mapping):
            yield from _parts_of(value)
        elif isinstance(value, str) and is_part(value):
            yield value


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences Lightning's notes on hardware, data loading and torch, which the caller cannot act on."""
    notes = logging.getLogger("pytorch_lightning")
    level = notes.level
    notes.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for message in _NOTES:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        notes.setLevel(level)
