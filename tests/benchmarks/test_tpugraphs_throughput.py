from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic_layouts import random_graph, write_random_graph
from costbench.models.spec import Execution


def test_every_rate_belongs_to_a_ratio(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repository: Path
) -> None:
    """Small sizes; times are not judged here: cores are shared."""
    # Benchmarks import each other as scripts do.
    monkeypatch.syspath_prepend(repository / "benchmarks")
    benchmark = importlib.import_module("tpugraphs_throughput")
    sizes = {
        "TILE_NODES": 8,
        "TILE_CONFIGS": 16,
        "TILE_KERNELS": 2,
        "LAYOUT_SIZES": (200, 20, 32),
        "STEP_CONFIGS": 4,
        "SEGMENT_NODES": 80,
        "ROUNDS": 1,
    }
    for name, value in sizes.items():
        monkeypatch.setattr(benchmark, name, value)
    found = benchmark.measure("tile", 8, 1) | benchmark.measure("layout", 8, 1)
    for join in ("early", "late"):
        assert found[f"tile/{join}/training_configs_per_s"] > 0
        assert found[f"tile/{join}/inference_ratio"] > 0
    full = found["layout/full/training_node_configs_per_s"]
    naive = found["layout/naive/training_node_configs_per_s"]
    assert found["layout/full/training_ratio"] == pytest.approx(full / naive)
    assert {"layout/segments/training_ratio", "layout/inference_ratio"} <= set(found)
    path = write_random_graph(tmp_path / "g.arrow", 200, 20, 32)
    peak = benchmark.memory_of("segments", path, 8, Execution(threads=1))
    assert peak["peak_mb"] >= peak["before_mb"] > 0


def test_generated_graphs_are_like_programs() -> None:
    graph = random_graph(0, 500, 40, 300)
    again = random_graph(0, 500, 40, 300)
    assert np.array_equal(graph.config_options, again.config_options)
    assert np.array_equal(graph.runtime_ns, again.runtime_ns)
    # Producers come first, and there are between one and two edges a node.
    assert (graph.edges[:, 1] < graph.edges[:, 0]).all()
    assert 400 < len(graph.edges) < 1000
    assert (graph.config_options.max(axis=0) < np.diff(graph.option_offsets)).all()
    # The best config is clearly faster than the worst.
    assert graph.runtime_ns.max() > 1.05 * graph.runtime_ns.min()
