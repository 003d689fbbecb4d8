"""Which configs of a graph are trained on, validated on and held out; equal configs stay together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64, I32, I64, U64
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.rng import stream
from costbench.training.layout.spec import HoldOutSpec, SamplingSpec

# Values of options that are read at a time.
_CHUNK_VALUES = 1 << 20


def config_keys(graph: LayoutGraph) -> U64:
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


def held_out(graph: LayoutGraph, spec: HoldOutSpec, seed: int) -> ConfigParts:
    """Divides the configs of one graph at random; equal configs are in the same part.

    Args:
        graph: the graph; runtimes are not looked at.
        spec: shares of different configs.
        seed: of the division, which also depends on the graph's name.
    """
    group = np.unique(config_keys(graph), return_inverse=True)[1].reshape(-1)
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


def measured(graph: LayoutGraph, rows: I64 | None, spec: SamplingSpec, seed: int) -> MeasuredConfigs:
    """Returns the configs that are drawn from.

    Args:
        graph: with runtimes.
        rows: indices to choose from; None for all.
        spec: see `deduplicate` and `pool`.
        seed: of the draw of `pool` configs.
    """
    rows = np.arange(graph.num_configs) if rows is None else rows
    runtime = graph.runtime_ns[rows].astype(np.float64)
    if spec.deduplicate:
        _, first, group = np.unique(config_keys(graph)[rows], return_index=True, return_inverse=True)
        group = group.reshape(-1)
        runtime = np.bincount(group, runtime) / np.bincount(group)
        rows = rows[first]
    if spec.pool and spec.pool < len(rows):
        kept = stream(seed, "pool of configs", graph.name).choice(len(rows), spec.pool, replace=False)
        rows, runtime = rows[kept], runtime[kept]
    order = np.lexsort((rows, runtime))
    return MeasuredConfigs(rows[order].astype(np.int32), runtime[order])


def evenly_spaced(configs: MeasuredConfigs, count: int) -> MeasuredConfigs:
    """Returns `count` configs evenly spaced by rank of runtime, as TpuGraphs scores layouts; or all."""
    places = np.unique(np.linspace(0, len(configs) - 1, min(count, len(configs))).round().astype(np.int64))
    return MeasuredConfigs(configs.rows[places], configs.runtime_ns[places])


def drawn(draw: np.random.Generator, available: int, spec: SamplingSpec) -> I64:
    """Returns places among `available` configs sorted by runtime, int64 [<= spec.configs], ascending."""
    if available <= spec.configs:
        return np.arange(available)
    if spec.method == "uniform":
        return np.sort(draw.choice(available, spec.configs, replace=False)).astype(np.int64)
    bounds = np.linspace(0, available, spec.configs + 1).round().astype(np.int64)
    return draw.integers(bounds[:-1], bounds[1:])
