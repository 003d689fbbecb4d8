"""What a training step costs beside the network: reading and collating its batch, and Lightning.

Both are measured on kernels laid out as feature shards are in memory, with batches as the tile-size task
draws them (8 kernels of 32 decisions) and as the fusion task does (64 kernels of one decision). Baseline is
a bare loop: the same batches, loss, clipping and optimiser steps, and nothing else. Lightning's part is what
an epoch of `training.fit.fit` takes beyond that, its callbacks and files included. Times are CPU times of
the process.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from costbench.arrays import I64
from costbench.features.packed_kernels import FeatureExtremes, KernelColumns, PackedKernels, merge_columns
from costbench.features.schema import NUM_LOOP_FEATURES
from costbench.models.execution import apply_execution
from costbench.models.graph_batch import Collator, FeatureScaling, KernelSamples
from costbench.models.learned import LearnedCostNet
from costbench.models.spec import NetSpec
from costbench.training.batches import BatchSampler, PlannedBatches
from costbench.training.fit import fit
from costbench.training.losses import LOSSES
from costbench.training.spec import BatchSpec, TrainSpec, ValidationSpec

TASKS = {
    "tile": TrainSpec(batch=BatchSpec(kernels=8, configs=32), loss="hinge"),
    "fusion": TrainSpec(batch=BatchSpec(kernels=64, configs=1), loss="mse", monitor="mape"),
}
_TURNS = 3


def columns_of(samples: Sequence[KernelSamples]) -> KernelColumns:
    """Returns kernels as a feature shard holds them; tile bounds are random."""
    nodes = [sample.graph.num_nodes for sample in samples]
    configs = [len(sample) for sample in samples]
    graphs = [sample.graph for sample in samples]
    runtime_ns = np.concatenate([sample.runtime_ns for sample in samples])
    draw = np.random.Generator(np.random.PCG64(0))
    return KernelColumns(
        {
            "row_opcode": np.concatenate([graph.opcodes for graph in graphs]).astype(np.int16),
            "row_features": np.concatenate([graph.node_features for graph in graphs]),
            "kernel_num_inputs": np.ones(len(samples), np.int32),
            "kernel_static": np.stack([graph.static_features for graph in graphs]),
            "kernel_ranks": np.full((len(samples), 2), 3, np.int32),
            "node_row_offsets": np.cumsum([0, *nodes]),
            "node_row": np.arange(sum(nodes), dtype=np.int32),
            "node_is_output": np.zeros(sum(nodes), np.uint8),
            "edge_nodes_offsets": np.cumsum([0, *(graph.edges.shape[1] for graph in graphs)]),
            "edge_nodes": np.concatenate([graph.edges.T for graph in graphs]).astype(np.int32),
            "tile_bounds_offsets": np.cumsum([0, *(6 * count for count in configs)]),
            "tile_bounds": draw.integers(1, 33, 6 * sum(configs)).astype(np.int32),
            "config_runtime_ns_offsets": np.cumsum([0, *configs]),
            "config_runtime_ns": runtime_ns.astype(np.int64),
            "config_analytical_ns": runtime_ns,
            "config_loops": draw.integers(1, 33, (sum(configs), NUM_LOOP_FEATURES)).astype(np.float32),
        }
    )


class ColumnSource:
    """Kernels as a merged feature shard holds them."""

    def __init__(self, samples: Sequence[KernelSamples], columns: KernelColumns) -> None:
        self._samples = samples
        self._columns = columns

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> KernelSamples:
        return self._samples[index]

    def pack(self, kernels: Sequence[int], configs: Sequence[I64]) -> PackedKernels:
        return self._columns.pack(np.array(kernels, np.int64), configs)

    def scaled(self, scaling: FeatureScaling) -> ColumnSource:
        return ColumnSource(self._samples, merge_columns([self._columns], scaling))

    def extremes(self) -> Iterable[FeatureExtremes]:
        yield self._columns.extremes()

    def application(self, index: int) -> str:
        return self._samples[index].group

    def num_configs(self, index: int) -> int:
        return len(self._samples[index])


@dataclass(frozen=True)
class BareLoop:
    """A loop over an epoch's batches.

    Attributes:
        step_s: of a whole step, mean.
        loading_s: of drawing, reading and collating its batch, mean.
    """

    step_s: float
    loading_s: float


def bare_loop(spec: TrainSpec, source: ColumnSource) -> BareLoop:
    """Trains for an epoch without Lightning; its first step, which loads compiled code, is not counted."""
    scaling = FeatureScaling.of_extremes(source.extremes(), spec.transform)
    net = LearnedCostNet(spec.net, scaling.sizes)
    batches = PlannedBatches(source.scaled(scaling), Collator(scaling, spec.net.max_neighbors))
    optimizer = torch.optim.Adam(net.parameters(), lr=spec.optimizer.learning_rate, fused=True)
    loss = LOSSES[spec.loss].function
    steps, loading = [], []
    with apply_execution(spec.execution):
        plans = iter(BatchSampler(source, spec.batch, spec.seed))
        for _ in range(spec.batch.per_epoch):
            started = time.process_time()
            batch = batches[next(plans)]
            loading.append(time.process_time() - started)
            optimizer.zero_grad(set_to_none=True)
            loss(net(batch).float(), batch.runtime_ns, batch.mask).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            steps.append(time.process_time() - started)
    return BareLoop(statistics.mean(steps[1:]), statistics.mean(loading[1:]))


def lightning_step_s(spec: TrainSpec, source: ColumnSource) -> float:
    """Returns seconds a step by `training.fit.fit`: what its second and third epoch add to the first one."""
    seconds = []
    few = replace(spec, validation=ValidationSpec(kernels=1, configs=2), patience=9)
    for epochs in (1, 3):
        with tempfile.TemporaryDirectory() as folder:
            started = time.process_time()
            fit(replace(few, epochs=epochs), source, source, Path(folder))
            seconds.append(time.process_time() - started)
    return (seconds[1] - seconds[0]) / (2 * spec.batch.per_epoch)


def measure_overhead(net: NetSpec, samples: Sequence[KernelSamples], steps: int) -> dict[str, float]:
    """Of each task, and of the worse one: the share of a bare step that is data loading, what Lightning adds.

    Args:
        net: hyper-parameters.
        samples: kernels to train on.
        steps: of an epoch.
    """
    one_each = [sample.select(np.zeros(1, np.int64)) for sample in samples]
    sources = {
        task: ColumnSource(kernels, columns_of(kernels))
        for task, kernels in (("tile", samples), ("fusion", one_each))
    }
    found: dict[str, float] = {}
    for task, spec in TASKS.items():
        source = sources[task]
        spec = replace(spec, net=net, batch=replace(spec.batch, per_epoch=steps))
        # They take turns, as the machine may be busier at one time than at another.
        turns = [(bare_loop(spec, source), lightning_step_s(spec, source)) for _ in range(_TURNS)]
        step_s = statistics.median(loop.step_s for loop, _ in turns)
        loading_s = statistics.median(loop.loading_s for loop, _ in turns)
        with_lightning_s = statistics.median(lightning_s for _, lightning_s in turns)
        found[f"{task}/step_ms"] = step_s * 1e3
        found[f"{task}/data_loading_share"] = loading_s / step_s
        found[f"{task}/lightning_overhead"] = with_lightning_s / step_s - 1.0
    for name in ("data_loading_share", "lightning_overhead"):
        found[name] = max(found[f"{task}/{name}"] for task in TASKS)
    return found
