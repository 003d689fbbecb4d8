"""The data dictionary of feature shards: the model inputs and runtimes of one program's measured kernels.

They are made from tile and fusion shards and hold everything that training reads, so that it parses no
program. Equal rows of node features are stored once per program, with the first kernel that has such a node.
"""

from __future__ import annotations

from costbench.datasets.records import Column, RecordType, offsets_column

FEATURES_VERSION = 2
"""Version of the features; raise it when the same samples would give other features."""

# Letters: k kernels, r rows, and of all kernels n nodes, e edges, b tile bounds, c decisions.
FEATURES = RecordType(
    name="features",
    version=3,
    columns=(
        offsets_column("row_opcode", "where the rows begin and end that each kernel is the first to have"),
        Column("row_opcode", "<i2", ("r",), "", "opcode of a value, `parameter` for kernel inputs", 0),
        Column("row_features", "<f4", ("r", "140"), "", "node features, unscaled (`node_features.csv`)"),
        Column("kernel_fingerprint", "|u1", ("k", "16"), "", "fingerprint of the kernel, 16 bytes"),
        Column("kernel_runs", "<i8", ("k",), "executions", "in one run of the program as it was measured", 0),
        Column("kernel_space_size", "<i8", ("k",), "decisions", "size of the kernel's tile space", 1),
        Column("kernel_num_inputs", "<i4", ("k",), "", "how many of the kernel's nodes are inputs", 0),
        Column("kernel_static", "<f4", ("k", "4"), "", "static performance features (`static_features.csv`)"),
        Column("kernel_ranks", "<i4", ("k", "2"), "", "tile bounds of the right-hand side, of the output", 0),
        offsets_column("node_row", "where each kernel's nodes begin and end"),
        Column(
            "node_row",
            "<i4",
            ("n",),
            "",
            "feature row of each node, of all rows of the shard; inputs first",
            0,
        ),
        Column("node_is_output", "|u1", ("n",), "", "1 where the value is written to main memory"),
        offsets_column("edge_nodes", "where each kernel's edges begin and end"),
        Column("edge_nodes", "<i4", ("e", "2"), "", "producer and consumer, as places of nodes", 0),
        offsets_column("tile_bounds", "where each kernel's tile bounds begin and end"),
        Column("tile_bounds", "<i4", ("b",), "native tiles", "bounds of one tile size after another", 0),
        offsets_column("config_runtime_ns", "where each kernel's measured decisions begin and end"),
        Column("config_runtime_ns", "<i8", ("c",), "ns", "measured runtime, the smallest of the runs", 1),
        Column("config_analytical_ns", "<f8", ("c",), "ns", "what the analytical model predicts"),
        Column("config_loops", "<f4", ("c", "4"), "", "loop features (`loop_features.csv`)", 1),
    ),
    runtime="config_runtime_ns",
)
