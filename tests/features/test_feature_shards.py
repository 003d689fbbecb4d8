"""What is read back from a feature shard is what would be computed from the program."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.estimate_quality import QUALITIES
from costbench.compiler.kernel import Kernel
from costbench.compiler.program import compile_program
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import TileSpace, tile_space
from costbench.datasets.record_types import NODE_EXTRAS
from costbench.datasets.records import digests_of, offsets_of
from costbench.datasets.storage import Shard, write_shard
from costbench.errors import DataError
from costbench.features.feature_shards import (
    FeatureShard,
    estimates_path,
    extras_path,
    feature_path,
    read_paths,
    write_estimates,
    write_features,
)
from costbench.features.graph_tensors import ProgramFeatureCache, kernel_graph, program_features
from costbench.features.node import IS_ROOT_COLUMN, PARAMETER_NUMBER_COLUMN
from costbench.features.packed_kernels import EXTRA
from costbench.features.roofline import Roofline
from costbench.hlo.reader import read_module
from costbench.target import load_target

ARCHITECTURE = load_target("tpu_v3").architecture
MODEL = AnalyticalModel(ARCHITECTURE)
METADATA: dict[str, object] = {"program": "p", "application": "A"}


@dataclass(frozen=True)
class Item:
    kernel: Kernel
    fingerprint: str
    runs: int
    space: TileSpace
    tile_sizes: TileSizes
    runtime_ns: np.ndarray


@pytest.fixture(scope="module")
def items(repository: Path) -> list[Item]:
    """Every kernel of a program with loops, the i-th with up to i + 1 tile sizes."""
    path = repository / "data" / "programs" / "rnn_char_b64_infer_f32.hlo.pb.zst"
    compiled = compile_program(read_module(path), "rnn")
    made = []
    for index, kernel in enumerate(compiled.kernels):
        space = tile_space(kernel, ARCHITECTURE)
        ids = space.legal_ids()[: index + 1]
        runtimes = np.arange(1, len(ids) + 1, dtype=np.int64) * (index + 1)
        made.append(Item(kernel, f"{index:032x}", index, space, space.decode(ids), runtimes))
    return made


@pytest.fixture(scope="module")
def shard(items: list[Item], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("features") / "p.arrow"
    write_features(path, items, program_features(items[0].kernel.module), MODEL, METADATA)
    return path


def test_estimates_of_other_qualities_lie_beside_a_shard(items: list[Item], tmp_path: Path) -> None:
    path = feature_path(tmp_path, "tile", "tpu_v3", "p")
    write_features(path, items, program_features(items[0].kernel.module), MODEL, METADATA)
    expert = AnalyticalModel(ARCHITECTURE, QUALITIES["expert"])
    beside = estimates_path(path, "expert")
    assert beside == tmp_path / "estimates" / "expert" / "tile" / "tpu_v3" / "p.arrow"
    assert read_paths([path], "") == [path]
    with pytest.raises(DataError, match=r"p\.arrow: .*'expert' among `features.estimates`"):
        read_paths([path], "expert")
    write_estimates(beside, items, expert, METADATA)
    assert read_paths([path], "expert") == [path, beside]
    Shard.open(beside)
    shard = FeatureShard(path)
    assert shard.with_estimate("") is shard
    found = shard.with_estimate("expert")
    differing = 0
    for index, item in enumerate(items):
        compiler, other = (model.predict(item.kernel, item.tile_sizes) for model in (MODEL, expert))
        np.testing.assert_array_equal(shard.analytical_ns(index), compiler)
        np.testing.assert_array_equal(found.analytical_ns(index), other)
        np.testing.assert_array_equal(found.runtime_ns(index), shard.runtime_ns(index))
        packed = found.columns.pack(np.array([index]), [np.arange(len(item.runtime_ns))])
        assert packed.analytical_ns is not None
        np.testing.assert_array_equal(packed.analytical_ns, other)
        differing += int((compiler != other).sum())
    assert differing
    with pytest.raises(DataError, match=r"roofline.*'roofline' among `features.estimates`"):
        FeatureShard(path, "roofline")
    write_estimates(beside, items[:-1], expert, METADATA)
    with pytest.raises(DataError, match="estimates of other kernels"):
        FeatureShard(path, "expert")
    swapped = [replace(items[0], fingerprint="f" * 32), *items[1:]]
    write_estimates(beside, swapped, expert, METADATA)
    with pytest.raises(DataError, match="estimates of other kernels"):
        FeatureShard(path, "expert")


def test_a_roofline_leaves_further_features_of_nodes(items: list[Item], tmp_path: Path) -> None:
    path = feature_path(tmp_path, "fusion", "machine", "p")
    write_features(path, items, program_features(items[0].kernel.module), MODEL, METADATA)
    nodes = FeatureShard(path).num_nodes()
    columns = {
        "kernel_fingerprint": digests_of([item.fingerprint for item in items]),
        f"{EXTRA}_offsets": offsets_of(nodes.tolist()),
        EXTRA: np.arange(nodes.sum(), dtype=np.float32)[:, np.newaxis],
    }
    write_shard(extras_path(path, "mine:ours"), columns, {**METADATA, "version": "1"}, NODE_EXTRAS)
    found = FeatureShard(path, features="mine:ours").with_roofline(Roofline(1000.0, 0.0, 0.0, 0.0))
    packed = found.columns.pack(np.arange(2), [np.arange(1)] * 2)
    assert packed.node_features[:, -1].tolist() == list(range(nodes[:2].sum()))
    assert packed.analytical_ns is not None
    assert packed.analytical_ns.tolist() == [1000.0, 1000.0]


def test_graphs_are_those_of_the_kernels(items: list[Item], shard: Path) -> None:
    features, cache = FeatureShard(shard), ProgramFeatureCache()
    assert len(features) == len(items) > 10
    for index, item in enumerate(items):
        graph, expected = features.graph(index), kernel_graph(item.kernel, cache)
        for name in ("opcodes", "node_features", "edges", "static_features"):
            read, computed = getattr(graph, name), getattr(expected, name)
            assert read.dtype == computed.dtype, name
            np.testing.assert_array_equal(read, computed, err_msg=f"{name} of kernel {index}")


def test_tile_sizes_and_runtimes_are_those_measured(items: list[Item], shard: Path) -> None:
    features = FeatureShard(shard)
    assert features.num_configs().tolist() == [len(item.runtime_ns) for item in items]
    with_contraction = 0
    for index, item in enumerate(items):
        sizes = features.tile_sizes(index)
        np.testing.assert_array_equal(sizes.kernel_bounds, item.tile_sizes.kernel_bounds)
        np.testing.assert_array_equal(sizes.output_bounds, item.tile_sizes.output_bounds)
        np.testing.assert_array_equal(features.runtime_ns(index), item.runtime_ns)
        predicted = MODEL.predict(item.kernel, item.tile_sizes)
        np.testing.assert_array_equal(features.analytical_ns(index), predicted)
        with_contraction += sizes.kernel_bounds.shape[1] > 0
    assert 0 < with_contraction < len(items)
    assert features.runs().tolist() == [item.runs for item in items]
    assert features.space_sizes().tolist() == [item.space.size for item in items]
    assert features.fingerprints() == tuple(item.fingerprint for item in items)


def test_a_value_is_stored_once_for_all_kernels_that_read_it(items: list[Item], shard: Path) -> None:
    """At most twice: as what an instruction makes, and as what enters a kernel."""
    columns = Shard.open(shard)
    module = items[0].kernel.module
    assert len(columns["row_opcode"]) < len(columns["node_row"])
    assert len(columns["row_opcode"]) <= 2 * sum(len(c.instructions) for c in module.computations)


def test_equal_rows_are_stored_once(shard: Path) -> None:
    columns = Shard.open(shard)
    opcodes, features = columns["row_opcode"], columns["row_features"]
    rows = [(int(opcode), row.tobytes()) for opcode, row in zip(opcodes, features, strict=True)]
    assert len(set(rows)) == len(rows) > 10
    assert set(columns["node_row"].tolist()) == set(range(len(rows)))


def test_rows_lie_with_the_first_kernel_that_has_them(shard: Path) -> None:
    columns = Shard.open(shard)
    nodes, rows = columns["node_row_offsets"], columns["row_opcode_offsets"]
    known: list[int] = []
    for kernel in range(len(nodes) - 1):
        part = columns["node_row"][nodes[kernel] : nodes[kernel + 1]].tolist()
        known.extend(row for row in dict.fromkeys(part) if row not in known)
        assert known == list(range(rows[kernel + 1]))
    assert len(known) == len(columns["row_opcode"])


def test_a_graph_read_twice_is_not_shared(shard: Path) -> None:
    """The numbers of inputs and the outputs are written into a copy, never into the file."""
    features = FeatureShard(shard)
    first = features.graph(0).node_features
    first[:, [PARAMETER_NUMBER_COLUMN, IS_ROOT_COLUMN]] = 99
    assert features.graph(0).node_features.max() != 99 or (features.graph(0).node_features != first).any()
    assert features.graph(0).node_features[0, PARAMETER_NUMBER_COLUMN] == 0


def test_equal_samples_give_equal_bytes(items: list[Item], shard: Path, tmp_path: Path) -> None:
    path = tmp_path / "again.arrow"
    write_features(path, items, program_features(items[0].kernel.module), MODEL, METADATA)
    assert path.read_bytes() == shard.read_bytes()


def test_a_program_without_samples_has_an_empty_shard(items: list[Item], tmp_path: Path) -> None:
    path = tmp_path / "empty.arrow"
    write_features(path, [], program_features(items[0].kernel.module), MODEL, METADATA)
    assert len(FeatureShard(path)) == 0


def test_a_truncated_shard_is_named(shard: Path, tmp_path: Path) -> None:
    path = tmp_path / "short.arrow"
    path.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"short.arrow.*truncated"):
        FeatureShard(path)


def test_where_features_lie() -> None:
    assert feature_path(Path("f"), "tile", "tpu_v2", "p") == Path("f/tile/tpu_v2/p.arrow")
