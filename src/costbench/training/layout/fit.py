"""Trains a layout network on some graphs, chooses the best epoch on others or on held-out configs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import TQDMProgressBar
from torch.utils.data import DataLoader

from costbench import params
from costbench.artifacts import remove_stale_temporaries
from costbench.errors import DataError
from costbench.models.execution import applied, described
from costbench.models.layout.checkpoint import save_layout_model
from costbench.models.layout.inputs import LayoutScaling
from costbench.models.layout.network import LayoutNetwork
from costbench.rng import stream_key
from costbench.training.callbacks import (
    BestModel,
    EpochReport,
    FreedMemory,
    MetricLogger,
    Patience,
    ResumePoint,
    resumable,
)
from costbench.training.layout.configs import MeasuredConfigs, held_out, measured
from costbench.training.layout.module import LayoutModule
from costbench.training.layout.source import LayoutSource, StepSampler, labelled
from costbench.training.layout.spec import LAYOUT_PREDICTS, LayoutTrainSpec, SamplingSpec
from costbench.training.lightning_run import FitResult, quiet, resume_file
from costbench.training.spec import monitored

_ALL = SamplingSpec(deduplicate=False)


def fit_layout(
    spec: LayoutTrainSpec,
    train: Sequence[Path],
    validation: Sequence[Path],
    out: Path,
    *,
    logger: MetricLogger | None = None,
    progress: bool = False,
) -> FitResult:
    """Train a layout network and write that of the best validation epoch to `out`.

    Scalers are fitted on the training graphs only. Graphs are read by memory map and configs by draw, so
    memory depends on the largest graph and not on the number of configs. Equal arguments give equal bytes. A
    killed call, made again with the same arguments, resumes after its last whole epoch.

    Args:
        spec: what to train and how.
        train: layout graphs with runtimes (`datasets.layout.graphs`).
        validation: graphs that choose the epoch; without any, the configs of each training graph are divided
            by `configs.held_out(graph, spec.hold_out, spec.seed)`, and test configs are left out altogether.
        out: folder that becomes the checkpoint.
        logger: receives the metrics of every epoch.
        progress: show a progress bar.

    Raises:
        DataError: if a graph has no runtimes, none has two configs to compare, or the loss is not finite.
        ChoiceError, ParamsError: if the network cannot be built.
    """
    started = time.perf_counter()
    seed = spec.seed
    remove_stale_temporaries(out)
    with quiet(), applied(spec.execution), torch.random.fork_rng(devices=[]):
        scaling = LayoutScaling.fit((labelled(path) for path in train), spec.transform)
        sources = _sources(spec, scaling, train, validation)
        widths = scaling.node.num_outputs, scaling.option.num_outputs
        net = LayoutNetwork(spec.net, *widths, stream_key(seed, "weights") % 2**63)
        predicts = LAYOUT_PREDICTS[spec.loss]
        if predicts == "log_runtime_ns":
            net.level.fill_(float(np.mean([np.log(one.runtime_ns).mean() for one in sources[0].configs])))

        def rate(step: int) -> float:
            return spec.optimizer.rate(step, spec.steps_per_epoch, spec.epochs)

        module = LayoutModule(net, spec, rate)
        metric, larger_is_better = monitored(spec.monitor)
        best = BestModel(
            metric,
            larger_is_better=larger_is_better,
            save=lambda: save_layout_model(out, cast(LayoutNetwork, module.kept), scaling, predicts, seed),
        )
        resume = _resume_file(out, spec, sources, scaling)
        reports = [] if logger is None else [EpochReport(logger)]
        watching = [best, Patience(best, spec.patience), *reports, FreedMemory(), ResumePoint(resume)]
        trainer = _trainer(spec, watching, progress=progress)
        trainer.fit(module, *_loaders(spec, *sources), ckpt_path=resumable(resume), weights_only=True)
    if best.best is None:
        raise DataError("training ended before its first epoch", where=out)
    resume.unlink(missing_ok=True)
    seconds = time.perf_counter() - started
    execution = described(spec.execution, torch.device("cpu"))
    return FitResult(out, best.best, best.epoch, trainer.global_step, seconds, execution, "")


def _sources(
    spec: LayoutTrainSpec,
    scaling: LayoutScaling,
    train: Sequence[Path],
    validation: Sequence[Path],
) -> tuple[LayoutSource, LayoutSource]:
    """Returns what is trained and what is validated on, without graphs that have nothing to compare."""
    seed = spec.seed
    if validation:
        of_train = [measured(labelled(path), None, spec.sampling, seed) for path in train]
        of_validation = [measured(labelled(path), None, _ALL, seed) for path in validation]
    else:
        validation = train
        divided = [(graph, held_out(graph, spec.hold_out, seed)) for graph in map(labelled, train)]
        of_train = [measured(graph, part.train, spec.sampling, seed) for graph, part in divided]
        of_validation = [measured(graph, part.validation, _ALL, seed) for graph, part in divided]
    return (
        _source(train, of_train, scaling, spec, "training"),
        _source(validation, of_validation, scaling, spec, "validation"),
    )


def _source(
    paths: Sequence[Path],
    configs: Sequence[MeasuredConfigs],
    scaling: LayoutScaling,
    spec: LayoutTrainSpec,
    part: str,
) -> LayoutSource:
    pairs = [(path, some) for path, some in zip(paths, configs, strict=True) if len(some) > 1]
    if not pairs:
        raise DataError(f"none of {len(paths)} {part} graphs has two configs to compare", field="train")
    return LayoutSource([pair[0] for pair in pairs], [pair[1] for pair in pairs], scaling, spec.net)


def _loaders(
    spec: LayoutTrainSpec, train: LayoutSource, validation: LayoutSource
) -> tuple[DataLoader[object], DataLoader[object]]:
    steps = StepSampler(train, spec.sampling, spec.steps_per_epoch, spec.seed)
    plans = validation.validation_plans(spec.validation_configs)
    return (
        DataLoader(train, sampler=steps, batch_size=None),
        DataLoader(validation, sampler=plans, batch_size=None),
    )


def _trainer(spec: LayoutTrainSpec, callbacks: list[pl.Callback], *, progress: bool) -> pl.Trainer:
    bar = [TQDMProgressBar(refresh_rate=max(1, spec.steps_per_epoch // 20))] if progress else []
    return pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=spec.epochs,
        callbacks=[*bar, *callbacks],
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=progress,
        use_distributed_sampler=False,
    )


def _resume_file(
    folder: Path,
    spec: LayoutTrainSpec,
    sources: tuple[LayoutSource, LayoutSource],
    scaling: LayoutScaling,
) -> Path:
    data = [[float(one.runtime_ns.sum()) for one in source.configs] for source in sources]
    identity = f"{params.digest(spec)} {data} {scaling.to_dict()} {torch.__version__}"
    return resume_file(folder, identity)
