"""Turns tile kernels of TpuGraphs into shards that tile training reads like those of the stage `features`.

A kernel's graph is the published one: all its instructions in stored order, with their features as they are.
What the data set lacks is constant, and scalers drop constant columns: static performance features are 0,
analytical estimates 1 ns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from costbench.arrays import F32, F64, I16, I64, AnyArray
from costbench.datasets.kernel_columns import digests_of, offsets_of
from costbench.datasets.storage import write_shard
from costbench.datasets.tpugraphs.columns import TILE_GRAPHS
from costbench.datasets.tpugraphs.npz import TileGraph, read_tile_npz

_IS_ROOT = 0
_ROW_BYTES = 2 + 4 * 140


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
    first, node_row = _distinct_rows(opcodes, features)
    configs = [len(graph.config_runtime) for graph in graphs]
    columns: dict[str, AnyArray] = {
        "row_opcode_offsets": np.searchsorted(first, nodes).astype(np.int64),
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


def _distinct_rows(opcodes: I16, features: F32) -> tuple[I64, I64]:
    """Returns the nodes whose rows are the first of their kind, ascending, and the row of every node."""
    rows = np.concatenate([opcodes.view(np.uint8).reshape(-1, 2), features.view(np.uint8)], axis=1)
    found = np.unique(rows.view(f"V{_ROW_BYTES}").ravel(), return_index=True, return_inverse=True)
    order = np.argsort(found[1])
    return found[1][order], np.argsort(order)[found[2]]


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
