from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.tile_generation import Price, TileParams, TileTask
from costbench.datasets.tile_kernels import CompiledPrograms, TileShard, shard_path
from costbench.errors import DataError
from costbench.features.config import tile_features
from costbench.features.graph_tensors import ProgramFeatureCache, kernel_graph
from costbench.models.analytical import AnalyticalModel
from costbench.target import Architecture, load_target
from costbench.training.tile_source import TileSource

PROGRAMS = ("wavernn_3_b1_infer_bf16", "rnn_char_b64_infer_f32")
TARGET = load_target("tpu_v3")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A data set of two small programs, at most 12 tiles of each kernel."""
    folder = tmp_path_factory.mktemp("data")
    for name in PROGRAMS:
        program = (repository / "data" / "programs" / f"{name}.hlo.pb.zst").read_bytes()
        application = name.split("_")[0]
        TileTask(name, application, program, TARGET, TileParams(12, 5), folder, price_on).make()
    return folder


def price_on(architecture: Architecture) -> Price:
    return AnalyticalModel(architecture).predict


def source(data: Path, cache_bytes: int = 1 << 20) -> TileSource:
    return TileSource(data, PROGRAMS, "tpu_v3", TARGET.architecture, cache_bytes=cache_bytes)


def test_kernels_come_program_by_program(data: Path) -> None:
    found = source(data)
    applications = [found.application(index) for index in range(len(found))]
    assert applications == sorted(applications, reverse=True)
    assert set(applications) == {"wavernn", "rnn"}


def test_counts_are_those_of_the_kernels(data: Path) -> None:
    found = source(data)
    assert len(found) > 2
    for index in range(len(found)):
        sample = found[index]
        assert found.num_configs(index) == len(sample) >= 2
        assert found.application(index) == sample.group


def test_samples_are_features_and_runtimes_of_the_shard(data: Path) -> None:
    shard = TileShard(shard_path(data, "tpu_v3", PROGRAMS[0]), CompiledPrograms(data), TARGET.architecture)
    measured = shard.kernel(1)
    sample = source(data)[1]
    np.testing.assert_array_equal(sample.runtime_ns, measured.runtime_ns)
    np.testing.assert_array_equal(sample.config_features, tile_features(measured.tile_sizes))
    expected = kernel_graph(measured.kernel, ProgramFeatureCache())
    np.testing.assert_array_equal(sample.graph.node_features, expected.node_features)
    np.testing.assert_array_equal(sample.graph.edges, expected.edges)


def test_kernels_used_last_are_kept(data: Path) -> None:
    found = source(data)
    assert found[0] is found[0]
    little = source(data, cache_bytes=1)
    first = little[0]
    little[1]
    assert little[0] is not first
    np.testing.assert_array_equal(little[0].runtime_ns, first.runtime_ns)


def test_a_missing_shard_is_named(data: Path) -> None:
    with pytest.raises(DataError, match="nothing_here"):
        TileSource(data, ["nothing_here"], "tpu_v3", TARGET.architecture)
