"""Programs as graphs with their measured layout configs, imported or simulated: what layout models read.

Each graph is one Arrow file (`storage`, `record_types`) that is read by memory map, so memory does
not grow with the number of configs. Only the features of the configs that a batch asks for are expanded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from costbench.arrays import F32, I16, I32, I64, AnyArray
from costbench.artifacts import read_json
from costbench.datasets.record_types import LAYOUT_GRAPH, WIDE_LAYOUT_GRAPH
from costbench.datasets.storage import Shard, write_shard
from costbench.errors import DataError
from costbench.params import parse

# Options that are looked at together when their range is checked.
_CHUNK_VALUES = 1 << 22
_FACTS = ("name", "program", "collection")


@dataclass(frozen=True, eq=False)
class ProgramGraph:
    """A program of n nodes and m edges in TpuGraphs' numbering.

    Attributes:
        node_features: float32 [n, 140], TpuGraphs' features as published.
        opcodes: int32 [n], TpuGraphs' codes (0: unknown).
        edges: int32 [m, 2], rows (consumer, producer), each once; producers come first in the order of nodes.
        node_splits: int64 [s], ascending, nodes at which the major parts of the program begin.
    """

    node_features: F32
    opcodes: I32
    edges: I32
    node_splits: I64


@dataclass(frozen=True, eq=False)
class LayoutGraph(ProgramGraph):
    """A program, nc of its nodes configurable, with c measured layout configs.

    Attributes:
        name: id of the graph.
        program: unit of tables; for layouts the same as `name`.
        collection: collection of the data set, such as `layout:xla:random`.
        node_config_ids: int32 [nc], the configurable nodes, ascending.
        option_offsets: int64 [nc + 1]; the options of configurable node k are the rows
            `option_offsets[k]:option_offsets[k + 1]` of `option_features`.
        option_features: float32 [o, 18], TpuGraphs' features of a node's layouts.
        config_options: int16 or int32 [c, nc], option of each configurable node, from 0; memory-mapped in an
            opened graph.
        runtime_ns: int64 [c], or [0] where runtimes are withheld.
    """

    name: str
    program: str
    collection: str
    node_config_ids: I32
    option_offsets: I64
    option_features: F32
    config_options: I16 | I32
    runtime_ns: I64

    @property
    def num_nodes(self) -> int:
        """n."""
        return len(self.opcodes)

    @property
    def num_configs(self) -> int:
        """c."""
        return len(self.config_options)

    @property
    def is_labelled(self) -> bool:
        """Whether runtimes are known; published test files withhold them."""
        return len(self.runtime_ns) > 0

    def config_features(self, rows: npt.NDArray[np.integer] | slice) -> F32:
        """Returns the features of some configs, float32 [len(rows), nc, 18].

        Args:
            rows: indices of configs, or a slice.
        """
        options = self.config_options[rows].astype(np.int64)
        features: F32 = self.option_features[self.option_offsets[:-1] + options]
        return features


def write_layout_graph(
    path: Path | str, graph: LayoutGraph, metadata: Mapping[str, object] | None = None
) -> None:
    """Writes a graph atomically; equal graphs and metadata give equal bytes.

    Contiguous arrays are written without a copy, so `config_options` may be a memory map of any size.

    Args:
        path: destination, overwritten if it exists.
        graph: graph to write.
        metadata: JSON values that say what the graph was made from, beside its name, program and collection.

    Raises:
        DataError: naming `path` and the column, if a shape or type is wrong, a feature is not finite, a
            runtime below 1 ns, or a node, option or edge out of range.
    """
    path = Path(path)
    record = WIDE_LAYOUT_GRAPH if graph.config_options.dtype.itemsize > 2 else LAYOUT_GRAPH
    columns: dict[str, AnyArray] = {
        "node_features": graph.node_features,
        "node_opcode": graph.opcodes,
        "edge_nodes": graph.edges,
        "node_config_ids": graph.node_config_ids,
        "option_offsets": graph.option_offsets,
        "option_features": graph.option_features,
        "config_options": graph.config_options,
        "config_runtime_ns": graph.runtime_ns,
        "node_splits": graph.node_splits,
    }
    facts = {**(metadata or {}), **{key: getattr(graph, key) for key in _FACTS}}
    if np.ndim(graph.config_options) == 2 and np.ndim(graph.option_offsets) == 1:
        _check(graph, path)
    write_shard(path, columns, facts, record)


def open_layout_graph(path: Path | str) -> LayoutGraph:
    """Opens a graph; its arrays are read-only views of the file.

    Raises:
        DataError: naming the file and the column, if the file is missing, damaged or no layout graph.
    """
    shard = Shard.open(path)
    if shard.record not in (LAYOUT_GRAPH, WIDE_LAYOUT_GRAPH):
        raise DataError(f"holds {shard.record.name} records", where=shard.path, expected="a layout graph")
    for key in _FACTS:
        if not isinstance(shard.metadata.get(key), str):
            raise DataError("missing", where=path, field=f"metadata.{key}", expected="a text")
    options, num_configurable = shard["config_options"], len(shard["node_config_ids"])
    graph = LayoutGraph(
        **{key: str(shard.metadata[key]) for key in _FACTS},
        node_features=shard["node_features"],
        opcodes=shard["node_opcode"],
        edges=shard["edge_nodes"],
        node_config_ids=shard["node_config_ids"],
        option_offsets=shard["option_offsets"],
        option_features=shard["option_features"],
        config_options=options if len(options) else options.reshape(0, num_configurable),
        runtime_ns=shard["config_runtime_ns"],
        node_splits=shard["node_splits"],
    )
    _check(graph, shard.path)
    return graph


def _check(graph: LayoutGraph, path: Path) -> None:
    """Raises DataError unless nodes, options and runtimes fit each other."""
    last = graph.num_nodes - 1
    _require(not len(graph.edges) or int(graph.edges.max()) <= last, path, "edge_nodes", f"nodes 0 to {last}")
    ids = graph.node_config_ids
    ascending = (np.diff(ids) > 0).all() and (not len(ids) or int(ids[-1]) <= last)
    _require(bool(ascending), path, "node_config_ids", f"ascending numbers up to {last}")
    splits = graph.node_splits
    inside = (np.diff(splits) > 0).all() and (not len(splits) or int(splits[-1]) <= graph.num_nodes)
    _require(bool(inside), path, "node_splits", f"ascending numbers up to {graph.num_nodes}")
    if graph.is_labelled:
        problem = f"{graph.num_configs} runtimes, or none"
        _require(len(graph.runtime_ns) == graph.num_configs, path, "config_runtime_ns", problem)
    _check_options(graph, path)


def _check_options(graph: LayoutGraph, path: Path) -> None:
    counts = np.diff(graph.option_offsets)
    _require(graph.config_options.shape[1] == len(counts), path, "config_options", f"{len(counts)} nodes")
    step = max(1, _CHUNK_VALUES // max(1, len(counts)))
    for start in range(0, graph.num_configs, step):
        chunk = graph.config_options[start : start + step]
        inside = bool((chunk.max(axis=0) < counts).all())
        _require(inside, path, "config_options", "options that their nodes have")


def _require(holds: bool, path: Path, field: str, expected: str) -> None:
    if not holds:
        raise DataError("values that do not fit", where=path, field=field, expected=expected)


COLLECTIONS_FILE = "collections.json"
"""File of sizes that were counted before, in a folder whose graphs are not at hand."""


@dataclass(frozen=True)
class CollectionSize:
    """Size of one collection.

    Attributes:
        name: name of the collection, such as `layout:xla:random`.
        graphs: number of programs.
        nodes_mean: mean number of nodes of a program.
        nodes_min: number of nodes of the smallest program.
        nodes_max: number of nodes of the largest program.
        configs_mean: mean number of different configs of a program.
        configs_min: smallest number of different configs of a program.
        configs_max: largest number of different configs of a program.
        pairs: number of different (program, config) pairs.
        samples: number of measurements, repeated ones included.
    """

    name: str
    graphs: int
    nodes_mean: float
    nodes_min: int
    nodes_max: int
    configs_mean: float
    configs_min: int
    configs_max: int
    pairs: int
    samples: int


def read_collection_sizes(folder: Path) -> tuple[CollectionSize, ...]:
    """Returns the sizes of the collections in a folder, counted from its graphs or read from its file.

    Args:
        folder: folder of the graphs of a chip, in folders below it.

    Raises:
        DataError: for a file that is damaged, no layout graph or no list of sizes.
    """
    graphs, path = sorted(folder.glob("*/*.arrow")), folder / COLLECTIONS_FILE
    if graphs or not path.exists():
        return collection_sizes(graphs)
    content = read_json(path)
    if not isinstance(content, list):
        raise DataError("no list", where=path, expected="one object a collection")
    return tuple(
        parse(CollectionSize, size, where=path, field=f"[{i}]", error=DataError)
        for i, size in enumerate(content)
    )


def collection_sizes(paths: Iterable[Path]) -> tuple[CollectionSize, ...]:
    """Returns the sizes of the collections that layout graphs belong to, sorted by name.

    Graphs are opened one after another, and of each only three numbers are kept.

    Args:
        paths: paths of the graphs, any number of collections together.

    Raises:
        DataError: for a file that is damaged or no layout graph.
    """
    counted: dict[str, list[tuple[int, int, int]]] = {}
    for path in paths:
        graph = open_layout_graph(path)
        configs = {blake2b(row.tobytes(), digest_size=16).digest() for row in graph.config_options}
        sizes = (graph.num_nodes, len(configs), graph.num_configs)
        counted.setdefault(graph.collection, []).append(sizes)
    return tuple(_size(name, counted[name]) for name in sorted(counted))


def _size(name: str, counted: list[tuple[int, int, int]]) -> CollectionSize:
    nodes, configs, samples = np.array(counted, np.int64).T
    return CollectionSize(
        name=name,
        graphs=len(counted),
        nodes_mean=float(nodes.mean()),
        nodes_min=int(nodes.min()),
        nodes_max=int(nodes.max()),
        configs_mean=float(configs.mean()),
        configs_min=int(configs.min()),
        configs_max=int(configs.max()),
        pairs=int(configs.sum()),
        samples=int(samples.sum()),
    )
