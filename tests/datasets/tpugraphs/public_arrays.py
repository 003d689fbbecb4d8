"""Arrays of small `.npz` files, as published and as changed by a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from costbench.datasets.layout_graphs import LayoutGraph, open_layout_graph
from costbench.datasets.tpugraphs.npz import convert_layout_npz


def tile_arrays(**changes: Any) -> dict[str, Any]:
    content = {
        "node_feat": np.arange(3 * 140, dtype=np.float32).reshape(3, 140),
        "node_opcode": np.array([63, 63, 2], np.uint8),
        "edge_index": np.array([[2, 0], [2, 1]]),
        "config_feat": np.ones((2, 24), np.float32),
        "config_runtime": np.array([120, 100]),
        "config_runtime_normalizers": np.array([119, 119]),
    }
    return {key: value for key, value in (content | changes).items() if value is not None}


def layout_arrays(**changes: Any) -> dict[str, Any]:
    shared = {key: tile_arrays()[key] for key in ("node_feat", "node_opcode", "edge_index")}
    content = shared | {
        "node_config_ids": np.array([0, 2]),
        "node_config_feat": np.full((4, 2, 18), -1, np.float32),
        "config_runtime": np.array([7, 8, 9, 10], np.int32),
        "node_splits": np.array([[0, 2, 3]]),
    }
    return {key: value for key, value in (content | changes).items() if value is not None}


def save(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path, **arrays)
    return path


def read_layout_npz(path: Path) -> LayoutGraph:
    """A layout file after its conversion, which is made beside it."""
    converted = path.with_suffix(".arrow")
    convert_layout_npz(path, converted, name=path.stem, collection="layout:xla:random")
    return open_layout_graph(converted)
