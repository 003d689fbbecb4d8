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


LAYOUT_GENERATOR_VERSION = 2
"""Version of the samples; raise it when the same inputs would give other samples."""
DEFAULT, RANDOM, GENETIC = range(3)
"""Values of `config_source`: the default config's first run, the random search, the genetic search."""

# Letters: b bytes, n configurable nodes, o options of all nodes together, c configs.
LAYOUT = RecordType(
    name="layout",
    version=2,
    columns=(
        Column(
            key="program",
            dtype="|u1",
            shape=("b",),
            unit="bytes",
            meaning="HloModuleProto that layouts are assigned to, zstd-compressed; nodes are positions in it",
        ),
        Column(
            key="node_computation",
            dtype="<i4",
            shape=("n",),
            unit="",
            meaning="position of the computation of each configurable node, ascending",
            minimum=0,
        ),
        Column(
            key="node_position",
            dtype="<i4",
            shape=("n",),
            unit="",
            meaning="position of the node inside its computation, ascending per computation",
            minimum=0,
        ),
        Column(
            key="node_opcode",
            dtype="<i2",
            shape=("n",),
            unit="",
            meaning="code of convolution, dot or reshape (costbench.hlo.opcode)",
            minimum=0,
        ),
        Column(
            key="option_offsets",
            dtype="<i8",
            shape=("n+1",),
            unit="entries",
            meaning="where each node's options begin and end; the first one is the compiler's default",
            offsets_into="option_layout",
        ),
        Column(
            key="option_layout",
            dtype="|i1",
            shape=("o", "18"),
            unit="",
            meaning="TpuGraphs' layout features of each option: output, input, kernel; -1 where absent",
            minimum=-1,
        ),
        Column(
            key="config_options",
            dtype="<i2",
            shape=("c", "n"),
            unit="",
            meaning="option of each node, from 0",
            minimum=0,
        ),
        Column(
            key="config_source",
            dtype="|u1",
            shape=("c",),
            unit="",
            meaning="where the config is from: 0 the compiler's default, 1 drawn at random, 2 genetic search",
        ),
        Column(
            key="config_runtime_ns",
            dtype="<i8",
            shape=("c",),
            unit="ns",
            meaning="measured runtime of the program",
            minimum=1,
        ),
    ),
    runtime="config_runtime_ns",
    row="",
)


# Letters: n nodes, m edges, nc configurable nodes, o options of all nodes together, c configs, t runtimes
# (c, or 0 where they are withheld), s starts of parts.
_BEFORE_OPTIONS = (
    Column("node_features", "<f4", ("n", "140"), "", "node features, unscaled (`node_features.csv`)"),
    Column("node_opcode", "<i4", ("n",), "", "opcode in TpuGraphs' numbers, 0 where it has none", 0),
    Column("edge_nodes", "<i4", ("m", "2"), "", "consumer and producer, as numbers of nodes", 0),
    Column("node_config_ids", "<i4", ("nc",), "", "numbers of the configurable nodes, ascending", 0),
    Column(
        key="option_offsets",
        dtype="<i8",
        shape=("nc+1",),
        unit="entries",
        meaning="where each configurable node's options begin and end",
        offsets_into="option_features",
    ),
    Column("option_features", "<f4", ("o", "18"), "", "features of each option (`layout_features.csv`)"),
)
_AFTER_OPTIONS = (
    Column("config_runtime_ns", "<i8", ("t",), "ns", "measured runtime of the program, if it is known", 1),
    Column("node_splits", "<i8", ("s",), "", "nodes at which the major parts of the program begin", 0),
)


def _record(name: str, dtype: str) -> RecordType:
    # The width is nc, but a file without configs cannot say so.
    options = Column("config_options", dtype, ("c", "w"), "", "option of each configurable node, from 0", 0)
    return RecordType(
        name=name,
        version=1,
        columns=(*_BEFORE_OPTIONS, options, *_AFTER_OPTIONS),
        runtime="config_runtime_ns",
        row="",
    )


LAYOUT_GRAPH = _record("layout_graph", "<i2")
"""Graphs whose nodes have at most 32,768 options each, as those of all published files have."""
WIDE_LAYOUT_GRAPH = _record("wide_layout_graph", "<i4")
"""The same for more options."""


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


TILE_GENERATOR_VERSION = 2
FUSION_GENERATOR_VERSION = 1
"""Versions of the samples; raise one when the same inputs would give other samples."""


# Letters: k kernels, d dropped ones, and of all kernels i inputs, n instructions, o outputs, c decisions.
_KERNEL = (
    Column(
        key="kernel_computation",
        dtype="<i4",
        shape=("k",),
        unit="",
        meaning="position, in the compiled program, of the computation that the kernel is part of",
        minimum=0,
    ),
    offsets_column("kernel_inputs", "where each kernel's inputs begin and end"),
    Column(
        key="kernel_inputs",
        dtype="<i4",
        shape=("i",),
        unit="",
        meaning="positions of the values read from main memory, ascending per kernel",
        minimum=0,
    ),
    offsets_column("kernel_instructions", "where each kernel's instructions begin and end"),
    Column(
        key="kernel_instructions",
        dtype="<i4",
        shape=("n",),
        unit="",
        meaning="positions of the kernel's own instructions, ascending per kernel",
        minimum=0,
    ),
    offsets_column("kernel_outputs", "where each kernel's outputs begin and end"),
    Column(
        key="kernel_outputs",
        dtype="<i4",
        shape=("o",),
        unit="",
        meaning="positions of instructions whose values are written to main memory, ascending per kernel",
        minimum=0,
    ),
    Column(
        key="kernel_fingerprint",
        dtype="|u1",
        shape=("k", "16"),
        unit="",
        meaning="fingerprint of the kernel (costbench.compiler.fingerprints), 16 bytes",
    ),
)
_SPACE_SIZE = Column(
    key="kernel_space_size",
    dtype="<i8",
    shape=("k",),
    unit="decisions",
    meaning="size of the kernel's tile space",
    minimum=1,
)

TILE = RecordType(
    name="tile",
    version=2,
    columns=(
        *_KERNEL,
        Column(
            key="kernel_runs",
            dtype="<i8",
            shape=("k",),
            unit="executions",
            meaning="executions in one run of the program: trip counts and equal kernels summed",
            minimum=1,
        ),
        _SPACE_SIZE,
        Column(
            key="kernel_default_ns",
            dtype="<i8",
            shape=("k",),
            unit="ns",
            meaning="runtime of the compiler's default tile on this chip: the runtime normalizer",
            minimum=1,
        ),
        Column(
            key="config_offsets",
            dtype="<i8",
            shape=("k+1",),
            unit="entries",
            meaning="where each kernel's measured tiles begin and end",
            offsets_into="config_tile",
        ),
        Column(
            key="config_tile",
            dtype="<i8",
            shape=("c",),
            unit="",
            meaning="number of the tile size in the kernel's tile space (costbench.compiler.tile_space)",
            minimum=0,
        ),
        Column(
            key="config_runtime_ns",
            dtype="<i8",
            shape=("c",),
            unit="ns",
            meaning="measured runtime, the smallest of the runs",
            minimum=1,
        ),
    ),
    runtime="config_runtime_ns",
)

FUSION = RecordType(
    name="fusion",
    version=2,
    columns=(
        *_KERNEL,
        Column(
            key="kernel_default_runs",
            dtype="<i8",
            shape=("k",),
            unit="executions",
            meaning="executions in one run of the program under the default fusion config; 0 if it has none",
            minimum=0,
        ),
        _SPACE_SIZE,
        Column(
            key="kernel_tile",
            dtype="<i8",
            shape=("k",),
            unit="",
            meaning="number, in the kernel's tile space, of the tile size that the compiler chose",
            minimum=0,
        ),
        Column(
            key="kernel_runtime_ns",
            dtype="<i8",
            shape=("k",),
            unit="ns",
            meaning="measured runtime at that tile size, the smallest of the runs",
            minimum=1,
        ),
        Column(
            key="dropped_fingerprint",
            dtype="|u1",
            shape=("d", "16"),
            unit="",
            meaning="fingerprints of kernels that did not run: no tile fits, or the compile failed",
        ),
    ),
    runtime="kernel_runtime_ns",
)

RECORD_TYPES = {
    record.name: record
    for record in (TILE, FUSION, LAYOUT, FEATURES, LAYOUT_GRAPH, WIDE_LAYOUT_GRAPH, TILE_GRAPHS)
}
