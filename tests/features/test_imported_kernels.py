"""Imported tile kernels are read as they were published, one by one, in batches and from memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.tpugraphs.folder import TpuGraphsFolder
from costbench.datasets.tpugraphs.npz import TileGraph, read_tile_npz
from costbench.features.feature_shards import FeatureShard
from costbench.features.packed_kernels import merged
from costbench.models.batch.graph_batch import FeatureScaling
from tests.datasets.tpugraphs.public_folder import write_public_folder


@pytest.fixture
def kernels(tmp_path: Path) -> tuple[list[FeatureShard], list[TileGraph]]:
    """Three kernels of three programs, as shards and as stored."""
    folder = TpuGraphsFolder(write_public_folder(tmp_path / "data", graphs=3), tmp_path / "cache")
    stored = [read_tile_npz(path) for path in folder.graphs("tile:xla", "train")]
    return [FeatureShard(path) for path in folder.tile_shards("train")], stored


def test_kernels_one_by_one(kernels: tuple[list[FeatureShard], list[TileGraph]]) -> None:
    for shard, wanted in zip(*kernels, strict=True):
        graph = shard.graph(0)
        assert np.array_equal(graph.node_features, wanted.node_feat)
        assert np.array_equal(graph.opcodes, wanted.node_opcode)
        assert np.array_equal(graph.edges, wanted.edge_index[:, ::-1].T)
        assert np.array_equal(shard.config_features(0)[:, :24], wanted.config_feat)
        assert (shard.config_features(0)[:, 24:] == 1.0).all()
        normalised = wanted.config_runtime / wanted.config_runtime_normalizers
        assert np.array_equal(np.argsort(shard.runtime_ns(0)), np.argsort(normalised))
        assert shard.runtime_ns(0) == pytest.approx(normalised * wanted.config_runtime_normalizers[0])


def test_batches_and_kernels_in_memory(kernels: tuple[list[FeatureShard], list[TileGraph]]) -> None:
    shards, stored = kernels
    columns = [shard.columns for shard in shards]
    scaling = FeatureScaling.of_extremes((one.extremes() for one in columns), "log1p")
    whole = merged(columns, scaling)
    configs = [np.array([5, 1]), np.array([0])]
    packed = whole.pack(np.array([2, 0]), configs)
    chosen = [stored[2], stored[0]]
    nodes = np.concatenate([one.node_feat for one in chosen])
    assert np.array_equal(packed.node_features, scaling.node(nodes))
    features = np.concatenate([one.config_feat[rows] for one, rows in zip(chosen, configs, strict=True)])
    padded = np.concatenate([features, np.ones((3, 4), np.float32)], axis=1)
    assert np.array_equal(packed.config_features, scaling.decision(padded))
    alone = columns[2].pack(np.array([0]), configs[:1])
    assert np.array_equal(alone.config_features, padded[:2])
    assert np.array_equal(alone.node_features, stored[2].node_feat)
    assert np.array_equal(alone.edges, packed.edges[:, : alone.edges.shape[1]])
