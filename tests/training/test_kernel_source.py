from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from costbench.arrays import I64
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.datasets.measured_kernels import CompiledPrograms, MeasuredKernels, shard_path
from costbench.datasets.storage import Shard
from costbench.datasets.tile_generation import TileParams, TileTask
from costbench.errors import DataError
from costbench.features.decision_features import decision_features
from costbench.features.feature_shards import FeatureShard, feature_path, write_features
from costbench.features.graph_tensors import ProgramFeatureCache, kernel_graph, program_features
from costbench.features.packed_kernels import PackedKernels, merge_columns
from costbench.models.edges import Edges
from costbench.models.graph_batch import Collator, FeatureScaling, GraphBatch, pack_samples
from costbench.models.spec import NetSpec
from costbench.target import load_target
from costbench.training.batches import SampleSource
from costbench.training.fit import fit
from costbench.training.kernel_source import KernelSource, MergedSource
from costbench.training.spec import BatchSpec, FitResult, TrainSpec

PROGRAMS = ("wavernn_3_b1_infer_bf16", "rnn_char_b64_infer_f32")
TARGET = load_target("tpu_v3")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A data set of two small programs with its features, at most 12 tiles of each kernel."""
    folder = tmp_path_factory.mktemp("data")
    for name in PROGRAMS:
        program = (repository / "data" / "programs" / f"{name}.hlo.pb.zst").read_bytes()
        application = name.split("_")[0]
        TileTask(name, application, program, (TARGET,), TileParams(12, 5), folder).make()
        shard = tile_shard(folder, name)
        kernels = [shard.kernel(index) for index in range(len(shard))]
        features = program_features(kernels[0].kernel.module)
        metadata: dict[str, object] = {"program": name, "application": application}
        write_features(
            feature_path(folder / "features", "tile", "tpu_v3", name),
            kernels,
            features,
            AnalyticalModel(TARGET.architecture),
            metadata,
        )
    return folder


def tile_shard(data: Path, name: str) -> MeasuredKernels:
    shard = Shard.open(shard_path(data, "tpu_v3", name))
    return MeasuredKernels((shard,), CompiledPrograms(data), TARGET.architecture)


def shards(data: Path) -> list[Path]:
    return [feature_path(data / "features", "tile", "tpu_v3", name) for name in PROGRAMS]


def source(data: Path, cache_bytes: int = 1 << 20) -> KernelSource:
    return KernelSource(shards(data), cache_bytes=cache_bytes)


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
    measured = tile_shard(data, PROGRAMS[0]).kernel(1)
    sample = source(data)[1]
    np.testing.assert_array_equal(sample.runtime_ns, measured.runtime_ns)
    np.testing.assert_array_equal(
        sample.config_features, decision_features(measured.space.nest, measured.tile_sizes)
    )
    expected = kernel_graph(measured.kernel, ProgramFeatureCache())
    np.testing.assert_array_equal(sample.graph.node_features, expected.node_features)
    np.testing.assert_array_equal(sample.graph.edges, expected.edges)
    estimates = AnalyticalModel(TARGET.architecture).predict(measured.kernel, measured.tile_sizes)
    np.testing.assert_array_equal(sample.analytical_ns, estimates)


def arrays(kernels: PackedKernels | GraphBatch | Edges) -> dict[str, np.ndarray]:
    """Type and values of each field, but for what the features are scaled by."""
    values = {field.name: getattr(kernels, field.name) for field in fields(kernels)}
    return {name: np.asarray(value) for name, value in values.items() if name not in ("scaled_by", "edges")}


def some_kernels(found: SampleSource) -> tuple[list[int], list[I64]]:
    """Kernels of both programs, in any order, one of them twice, with some of their decisions."""
    kernels = [0, len(found) - 1, 1, 1, len(found) - 2]
    return kernels, [np.arange(found.num_configs(k))[:: -1 - place] for place, k in enumerate(kernels)]


def test_packed_kernels_are_those_read_one_at_a_time(data: Path) -> None:
    found = source(data)
    kernels, configs = some_kernels(found)
    pack = found.pack(kernels, configs)
    expected = pack_samples([found[k].select(c) for k, c in zip(kernels, configs, strict=True)])
    for name, one_at_a_time in (arrays(expected) | {"edges": expected.edges}).items():
        read = getattr(pack, name)
        assert read.dtype == one_at_a_time.dtype, name
        np.testing.assert_array_equal(read, one_at_a_time, err_msg=name)


def same_bytes(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(value.tobytes() == other[name].tobytes() for name, value in one.items())


@pytest.mark.parametrize("dropped", [(), ("_product", "is_root"), ("parameter_number",)])
def test_batches_from_memory_are_those_from_disk(data: Path, dropped: tuple[str, ...]) -> None:
    """Scaled once and as a whole, or batch by batch."""
    found = source(data)
    scaling = FeatureScaling.of_extremes(found.extremes()).without(dropped)
    in_memory, on_disk = found.scaled(scaling), source(data, cache_bytes=1).scaled(scaling)
    assert isinstance(in_memory, MergedSource)
    assert isinstance(on_disk, KernelSource)
    collator = Collator(scaling, max_neighbors=4)
    for even in (False, True):
        one, other = (collator.collate(s.pack(*some_kernels(s)), even=even) for s in (in_memory, on_disk))
        assert one.node_features.shape[1] == scaling.node.num_outputs
        assert same_bytes(arrays(one), arrays(other))
        assert same_bytes(arrays(one.edges), arrays(other.edges))


def test_kernels_in_memory_are_those_of_the_source(data: Path) -> None:
    found = source(data)
    merge_columns = found.scaled(FeatureScaling.of_extremes(found.extremes()))
    assert len(merge_columns) == len(found)
    assert merge_columns.num_configs(1) == found.num_configs(1)
    assert merge_columns.application(1) == found.application(1)
    np.testing.assert_array_equal(merge_columns[1].config_features, found[1].config_features)
    scalers = [FeatureScaling.of_extremes(s.extremes()).to_dict() for s in (found, merge_columns)]
    assert scalers[0] == scalers[1]


def test_scaled_features_have_no_extremes_to_scale_by(data: Path) -> None:
    columns = [FeatureShard(path).columns for path in shards(data)]
    scaled = merge_columns(columns, FeatureScaling.of_extremes(part.extremes() for part in columns))
    with pytest.raises(DataError, match="are scaled"):
        scaled.extremes()


def test_batches_of_kernels_scaled_by_others_are_refused(data: Path) -> None:
    found = source(data)
    scaling, other = (FeatureScaling.of_extremes(found.extremes()) for _ in range(2))
    pack = found.scaled(scaling).pack([0], [np.arange(1)])
    with pytest.raises(DataError, match="scaled by another"):
        Collator(other, 20).collate(pack)


def test_scalers_of_extremes_are_those_of_all_kernels(data: Path) -> None:
    found = source(data)
    expected = FeatureScaling.fit(found[index] for index in range(len(found)))
    assert FeatureScaling.of_extremes(found.extremes()).to_dict() == expected.to_dict()


def test_there_is_no_kernel_after_the_last(data: Path) -> None:
    with pytest.raises(IndexError):
        source(data)[len(source(data))]


def held_bytes(data: Path, budget: int, held: list[SampleSource]) -> int:
    """What a source holds once every kernel has been in a batch."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    found = source(data, budget)
    held.append(found.scaled(FeatureScaling.of_extremes(found.extremes())))
    for index in range(len(held[-1])):
        held[-1].pack([index], [np.arange(1)])
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


def test_memory_is_that_of_the_budget(data: Path) -> None:
    """Shards are in memory as a whole, or not at all."""
    files = sum(path.stat().st_size for path in shards(data))
    tracemalloc.start()
    try:
        held: list[SampleSource] = []
        held_bytes(data, files, held)  # what is allocated at the first use of anything
        nothing, less, all_of_them = (held_bytes(data, b, held) for b in (0, files - 1, files))
    finally:
        tracemalloc.stop()
    assert abs(less - nothing) < 0.1 * files
    assert 0.3 * files < all_of_them - nothing <= files


def test_training_resumed_with_another_budget_ends_with_the_same_bytes(data: Path, tmp_path: Path) -> None:
    spec = TrainSpec(
        net=NetSpec(hidden=8, opcode_embedding=4, encoder_layers=1, dropout=0.1),
        batch=BatchSpec(kernels=4, configs=8, per_epoch=6),
        epochs=3,
    )

    class Stopping(KernelSource):
        def scaled(self, scaling: FeatureScaling) -> KernelSource:
            return self

        def pack(self, kernels: Sequence[int], configs: Sequence[I64]) -> PackedKernels:
            self.batches = getattr(self, "batches", 0) + 1
            if self.batches > 8:  # within the second epoch
                raise InterruptedError
            return super().pack(kernels, configs)

    whole = fit(spec, source(data), source(data), tmp_path / "whole")
    with pytest.raises(InterruptedError):
        fit(spec, Stopping(shards(data)), source(data), tmp_path / "parts")
    resumed = fit(spec, source(data, cache_bytes=1), source(data, cache_bytes=1), tmp_path / "parts")
    assert outcome(resumed) == outcome(whole)


def outcome(result: FitResult) -> tuple[float, int, int, dict[str, bytes]]:
    files = {path.name: path.read_bytes() for path in result.checkpoint.iterdir()}
    return result.best_metric, result.best_epoch, result.steps, files


def test_a_missing_shard_is_named(data: Path) -> None:
    with pytest.raises(DataError, match="nothing_here"):
        KernelSource([data / "nothing_here.arrow"])
