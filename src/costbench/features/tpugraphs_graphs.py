"""Programs and measured runs as the graphs of TpuGraphs, as its own extractor makes them.

Nodes are the instructions of all computations, fusion bodies and reducers included, unlike in the graphs that
costbench's models read (`graph_tensors`). `program_graph` takes a verified `HloModule`. `proto_graph` reads
any dump: opcodes and element types that are not known stay 0, and so do fields that are not set (readers of
modules take unset strides and dilations for 1). Both give the same features where all fields are set. Source:
tpugraphs2023, section 4.1, and the extractor that the data set documents.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from costbench.arrays import I64
from costbench.compiler.spaces import TileSizes
from costbench.datasets.layout_graphs import LayoutGraph, ProgramGraph
from costbench.datasets.layout_shards import SEARCHES, open_layout_shard
from costbench.datasets.tpugraphs.npz import TileGraph
from costbench.datasets.tpugraphs.options import encode_options
from costbench.datasets.tpugraphs.raw import TuningKernel, TuningProgram, node_splits
from costbench.errors import DataError
from costbench.features.decision_features import layout_features, tile_features
from costbench.features.node import module_edges, module_node_features, tpugraphs_opcodes
from costbench.hlo.conversion import (
    Positions,
    computations_from_proto,
    convolution_from_proto,
    padding_from_proto,
    slices_from_proto,
    window_from_proto,
)
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import module_from_bytes
from costbench.hlo.shape import ElementType, Shape

_OPCODES = {opcode.xla_name: opcode for opcode in Opcode}
_TYPES = {int(kind): kind for kind in ElementType}
# What stands for opcodes and types that are not known: as these, TpuGraphs does not list them.
_UNLISTED_OPCODE, _UNLISTED_TYPE = Opcode.ERF, ElementType.F8E5M2
_MEMBER = Shape(ElementType.TOKEN)

MIN_CONFIGS = 2
"""Smallest number of configs of a program that can be ranked."""


def program_graph(module: HloModule) -> ProgramGraph:
    """Returns the graph of a program."""
    return ProgramGraph(
        node_features=module_node_features(module),
        opcodes=tpugraphs_opcodes(module).astype(np.int32),
        edges=module_edges(module).astype(np.int32),
        node_splits=node_splits(module),
    )


def tile_graph(
    module: HloModule,
    tile_sizes: TileSizes,
    runtime_ns: I64,
    normalizer_ns: int,
    input_bounds: I64 | None = None,
) -> TileGraph:
    """Returns a stand-alone kernel with its measured tile sizes, in the form of TpuGraphs' tile files.

    Args:
        module: module of the kernel.
        tile_sizes: `c` tile sizes.
        runtime_ns: measured runtimes, int64 [c].
        normalizer_ns: runtime of the default tile size.
        input_bounds: bounds of the inputs, int64 [c, rank], where they are known.
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
    """Converts a kernel of a raw tile file.

    Raises:
        DataError: if no default run counts.
    """
    return tile_graph(
        tuning.module, tuning.tile_sizes, tuning.runtime_ns, tuning.normalizer_ns, tuning.input_bounds
    )


def layout_graph_of(tuning: TuningProgram, name: str, collection: str) -> LayoutGraph:
    """Converts the program of a raw layout file.

    Args:
        tuning: program with its runs.
        name: id of the graph.
        collection: collection of the graph, such as `layout:xla:random`.
    """
    options = encode_options(layout_features(tuning.minor_to_major))
    return LayoutGraph(
        name=name,
        program=name,
        collection=collection,
        **vars(program_graph(tuning.module)),
        node_config_ids=tuning.node_config_ids.astype(np.int32),
        option_offsets=options.option_offsets,
        option_features=options.option_features,
        config_options=options.config_options,
        runtime_ns=tuning.runtime_ns,
    )


def searches_of(path: Path) -> dict[str, str]:
    """Returns the collections that a layout shard has enough configs for, by search: `random`, `default`.

    Raises:
        DataError: if the file is not a layout shard, damaged, or does not say its family of collections.
    """
    shard = open_layout_shard(path)
    family = shard.metadata.get("family")
    if not isinstance(family, str):
        raise DataError("missing", where=path, field="metadata.family", expected="`xla` or `nlp`")
    if not len(shard["node_opcode"]):
        return {}
    source = np.asarray(shard["config_source"])
    counts = {search: np.isin(source, values).sum() for search, values in SEARCHES.items()}
    return {search: f"layout:{family}:{search}" for search, count in counts.items() if count >= MIN_CONFIGS}


def layout_graph(path: Path, search: str) -> LayoutGraph:
    """Returns the program of a layout shard with the configs of one search, in the order of their runs.

    Args:
        path: path of the shard.
        search: key of `searches_of(path)`.

    Raises:
        DataError: if the file is not a layout shard or damaged.
        HloError: if its program cannot be read.
    """
    shard = open_layout_shard(path)
    module, graph = _cached_graph(shard["program"].tobytes(), str(path))
    rows = np.flatnonzero(np.isin(shard["config_source"], SEARCHES[search]))
    name = str(shard.metadata["program"])
    ids = np.array(module.offsets)[shard["node_computation"]] + shard["node_position"]
    return LayoutGraph(
        name=name,
        program=name,
        collection=searches_of(path)[search],
        **vars(graph),
        node_config_ids=ids.astype(np.int32),
        option_offsets=np.asarray(shard["option_offsets"]),
        option_features=shard["option_layout"].astype(np.float32),
        config_options=shard["config_options"][rows],
        runtime_ns=shard["config_runtime_ns"][rows],
    )


@lru_cache(maxsize=1)
def _cached_graph(program: bytes, where: str) -> tuple[HloModule, ProgramGraph]:
    """Returns a compressed program and its graph; the graphs of a shard's searches follow one another."""
    module = module_from_bytes(program, where=where)
    return module, program_graph(module)


def extract_graph(path: Path) -> ProgramGraph:
    """Returns the graph of a layout shard's program: what a model of layouts computes once for a program.

    Raises:
        DataError: if the file is not a layout shard or damaged.
        HloError: if its program cannot be read.
    """
    return program_graph(module_from_bytes(open_layout_shard(path)["program"].tobytes(), where=str(path)))


def proto_graph(proto: hlo_pb2.HloModuleProto, *, where: str) -> ProgramGraph:
    """Returns the graph of all computations of a program, callees first.

    Args:
        proto: the program, not necessarily one that XLA would accept.
        where: names the source in errors.

    Raises:
        HloError: if an operand, a called computation or a root does not exist, or ids occur twice.
    """
    computations = computations_from_proto(proto, _instruction, where)
    return program_graph(HloModule(proto.name, tuple(computations.values()), entry=0))


def _instruction(p: hlo_pb2.HloInstructionProto, index_of: Positions, computations: Positions) -> Instruction:
    """Returns an instruction with the fields that features are made of, as they were dumped."""
    return Instruction(
        name=p.name,
        opcode=_OPCODES.get(p.opcode, _UNLISTED_OPCODE),
        shape=Shape(
            _TYPES.get(p.shape.element_type, _UNLISTED_TYPE),
            tuple(p.shape.dimensions),
            tuple(p.shape.layout.minor_to_major),
            # Members count, what they are does not.
            (_MEMBER,) * len(p.shape.tuple_shapes),
        ),
        operands=tuple(index_of[operand] for operand in p.operand_ids),
        called=tuple(computations[callee] for callee in p.called_computation_ids),
        parameter_number=p.parameter_number,
        dimensions=tuple(p.dimensions),
        window=window_from_proto(p.window.dimensions, unset=0),
        convolution=convolution_from_proto(p.convolution_dimension_numbers)
        if p.HasField("convolution_dimension_numbers")
        else None,
        feature_group_count=p.feature_group_count,
        batch_group_count=p.batch_group_count,
        slices=slices_from_proto(p),
        dynamic_slice_sizes=tuple(p.dynamic_slice_sizes),
        padding=padding_from_proto(p),
        is_stable=p.is_stable,
    )
