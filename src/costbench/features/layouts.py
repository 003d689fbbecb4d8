"""Turns layout shards into graphs that layout models read, one for each search of a shard."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from costbench.arrays import F32, I32, I64
from costbench.datasets.layout.collections import SEARCHES
from costbench.datasets.layout.graphs import LayoutGraph
from costbench.datasets.layout.programs import open_layout_shard
from costbench.datasets.tpugraphs.tuning import node_splits
from costbench.errors import DataError
from costbench.features.node import module_edges, module_node_features, tpugraphs_opcodes
from costbench.hlo.reader import module_from_bytes

FEWEST_CONFIGS = 2
"""Configs of a program that can be ranked."""


def searches_of(path: Path) -> dict[str, str]:
    """Returns the collections that a shard has enough configs for, by search: `random`, `default`.

    Raises:
        DataError: if the file is not a layout shard, damaged, or does not say its family of collections.
    """
    shard = open_layout_shard(path)
    family = shard.metadata.get("family")
    if not isinstance(family, str):
        raise DataError("missing", where=path, field="metadata.family", expected="`xla` or `nlp`")
    if not len(shard["node_opcode"]):
        return {}
    source = np.asarray(shard["config_source"])
    counts = {search: np.isin(source, values).sum() for search, values in SEARCHES.items()}
    return {
        search: f"layout:{family}:{search}" for search, count in counts.items() if count >= FEWEST_CONFIGS
    }


def layout_graph(path: Path, search: str) -> LayoutGraph:
    """Returns the program of a layout shard with the configs of one search, in the order of their runs.

    Args:
        path: of the shard.
        search: a key of `searches_of(path)`.

    Raises:
        DataError: if the file is not a layout shard or damaged.
        HloError: if its program cannot be read.
    """
    shard = open_layout_shard(path)
    nodes = _program_nodes(shard["program"].tobytes(), str(path))
    rows = np.flatnonzero(np.isin(shard["config_source"], SEARCHES[search]))
    name = str(shard.metadata["program"])
    ids = nodes.offsets[shard["node_computation"]] + shard["node_position"]
    return LayoutGraph(
        name=name,
        program=name,
        collection=searches_of(path)[search],
        node_features=nodes.features,
        opcodes=nodes.opcodes,
        edges=nodes.edges,
        node_config_ids=ids.astype(np.int32),
        option_offsets=np.asarray(shard["option_offsets"]),
        option_features=shard["option_layout"].astype(np.float32),
        config_options=shard["config_options"][rows],
        runtime_ns=shard["config_runtime_ns"][rows],
        node_splits=nodes.splits,
    )


@dataclass(frozen=True, eq=False)
class ProgramNodes:
    """The nodes of a program: index of each computation's first one, features, opcodes, edges, parts."""

    offsets: I64
    features: F32
    opcodes: I32
    edges: I32
    splits: I64


def extract_nodes(path: Path) -> ProgramNodes:
    """Returns the nodes of a layout shard's program: what a model of layouts computes once for a program.

    Raises:
        DataError: if the file is not a layout shard or damaged.
        HloError: if its program cannot be read.
    """
    return _extracted(open_layout_shard(path)["program"].tobytes(), str(path))


@lru_cache(maxsize=1)
def _program_nodes(program: bytes, where: str) -> ProgramNodes:
    """Returns the nodes of a compressed program; the graphs of its searches follow one another."""
    return _extracted(program, where)


def _extracted(program: bytes, where: str) -> ProgramNodes:
    module = module_from_bytes(program, where=where)
    return ProgramNodes(
        np.array(module.offsets, dtype=np.int64),
        module_node_features(module),
        tpugraphs_opcodes(module).astype(np.int32),
        module_edges(module).astype(np.int32),
        node_splits(module),
    )
