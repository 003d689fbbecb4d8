"""Turns layout shards into graphs that layout models read, one for each search of a shard."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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
    module = module_from_bytes(shard["program"].tobytes(), where=str(path))
    rows = np.flatnonzero(np.isin(shard["config_source"], SEARCHES[search]))
    name = str(shard.metadata["program"])
    ids = np.array(module.offsets)[shard["node_computation"]] + shard["node_position"]
    return LayoutGraph(
        name=name,
        program=name,
        collection=searches_of(path)[search],
        node_features=module_node_features(module),
        opcodes=tpugraphs_opcodes(module).astype(np.int32),
        edges=module_edges(module).astype(np.int32),
        node_config_ids=ids.astype(np.int32),
        option_offsets=np.asarray(shard["option_offsets"]),
        option_features=shard["option_layout"].astype(np.float32),
        config_options=shard["config_options"][rows],
        runtime_ns=shard["config_runtime_ns"][rows],
        node_splits=node_splits(module),
    )
