"""The data dictionary: key, dtype, shape, unit and meaning of every column of a shard, by kind of shard.

A shard holds the samples of one program on one chip as columns. Kernels are references into the compiled
program (positions of instructions), and decisions are numbers in the kernel's decision space, so nothing is
stored that can be computed again; the inputs of models are computed from it once and stored in shards of
their own (`features`, `layout_graph`). Lists of different length per kernel are concatenated in one column,
delimited by an offsets column with one more entry than there are kernels; in the file, the two are one list
column (`arrow_tables`).

Columns are written as key, dtype, shape, unit, meaning and minimum (see `records.Column`). Letters count
k kernels, and of all kernels together i inputs, n instructions or nodes, o outputs, e edges, b tile bounds
and c decisions; what other letters count is said beside them.
"""

from __future__ import annotations

from costbench.datasets.records import Column, RecordType, offsets_column

# Versions of the samples and of the features; raise one when the same inputs would give others.
TILE_GENERATOR_VERSION = 2
FUSION_GENERATOR_VERSION = 1
LAYOUT_GENERATOR_VERSION = 2
FEATURES_VERSION = 2

DEFAULT, RANDOM, GENETIC = range(3)
"""Values of `config_source`: the default config's first run, the random search, the genetic search."""

_KERNEL = (
    Column(
        "kernel_computation", "<i4", ("k",), "",
        "position, in the compiled program, of the computation that the kernel is part of", 0,
    ),
    offsets_column("kernel_inputs", "where each kernel's inputs begin and end"),
    Column(
        "kernel_inputs", "<i4", ("i",), "",
        "positions of the values read from main memory, ascending per kernel", 0,
    ),
    offsets_column("kernel_instructions", "where each kernel's instructions begin and end"),
    Column(
        "kernel_instructions", "<i4", ("n",), "",
        "positions of the kernel's own instructions, ascending per kernel", 0,
    ),
    offsets_column("kernel_outputs", "where each kernel's outputs begin and end"),
    Column(
        "kernel_outputs", "<i4", ("o",), "",
        "positions of instructions whose values are written to main memory, ascending per kernel", 0,
    ),
    Column(
        "kernel_fingerprint", "|u1", ("k", "16"), "",
        "fingerprint of the kernel, 16 bytes",
    ),
)  # fmt: skip
_SPACE_SIZE = Column("kernel_space_size", "<i8", ("k",), "decisions", "size of the kernel's tile space", 1)

TILE = RecordType(
    name="tile",
    version=2,
    columns=(
        *_KERNEL,
        Column(
            "kernel_runs", "<i8", ("k",), "executions",
            "executions in one run of the program: trip counts and equal kernels summed", 1,
        ),
        _SPACE_SIZE,
        Column(
            "kernel_default_ns", "<i8", ("k",), "ns",
            "runtime of the compiler's default tile on this chip: the runtime normalizer", 1,
        ),
        Column(
            "config_offsets", "<i8", ("k+1",), "entries",
            "where each kernel's measured tiles begin and end", offsets_into="config_tile",
        ),
        Column(
            "config_tile", "<i8", ("c",), "",
            "number of the tile size in the kernel's tile space", 0,
        ),
        Column("config_runtime_ns", "<i8", ("c",), "ns", "measured runtime, the smallest of the runs", 1),
    ),
    runtime="config_runtime_ns",
)  # fmt: skip

# d dropped kernels.
FUSION = RecordType(
    name="fusion",
    version=2,
    columns=(
        *_KERNEL,
        Column(
            "kernel_default_runs", "<i8", ("k",), "executions",
            "executions in one run of the program under the default fusion config; 0 if it has none", 0,
        ),
        _SPACE_SIZE,
        Column(
            "kernel_tile", "<i8", ("k",), "",
            "number, in the kernel's tile space, of the tile size that the compiler chose", 0,
        ),
        Column(
            "kernel_runtime_ns", "<i8", ("k",), "ns",
            "measured runtime at that tile size, the smallest of the runs", 1,
        ),
        Column(
            "dropped_fingerprint", "|u1", ("d", "16"), "",
            "fingerprints of kernels that did not run: no tile fits, or the compile failed",
        ),
    ),
    runtime="kernel_runtime_ns",
)  # fmt: skip

# Self-contained: b bytes of the program, n configurable nodes, o options of all nodes together, c configs.
LAYOUT = RecordType(
    name="layout",
    version=2,
    columns=(
        Column(
            "program", "|u1", ("b",), "bytes",
            "HloModuleProto that layouts are assigned to, zstd-compressed; nodes are positions in it",
        ),
        Column(
            "node_computation", "<i4", ("n",), "",
            "position of the computation of each configurable node, ascending", 0,
        ),
        Column(
            "node_position", "<i4", ("n",), "",
            "position of the node inside its computation, ascending per computation", 0,
        ),
        Column(
            "node_opcode", "<i2", ("n",), "",
            "code of convolution, dot or reshape", 0,
        ),
        Column(
            "option_offsets", "<i8", ("n+1",), "entries",
            "where each node's options begin and end; the first one is the compiler's default",
            offsets_into="option_layout",
        ),
        Column(
            "option_layout", "|i1", ("o", "18"), "",
            "TpuGraphs' layout features of each option: output, input, kernel; -1 where absent", -1,
        ),
        Column("config_options", "<i2", ("c", "n"), "", "option of each node, from 0", 0),
        Column(
            "config_source", "|u1", ("c",), "",
            "where the config is from: 0 the compiler's default, 1 drawn at random, 2 genetic search",
        ),
        Column("config_runtime_ns", "<i8", ("c",), "ns", "measured runtime of the program", 1),
    ),
    runtime="config_runtime_ns",
    row="",
)  # fmt: skip

# Made from tile and fusion shards, with everything that training reads, so that it parses no program. Equal
# rows of node features (r) are stored once per program, with the first kernel that has such a node.
FEATURES = RecordType(
    name="features",
    version=3,
    columns=(
        offsets_column("row_opcode", "where the rows begin and end that each kernel is the first to have"),
        Column("row_opcode", "<i2", ("r",), "", "opcode of a value, `parameter` for kernel inputs", 0),
        Column("row_features", "<f4", ("r", "140"), "", "node features, unscaled (`node_features.csv`)"),
        Column("kernel_fingerprint", "|u1", ("k", "16"), "", "fingerprint of the kernel, 16 bytes"),
        Column("kernel_runs", "<i8", ("k",), "executions", "in one run of the program as it was measured", 0),
        _SPACE_SIZE,
        Column("kernel_num_inputs", "<i4", ("k",), "", "how many of the kernel's nodes are inputs", 0),
        Column("kernel_static", "<f4", ("k", "4"), "", "static performance features (`static_features.csv`)"),
        Column("kernel_ranks", "<i4", ("k", "2"), "", "tile bounds of the right-hand side, of the output", 0),
        offsets_column("node_row", "where each kernel's nodes begin and end"),
        Column(
            "node_row", "<i4", ("n",), "",
            "feature row of each node, of all rows of the shard; inputs first", 0,
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
)  # fmt: skip

# Beside a feature shard: the estimates of a compiler that knows more or less than the chip's own.
ESTIMATES = RecordType(
    name="estimates",
    version=1,
    columns=(
        Column("kernel_fingerprint", "|u1", ("k", "16"), "", "fingerprint of the kernel, 16 bytes"),
        offsets_column("config_analytical_ns", "where each kernel's decisions begin and end"),
        Column("config_analytical_ns", "<f8", ("c",), "ns", "what a model of this quality predicts"),
    ),
    runtime="config_analytical_ns",
)

# Imported kernels, whose features of decisions are given: the data set leaves out the tile sizes.
_COMPUTED = ("kernel_ranks", "tile_bounds_offsets", "tile_bounds", "config_loops", "config_runtime_ns")
TILE_GRAPHS = RecordType(
    name="tile_graphs",
    version=1,
    columns=(
        *(column for column in FEATURES.columns if column.key not in _COMPUTED),
        Column(
            "config_runtime_ns", "<f8", ("c",), "ns",
            "measured runtime over its normalizer, times the kernel's first normalizer; 1 if withheld", 0,
        ),
        Column("config_features", "<f4", ("c", "24"), "", "tile features as published (`tile_features.csv`)"),
    ),
    runtime="config_runtime_ns",
)  # fmt: skip


def _layout_graph(name: str, options_dtype: str) -> RecordType:
    """Describes the inputs of layout models: a whole program with TpuGraphs' features, and its configs.

    A config is one number per configurable node, a row of the node's `option_features`, which hold every
    distinct vector of a node once: c configs of nc nodes take 2 nc c bytes and not 72 nc c.
    """
    # n nodes, m edges, nc configurable nodes, o options of all nodes, c configs, t runtimes (c, or 0 where
    # they are withheld), s starts of parts. The width w is nc, but a file without configs cannot say so.
    columns = (
        Column("node_features", "<f4", ("n", "140"), "", "node features, unscaled (`node_features.csv`)"),
        Column("node_opcode", "<i4", ("n",), "", "opcode in TpuGraphs' numbers, 0 where it has none", 0),
        Column("edge_nodes", "<i4", ("m", "2"), "", "consumer and producer, as numbers of nodes", 0),
        Column("node_config_ids", "<i4", ("nc",), "", "numbers of the configurable nodes, ascending", 0),
        Column(
            "option_offsets", "<i8", ("nc+1",), "entries",
            "where each configurable node's options begin and end", offsets_into="option_features",
        ),
        Column("option_features", "<f4", ("o", "18"), "", "features of each option (`layout_features.csv`)"),
        Column(
            "config_options", options_dtype, ("c", "w"), "",
            "option of each configurable node, from 0", 0,
        ),
        Column(
            "config_runtime_ns", "<i8", ("t",), "ns",
            "measured runtime of the program, if it is known", 1,
        ),
        Column("node_splits", "<i8", ("s",), "", "nodes at which the major parts of the program begin", 0),
    )  # fmt: skip
    return RecordType(name, version=1, columns=columns, runtime="config_runtime_ns", row="")


LAYOUT_GRAPH = _layout_graph("layout_graph", "<i2")
"""Graphs whose nodes have at most 32,768 options each, as those of all published files have."""
WIDE_LAYOUT_GRAPH = _layout_graph("wide_layout_graph", "<i4")
"""The same for more options."""

RECORD_TYPES = {
    record.name: record
    for record in (TILE, FUSION, LAYOUT, FEATURES, ESTIMATES, LAYOUT_GRAPH, WIDE_LAYOUT_GRAPH, TILE_GRAPHS)
}
