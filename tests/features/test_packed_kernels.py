"""Kernels laid end to end; `tests/training/test_kernel_source.py` compares them with kernels read singly."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic_kernels import kernel_samples
from costbench.datasets.tpugraphs.folder import TpuGraphsFolder
from costbench.datasets.tpugraphs.npz import TileGraph, read_tile_npz
from costbench.errors import DataError
from costbench.features.feature_shards import FeatureShard
from costbench.features.packed_kernels import (
    PackedKernels,
    concatenate_ranges,
    merge_columns,
    pack_kernels,
    shift_pairs,
    write_batch_boundaries,
    write_bounds,
)
from costbench.models.graph_batch import FeatureScaling
from tests.datasets.tpugraphs.public_folder import write_public_folder

SAMPLES = [kernel_samples(seed, 3 + seed, 2 + seed) for seed in range(4)]


def pack(*indices: int, estimates: bool = True) -> PackedKernels:
    some = [SAMPLES[index] for index in indices]
    return pack_kernels(
        [sample.graph for sample in some],
        [sample.config_features for sample in some],
        [sample.runtime_ns for sample in some],
        [2.0 * sample.runtime_ns for sample in some] if estimates else None,
    )


def test_edges_of_later_kernels_are_shifted() -> None:
    packed = pack(0, 1)
    assert packed.num_kernels == 2
    assert packed.node_counts.tolist() == [3, 4]
    first = SAMPLES[0].graph.edges.shape[1]
    np.testing.assert_array_equal(packed.edges[:, :first], SAMPLES[0].graph.edges)
    np.testing.assert_array_equal(packed.edges[:, first:], SAMPLES[1].graph.edges + 3)


def test_joined_parts_are_the_kernels_packed_at_once() -> None:
    concatenated, expected = PackedKernels.concatenate([pack(0, 1), pack(2), pack(3, 0)]), pack(0, 1, 2, 3, 0)
    for field in fields(concatenated):
        np.testing.assert_array_equal(getattr(concatenated, field.name), getattr(expected, field.name))
    assert PackedKernels.concatenate([pack(0), pack(1, estimates=False)]).analytical_ns is None


def test_no_parts_are_refused() -> None:
    with pytest.raises(DataError, match="no kernels"):
        PackedKernels.concatenate([])


NONE = np.zeros(0, np.int64)


def test_runs_of_numbers() -> None:
    assert concatenate_ranges(np.array([7, 3, 0]), np.array([2, 0, 3])).tolist() == [7, 8, 0, 1, 2]
    assert concatenate_ranges(NONE, NONE).tolist() == []


def test_pairs_of_later_kernels_are_shifted() -> None:
    pairs = np.array([[0, 1], [1, 2], [0, 3], [0, 1]], np.int32)
    shifted = shift_pairs(pairs, np.array([2, 0, 1, 1]), np.array([0, 3, 5, 10]))
    assert shifted.tolist() == [[0, 1, 5, 10], [1, 2, 8, 11]]
    assert shifted.dtype == np.int64
    assert shift_pairs(pairs[:0], NONE, NONE).shape == (2, 0)


def test_inputs_have_numbers_and_others_say_whether_they_are_outputs() -> None:
    """Of two inputs and two instructions, then of no input and one instruction."""
    boundary = np.full((5, 2), 9, np.float32)
    is_output = np.array([0, 0, 0, 1, 1], np.uint8)
    write_batch_boundaries(boundary, is_output, np.array([2, 0]), np.array([4, 1]))
    assert boundary.tolist() == [[0, 9], [1, 9], [9, 0], [9, 1], [9, 1]]


def test_bounds_with_their_sum_and_product() -> None:
    """Two columns for single bounds; lists of three and none, then of one and two bounds."""
    table = np.zeros((2, 8), np.float32)
    bounds = np.array([2, 3, 4, 5, 6, 7], np.int32)
    write_bounds(table, bounds, np.array([[3, 0], [1, 2]]), np.array([0, 4]), 2)
    assert table.tolist() == [[2, 3, 9, 24, 0, 0, 0, 0], [5, 0, 5, 5, 6, 7, 13, 42]]


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
    whole = merge_columns(columns, scaling)
    configs = [np.array([5, 1]), np.array([0])]
    pack_kernels = whole.pack(np.array([2, 0]), configs)
    chosen = [stored[2], stored[0]]
    nodes = np.concatenate([one.node_feat for one in chosen])
    assert np.array_equal(pack_kernels.node_features, scaling.node(nodes))
    features = np.concatenate([one.config_feat[rows] for one, rows in zip(chosen, configs, strict=True)])
    padded = np.concatenate([features, np.ones((3, 4), np.float32)], axis=1)
    assert np.array_equal(pack_kernels.config_features, scaling.decision(padded))
    alone = columns[2].pack(np.array([0]), configs[:1])
    assert np.array_equal(alone.config_features, padded[:2])
    assert np.array_equal(alone.node_features, stored[2].node_feat)
    assert np.array_equal(alone.edges, pack_kernels.edges[:, : alone.edges.shape[1]])
