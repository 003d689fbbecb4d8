"""Structures are operator graphs without extents: hashes are equal where graphs are isomorphic."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import networkx as nx
import numpy as np

from costbench.datasets.record_types import FEATURES
from costbench.datasets.records import offsets_of
from costbench.datasets.storage import write_shard
from costbench.features.schema import NODE_FEATURES, column
from costbench.features.structures import kernel_structures, known_structures

Node = tuple[int, str, tuple[int, ...], int]
"""Opcode, element type, extents, whether the value is an output."""
Graph = tuple[list[Node], list[tuple[int, int]]]


def _features(node: Node) -> np.ndarray:
    row = np.zeros(len(NODE_FEATURES), np.float32)
    row[column(NODE_FEATURES, f"shape_element_type_is_{node[1]}")] = 1.0
    for dimension, extent in enumerate(node[2]):
        row[column(NODE_FEATURES, f"shape_dimensions_{dimension}")] = extent
    return row


def _write(path: Path, graphs: list[Graph], first: int = 0) -> Path:
    """A feature shard in which every node has a row of its own; fingerprints count from `first`."""
    nodes = [node for part, _ in graphs for node in part]
    edges = [edge for _, part in graphs for edge in part]
    k, node_offsets = len(graphs), offsets_of(len(part) for part, _ in graphs)
    ones = np.arange(k + 1, dtype=np.int64)
    columns = {
        "row_opcode_offsets": node_offsets,
        "row_opcode": np.array([node[0] for node in nodes], np.int16),
        "row_features": np.stack([_features(node) for node in nodes]),
        "kernel_fingerprint": np.array([[0] * 15 + [first + i] for i in range(k)], np.uint8),
        "kernel_runs": np.ones(k, np.int64),
        "kernel_space_size": np.ones(k, np.int64),
        "kernel_num_inputs": np.zeros(k, np.int32),
        "kernel_static": np.zeros((k, 4), np.float32),
        "kernel_ranks": np.ones((k, 2), np.int32),
        "node_row_offsets": node_offsets,
        "node_row": np.arange(len(nodes), dtype=np.int32),
        "node_is_output": np.array([node[3] for node in nodes], np.uint8),
        "edge_nodes_offsets": offsets_of(len(part) for _, part in graphs),
        "edge_nodes": np.array(edges, np.int32).reshape(-1, 2),
        "tile_bounds_offsets": 2 * ones,
        "tile_bounds": np.ones(2 * k, np.int32),
        "config_runtime_ns_offsets": ones,
        "config_runtime_ns": np.ones(k, np.int64),
        "config_analytical_ns": np.ones(k),
        "config_loops": np.ones((k, 4), np.float32),
    }
    write_shard(path, columns, {"program": path.stem, "application": "A", "chip": "tpu_v3"}, FEATURES)
    return path


A: Node = (10, "f32", (8, 16), 0)
B: Node = (20, "f32", (8,), 0)
C: Node = (20, "f32", (8,), 1)
BASE: Graph = ([A, B, C], [(0, 1), (1, 2), (0, 2)])


def test_extents_and_numbering_do_not_count_and_everything_else_does(tmp_path: Path) -> None:
    wider = (10, "f32", (64, 128), 0)
    same = [([wider, B, C], BASE[1]), ([C, B, A], [(2, 1), (1, 0), (2, 0)])]
    others = [
        ([(11, "f32", (8, 16), 0), B, C], BASE[1]),
        ([(10, "bf16", (8, 16), 0), B, C], BASE[1]),
        ([(10, "f32", (8, 16, 1), 0), B, C], BASE[1]),
        ([A, C, B], BASE[1]),
        ([A, C, C], BASE[1]),
        ([A, B, C], [(1, 0), (1, 2), (0, 2)]),
        ([A, B, C], [(0, 1), (1, 2)]),
        ([A, B, C], [*BASE[1], (0, 2)]),
        ([A, B, C, B], BASE[1]),
    ]
    hashes = kernel_structures(_write(tmp_path / "p.arrow", [BASE, *same, *others]))
    assert len(set(hashes[:3].tolist())) == 1
    assert len(set(hashes.tolist())) == 1 + len(others)


def test_hashes_are_equal_where_graphs_are_isomorphic(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    graphs: list[Graph] = []
    for _ in range(60):
        nodes: list[Node] = [(int(generator.integers(2)), "f32", (4,), 0) for _ in range(4)]
        edges = [pair for pair in combinations(range(4), 2) if generator.random() < 0.5]
        graphs.append((nodes, edges))
    hashes = kernel_structures(_write(tmp_path / "p.arrow", graphs))
    nx_graphs = []
    for nodes, edges in graphs:
        graph = nx.DiGraph(edges)
        graph.add_nodes_from((index, {"opcode": node[0]}) for index, node in enumerate(nodes))
        nx_graphs.append(graph)
    pairs = list(combinations(range(len(graphs)), 2))
    alike = [
        nx.is_isomorphic(nx_graphs[i], nx_graphs[j], node_match=lambda a, b: a["opcode"] == b["opcode"])
        for i, j in pairs
    ]
    assert [hashes[i] == hashes[j] for i, j in pairs] == alike
    assert any(alike)


def test_known_structures_are_those_of_training(tmp_path: Path) -> None:
    trained = _write(tmp_path / "trained.arrow", [([(10, "f32", (2, 2), 0), B, C], BASE[1])])
    tested = _write(tmp_path / "tested.arrow", [BASE, ([A, B, C], [(0, 1)])], first=7)
    assert known_structures([tested], [trained]) == {"00" * 15 + "07"}
    assert known_structures([tested], []) == frozenset()
    assert known_structures([], [trained]) == frozenset()
