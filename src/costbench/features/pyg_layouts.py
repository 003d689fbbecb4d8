"""Layout graphs as a PyTorch Geometric data set, for networks that are not costbench's own.

An item is one program with some of its measured configs. Configs are read from the memory-mapped file when an
item is, so memory does not grow with their number. Features are as published, unscaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, Dataset

from costbench.arrays import I64
from costbench.datasets.layout.graphs import LayoutGraph, open_layout_graph
from costbench.errors import DataError


class LayoutDataset(Dataset):  # type: ignore[misc]  # PyG ships no types
    """Layout graphs, each a `torch_geometric.data.Data` with `count` of its configs, drawn when it is read.

    Draws come from torch's global generator, which `torch.manual_seed` sets and PyG's loader seeds in its
    workers. An item has:

    - `x`: float32 [n, 140], TpuGraphs' node features;
    - `opcode`: int64 [n], TpuGraphs' codes, below `pyg_dataset.NUM_OPCODES` for known ones;
    - `edge_index`: int64 [2, m], producer above consumer;
    - `configurable_index`: int64 [nc], the configurable nodes, ascending;
    - `config_features`: float32 [s, nc, 18], layouts of those nodes under each of the s configs;
    - `runtime_ns`: int64 [s], or [0] where runtimes are withheld;
    - `rows`: int64 [s], places of the configs in the file;
    - `name`: id of the graph.

    Args:
        paths: layout graphs (`datasets.layout.graphs`).
        count: configs of an item, or all of a graph that has fewer.
        rows: for each graph, the configs to draw from; all of them if left out.
        transform: applied to every item as it is read, as in any PyG data set.

    Raises:
        DataError: if there is no graph, or `rows` is not one array for each.
    """

    def __init__(
        self,
        paths: Sequence[Path | str],
        *,
        count: int = 16,
        rows: Sequence[I64] | None = None,
        transform: Any = None,
    ) -> None:
        if not paths or (rows is not None and len(rows) != len(paths)):
            found = f"{len(paths)} graphs, {len(paths if rows is None else rows)} arrays of rows"
            raise DataError(found, field="paths", expected="one graph or more, and an array of rows for each")
        self._graphs = [open_layout_graph(path) for path in paths]
        self._rows = rows or [np.arange(graph.num_configs) for graph in self._graphs]
        self._count = count
        super().__init__(None, transform=transform)

    def len(self) -> int:
        """Graphs of the data set."""
        return len(self._graphs)

    def get(self, idx: int) -> Data:
        """Reads one graph with configs drawn from its rows."""
        rows = self._rows[idx]
        kept = torch.randperm(len(rows))[: self._count].numpy()
        return layout_data(self._graphs[idx], np.sort(rows[kept]))


def layout_data(graph: LayoutGraph, rows: I64) -> Data:
    """Returns a graph with the configs `rows`, with the attributes of `LayoutDataset`."""
    runtime_ns = graph.runtime_ns[rows] if graph.is_labelled else graph.runtime_ns
    return Data(
        # Copied: torch warns of arrays that must not be written to, such as a mapped file's.
        x=torch.from_numpy(graph.node_features.copy()),
        opcode=torch.from_numpy(graph.opcodes.astype(np.int64)),
        edge_index=torch.from_numpy(graph.edges[:, ::-1].T.astype(np.int64)),
        configurable_index=torch.from_numpy(graph.node_config_ids.astype(np.int64)),
        config_features=torch.from_numpy(graph.config_features(rows)),
        runtime_ns=torch.from_numpy(runtime_ns.astype(np.int64, copy=True)),
        rows=torch.from_numpy(np.asarray(rows, np.int64)),
        name=graph.name,
    )
