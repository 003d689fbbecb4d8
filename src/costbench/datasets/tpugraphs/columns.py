"""The data dictionary of imported tile kernels: TpuGraphs' kernels as tile training reads them.

The columns are those of feature shards (`costbench.datasets.feature_columns`), but the features of a decision
are given, since they cannot be computed from the tile sizes that the data set leaves out.
"""

from __future__ import annotations

from costbench.datasets.feature_columns import FEATURES
from costbench.datasets.records import Column, RecordType

_DROPPED = ("kernel_ranks", "tile_bounds_offsets", "tile_bounds", "config_loops", "config_runtime_ns")

TILE_GRAPHS = RecordType(
    name="tile_graphs",
    version=1,
    columns=(
        *(column for column in FEATURES.columns if column.key not in _DROPPED),
        Column(
            "config_runtime_ns",
            "<f8",
            ("c",),
            "ns",
            "measured runtime over its normalizer, times the kernel's first normalizer; 1 if withheld",
            0,
        ),
        Column("config_features", "<f4", ("c", "24"), "", "tile features as published (`tile_features.csv`)"),
    ),
    runtime="config_runtime_ns",
)
