"""Sizes of collections of layout graphs, as Table 1 of tpugraphs2023 has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from costbench.artifacts import read_json
from costbench.datasets.layout.graphs import LayoutGraph, open_layout_graph
from costbench.errors import DataError, ParamsError
from costbench.params import parse

COLLECTIONS_FILE = "collections.json"
"""File of sizes that were counted before, in a folder whose graphs are not at hand."""


@dataclass(frozen=True)
class CollectionSize:
    """Size of one collection.

    Attributes:
        name: such as `layout:xla:random`.
        graphs: programs.
        nodes_mean: nodes of a program.
        nodes_min: of the smallest.
        nodes_max: of the largest.
        configs_mean: different configs of a program.
        configs_min: fewest.
        configs_max: most.
        pairs: different (program, config) pairs.
        samples: measurements, repeated ones included.
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
        folder: graphs of a chip, in folders below it.

    Raises:
        DataError: for a file that is damaged, no layout graph or no list of sizes.
    """
    graphs, path = sorted(folder.glob("*/*.arrow")), folder / COLLECTIONS_FILE
    if graphs or not path.exists():
        return collection_sizes(graphs)
    listed = read_json(path)
    if not isinstance(listed, list):
        raise DataError("no list", where=path, expected="one object a collection")
    try:
        return tuple(parse(CollectionSize, one, where=path, field=f"[{i}]") for i, one in enumerate(listed))
    except ParamsError as error:
        raise DataError(error.problem, where=path, field=error.field, expected=error.expected) from error


def collection_sizes(paths: Iterable[Path]) -> tuple[CollectionSize, ...]:
    """Returns the sizes of the collections that layout graphs belong to, sorted by name.

    Graphs are opened one after another, and of each only three numbers are kept.

    Args:
        paths: of the graphs, any number of collections together.

    Raises:
        DataError: for a file that is damaged or no layout graph.
    """
    counted: dict[str, list[tuple[int, int, int]]] = {}
    for path in paths:
        graph = open_layout_graph(path)
        sizes = (graph.num_nodes, _distinct_configs(graph), graph.num_configs)
        counted.setdefault(graph.collection, []).append(sizes)
    return tuple(_size(name, counted[name]) for name in sorted(counted))


def _distinct_configs(graph: LayoutGraph) -> int:
    return len({blake2b(row.tobytes(), digest_size=16).digest() for row in graph.config_options})


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
