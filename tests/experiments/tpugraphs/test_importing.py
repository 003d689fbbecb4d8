"""A folder as the data set unpacks becomes shards; raw files are read as well."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.tpugraphs.npz import read_tile_npz
from costbench.errors import DataError
from costbench.experiments.tpugraphs.importing import import_folder, open_folder
from tests.datasets.tpugraphs.public_folder import write_public_folder
from tests.datasets.tuning_files import layout_file, tile_file
from tests.sentences import numbers


def test_all_collections_are_counted(tmp_path: Path) -> None:
    lines: list[str] = []
    root = write_public_folder(tmp_path / "data")
    found = import_folder(root, tmp_path / "out", lines.append)
    assert len(found) == 15
    assert len(lines) == 30
    for count in found:
        assert (count.graphs, count.programs, count.nodes, count.edges, count.configs) == (2, 2, 12, 10, 24)
        assert count.labelled == (0 if count.split == "test" else 2)
    assert len(list((tmp_path / "out" / "shards").rglob("*.arrow"))) == 30


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    root = write_public_folder(tmp_path / "data", graphs=1)
    bad = root / "npz" / "layout" / "nlp" / "random" / "valid" / "bad.npz"
    bad.write_bytes(b"PK")
    with pytest.raises(DataError, match=r"valid/bad\.npz: truncated"):
        import_folder(root, tmp_path / "out", lambda _line: None)


def test_raw_files_become_npz_files_first(tmp_path: Path) -> None:
    raw = tmp_path / "data" / "pb"
    runs = [{"output_bounds": [2, 2], "time": 90, "default": True}, {"output_bounds": [1, 2], "time": 70}]
    for place in ("tile/xla/train", "layout/xla/random/valid"):
        (raw / place).mkdir(parents=True)
    tile_file(raw / "tile/xla/train/net_1f.pb", runs)
    tile_file(raw / "tile/xla/train/many.pb", runs, kernels=2)
    tile_file(raw / "tile/xla/train/single_2a.pb", runs[:1])
    layouts = [[[0, 1], [1, 0]]]
    layout_file(
        raw / "layout/xla/random/valid/unet.pb",
        [1],
        [{"layouts": layouts, "default": True}, {"layouts": layouts, "time": 50}],
    )
    found = import_folder(tmp_path / "data", tmp_path / "out", lambda _line: None)
    assert [(c.collection, c.split, c.graphs, c.configs) for c in found] == [
        ("tile:xla", "train", 3, 6),
        ("layout:xla:random", "valid", 1, 2),
    ]
    folder = open_folder(tmp_path / "data", tmp_path / "out")
    assert [path.stem for path in folder.graphs("tile:xla", "train")] == ["many_0000", "many_0001", "net_1f"]
    listing = (tmp_path / "out/npz/tile/xla/train/single_2a.kernels.txt").read_text()
    assert listing.startswith("single_2a ")
    # Runs, and those of the default.
    assert numbers(listing) == [1, 1]
    (layout,) = folder.graphs("layout:xla:random", "valid")
    graph = folder.layout_graph(layout)
    assert graph.runtime_ns.tolist() == [100, 50]
    assert graph.config_features(slice(None))[0, 0, :8].tolist() == [0, 1, -1, -1, -1, -1, 1, 0]


def test_the_real_files_have_the_documented_counts(shared_data: Path, tmp_path: Path) -> None:
    raw = tmp_path / "data" / "pb"
    for source, place in (
        ("tile_calibration.pb", "tile/xla/train"),
        ("layout_module.pb", "layout/xla/random/valid"),
    ):
        (raw / place).mkdir(parents=True)
        shutil.copy(shared_data / "real_tpu" / source, raw / place)
    tile, layout = import_folder(tmp_path / "data", tmp_path / "out", lambda _line: None)
    # One of the seven calibration kernels has no default run.
    assert (tile.graphs, tile.programs) == (6, 1)
    assert (layout.graphs, layout.nodes, layout.edges, layout.configs) == (1, 3163, 5112, 112)
    folder = open_folder(tmp_path / "data", tmp_path / "out")
    kernels = [read_tile_npz(path) for path in folder.graphs("tile:xla", "train")]
    assert sum(len(kernel.config_runtime) for kernel in kernels) == tile.configs
    assert all(np.unique(kernel.config_runtime_normalizers).size == 1 for kernel in kernels)


def raw_kernels(root: Path, name: str, kernels: int) -> Path:
    """A folder with a raw file of tile kernels."""
    folder = root / "pb" / "tile" / "xla" / "train"
    folder.mkdir(parents=True, exist_ok=True)
    runs = [{"output_bounds": [2, 2], "time": 90, "default": True}, {"output_bounds": [1, 2], "time": 70}]
    tile_file(folder / f"{name}.pb", runs, kernels=kernels)
    return root


def test_graphs_of_another_folder_are_not_counted(tmp_path: Path) -> None:
    first, second = (raw_kernels(tmp_path / name, name, 1) for name in ("first", "second"))
    out = tmp_path / "out"
    import_folder(first, out, lambda _line: None)
    for read in (lambda: import_folder(second, out, lambda _line: None), lambda: open_folder(second, out)):
        with pytest.raises(DataError, match=r"first\.npz: is of another import"):
            read()
    # The refused import left the folder as it was.
    assert [count.graphs for count in import_folder(first, out, lambda _line: None)] == [1]


def test_kernels_that_a_file_no_longer_holds_are_not_counted(tmp_path: Path) -> None:
    for kernels in (3, 2, 1):
        root = raw_kernels(tmp_path / "data", "many", kernels)
        (count,) = import_folder(root, tmp_path / "out", lambda _line: None)
        assert count.graphs == kernels
