"""The data dictionary: key, dtype, shape, unit and meaning of every column of a shard, by task.

A shard holds the samples of one program on one chip as columns. Kernels are references into the compiled
program (positions of instructions), and decisions are numbers in the kernel's decision space, so nothing is
stored that can be computed again; the inputs of models are computed from it once (`feature_columns`). Lists
of different length per kernel are concatenated in one column, delimited by an offsets column with one more
entry than there are kernels; in the file, the two are one list column (`arrow_tables`).
"""

from __future__ import annotations

from costbench.datasets.feature_columns import FEATURES
from costbench.datasets.layout.columns import LAYOUT
from costbench.datasets.layout.graph_columns import LAYOUT_GRAPH, WIDE_LAYOUT_GRAPH
from costbench.datasets.records import Column, RecordType, offsets_column
from costbench.datasets.tpugraphs.columns import TILE_GRAPHS

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
