"""Graphs to train on: which configs are drawn, validated on and held out, and how they are read.

Equal configs stay together. A few graphs are kept at hand as tensors; configs are read from the file by draw.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from costbench.arrays import F64, I32, I64, U64
from costbench.datasets.layout_graphs import LayoutGraph, open_layout_graph
from costbench.errors import DataError
from costbench.models.layout.inputs import CPU, LayoutInputs, LayoutScaling, layout_inputs
from costbench.models.spec import LayoutNetSpec
from costbench.rng import stream
from costbench.training.spec import HoldOutSpec, SamplingSpec

# Values of options that are read at a time.
_CHUNK_VALUES = 1 << 20


def hash_configs(graph: LayoutGraph) -> U64:
    """Returns a 64-bit hash of each config, uint64 [c]: sum of option times an odd random number, mod 2^64.

    Different configs of a graph of 10^5 share one with a probability below 10^-9. Reads the configs in
    chunks.
    """
    num_configs, num_nodes = graph.config_options.shape
    draw = stream(0, "hash of configs", num_nodes)
    factors = draw.integers(0, 2**63, num_nodes, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    keys = np.empty(num_configs, np.uint64)
    step = max(1, _CHUNK_VALUES // max(1, num_nodes))
    for start in range(0, num_configs, step):
        chunk = graph.config_options[start : start + step].astype(np.uint64)
        keys[start : start + step] = (chunk * factors).sum(axis=1, dtype=np.uint64)
    return keys


@dataclass(frozen=True, eq=False)
class ConfigParts:
    """A graph's configs, divided: int64 indices each, ascending."""

    train: I64
    validation: I64
    unseen: I64


def hold_out_configs(graph: LayoutGraph, spec: HoldOutSpec, seed: int) -> ConfigParts:
    """Divides the configs of one graph at random; equal configs are in the same part.

    Args:
        graph: the graph; runtimes are not looked at.
        spec: shares of different configs.
        seed: seed of the division, which also depends on the graph's name.
    """
    group = np.unique(hash_configs(graph), return_inverse=True)[1].reshape(-1)
    num_groups = int(group.max(initial=-1)) + 1
    order = stream(seed, "held-out configs", graph.name).permutation(num_groups)
    first, second = (round(share * num_groups) for share in (spec.unseen, spec.unseen + spec.validation))
    part = np.zeros(num_groups, np.int8)
    part[order[:first]], part[order[first:second]] = 2, 1
    train, validation, unseen = (np.flatnonzero(part[group] == number) for number in range(3))
    return ConfigParts(train, validation, unseen)


@dataclass(frozen=True, eq=False)
class MeasuredConfigs:
    """Configs of one graph with their runtimes, sorted by runtime.

    Attributes:
        rows: int32 [u], indices in the graph.
        runtime_ns: float64 [u], ascending.
    """

    rows: I32
    runtime_ns: F64

    def __len__(self) -> int:
        return len(self.rows)


def select_configs(graph: LayoutGraph, rows: I64 | None, spec: SamplingSpec, seed: int) -> MeasuredConfigs:
    """Returns the configs that are drawn from.

    Args:
        graph: graph with runtimes.
        rows: indices to choose from; None for all.
        spec: `deduplicate` and `pool` say which are left.
        seed: seed of the draw of `pool` configs.
    """
    rows = np.arange(graph.num_configs) if rows is None else rows
    runtime = graph.runtime_ns[rows].astype(np.float64)
    if spec.deduplicate:
        _, first, group = np.unique(hash_configs(graph)[rows], return_index=True, return_inverse=True)
        group = group.reshape(-1)
        runtime = np.bincount(group, runtime) / np.bincount(group)
        rows = rows[first]
    if spec.pool and spec.pool < len(rows):
        pool_rows = stream(seed, "pool of configs", graph.name).choice(len(rows), spec.pool, replace=False)
        rows, runtime = rows[pool_rows], runtime[pool_rows]
    order = np.lexsort((rows, runtime))
    return MeasuredConfigs(rows[order].astype(np.int32), runtime[order])


def space_evenly(configs: MeasuredConfigs, count: int) -> MeasuredConfigs:
    """Returns `count` configs evenly spaced by rank of runtime, as TpuGraphs scores layouts; or all."""
    indices = np.unique(np.linspace(0, len(configs) - 1, min(count, len(configs))).round().astype(np.int64))
    return MeasuredConfigs(configs.rows[indices], configs.runtime_ns[indices])


def draw_configs(draw: np.random.Generator, available: int, spec: SamplingSpec) -> I64:
    """Returns indices among `available` configs sorted by runtime, int64 [<= spec.configs], ascending."""
    if available <= spec.configs:
        return np.arange(available)
    if spec.method == "uniform":
        return np.sort(draw.choice(available, spec.configs, replace=False)).astype(np.int64)
    bounds = np.linspace(0, available, spec.configs + 1).round().astype(np.int64)
    return draw.integers(bounds[:-1], bounds[1:])


KEPT_NODES = 400_000
"""Nodes of the graphs that are kept as tensors between steps: about 400 MB."""


@dataclass(frozen=True, eq=False)
class GraphDraw:
    """Configs of one graph in one step.

    Attributes:
        graph: index of the graph.
        configs: int64 [c], indices among its measured configs.
        segment: begin of the step's segment, as a share in [0, 1).
    """

    graph: int
    configs: I64
    segment: float = 0.0


StepPlan = tuple[GraphDraw, ...]


@dataclass(frozen=True, eq=False)
class LayoutBatch:
    """Configs of one graph.

    Attributes:
        inputs: the graph.
        rows: int64 [c], the configs.
        options: int64 [c, nc], rows of `inputs.options`.
        runtime_ns: float64 [c].
        graph: index of the graph.
        segment: see `GraphDraw`.
    """

    inputs: LayoutInputs
    rows: I64
    options: Tensor
    runtime_ns: Tensor
    graph: int
    segment: float


def forget_oldest(kept: OrderedDict[int, Any], graphs: Iterable[LayoutInputs]) -> None:
    """Removes what was used longest ago, down to `KEPT_NODES` nodes of its graphs; the newest stays."""
    sizes = [inputs.graph.num_nodes for inputs in graphs]
    while len(kept) > 1 and sum(sizes[-len(kept) :]) > KEPT_NODES:
        kept.popitem(last=False)


class LayoutSource(Dataset[tuple[LayoutBatch, ...]]):
    """Graphs with the configs that may be drawn from each; item `plan` is a step.

    Args:
        paths: files of the graphs.
        configs: configs of each graph that may be drawn.
        scaling: scalers of features.
        spec: hyper-parameters of the network, which say what it sees of a graph.
        device: where batches are.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        configs: Sequence[MeasuredConfigs],
        scaling: LayoutScaling,
        spec: LayoutNetSpec,
        device: torch.device = CPU,
    ) -> None:
        self._paths = tuple(paths)
        self.configs = tuple(configs)
        self._scaling = scaling
        self._spec, self._device = spec, device
        self._cached: OrderedDict[int, LayoutInputs] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, plan: StepPlan) -> tuple[LayoutBatch, ...]:
        return tuple(self.batch(draw) for draw in plan)

    def batch(self, draw: GraphDraw) -> LayoutBatch:
        """Reads the configs of one draw."""
        inputs, configs = self.inputs(draw.graph), self.configs[draw.graph]
        rows = configs.rows[draw.configs].astype(np.int64)
        # Ascending rows are read from the file in one sweep.
        order = np.argsort(rows)
        runtime = torch.from_numpy(configs.runtime_ns[draw.configs][order]).to(self._device)
        options = inputs.option_rows(rows[order])
        return LayoutBatch(inputs, rows[order], options, runtime, draw.graph, draw.segment)

    def inputs(self, index: int) -> LayoutInputs:
        """Returns a graph, kept at hand while at most `KEPT_NODES` nodes are."""
        if index not in self._cached:
            self._cached[index] = layout_inputs(
                open_layout_graph(self._paths[index]), self._scaling, self._spec, self._device
            )
        self._cached.move_to_end(index)
        forget_oldest(self._cached, self._cached.values())
        return self._cached[index]

    def validation_plans(self, count: int) -> list[StepPlan]:
        """Returns one step per graph: up to `count` configs, evenly spaced by runtime."""
        plans: list[StepPlan] = []
        for index, configs in enumerate(self.configs):
            rows = space_evenly(configs, count).rows
            indices = np.flatnonzero(np.isin(configs.rows, rows))
            plans.append((GraphDraw(index, indices),))
        return plans


class StepSampler(Sampler[StepPlan]):
    """Plans the steps of one epoch after another: graphs from a shuffled deck, then configs of each.

    An epoch depends on the seed and its number only, so training can resume at any epoch.

    Args:
        source: graphs and configs.
        spec: how configs are drawn.
        steps: number of steps per epoch.
        seed: seed of all draws.
    """

    def __init__(self, source: LayoutSource, spec: SamplingSpec, steps: int, seed: int) -> None:
        self._counts = [len(configs) for configs in source.configs]
        self._spec, self._steps, self._seed = spec, steps, seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch that iteration draws. Lightning calls this before every epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[StepPlan]:
        draw = stream(self._seed, "layout steps", self._epoch)
        deck = self._deck(draw)
        for _ in range(self._steps):
            yield tuple(self._draw_configs(draw, next(deck)) for _ in range(self._spec.graphs))

    def _draw_configs(self, draw: np.random.Generator, graph: int) -> GraphDraw:
        return GraphDraw(graph, draw_configs(draw, self._counts[graph], self._spec), float(draw.random()))

    def _deck(self, draw: np.random.Generator) -> Iterator[int]:
        while True:
            yield from draw.permutation(len(self._counts)).tolist()


def open_labelled_graph(path: Path) -> LayoutGraph:
    """Opens a graph that is to be trained or validated on.

    Raises:
        DataError: if its runtimes are withheld.
    """
    graph = open_layout_graph(path)
    if not graph.is_labelled:
        raise DataError("has no runtimes", where=path, field="config_runtime", expected="a labelled graph")
    return graph
