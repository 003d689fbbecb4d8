"""Trains a learned cost model on one source of kernels, validates on another and writes a checkpoint."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import TQDMProgressBar

from costbench import params
from costbench.artifacts import remove_stale_temporaries
from costbench.errors import DataError, choose
from costbench.models.batch.graph_batch import Collator, FeatureScaling
from costbench.models.checkpoint import save_checkpoint
from costbench.models.execution import applied, described, device_of
from costbench.models.learned import LearnedCostNet
from costbench.rng import stream_key
from costbench.training.batch_sampler import BatchSampler, SampleSource
from costbench.training.callbacks import (
    BestModel,
    EpochReport,
    FreedMemory,
    MetricLogger,
    Patience,
    ResumePoint,
    resumable,
)
from costbench.training.data_module import KernelDataModule, validation_plans
from costbench.training.lightning_module import CostModelModule
from costbench.training.lightning_run import FitResult, quiet, resume_file
from costbench.training.losses import LOSSES
from costbench.training.spec import TrainSpec, monitored

_LEVEL_KERNELS = 1000


def fit(
    spec: TrainSpec,
    train_source: SampleSource,
    validation_source: SampleSource,
    folder: Path,
    *,
    logger: MetricLogger | None = None,
    progress: bool = False,
) -> FitResult:
    """Train a model and write that of the best validation epoch to `folder`.

    Scalers are fitted on the training source only. Equal arguments give equal bytes. A killed call, made
    again with the same arguments, resumes after its last whole epoch from `resume.ckpt` in `folder`, which
    is removed at the end.

    Args:
        spec: what to train and how.
        train_source: training kernels.
        validation_source: validation kernels.
        folder: becomes the checkpoint.
        logger: receives the metrics of every epoch.
        progress: show a progress bar.

    Raises:
        DataError: if a source has no usable kernel, or the loss is no longer finite.
        ChoiceError: if encoder, reduction or loss is unknown.
        ParamsError: if a GPU is required and none is available.
    """
    started = time.perf_counter()
    device = device_of(spec.accelerator)
    remove_stale_temporaries(folder)
    with quiet(), applied(spec.execution), torch.random.fork_rng(devices=[]):
        scaling = FeatureScaling.of_extremes(train_source.extremes(), spec.transform).without(
            spec.drop_features
        )
        net = LearnedCostNet(spec.net, scaling.sizes, stream_key(spec.seed, "weights") % 2**63)
        predicts = choose(LOSSES, spec.loss, "loss").predicts
        if predicts == "log_runtime_ns" and spec.start == "mean":
            net.level.fill_(_mean_log_runtime(train_source, spec.net.residual == "analytical"))
        metric, larger_is_better = monitored(spec.monitor)
        module = _module(spec, net)
        best = BestModel(
            metric,
            larger_is_better=larger_is_better,
            save=lambda: save_checkpoint(folder, cast(LearnedCostNet, module.kept), scaling, predicts),
        )
        resume = _resume_file(folder, spec, scaling)
        watching = [best, Patience(best, spec.patience), *_reports(logger)]
        trainer = _trainer(spec, device, watching, resume, progress=progress)
        data = _data_module(spec, scaling, train_source, validation_source)
        trainer.fit(module, data, ckpt_path=resumable(resume), weights_only=True)
    if best.best is None:
        raise DataError("training ended before its first epoch", where=folder)
    resume.unlink(missing_ok=True)
    seconds = time.perf_counter() - started
    return FitResult(
        folder,
        best.best,
        best.epoch,
        trainer.global_step,
        seconds,
        described(spec.execution, device),
        net.computed_by or "",
    )


def _mean_log_runtime(source: SampleSource, over_estimate: bool) -> float:
    """Returns the mean over kernels of the mean logarithm of a kernel's runtimes in ns.

    Args:
        source: kernels; at most `_LEVEL_KERNELS`, evenly spaced, are read.
        over_estimate: divide runtimes by the analytical estimates first.
    """
    means = []
    for index in np.unique(np.linspace(0, len(source) - 1, _LEVEL_KERNELS).astype(np.int64)).tolist():
        sample = source[index]
        runtimes = np.log(sample.runtime_ns)
        if over_estimate and sample.analytical_ns is not None:
            runtimes -= np.log(sample.analytical_ns)
        means.append(runtimes.mean())
    return float(np.mean(means))


def _module(spec: TrainSpec, net: LearnedCostNet) -> CostModelModule:
    def rate(step: int) -> float:
        return spec.optimizer.rate(step, spec.batch.per_epoch, spec.epochs)

    return CostModelModule(net, LOSSES[spec.loss], spec.optimizer, rate, spec.seed)


def _data_module(
    spec: TrainSpec, scaling: FeatureScaling, train: SampleSource, validation: SampleSource
) -> KernelDataModule:
    sampler = BatchSampler(train, spec.batch, spec.seed, min_configs=LOSSES[spec.loss].min_configs)
    min_configs = 1 if spec.monitor == "mape" else 2
    plans = validation_plans(validation, spec.validation, spec.batch, spec.seed, min_configs=min_configs)
    return KernelDataModule(
        (train.scaled(scaling), sampler),
        (validation.scaled(scaling), plans),
        Collator(scaling, spec.net.max_neighbors, spec.net.neighbors),
    )


def _trainer(
    spec: TrainSpec, device: torch.device, callbacks: list[pl.Callback], resume: Path, *, progress: bool
) -> pl.Trainer:
    callbacks = [
        *callbacks,
        *([TQDMProgressBar(refresh_rate=max(1, spec.batch.per_epoch // 20))] if progress else []),
        FreedMemory(),
        ResumePoint(resume),
    ]
    return pl.Trainer(
        accelerator="gpu" if device.type == "cuda" else "cpu",
        devices=1,
        precision="bf16-mixed" if spec.precision == "bf16" else "32-true",
        max_epochs=spec.epochs,
        callbacks=callbacks,
        # The CPU kernels are deterministic anyway; the switch would only make torch fill new tensors.
        deterministic=device.type != "cpu",
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=progress,
        use_distributed_sampler=False,
    )


def _reports(logger: MetricLogger | None) -> list[pl.Callback]:
    return [] if logger is None else [EpochReport(logger)]


def _resume_file(folder: Path, spec: TrainSpec, scaling: FeatureScaling) -> Path:
    identity = f"{params.digest(spec)} {scaling.to_dict()} {torch.__version__}"
    return resume_file(folder, identity)
