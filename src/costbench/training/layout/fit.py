"""Trains a layout network on some graphs, chooses the best epoch on others or on held-out configs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
from torch.utils.data import DataLoader

from costbench.errors import DataError
from costbench.models.execution import device_of
from costbench.models.layout.inputs import LayoutScaling
from costbench.models.layout.model import save_layout_model
from costbench.models.layout.network import LayoutNetwork
from costbench.rng import stream_key
from costbench.training.layout.module import LayoutModule
from costbench.training.layout.source import (
    LayoutSource,
    MeasuredConfigs,
    StepSampler,
    hold_out_configs,
    open_labelled_graph,
    select_configs,
)
from costbench.training.lightning_run import MetricLogger, TrainingRun
from costbench.training.losses import layout_loss
from costbench.training.spec import FitResult, LayoutTrainSpec, SamplingSpec

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
    """Trains a layout network and writes that of the best validation epoch to `out`.

    Scalers are fitted on the training graphs only. Graphs are read by memory map and configs by draw, so
    memory depends on the largest graph and not on the number of configs. Equal arguments give equal bytes. A
    killed call, made again with the same arguments, resumes after its last whole epoch.

    Args:
        spec: what to train and how.
        train: layout graphs with runtimes (`datasets.layout_graphs`).
        validation: graphs that choose the epoch; without any, the configs of each training graph are divided
            by `hold_out_configs(graph, spec.hold_out, spec.seed)`, and unseen ones are left out altogether.
        out: folder that becomes the checkpoint.
        logger: receives the metrics of every epoch.
        progress: show a progress bar.

    Raises:
        DataError: if a graph has no runtimes, none has two configs to compare, or the loss is not finite.
        ChoiceError, ParamsError: if the network cannot be built.
    """
    run = TrainingRun(spec, out, logger, progress=progress)
    with run.session():
        scaling = LayoutScaling.fit((open_labelled_graph(path) for path in train), spec.transform)
        sources = _sources(spec, scaling, train, validation)
        widths = scaling.node.num_outputs, scaling.option.num_outputs
        net = LayoutNetwork(spec.net, *widths, stream_key(spec.seed, "weights") % 2**63)
        predicts = layout_loss(spec).predicts
        if predicts == "log_runtime_ns":
            means = [np.log(configs.runtime_ns).mean() for configs in sources[0].configs]
            net.level.fill_(float(np.mean(means)))
        module = LayoutModule(net, spec)

        def save() -> None:
            save_layout_model(out, cast(LayoutNetwork, module.validated_net), scaling, predicts, spec.seed)

        data = [[float(configs.runtime_ns.sum()) for configs in source.configs] for source in sources]
        return run.train(module, *_loaders(spec, *sources), save=save, identity=f"{data} {scaling.to_dict()}")


def _sources(
    spec: LayoutTrainSpec,
    scaling: LayoutScaling,
    train: Sequence[Path],
    validation: Sequence[Path],
) -> tuple[LayoutSource, LayoutSource]:
    """Returns what is trained and what is validated on, without graphs that have nothing to compare."""
    seed = spec.seed
    if validation:
        of_train = [select_configs(open_labelled_graph(path), None, spec.sampling, seed) for path in train]
        of_validation = [select_configs(open_labelled_graph(path), None, _ALL, seed) for path in validation]
    else:
        validation = train
        divided = [
            (graph, hold_out_configs(graph, spec.hold_out, seed)) for graph in map(open_labelled_graph, train)
        ]
        of_train = [select_configs(graph, part.train, spec.sampling, seed) for graph, part in divided]
        of_validation = [select_configs(graph, part.validation, _ALL, seed) for graph, part in divided]
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
    device = device_of(spec.accelerator)
    return LayoutSource([pair[0] for pair in pairs], [pair[1] for pair in pairs], scaling, spec.net, device)


def _loaders(
    spec: LayoutTrainSpec, train: LayoutSource, validation: LayoutSource
) -> tuple[DataLoader[object], DataLoader[object]]:
    steps = StepSampler(train, spec.sampling, spec.steps_per_epoch, spec.seed)
    plans = validation.validation_plans(spec.validation_configs)
    return (
        DataLoader(train, sampler=steps, batch_size=None),
        DataLoader(validation, sampler=plans, batch_size=None),
    )
