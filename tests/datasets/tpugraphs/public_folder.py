"""A small folder of TpuGraphs with all five collections, whose runtimes follow from the features."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench.datasets.tpugraphs.folder import COLLECTIONS, SPLITS


def write_public_folder(root: Path, *, graphs: int = 2, configs: int = 12, nodes: int = 6) -> Path:
    """Writes `graphs` files per split and collection; runtimes of the test split are withheld."""
    for number, (collection, path) in enumerate(COLLECTIONS.items()):
        for part, split in enumerate(SPLITS):
            folder = root / "npz" / path / split
            folder.mkdir(parents=True, exist_ok=True)
            for graph in range(graphs):
                draw = np.random.default_rng([number, part, graph])
                arrays = _graph(draw, nodes)
                kind = _tile if collection.startswith("tile") else _layout
                arrays |= kind(draw, configs, nodes)
                if split == "test":
                    arrays = {key: value * ("runtime" not in key) for key, value in arrays.items()}
                np.savez_compressed(folder / f"{split}net{graph}_{graph:04x}.npz", **arrays)
    return root


def _graph(draw: np.random.Generator, nodes: int) -> dict[str, np.ndarray]:
    features = draw.integers(0, 8, (nodes, 140)).astype(np.float32)
    features[:, 0] = np.arange(nodes) == nodes - 1
    return {
        "node_feat": features,
        "node_opcode": draw.integers(1, 120, nodes).astype(np.uint8),
        "edge_index": np.array([[node, node - 1] for node in range(1, nodes)], np.int64),
    }


def _tile(draw: np.random.Generator, configs: int, _nodes: int) -> dict[str, np.ndarray]:
    features = draw.integers(1, 9, (configs, 24)).astype(np.float32)
    runtime = (1000 * features[:, 8] + 10 * features[:, 9] + draw.integers(0, 5, configs)).astype(np.int64)
    normalizers = np.full(configs, 4000) + draw.integers(0, 3, configs)
    return {"config_feat": features, "config_runtime": runtime, "config_runtime_normalizers": normalizers}


def _layout(draw: np.random.Generator, configs: int, nodes: int) -> dict[str, np.ndarray]:
    ids = np.arange(1, nodes, 2)
    features = draw.integers(-1, 3, (configs, len(ids), 18)).astype(np.float32)
    runtime = (10_000 + 500 * features[..., 0].sum(axis=1) + draw.integers(0, 9, configs)).astype(np.int32)
    return {
        "node_config_ids": ids,
        "node_config_feat": features,
        "config_runtime": runtime,
        "node_splits": np.array([[0, nodes // 2, nodes]]),
    }
