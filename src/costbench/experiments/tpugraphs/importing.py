"""Imports a folder of TpuGraphs: raw files become `.npz` files, and these the shards that training reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

from costbench.artifacts import write_text
from costbench.datasets.storage import Shard
from costbench.datasets.tpugraphs.folder import (
    COLLECTIONS,
    SPLITS,
    TILE_COLLECTION,
    TpuGraphsFolder,
    convert_once,
)
from costbench.datasets.tpugraphs.npz import write_layout_npz, write_tile_npz
from costbench.datasets.tpugraphs.raw import read_layout_tuning, read_tile_tuning
from costbench.errors import DataError
from costbench.features.tpugraphs_graphs import layout_graph_of, tile_graph_of

Progress = Callable[[str], None]
_RAW = "pb"
_SHARDS, _NPZ = "shards", "npz"


@dataclass
class Imported:
    """What one split of a collection holds.

    Attributes:
        collection: such as `layout:xla:random`.
        split: `train`, `valid` or `test`.
        graphs: kernels or programs.
        programs: those that tables are about.
        nodes: number of nodes of all graphs.
        edges: number of edges of all graphs.
        configs: measured configurations of all graphs.
        labelled: graphs whose runtimes are given.
    """

    collection: str
    split: str
    graphs: int = 0
    programs: int = 0
    nodes: int = 0
    edges: int = 0
    configs: int = 0
    labelled: int = 0

    def to_dict(self) -> dict[str, object]:
        """Returns a JSON value."""
        return asdict(self)


def open_folder(root: Path, out: Path) -> TpuGraphsFolder:
    """Returns the data set in a folder, with its shards in `out/shards`.

    Args:
        root: a folder with `npz`, or one with `pb` whose files were converted to `out/npz` before.
        out: folder of what is converted.

    Raises:
        DataError: if there is none, or `out` holds what was converted from another folder.
    """
    if not _is_raw(root):
        return TpuGraphsFolder(root, out / _SHARDS)
    _check_converted(root, out)
    return TpuGraphsFolder(out / _NPZ, out / _SHARDS)


def _is_raw(root: Path) -> bool:
    return (root / _RAW).is_dir() and not (root / _NPZ).is_dir()


def _raw_files(root: Path, collection: str, split: str) -> list[Path]:
    return sorted((root / _RAW / COLLECTIONS[collection] / split).glob(f"*.{_RAW}"))


def _check_converted(root: Path, out: Path) -> None:
    """Raises DataError if there are `.npz` files of other raw files than those of a folder."""
    for collection, split in product(COLLECTIONS, SPLITS):
        names = {raw.stem for raw in _raw_files(root, collection, split)}
        for path in sorted((out / _NPZ / COLLECTIONS[collection] / split).glob("*.npz")):
            # A raw file of tiles may hold many kernels.
            if not names & {path.stem, re.sub(r"_\d{4,}$", "", path.stem)}:
                expected = f"graphs of {root} alone: another folder --out, or an empty one"
                raise DataError("is of another import", where=path, expected=expected)


def import_folder(root: Path, out: Path, progress: Progress) -> list[Imported]:
    """Converts all graphs of a folder that are not converted yet; returns what each split holds.

    Args:
        root: a folder with `npz`, or with `pb` (raw files), as the data set unpacks.
        out: folder of the shards, and of `.npz` files made from raw ones.
        progress: called with a line for every file or program.

    Raises:
        DataError: naming the file, at the first that is malformed; if there is no graph; before any is
            converted, if `out` holds what was converted from another folder of raw files.
    """
    if _is_raw(root):
        _check_converted(root, out)
        for collection, split in product(COLLECTIONS, SPLITS):
            for raw in _raw_files(root, collection, split):
                progress(f"{collection} {split} {raw.name}")
                _convert_raw(raw, collection, out / _NPZ / COLLECTIONS[collection] / split)
    folder = open_folder(root, out)
    counts = []
    for collection in folder.collections():
        for split in SPLITS:
            count = Imported(collection, split)
            counter = _tile_counts if collection == TILE_COLLECTION else _layout_counts
            for name in counter(folder, count):
                progress(f"{collection} {split} {name}")
            counts.append(count)
    if not any(count.graphs for count in counts):
        expected = f"files in the folders {', '.join(SPLITS)} of {', '.join(folder.collections())}"
        raise DataError("holds no graph", where=root, expected=expected)
    return [count for count in counts if count.graphs]


def _convert_raw(raw: Path, collection: str, folder: Path) -> None:
    if collection != TILE_COLLECTION:
        destination = folder / f"{raw.stem}.npz"

        def convert() -> None:
            tuning = read_layout_tuning(raw)
            write_layout_npz(destination, layout_graph_of(tuning, raw.stem, collection))

        convert_once(destination, [raw], convert)
        return
    # A raw file may hold many kernels: a list of them says that all were written.
    listing = folder / f"{raw.stem}.kernels.txt"
    convert_once(listing, [raw], partial(_convert_kernels, raw, listing))


def _convert_kernels(raw: Path, listing: Path) -> None:
    """Writes an `.npz` file for each kernel of a raw tile file, and a list of them and of those left out.

    As in the data set, a kernel needs two runs that count and a default run among them.
    """
    kernels = read_tile_tuning(raw)
    # An earlier version of the file may have held more of them.
    earlier = listing.read_text("utf-8").splitlines() if listing.is_file() else []
    listing.unlink(missing_ok=True)
    for name in earlier:
        listing.with_name(f"{name}.npz").unlink(missing_ok=True)
    lines = []
    for number, tuning in enumerate(kernels):
        name = raw.stem if len(kernels) == 1 else f"{raw.stem}_{number:04d}"
        if len(tuning.runtime_ns) < 2 or not tuning.is_default.any():
            lines.append(f"{name} left out: {len(tuning.runtime_ns)} runs, {tuning.is_default.sum()} default")
            continue
        write_tile_npz(listing.with_name(f"{name}.npz"), tile_graph_of(tuning))
        lines.append(name)
    write_text(listing, "\n".join([*lines, ""]))


def _tile_counts(folder: TpuGraphsFolder, count: Imported) -> Iterator[str]:
    for path in folder.tile_shards(count.split):
        shard = Shard.open(path)
        count.programs += 1
        count.graphs += shard.num_kernels
        count.nodes += len(shard["node_row"])
        count.edges += len(shard["edge_nodes"])
        count.configs += shard.num_configs
        count.labelled += sum(shard.metadata["labelled"])
        yield path.stem


def _layout_counts(folder: TpuGraphsFolder, count: Imported) -> Iterator[str]:
    for path in folder.graphs(count.collection, count.split):
        graph = folder.layout_graph(path)
        count.programs += 1
        count.graphs += 1
        count.nodes += graph.num_nodes
        count.edges += len(graph.edges)
        count.configs += graph.num_configs
        count.labelled += graph.is_labelled
        yield path.stem
