"""The data dictionary of layout shards: configs of one program on one chip.

A shard is self-contained: it holds the program that layouts are assigned to, the options of each configurable
node, and the options of every measured config.
"""

from __future__ import annotations

from costbench.datasets.records import Column, RecordType

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
