"""Our tile sizes and layouts as TpuGraphs publishes them, and read back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from costbench.datasets.layout_generation import LayoutParams, LayoutTask
from costbench.datasets.layout_shards import read_layout_program
from costbench.datasets.splits import Split, write_split
from costbench.datasets.tile_generation import TileParams, TileTask
from costbench.datasets.tpugraphs.folder import TpuGraphsFolder
from costbench.datasets.tpugraphs.npz import read_tile_npz
from costbench.datasets.tpugraphs.raw import node_splits, read_layout_tuning, read_tile_tuning
from costbench.errors import DataError, HloError
from costbench.experiments.tpugraphs.exporting import ExportOptions, export_folder, featurize_file
from costbench.experiments.tpugraphs.importing import import_folder
from costbench.features.node import module_edges, module_node_features, tpugraphs_opcodes
from costbench.features.tpugraphs_graphs import layout_graph_of, proto_graph, tile_graph_of
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import read_module, read_proto
from costbench.hlo.text.parser import proto_from_text
from costbench.target import load_target

TARGET = load_target("tpu_v3")
PROGRAMS = ("rnn_char_b64_infer_f32", "wavernn_3_b1_infer_bf16", "mlp_mnist_b128_train_f32")


@pytest.fixture(scope="module")
def exported(
    tmp_path_factory: pytest.TempPathFactory, repository: Path
) -> tuple[Path, dict[str, dict[str, int]]]:
    root = tmp_path_factory.mktemp("export")
    data = root / "out" / "generate"
    for name in PROGRAMS:
        program = (repository / "data" / "programs" / f"{name}.hlo.pb.zst").read_bytes()
        TileTask(name, name, program, (TARGET,), TileParams(8, 5), data).make()
        if name.startswith("mlp"):
            LayoutTask(
                name, name, program, (TARGET,), LayoutParams(max_configs=20), data, family="xla"
            ).make()
    write_split(
        root / "out" / "split" / "random.json", Split("random", PROGRAMS[:1], PROGRAMS[1:2], PROGRAMS[2:])
    )
    params = root / "params.yaml"
    params.write_text(
        yaml.safe_dump(
            {"run": {"name": "x", "root": ".", "params": "params.yaml", "out": "out", "reports": "r"}}
        )
    )
    return root, export_folder(ExportOptions(params, "tpu_v3", "random"), root / "data", lambda _line: None)


def test_splits_are_ours(exported: tuple[Path, dict[str, dict[str, int]]]) -> None:
    root, counts = exported
    assert set(counts["tile:xla"]) == {"train", "valid", "test"}
    assert counts["layout:xla:random"] == counts["layout:xla:default"] == {"test": 1}
    folder = TpuGraphsFolder(root / "data", root / "cache")
    assert {name: len(folder.graphs("tile:xla", name)) for name in counts["tile:xla"]} == counts["tile:xla"]
    assert [shard.stem for shard in folder.tile_shards("test")] == [PROGRAMS[2]]


def test_raw_and_npz_files_hold_the_same(exported: tuple[Path, dict[str, dict[str, int]]]) -> None:
    root, _ = exported
    paths = sorted((root / "data" / "pb" / "tile").rglob("*.pb"))
    for path in paths:
        (kernel,) = read_tile_tuning(path)
        assert kernel.name == path.stem
        npz = Path(str(path).replace("/pb/", "/npz/")).with_suffix(".npz")
        found, wanted = read_tile_npz(npz), tile_graph_of(kernel)
        for field, array in vars(wanted).items():
            assert np.array_equal(getattr(found, field), array), field
    assert len(paths) == len(list((root / "data" / "npz" / "tile").rglob("*.npz")))


def test_types_are_those_that_are_published(exported: tuple[Path, dict[str, dict[str, int]]]) -> None:
    root, _ = exported
    (layout,) = (root / "data" / "npz" / "layout" / "xla" / "random" / "test").iterdir()
    tile = next((root / "data" / "npz" / "tile" / "xla" / "test").iterdir())
    shared = {"node_feat": "float32", "node_opcode": "int32", "edge_index": "int32"}
    for path, own in (
        (tile, {"config_feat": "float32", "config_runtime": "int64", "config_runtime_normalizers": "int64"}),
        (
            layout,
            {
                "node_config_ids": "int32",
                "node_config_feat": "float32",
                "config_runtime": "int32",
                "node_splits": "int64",
            },
        ),
    ):
        with np.load(path, allow_pickle=False) as archive:
            assert {key: archive[key].dtype.name for key in archive} == shared | own


def test_layouts_come_back(exported: tuple[Path, dict[str, dict[str, int]]]) -> None:
    root, _ = exported
    shard = next((root / "out" / "generate" / "layout").rglob("*.arrow"))
    whole = read_layout_program(shard)
    folder = TpuGraphsFolder(root / "data", root / "cache")
    rows = 0
    for search in ("default", "random"):
        (path,) = folder.graphs(f"layout:xla:{search}", "test")
        graph = folder.layout_graph(path)
        raw = read_layout_tuning(Path(str(path).replace("/npz/", "/pb/")).with_suffix(".pb"))
        assert np.array_equal(graph.runtime_ns, raw.runtime_ns)
        features = graph.config_features(slice(None))
        assert np.array_equal(features, raw.minor_to_major.reshape(features.shape))
        assert graph.runtime_ns[0] == whole.runtime_ns[0]
        rows += graph.num_configs
    assert rows == len(whole.runtime_ns) + 1  # the default is in both


def test_what_is_exported_can_be_imported(
    exported: tuple[Path, dict[str, dict[str, int]]], tmp_path: Path
) -> None:
    root, counts = exported
    found = import_folder(root / "data", tmp_path, lambda _line: None)
    for count in found:
        assert counts[count.collection][count.split] == count.graphs == count.labelled


def test_graphs_of_an_earlier_export_are_not_mixed_with_others(
    exported: tuple[Path, dict[str, dict[str, int]]], tmp_path: Path
) -> None:
    root, _ = exported
    earlier = tmp_path / "npz" / "tile" / "xla" / "train" / "old.npz"
    earlier.parent.mkdir(parents=True)
    earlier.write_bytes(b"")
    options = ExportOptions(root / "params.yaml", "tpu_v3", "random")
    with pytest.raises(DataError, match="npz: holds graphs already"):
        export_folder(options, tmp_path, lambda _line: None)
    assert list(tmp_path.rglob("*.*")) == [earlier]
    # Raw files beside them are what the two options are for.
    export_folder(replace(options, npz=False), tmp_path, lambda _line: None)
    assert list((tmp_path / "npz").rglob("*.npz")) == [earlier]


def test_a_chip_without_samples(exported: tuple[Path, dict[str, dict[str, int]]], tmp_path: Path) -> None:
    root, _ = exported
    with pytest.raises(DataError, match="no samples on tpu_v2"):
        export_folder(ExportOptions(root / "params.yaml", "tpu_v2", "random"), tmp_path, lambda _line: None)


TEXT = """HloModule step

ENTRY main {
  x = f32[512,1024]{1,0} parameter(0)
  y = f32[512,1024]{1,0} tanh(x)
  ROOT z = f32[512,1024]{1,0} add(y, x)
}
"""


def test_text(tmp_path: Path) -> None:
    (tmp_path / "step.hlo.txt").write_text(TEXT)
    assert featurize_file(tmp_path / "step.hlo.txt", tmp_path / "step.npz") == (3, 3)
    with np.load(tmp_path / "step.npz", allow_pickle=False) as graph:
        assert {key: (graph[key].dtype.name, graph[key].shape) for key in graph} == {
            "node_feat": ("float32", (3, 140)),
            "node_opcode": ("int32", (3,)),
            "edge_index": ("int32", (3, 2)),
            "node_splits": ("int64", (2,)),
        }
        assert graph["edge_index"].tolist() == [[1, 0], [2, 0], [2, 1]]
        assert graph["node_feat"][:, 21:23].tolist() == [[512, 1024]] * 3
        assert graph["node_feat"][:, 0].tolist() == [0, 0, 1]


def test_the_same_features_as_those_of_a_verified_module(repository: Path) -> None:
    for name in ("alexnet_b128_train_f32", "wavernn_3_b1_infer_bf16", "ssd_512_b8_train_f32"):
        path = repository / "data" / "programs" / f"{name}.hlo.pb.zst"
        graph, module = proto_graph(read_proto(path), where=name), read_module(path)
        assert np.array_equal(graph.node_features, module_node_features(module))
        assert np.array_equal(graph.opcodes, tpugraphs_opcodes(module))
        assert np.array_equal(graph.edges, module_edges(module))
        assert np.array_equal(graph.node_splits, node_splits(module))


def test_a_program_of_26_000_instructions_has_features(repository: Path, tmp_path: Path) -> None:
    path = repository / "data" / "programs" / "nasnetmobile_b64_train_bf16.hlo.pb.zst"
    nodes, _ = featurize_file(path, tmp_path / "x.npz")
    assert nodes > 25_000


def test_what_is_not_known_stays_zero() -> None:
    proto = proto_from_text(TEXT, where="step")
    entry = proto.computations[0].instructions
    entry[1].opcode, entry[1].shape.element_type = "of-the-future", 33
    entry[2].operand_ids.append(entry[0].id)  # x is read twice
    entry[2].window.dimensions.add(size=3)
    graph = proto_graph(proto, where="step")
    assert graph.opcodes.tolist() == [63, 0, 2]
    assert graph.node_features[1, 2:21].tolist() == [0.0] * 19
    assert graph.edges.tolist() == [[1, 0], [2, 0], [2, 1]]
    # Size 3 and its sum and product; stride and dilations are not set and stay 0, so are their products.
    assert graph.node_features[2, [37, 43, 44, 45, 51, 52]].tolist() == [3, 3, 3, 0, 0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.instructions[1].operand_ids.append(99), r"main/y: operand id 99 does not exist"),
        (lambda c: setattr(c, "root_id", 99), "main: root id 99 does not exist"),
        (lambda c: setattr(c.instructions[1], "id", c.instructions[0].id), "two instructions share an id"),
        (lambda c: c.instructions[1].called_computation_ids.append(99), "called computation id 99"),
    ],
)
def test_broken_messages(change: Callable[[hlo_pb2.HloComputationProto], object], message: str) -> None:
    proto = proto_from_text(TEXT, where="step")
    change(proto.computations[0])
    with pytest.raises(HloError, match=message):
        proto_graph(proto, where="step")


def test_files_that_are_no_program(tmp_path: Path) -> None:
    for name, content in (("a.pb", bytes([255, 0])), ("b.txt", b"no program"), ("c.pb", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(HloError, match=name):
            featurize_file(tmp_path / name, tmp_path / "x.npz")
    with pytest.raises(HloError, match=r"absent\.pb: no such file"):
        featurize_file(tmp_path / "absent.pb", tmp_path / "x.npz")


def test_a_program_is_not_overwritten_by_its_features(tmp_path: Path) -> None:
    path = tmp_path / "step.hlo.txt"
    path.write_text(TEXT)
    (tmp_path / "link.npz").symlink_to(path)
    for destination in (path, tmp_path / "link.npz"):
        with pytest.raises(DataError, match="is the HLO file itself"):
            featurize_file(path, destination)
    assert path.read_text() == TEXT


def test_a_misspelt_opcode_is_named(tmp_path: Path) -> None:
    path = tmp_path / "step.hlo.txt"
    path.write_text(TEXT.replace("tanh(", "tahn("))
    with pytest.raises(HloError, match=r"step\.hlo\.txt: y: unknown opcode 'tahn'"):
        featurize_file(path, tmp_path / "x.npz")
    assert not (tmp_path / "x.npz").exists()


def test_a_real_program(shared_data: Path, tmp_path: Path) -> None:
    # The module is the first field of a layout file, where readers of HLO dumps find it.
    source = shared_data / "real_tpu" / "layout_module.pb"
    assert featurize_file(source, tmp_path / "x.npz") == (3163, 5112)
    wanted = layout_graph_of(read_layout_tuning(source), "x", "layout:xla:random")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as graph:
        assert np.array_equal(graph["node_feat"], wanted.node_features)
        assert np.array_equal(graph["node_opcode"], wanted.opcodes)
        assert np.array_equal(graph["edge_index"], wanted.edges)
        assert np.array_equal(graph["node_splits"], wanted.node_splits)
