"""Trains a learned cost model on one source of kernels, validates on another and writes a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
from torch.utils.data import DataLoader

from costbench.errors import ParamsError
from costbench.models.checkpoint import load_checkpoint, save_checkpoint
from costbench.models.graph_batch import Collator, FeatureScaling, KernelSamples
from costbench.models.learned import LearnedCostNet
from costbench.rng import stream_key
from costbench.training.batches import BatchSampler, PlannedBatches, SampleSource, validation_plans
from costbench.training.lightning_module import CostModelModule
from costbench.training.lightning_run import MetricLogger, TrainingRun
from costbench.training.losses import find_loss
from costbench.training.spec import FitResult, TrainSpec

_LEVEL_KERNELS = 1000


def fit(
    spec: TrainSpec,
    train_source: SampleSource,
    validation_source: SampleSource,
    folder: Path,
    *,
    logger: MetricLogger | None = None,
    progress: bool = False,
    pretrained: Path | None = None,
) -> FitResult:
    """Trains a model and writes that of the best validation epoch to `folder`.

    Scalers are fitted on the training source only, or are those of the model that training starts from.
    Equal arguments give equal bytes. A killed call, made again with the same arguments, resumes after its
    last whole epoch from `resume.ckpt` in `folder`, which is removed at the end.

    Args:
        spec: what to train and how.
        train_source: training kernels.
        validation_source: validation kernels.
        folder: becomes the checkpoint.
        logger: receives the metrics of every epoch.
        progress: show a progress bar.
        pretrained: folder of the model that training starts from; None for drawn weights.

    Raises:
        DataError: if a source has no usable kernel, or the loss is no longer finite.
        ChoiceError: if encoder, reduction or loss is unknown.
        ParamsError: if a GPU is required and none is available, or a part of a user's own cannot be used.
    """
    run = TrainingRun(spec, folder, logger, progress=progress)
    with run.session():
        if pretrained is None:
            extremes = FeatureScaling.of_extremes(train_source.extremes(), spec.transform)
            scaling = extremes.without(spec.drop_features)
            net = LearnedCostNet(spec.net, scaling.sizes, stream_key(spec.seed, "weights") % 2**63)
        else:
            net, scaling = _load_pretrained(pretrained, spec)
        loss = find_loss(spec.loss)
        if spec.monitor == "mape" and loss.predicts != "log_runtime_ns":
            problem = f"mape needs absolute runtimes; loss {spec.loss} ranks"
            raise ParamsError(problem, field="monitor", expected="tau, ape, slowdown or opa")
        if loss.predicts == "log_runtime_ns" and spec.start == "mean":
            net.level.fill_(_mean_log_runtime(train_source, spec.net.residual == "analytical"))
        # A killed training goes on where it starts from the same weights, for the same runtimes.
        weights = [float(weight.detach().double().sum()) for weight in net.parameters()]
        runtimes = [_total_runtime(source) for source in (train_source, validation_source)]
        module = CostModelModule(net, loss, spec)

        steps = BatchSampler(train_source, spec.batch, spec.seed, min_configs=loss.min_configs)
        min_configs = 1 if spec.monitor == "mape" else 2
        plans = validation_plans(
            validation_source, spec.validation, spec.batch, spec.seed, min_configs=min_configs
        )
        collator = Collator(scaling, spec.net.max_neighbors, spec.net.neighbors)
        train, validation = (
            DataLoader(PlannedBatches(source.scaled(scaling), collator), sampler=planned, batch_size=None)
            for source, planned in ((train_source, steps), (validation_source, plans))
        )

        def save() -> None:
            save_checkpoint(folder, cast(LearnedCostNet, module.validated_net), scaling, loss.predicts)

        identity = f"{scaling.to_dict()} {weights} {runtimes}"
        return run.train(module, train, validation, save=save, identity=identity)


def _load_pretrained(folder: Path, spec: TrainSpec) -> tuple[LearnedCostNet, FeatureScaling]:
    """Returns the network and the scaling of a trained model whose network is that of the settings."""
    model = load_checkpoint(folder)
    if model.net.spec != spec.net:
        expected = f"the network of {folder}"
        raise ParamsError("another network than that of `pretrained`", field="net", expected=expected)
    return model.net.train(), model.scaling


def _spaced_kernels(source: SampleSource) -> Iterator[KernelSamples]:
    """Yields at most `_LEVEL_KERNELS` kernels of a source, evenly spaced."""
    for index in np.unique(np.linspace(0, len(source) - 1, _LEVEL_KERNELS).astype(np.int64)).tolist():
        yield source[index]


def _total_runtime(source: SampleSource) -> float:
    """Returns the sum of the runtimes of evenly spaced kernels, in ns, by which data are known again."""
    return float(sum(sample.runtime_ns.sum() for sample in _spaced_kernels(source)))


def _mean_log_runtime(source: SampleSource, over_estimate: bool) -> float:
    """Returns the mean over evenly spaced kernels of the mean logarithm of a kernel's runtimes in ns.

    Args:
        source: kernels; those without decisions do not count.
        over_estimate: divide runtimes by the analytical estimates first.
    """
    means = []
    for sample in _spaced_kernels(source):
        if not len(sample.runtime_ns):
            continue
        runtimes = np.log(sample.runtime_ns)
        if over_estimate and sample.analytical_ns is not None:
            runtimes -= np.log(sample.analytical_ns)
        means.append(runtimes.mean())
    return float(np.mean(means)) if means else 0.0
