"""Tile sizes and fusions as tables: kernels as graphs, their features as one row, and measured decisions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from costbench.arrays import AnyArray, Bool
from costbench.experiments.evaluation.fusion import comparable_kernels, scaled_estimates
from costbench.features.feature_shards import FeatureShard
from costbench.features.schema import DECISION_FEATURES, NUM_DECISION_FEATURES, STATIC_FEATURES, names
from costbench.models.baselines.kernel_tables import FEATURE_NAMES, kernel_rows

KERNELS, SUMMARIES, DECISIONS = "kernels", "summaries", "decisions"
SUMMARY_FEATURES = FEATURE_NAMES[:-NUM_DECISION_FEATURES]
"""Names of the numbers that sum up a kernel, in order."""
_KERNELS_AT_ONCE = 256


def tile_tables(path: Path) -> Mapping[str, pa.Table]:
    """Returns the tables of a program's kernels and tile sizes.

    Args:
        path: feature shard of the program.

    Raises:
        DataError: for a damaged shard.
    """
    shard = FeatureShard(path)
    return _tables(shard, np.ones(len(shard), dtype=bool))


def fusion_tables(path: Path) -> Mapping[str, pa.Table]:
    """Returns the tables of the kernels of a program's fusion configs, each with one measured decision.

    Args:
        path: feature shard of the program.

    Raises:
        DataError: for a damaged shard.
    """
    shard = FeatureShard(path)
    return _tables(shard, comparable_kernels(shard, scaled_estimates(shard)))


def _tables(shard: FeatureShard, is_scored: Bool) -> dict[str, pa.Table]:
    """Returns the tables of a program by name.

    - `kernels`: a row for each kernel, with its graph. `edges` has producer and consumer of each edge in
      turn, `node_features` the features of each node in turn.
    - `summaries`: the same kernels as `SUMMARY_FEATURES`, in one column: hundreds of columns in each row
      group would take more space than the numbers.
    - `decisions`: a row for each measured decision.
    """
    counts = shard.num_configs()
    ids = np.array([f"{shard.program}/{index}" for index in range(len(shard))])
    graphs = [shard.graph(index) for index in range(len(shard))]
    static = np.array([graph.static_features for graph in graphs], np.float32).reshape(len(shard), -1)
    kernels = pa.table(
        {
            "id": ids,
            "program": [shard.program] * len(shard),
            "fingerprint": list(shard.fingerprints()),
            "runs": shard.runs().astype(np.int64),
            "scored": is_scored,
            "opcodes": list_column([graph.opcodes.astype(np.int16) for graph in graphs], pa.int16()),
            "node_features": list_column([graph.node_features.ravel() for graph in graphs], pa.float32()),
            "edges": list_column([graph.edges.T.ravel().astype(np.int32) for graph in graphs], pa.int32()),
            **columns_of(names(STATIC_FEATURES), static),
        }
    )
    rows = [
        kernel_rows(shard.columns.pack(chunk, [np.zeros(1, np.int64)] * len(chunk)))
        for chunk in np.split(np.arange(len(shard)), range(_KERNELS_AT_ONCE, len(shard), _KERNELS_AT_ONCE))
    ]
    summaries = np.concatenate(rows)[:, : len(SUMMARY_FEATURES)]
    features = np.concatenate([shard.config_features(index) for index in range(len(shard))])
    decisions = pa.table(
        {
            "id": np.repeat(ids, counts),
            "decision": np.concatenate([np.arange(count) for count in counts]).astype(np.int32),
            **columns_of(names(DECISION_FEATURES), features),
            "estimate_ns": np.concatenate([shard.analytical_ns(index) for index in range(len(shard))]),
            "runtime_ns": np.concatenate([shard.runtime_ns(index) for index in range(len(shard))]),
        }
    )
    return {
        KERNELS: kernels,
        SUMMARIES: pa.table({"id": ids, "features": list_column(list(summaries), pa.float32())}),
        DECISIONS: decisions,
    }


def columns_of(columns: tuple[str, ...], values: AnyArray) -> dict[str, AnyArray]:
    """Returns the columns of a matrix by their names."""
    return {name: np.ascontiguousarray(values[:, index]) for index, name in enumerate(columns)}


def list_column(arrays: list[AnyArray], kind: pa.DataType) -> pa.Array:
    """Returns a column of lists, one for each array."""
    offsets = np.cumsum([0, *map(len, arrays)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(arrays), kind))
