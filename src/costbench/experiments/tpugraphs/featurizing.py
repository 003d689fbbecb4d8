"""Writes the graph of an HLO file as TpuGraphs has it: features, opcodes, edges and splits."""

from __future__ import annotations

from pathlib import Path

from costbench.datasets.tpugraphs.npz import write_graph_npz
from costbench.features.tpugraphs_graphs import proto_graph
from costbench.hlo.reader import read_proto


def featurize_file(path: Path, destination: Path) -> tuple[int, int]:
    """Writes the graph of the program in a file; returns its numbers of nodes and edges.

    Args:
        path: an HLO file of any form, see `costbench.hlo.reader.read_proto`.
        destination: the `.npz` file.

    Raises:
        HloError: if there is no program in the file.
        DataError: if `destination` cannot be written.
    """
    graph = proto_graph(read_proto(path), where=str(path))
    write_graph_npz(destination, graph.node_features, graph.opcodes, graph.edges, graph.node_splits)
    return len(graph.opcodes), len(graph.edges)
