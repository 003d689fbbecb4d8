"""Random layout graphs, made without a compiler: for benchmarks and tests of layout networks.

Sizes and shapes follow real programs: nodes read mostly what was computed shortly before, four in ten are
parameters or constants, and configurable nodes are spread over the program. A config's runtime is the sum of
what its options cost, pairs of configurable nodes near each other cost more if their options differ (a copy
is needed), plus noise of 0.04%: so there is something to learn, within nodes and between them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench import rng
from costbench.datasets.layout_graphs import LayoutGraph, write_layout_graph

_CONFIGURABLE = np.array([34, 46, 76])
_OTHERS = np.array([2, 13, 21, 63, 64, 67, 83])
_SOURCE_SHARE = 0.4
_PLACES = 18
_CHUNK = 4096


def random_graph(
    seed: int, num_nodes: int, num_configurable: int, num_configs: int, num_options: int = 6
) -> LayoutGraph:
    """Returns a random graph whose configs are held in memory as int16.

    Args:
        seed: of everything.
        num_nodes: n.
        num_configurable: nc, at most n.
        num_configs: c.
        num_options: largest number of options of a node, at least 2.
    """
    draw = rng.stream(seed, "layout graph", num_nodes)
    ids = np.sort(draw.choice(num_nodes, num_configurable, replace=False)).astype(np.int32)
    opcodes = draw.choice(_OTHERS, num_nodes).astype(np.int32)
    opcodes[ids] = draw.choice(_CONFIGURABLE, num_configurable)
    counts = draw.integers(2, num_options + 1, num_configurable)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    options = np.full((int(offsets[-1]), _PLACES), -1.0, np.float32)
    for block in range(3):
        options[:, 6 * block : 6 * block + 3] = [draw.permutation(3) for _ in range(len(options))]
    options[offsets[:-1]] = -1.0
    groups = draw.integers(0, max(6, num_configurable // 8), num_configurable)
    configs = _configs(seed, num_configs, counts, groups)
    name = f"random_{num_nodes}_{num_configurable}_{num_configs}"
    return LayoutGraph(
        name=name,
        program=name,
        collection="layout:xla:random",
        node_features=np.floor(draw.exponential(20.0, (num_nodes, 140))).astype(np.float32),
        opcodes=opcodes,
        edges=_edges(draw, num_nodes),
        node_config_ids=ids,
        option_offsets=offsets,
        option_features=options,
        config_options=configs,
        runtime_ns=_runtimes(seed, configs, options, offsets),
        node_splits=np.arange(0, num_nodes + 1, max(1, num_nodes // 5)).astype(np.int64),
    )


def write_random_graph(path: Path, *sizes: int, seed: int = 0) -> Path:
    """Writes `random_graph(seed, *sizes)`; returns the path."""
    write_layout_graph(path, random_graph(seed, *sizes))
    return path


def _edges(draw: np.random.Generator, num_nodes: int) -> np.ndarray:
    """Rows (consumer, producer): each node but parameters reads the one before it and one some way back."""
    nodes = np.arange(1, num_nodes)
    nodes = nodes[draw.random(len(nodes)) > _SOURCE_SHARE]
    back = np.minimum(nodes, 1 + np.floor(draw.exponential(12.0, len(nodes))).astype(np.int64))
    pairs = np.concatenate([np.stack([nodes, nodes - 1], 1), np.stack([nodes, nodes - back], 1)])
    return np.unique(pairs, axis=0).astype(np.int32)


def _configs(seed: int, num_configs: int, counts: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Configs [c, nc]: in half of the groups nodes change, most of them alike, others keep option 0."""
    configs = np.zeros((num_configs, len(counts)), np.int16)
    for start in range(0, num_configs, _CHUNK):
        draw = rng.stream(seed, "configs", start)
        rows = configs[start : start + _CHUNK]
        shape = (len(rows), int(groups.max(initial=0)) + 1)
        changed, alike = draw.random(shape) < 1 / 2, draw.integers(0, 1 << 15, shape)
        is_independent = draw.random(rows.shape) < 0.1
        choices = np.where(is_independent, draw.integers(0, 1 << 15, rows.shape), alike[:, groups])
        rows[:] = np.where(changed[:, groups], choices % counts, 0)
    return configs


def _runtimes(seed: int, configs: np.ndarray, options: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    draw = rng.stream(seed, "runtimes")
    # What an option costs follows from its features, so that networks can learn it across nodes.
    weights = draw.normal(0.0, 1.0, _PLACES)
    of_option = 1e4 * (1.0 + 0.3 * np.tanh(options @ weights / 4.0))
    fastest = options[:, 0]
    runtime = np.empty(len(configs), np.int64)
    for start in range(0, len(configs), _CHUNK):
        rows = configs[start : start + _CHUNK] + offsets[:-1]
        copies = (fastest[rows[:, 1:]] != fastest[rows[:, :-1]]).sum(axis=1)
        noise = 1.0 + 4e-4 * rng.stream(seed, "noise", start).standard_normal(len(rows))
        total = of_option[rows].sum(axis=1) + 2e3 * copies
        runtime[start : start + _CHUNK] = np.rint(total * noise)
    return runtime
