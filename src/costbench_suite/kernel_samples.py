"""Tile sizes and fusions as tables: kernels as graphs, their features as one row, and measured decisions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from costbench.arrays import AnyArray, Bool
from costbench.datasets.recorded_kernels import read_measurements
from costbench.errors import DataError
from costbench.experiments.evaluation.fusion import comparable_kernels, scaled_estimates
from costbench.features.feature_shards import FeatureShard
from costbench.features.roofline import Roofline
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
    return _tables(shard, np.ones(len(shard), dtype=bool), _decisions_of_compiler(shard))


def fusion_tables(path: Path) -> Mapping[str, pa.Table]:
    """Returns the tables of the kernels of a program's fusion configs, each with one measured decision.

    Args:
        path: feature shard of the program.

    Raises:
        DataError: for a damaged shard.
    """
    shard = FeatureShard(path)
    is_scored = comparable_kernels(shard, scaled_estimates(shard))
    return _tables(shard, is_scored, _decisions_of_compiler(shard))


def recorded_tables(path: Path, data: Path) -> Mapping[str, pa.Table]:
    """Returns the tables of the kernels of a program that a real machine ran, each measured twice.

    There is neither a tile size nor an estimate of a compiler. Kernels are scored whose kind occurs in a run
    of the program under the default config, as by costbench's evaluation.

    Args:
        path: feature shard of the program.
        data: output folder of the stage `generate`, with the second measurements.

    Raises:
        DataError: for a damaged shard, or measurements that are not of its kernels.
    """
    shard = FeatureShard(path)
    measurements = read_measurements(data, path.parent.name, shard.program)
    if len(measurements.second_ns) != len(shard):
        problem = f"{len(measurements.second_ns)} second measurements of {shard.program}"
        raise DataError(problem, where=path, expected=f"one of each of its {len(shard)} kernels")
    # Any formula says which kinds of kernels run by default: all of them price every kernel above zero.
    with_estimates = shard.with_roofline(Roofline(1.0, 0.0, 0.0, 0.0))
    is_scored = comparable_kernels(shard, scaled_estimates(with_estimates))
    measured = {
        "runtime_ns": np.concatenate([shard.runtime_ns(index) for index in range(len(shard))]),
        "again_ns": np.array(measurements.second_ns, np.int64),
    }
    return _tables(shard, is_scored, measured)


def _decisions_of_compiler(shard: FeatureShard) -> dict[str, AnyArray]:
    """Returns the columns of decisions that a compiler made: features, its estimate, and the runtime."""
    features, estimates, runtimes = (
        np.concatenate([values(index) for index in range(len(shard))])
        for values in (shard.config_features, shard.analytical_ns, shard.runtime_ns)
    )
    return {
        **columns_of(names(DECISION_FEATURES), features),
        "estimate_ns": estimates,
        "runtime_ns": runtimes,
    }


def _tables(shard: FeatureShard, is_scored: Bool, measured: Mapping[str, AnyArray]) -> dict[str, pa.Table]:
    """Returns the tables of a program by name.

    - `kernels`: a row for each kernel, with its graph. `edges` has producer and consumer of each edge in
      turn, `node_features` the features of each node in turn.
    - `summaries`: the same kernels as `SUMMARY_FEATURES`, in one column: hundreds of columns in each row
      group would take more space than the numbers.
    - `decisions`: a row for each measured decision.

    Args:
        shard: features of the kernels.
        is_scored: whether each kernel counts, bool [k].
        measured: columns of the decisions of all kernels in order.
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
    decisions = pa.table(
        {
            "id": np.repeat(ids, counts),
            "decision": np.concatenate([np.arange(count) for count in counts]).astype(np.int32),
            **measured,
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
