"""Converts programs and measured runs to the arrays of TpuGraphs, as its own extractor does with raw files.

The node features of a kernel are taken from its module as stored, fusion bodies and reducers included, unlike
the graphs that costbench's models read (`graph_tensors`). Source: tpugraphs2023, section 4.1.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import I64
from costbench.compiler.spaces import TileSizes
from costbench.datasets.layout.graphs import LayoutGraph
from costbench.datasets.tpugraphs.npz import TileGraph
from costbench.datasets.tpugraphs.options import encode_options
from costbench.datasets.tpugraphs.tuning import TuningKernel, TuningProgram, node_splits
from costbench.features.config import layout_features, tile_features
from costbench.features.node import module_edges, module_node_features, tpugraphs_opcodes
from costbench.hlo.module import HloModule


def tile_graph(
    module: HloModule,
    tile_sizes: TileSizes,
    runtime_ns: I64,
    normalizer_ns: int,
    input_bounds: I64 | None = None,
) -> TileGraph:
    """Returns a stand-alone kernel with its measured tile sizes, in the form of TpuGraphs' tile files.

    Args:
        module: the kernel.
        tile_sizes: `c` tile sizes.
        runtime_ns: int64 [c].
        normalizer_ns: runtime of the default tile size.
        input_bounds: int64 [c, rank], where they are given.
    """
    return TileGraph(
        node_feat=module_node_features(module),
        node_opcode=tpugraphs_opcodes(module),
        edge_index=module_edges(module),
        config_feat=tile_features(tile_sizes, input_bounds),
        config_runtime=runtime_ns,
        config_runtime_normalizers=np.full(len(runtime_ns), normalizer_ns, dtype=np.int64),
    )


def tile_graph_of(tuning: TuningKernel) -> TileGraph:
    """Convert a kernel of a raw tile file.

    Raises:
        DataError: if no default run counts.
    """
    return tile_graph(
        tuning.module, tuning.tile_sizes, tuning.runtime_ns, tuning.normalizer_ns, tuning.input_bounds
    )


def layout_graph_of(tuning: TuningProgram, name: str, collection: str) -> LayoutGraph:
    """Convert the program of a raw layout file.

    Args:
        tuning: the program with its runs.
        name: id of the graph.
        collection: such as `layout:xla:random`.
    """
    options = encode_options(layout_features(tuning.minor_to_major))
    return LayoutGraph(
        name=name,
        program=name,
        collection=collection,
        node_features=module_node_features(tuning.module),
        opcodes=tpugraphs_opcodes(tuning.module).astype(np.int32),
        edges=module_edges(tuning.module).astype(np.int32),
        node_config_ids=tuning.node_config_ids.astype(np.int32),
        option_offsets=options.option_offsets,
        option_features=options.option_features,
        config_options=options.config_options,
        runtime_ns=tuning.runtime_ns,
        node_splits=node_splits(tuning.module),
    )
