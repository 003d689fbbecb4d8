"""Trains and evaluates tile networks on the kernels of a TpuGraphs folder, with its own splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from costbench.datasets.tpugraphs.folder import TILE_COLLECTION, TpuGraphsFolder
from costbench.errors import DataError
from costbench.features.feature_shards import FeatureShard
from costbench.metrics.measures import mean_without_nan
from costbench.metrics.tpugraphs import TILE_TOP_K, graph_metrics, ordered_pairs, pooled_accuracy
from costbench.models.checkpoint import load_checkpoint
from costbench.models.execution_spec import Execution
from costbench.models.learned import LearnedCostModel
from costbench.params import load_yaml, parse
from costbench.training.fit import fit
from costbench.training.kernel_source import KernelSource
from costbench.training.lightning_run import FitResult
from costbench.training.spec import TrainSpec


def train_tiles(
    folder: TpuGraphsFolder, settings: Path | None, out: Path, seed: int, threads: int
) -> tuple[TrainSpec, FitResult]:
    """Trains a tile network on a folder's `train` kernels; `valid` ones choose the epoch.

    Args:
        folder: with the collection `tile:xla`.
        settings: YAML file of a `TrainSpec`; its defaults if None.
        out: folder of the model.
        seed: of the training.
        threads: of torch.

    Raises:
        DataError, ParamsError: naming file and field, for data or settings that cannot be used.
    """
    spec = TrainSpec() if settings is None else parse(TrainSpec, load_yaml(settings), where=settings)
    spec = replace(spec, seed=seed, execution=replace(spec.execution, threads=threads))
    train, validation = (KernelSource(_shards(folder, split)) for split in ("train", "valid"))
    return spec, fit(spec, train, validation, out)


def _shards(folder: TpuGraphsFolder, split: str) -> list[Path]:
    shards = list(folder.tile_shards(split))
    if not shards:
        raise DataError(f"holds no kernel of split {split}", where=folder.root, expected=TILE_COLLECTION)
    return shards


def score_tiles(
    folder: TpuGraphsFolder, split: str, model: Path, threads: int
) -> dict[str, tuple[int, Mapping[str, float | None]]]:
    """Returns by program the number of configs and the metrics of a tile network.

    `opa` is pooled over the program's kernels; `kendall_tau` and `top_1`, `top_5`, `top_10` are means over
    its kernels of two or more configs.

    Raises:
        DataError: if there are no kernels or no runtimes, or the model cannot be used.
    """
    loaded = load_checkpoint(model, Execution(threads=threads))
    return {shard.program: _score(loaded, shard) for shard in map(FeatureShard, _shards(folder, split))}


def _score(model: LearnedCostModel, shard: FeatureShard) -> tuple[int, Mapping[str, float | None]]:
    pairs, found = [], []
    for kernel in range(len(shard)):
        runtime = shard.runtime_ns(kernel).astype(np.float64)
        scores = model.predict_graph(shard.graph(kernel), shard.config_features(kernel))
        pairs.append(ordered_pairs(runtime, scores))
        found.append(graph_metrics(runtime, scores, TILE_TOP_K))
    metrics: dict[str, float | None] = {"opa": _defined(pooled_accuracy(pairs))}
    for name in ("kendall_tau", *(f"top_{k}" for k in TILE_TOP_K)):
        values = [one[name] for one in found]
        metrics[name] = _defined(mean_without_nan([np.nan if v is None else v for v in values]))
    return int(shard.num_configs().sum()), metrics


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else value
