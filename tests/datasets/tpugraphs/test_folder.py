"""A folder of TpuGraphs' files: collections, splits, converted once, tile kernels that training reads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.storage import Shard
from costbench.datasets.tpugraphs.folder import COLLECTIONS, TpuGraphsFolder
from costbench.errors import DataError
from tests.datasets.tpugraphs.public_arrays import layout_arrays, save, tile_arrays


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three tile kernels of two programs, one withheld, and a layout program in two collections."""
    base = tmp_path / "tpugraphs"
    for split, name in (("train", "net_a1"), ("train", "net_b2"), ("train", "other_c3"), ("test", "late_d4")):
        folder = base / "npz" / "tile" / "xla" / split
        folder.mkdir(parents=True, exist_ok=True)
        runtimes = {"config_runtime": None, "config_runtime_normalizers": None} if split == "test" else {}
        save(folder / f"{name}.npz", tile_arrays(**runtimes))
    for search in ("default", "random"):
        folder = base / "npz" / "layout" / "xla" / search / "valid"
        folder.mkdir(parents=True)
        save(folder / "unet_3d.4x4.bf16.npz", layout_arrays())
    return base


def test_collections_splits_and_graphs(root: Path, tmp_path: Path) -> None:
    for location in (root, root / "npz"):
        folder = TpuGraphsFolder(location, tmp_path / "cache")
        assert folder.collections() == ["tile:xla", "layout:xla:default", "layout:xla:random"]
        assert [path.stem for path in folder.graphs("tile:xla", "train")] == ["net_a1", "net_b2", "other_c3"]
        assert folder.graphs("tile:xla", "valid") == []
    assert len(COLLECTIONS) == 5


@pytest.mark.parametrize(
    ("collection", "split", "message"),
    [("tile:nlp", "train", "no collection"), ("tile:xla", "validation", "no split")],
)
def test_what_the_data_set_does_not_have(root: Path, collection: str, split: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        TpuGraphsFolder(root, root / "cache").graphs(collection, split)
    with pytest.raises(DataError, match="holds no collection"):
        TpuGraphsFolder(root / "nowhere", root / "cache")


def test_layout_graphs_are_converted_once(root: Path, tmp_path: Path) -> None:
    folder = TpuGraphsFolder(root, tmp_path / "cache")
    (source,) = folder.graphs("layout:xla:random", "valid")
    graph = folder.layout_graph(source)
    assert (graph.name, graph.program) == ("unet_3d.4x4.bf16", "unet_3d.4x4.bf16")
    assert graph.collection == "layout:xla:random"
    made = folder.layout_path(source)
    assert made == tmp_path / "cache" / "layout-xla-random" / "valid" / "unet_3d.4x4.bf16.arrow"
    before = made.stat().st_mtime_ns
    os.utime(source, ns=(0, 0))  # a copy: another time, the same contents
    folder.layout_path(source)
    assert made.stat().st_mtime_ns == before
    save(source, layout_arrays(config_runtime=np.array([1, 2, 3, 4])))
    assert folder.layout_graph(source).runtime_ns.tolist() == [1, 2, 3, 4]


def test_folders_and_files_may_be_links(root: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    for file in (root / "npz").rglob("*.npz"):
        link = linked / "npz" / file.relative_to(root / "npz")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    (tmp_path / "folder").symlink_to(linked)
    for place in (root, linked, tmp_path / "folder"):
        folder = TpuGraphsFolder(place, tmp_path / "cache" / place.name)
        paths = folder.graphs("layout:xla:random", "valid")
        assert len(paths) == 1
        assert all(folder.layout_path(path).is_file() for path in paths)
    (tmp_path / "gone.npz").symlink_to(tmp_path / "nothing")
    (paths[0].parent / "gone.npz").symlink_to(tmp_path / "gone.npz")
    assert [path.name for path in folder.graphs("layout:xla:random", "valid")] == ["gone.npz", paths[0].name]
    with pytest.raises(OSError, match=r"gone\.npz"):
        folder.layout_path(paths[0].parent / "gone.npz")


def test_a_shard_without_its_stamp_is_made_again(root: Path, tmp_path: Path) -> None:
    folder = TpuGraphsFolder(root, tmp_path / "cache")
    (source,) = folder.graphs("layout:xla:random", "valid")
    made = folder.layout_path(source)
    for stamp in ('{"version": 0}', "[1]", "no JSON"):
        made.with_suffix(".json").write_text(stamp)
        made.write_bytes(b"")
        assert folder.layout_graph(source).num_configs == 4


def test_files_of_other_folders_are_refused(root: Path, tmp_path: Path) -> None:
    folder = TpuGraphsFolder(root, tmp_path / "cache")
    with pytest.raises(DataError, match="in no collection"):
        folder.layout_path(save(tmp_path / "x.npz", layout_arrays()))
    with pytest.raises(DataError, match="is a tile kernel"):
        folder.layout_path(folder.graphs("tile:xla", "train")[0])


def test_tile_kernels_become_one_shard_per_program(root: Path, tmp_path: Path) -> None:
    folder = TpuGraphsFolder(root, tmp_path / "cache")
    paths = list(folder.tile_shards("train"))
    assert [path.stem for path in paths] == ["net", "other"]
    shard = Shard.open(paths[0])
    assert shard.metadata == {
        "program": "net",
        "application": "net",
        "graphs": ["net_a1", "net_b2"],
        "labelled": [True, True],
    }
    assert shard["config_runtime_ns"].tolist() == [120.0, 100.0, 120.0, 100.0]
    # Both kernels have the same three rows.
    assert shard["node_row"].tolist() == [0, 1, 2, 0, 1, 2]
    assert shard["row_opcode_offsets"].tolist() == [0, 3, 3]
    assert shard["edge_nodes"].tolist() == [[0, 2], [1, 2]] * 2
    (withheld,) = folder.tile_shards("test")
    assert Shard.open(withheld).metadata["labelled"] == [False]


def test_a_program_with_another_kernel_is_converted_again(root: Path, tmp_path: Path) -> None:
    folder = TpuGraphsFolder(root, tmp_path / "cache")
    list(folder.tile_shards("train"))
    first = folder.graphs("tile:xla", "train")[0]
    shutil.copy(first, first.with_name("net_z9.npz"))
    assert Shard.open(next(folder.tile_shards("train"))).num_kernels == 3


def test_runtimes_are_on_the_scale_of_the_first_normalizer(root: Path, tmp_path: Path) -> None:
    arrays = tile_arrays(config_runtime_normalizers=np.array([200, 100]))
    save(root / "npz" / "tile" / "xla" / "train" / "other_c3.npz", arrays)
    shard = Shard.open(list(TpuGraphsFolder(root, tmp_path / "cache").tile_shards("train"))[1])
    assert shard["config_runtime_ns"].tolist() == [120.0, 200.0]
