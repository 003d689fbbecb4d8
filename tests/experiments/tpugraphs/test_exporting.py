"""Our tile sizes and layouts as TpuGraphs publishes them, and read back."""

from __future__ import annotations

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
from costbench.datasets.tpugraphs.raw import read_layout_tuning, read_tile_tuning
from costbench.errors import DataError
from costbench.experiments.tpugraphs.exporting import ExportOptions, export_folder
from costbench.experiments.tpugraphs.importing import import_folder
from costbench.features.tpugraphs_graphs import tile_graph_of
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


def test_a_chip_without_samples(exported: tuple[Path, dict[str, dict[str, int]]], tmp_path: Path) -> None:
    root, _ = exported
    with pytest.raises(DataError, match="no samples on tpu_v2"):
        export_folder(ExportOptions(root / "params.yaml", "tpu_v2", "random"), tmp_path, lambda _line: None)
