"""A folder of TpuGraphs' `.npz` files as unpacked, with its collections and its own splits.

Graphs are converted to shards when they are first used, into a cache outside the folder; a converted graph is
used again while its source has the same size and time, or the same digest. Layout graphs become layout graphs
(`costbench.datasets.layout_graphs`), tile kernels feature shards, one per program, which tile training reads
like those of the stage `features`. There, a kernel's graph is the published one: all its instructions in
stored order, with their features as they are. What the data set lacks is constant, and scalers drop constant
columns: static performance features are 0, analytical estimates 1 ns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from costbench import artifacts
from costbench.arrays import F64, AnyArray
from costbench.datasets.layout_graphs import LayoutGraph, open_layout_graph
from costbench.datasets.record_types import TILE_GRAPHS
from costbench.datasets.records import digests_of, equal_rows, number_by_first_use, offsets_of
from costbench.datasets.storage import write_shard
from costbench.datasets.tpugraphs.npz import TileGraph, convert_layout_npz, program_of, read_tile_npz
from costbench.errors import DataError, nearest

SPLITS = ("train", "valid", "test")
COLLECTIONS: Mapping[str, Path] = {
    "tile:xla": Path("tile/xla"),
    "layout:xla:default": Path("layout/xla/default"),
    "layout:xla:random": Path("layout/xla/random"),
    "layout:nlp:default": Path("layout/nlp/default"),
    "layout:nlp:random": Path("layout/nlp/random"),
}
"""The five collections and their folders below `npz`."""
TILE_COLLECTION = "tile:xla"
_SUFFIX = ".npz"
_STAMP = ".json"
_CONVERTER_VERSION = 1
"""Raise it when the same files would give other shards."""


class TpuGraphsFolder:
    """The data set in one folder.

    Args:
        root: the folder that holds `npz`, or `npz` itself.
        cache: folder of the converted graphs; made when needed.

    Raises:
        DataError: if the folder does not exist or holds none of the five collections.
    """

    def __init__(self, root: Path | str, cache: Path | str) -> None:
        base = Path(root)
        self.root = base / "npz" if (base / "npz").is_dir() else base
        self.cache = Path(cache)
        if not self.collections():
            folders = ", ".join(f"npz/{path}" for path in COLLECTIONS.values())
            raise DataError("holds no collection", where=base, expected=f"one of the folders {folders}")

    def collections(self) -> list[str]:
        """Returns the collections that exist, such as `layout:xla:random`, in the order of `COLLECTIONS`."""
        return [name for name, path in COLLECTIONS.items() if (self.root / path).is_dir()]

    def graphs(self, collection: str, split: str) -> list[Path]:
        """Returns the `.npz` files of a split, sorted by name; none if the split is not there.

        Raises:
            DataError: for a collection or split that TpuGraphs does not have.
        """
        if collection not in COLLECTIONS:
            names = ", ".join(COLLECTIONS)
            near = nearest(collection, COLLECTIONS)
            raise DataError(
                f"no collection {collection!r}{near}", where=self.root, expected=f"one of {names}"
            )
        if split not in SPLITS:
            raise DataError(f"no split {split!r}", where=self.root, expected=f"one of {', '.join(SPLITS)}")
        folder = self.root / COLLECTIONS[collection] / split
        # A link to nothing is a graph that cannot be read, not one that is left out.
        files = (path for path in folder.glob(f"*{_SUFFIX}") if not path.is_dir())
        return sorted(path for path in files if path.name[0] != ".")

    def layout_path(self, path: Path) -> Path:
        """Returns the converted layout graph of one of `graphs`, which is made if it does not exist yet.

        Raises:
            DataError: naming the file, if it is malformed or in no layout collection of this folder.
        """
        collection, split = self._place(path)
        if collection == TILE_COLLECTION:
            raise DataError("is a tile kernel", where=path, expected="a file of a layout collection")
        made = self._converted(collection, split, path.stem)
        convert = partial(convert_layout_npz, path, made, name=path.stem, collection=collection)
        convert_once(made, [path], convert)
        return made

    def layout_graph(self, path: Path) -> LayoutGraph:
        """Returns one of `graphs`, memory-mapped. Raises: DataError, as `layout_path`."""
        return open_layout_graph(self.layout_path(path))

    def programs(self, collection: str, split: str) -> list[str]:
        """Returns the programs of a split, sorted by name. Raises: DataError, as `graphs`."""
        name = program_of if collection == TILE_COLLECTION else str
        return sorted({name(path.stem) for path in self.graphs(collection, split)})

    def tile_shards(self, split: str) -> Iterator[Path]:
        """Yields one shard per program of a split, by name of program; each is made first if needed.

        Tile training reads them like those of the stage `features`; see `write_tile_shard`.

        Raises:
            DataError: naming the file, if one is malformed.
        """
        paths = sorted(
            self.graphs(TILE_COLLECTION, split), key=lambda path: (program_of(path.stem), path.stem)
        )
        for program, group in groupby(paths, key=lambda path: program_of(path.stem)):
            kernels = list(group)
            made = self._converted(TILE_COLLECTION, split, program)
            convert_once(made, kernels, partial(write_tile_shard, made, program, kernels))
            yield made

    def _place(self, path: Path) -> tuple[str, str]:
        """Returns the collection and split that a file is in."""
        parts = {folder_of: name for name, folder_of in COLLECTIONS.items()}
        # As it is written first: folders and files may be symbolic links to somewhere else.
        for full in (Path.absolute, Path.resolve):
            folder, root = full(path).parent, full(self.root)
            if folder.parent.is_relative_to(root) and folder.name in SPLITS:
                collection = parts.get(folder.parent.relative_to(root))
                if collection is not None:
                    return collection, folder.name
        raise DataError("in no collection", where=path, expected=f"a file below {self.root}")

    def _converted(self, collection: str, split: str, name: str) -> Path:
        return self.cache / collection.replace(":", "-") / split / f"{name}.arrow"


def convert_once(destination: Path, sources: Sequence[Path], convert: Callable[[], None]) -> None:
    """Calls `convert`, which writes `destination` from files, unless it was written from the same files.

    Names, sizes and times of the files are kept in a `.json` file beside it, with their digests, which count
    where only times differ.

    Args:
        destination: file that `convert` writes.
        sources: files that it reads.
        convert: function that makes the file.

    Raises:
        DataError: if a source cannot be read.
    """
    stamp = destination.with_suffix(_STAMP)
    stats = [(path.name, path.stat()) for path in sources]
    facts = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]
    recorded = _read_stamp(stamp) if destination.is_file() else []
    if [fact[:3] for fact in recorded] == facts:
        return
    digests = [artifacts.digest_file(path) for path in sources]
    # A copy of the data set has other times and the same contents.
    if not recorded or [fact[3] for fact in recorded] != digests:
        convert()
    stamped = [[*fact, digest] for fact, digest in zip(facts, digests, strict=True)]
    artifacts.write_json(stamp, {"version": _CONVERTER_VERSION, "sources": stamped})


def _read_stamp(stamp: Path) -> list[list[Any]]:
    """Returns name, size, time and digest of the files that a shard was made from; none if it is unknown."""
    try:
        content = artifacts.read_json(stamp)
    except DataError:
        return []
    if not isinstance(content, dict) or content.get("version") != _CONVERTER_VERSION:
        return []
    sources: list[list[Any]] = content["sources"]
    return sources


_IS_ROOT = 0


def write_tile_shard(path: Path, program: str, sources: Sequence[Path]) -> None:
    """Writes the kernels of one program, in the order of `sources`.

    The metadata name the program and its `graphs` (ids of the kernels), and say which are `labelled`.

    Args:
        path: destination, overwritten if it exists.
        program: name of the program, which also counts as its application.
        sources: `.npz` files of its kernels, one or more.

    Raises:
        DataError: naming the file, if one is malformed.
    """
    graphs = [read_tile_npz(source) for source in sources]
    nodes = offsets_of(len(graph.node_opcode) for graph in graphs)
    opcodes = np.concatenate([graph.node_opcode for graph in graphs]).astype(np.int16)
    features = np.concatenate([graph.node_feat for graph in graphs])
    first, row_of_node = equal_rows(opcodes, features)
    by_use, row_offsets, node_row = number_by_first_use(row_of_node, nodes)
    first = first[by_use]
    configs = [len(graph.config_runtime) for graph in graphs]
    columns: dict[str, AnyArray] = {
        "row_opcode_offsets": row_offsets,
        "row_opcode": opcodes[first],
        "row_features": features[first],
        "kernel_fingerprint": digests_of([_fingerprint(graph) for graph in graphs]),
        "kernel_runs": np.ones(len(graphs), np.int64),
        "kernel_space_size": np.maximum(np.array(configs, np.int64), 1),
        # Published parameter numbers stay as they are: no node is an input whose number a reader sets.
        "kernel_num_inputs": np.zeros(len(graphs), np.int32),
        "kernel_static": np.zeros((len(graphs), 4), np.float32),
        "node_row_offsets": nodes,
        "node_row": node_row.astype(np.int32),
        "node_is_output": (features[:, _IS_ROOT] != 0).astype(np.uint8),
        "edge_nodes_offsets": offsets_of(len(graph.edge_index) for graph in graphs),
        "edge_nodes": np.concatenate([graph.edge_index[:, ::-1] for graph in graphs]).astype(np.int32),
        "config_runtime_ns_offsets": offsets_of(configs),
        "config_runtime_ns": np.concatenate([_runtimes(graph) for graph in graphs]),
        "config_analytical_ns": np.ones(sum(configs)),
        "config_features": np.concatenate([graph.config_feat for graph in graphs]),
    }
    metadata = {
        "program": program,
        "application": program,
        "graphs": [source.stem for source in sources],
        "labelled": [graph.is_labelled for graph in graphs],
    }
    write_shard(path, columns, metadata, TILE_GRAPHS)


def _runtimes(graph: TileGraph) -> F64:
    """Returns runtimes on the scale of the kernel's first normalizer, float64 [c]."""
    if not graph.is_labelled:
        return np.ones(len(graph.config_runtime))
    normalizers = graph.config_runtime_normalizers
    if (normalizers == normalizers[0]).all():
        return graph.config_runtime.astype(np.float64)
    scaled: F64 = graph.config_runtime / normalizers * normalizers[0]
    return scaled


def _fingerprint(graph: TileGraph) -> str:
    """Returns 32 hexadecimal digits of a digest of the kernel's graph, configurations aside."""
    digest = hashlib.sha256()
    for array in (graph.node_opcode, graph.edge_index, graph.node_feat):
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]
