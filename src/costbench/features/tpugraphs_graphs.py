"""Programs and measured runs as the graphs of TpuGraphs, as its own extractor makes them.

Nodes are the instructions of all computations, fusion bodies and reducers included, unlike in the graphs that
costbench's models read (`graph_tensors`). `program_graph` takes a verified `HloModule`. `proto_graph` reads
any dump: opcodes and element types that are not known stay 0, and so do fields that are not set (readers of
modules take unset strides and dilations for 1). Both give the same features where all fields are set. Source:
tpugraphs2023, section 4.1, and the extractor that the data set documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from costbench.arrays import F32, I32, I64
from costbench.compiler.spaces import TileSizes
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.datasets.layout_shards import SEARCHES, open_layout_shard
from costbench.datasets.tpugraphs.npz import TileGraph
from costbench.datasets.tpugraphs.options import encode_options
from costbench.datasets.tpugraphs.raw import TuningKernel, TuningProgram, node_splits, splits_after
from costbench.errors import DataError, HloError
from costbench.features.decision_features import layout_features, tile_features
from costbench.features.node import NodeTable, module_edges, module_node_features, tpugraphs_opcodes
from costbench.hlo.conversion import callees_first, convolution_from_proto
from costbench.hlo.instruction import (
    ConvolutionDimensions,
    PaddingDimension,
    SliceDimension,
    WindowDimension,
)
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import module_from_bytes
from costbench.hlo.shape import ElementType, Shape

_CODES = {opcode.xla_name: opcode.tpugraphs_code for opcode in Opcode}
_TYPES = {int(kind): kind for kind in ElementType}

MIN_CONFIGS = 2
"""Smallest number of configs of a program that can be ranked."""


@dataclass(frozen=True, eq=False)
class ProgramGraph:
    """A program of n instructions and m edges in TpuGraphs' numbering.

    Attributes:
        offsets: node at which each computation begins, int64 [computations].
        node_features: TpuGraphs' features, float32 [n, 140].
        opcodes: TpuGraphs' codes, 0 for an opcode that it does not have, int32 [n].
        edges: rows (consumer, producer), sorted, each once, int32 [m, 2].
        node_splits: nodes at which the major parts of the program begin, and n, int64 [s].
    """

    offsets: I64
    node_features: F32
    opcodes: I32
    edges: I32
    node_splits: I64


def program_graph(module: HloModule) -> ProgramGraph:
    """Returns the graph of a program."""
    return ProgramGraph(
        offsets=np.array(module.offsets, dtype=np.int64),
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
    graph = program_graph(tuning.module)
    options = encode_options(layout_features(tuning.minor_to_major))
    return LayoutGraph(
        name=name,
        program=name,
        collection=collection,
        node_features=graph.node_features,
        opcodes=graph.opcodes,
        edges=graph.edges,
        node_config_ids=tuning.node_config_ids.astype(np.int32),
        option_offsets=options.option_offsets,
        option_features=options.option_features,
        config_options=options.config_options,
        runtime_ns=tuning.runtime_ns,
        node_splits=graph.node_splits,
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
    graph = _cached_graph(shard["program"].tobytes(), str(path))
    rows = np.flatnonzero(np.isin(shard["config_source"], SEARCHES[search]))
    name = str(shard.metadata["program"])
    ids = graph.offsets[shard["node_computation"]] + shard["node_position"]
    return LayoutGraph(
        name=name,
        program=name,
        collection=searches_of(path)[search],
        node_features=graph.node_features,
        opcodes=graph.opcodes,
        edges=graph.edges,
        node_config_ids=ids.astype(np.int32),
        option_offsets=np.asarray(shard["option_offsets"]),
        option_features=shard["option_layout"].astype(np.float32),
        config_options=shard["config_options"][rows],
        runtime_ns=shard["config_runtime_ns"][rows],
        node_splits=graph.node_splits,
    )


@lru_cache(maxsize=1)
def _cached_graph(program: bytes, where: str) -> ProgramGraph:
    """Returns the graph of a compressed program; the graphs of a shard's searches follow one another."""
    return program_graph(module_from_bytes(program, where=where))


def extract_graph(path: Path) -> ProgramGraph:
    """Returns the graph of a layout shard's program: what a model of layouts computes once for a program.

    Raises:
        DataError: if the file is not a layout shard or damaged.
        HloError: if its program cannot be read.
    """
    return program_graph(module_from_bytes(open_layout_shard(path)["program"].tobytes(), where=str(path)))


@dataclass(slots=True)
class _Fields:
    """The fields of an instruction that features are made of."""

    parameter_number: int
    feature_group_count: int
    batch_group_count: int
    is_stable: bool
    shape: Shape
    dimensions: tuple[int, ...]
    dynamic_slice_sizes: tuple[int, ...]
    window: tuple[WindowDimension, ...]
    convolution: ConvolutionDimensions | None
    slices: tuple[SliceDimension, ...]
    padding: tuple[PaddingDimension, ...]


def proto_graph(proto: hlo_pb2.HloModuleProto, *, where: str) -> ProgramGraph:
    """Returns the graph of all computations of a program, callees first.

    Args:
        proto: the program, not necessarily one that XLA would accept.
        where: names the source in errors.

    Raises:
        HloError: if an operand, a called computation or a root does not exist, or ids occur twice.
    """
    computations = [proto.computations[index] for index in callees_first(proto, where)]
    counts = [len(computation.instructions) for computation in computations]
    offsets = np.cumsum([0, *counts])
    table = NodeTable(int(offsets[-1]))
    opcodes = np.zeros(offsets[-1], np.int32)
    roots: dict[int, int] = {}
    consumers: list[int] = []
    producers: list[int] = []
    for offset, computation in zip(offsets.tolist(), computations, strict=False):
        node_of = {inst.id: node for node, inst in enumerate(computation.instructions, start=offset)}
        if len(node_of) != len(computation.instructions):
            raise HloError("two instructions share an id", where=where, field=computation.name)
        if computation.root_id not in node_of:
            problem = f"root id {computation.root_id} does not exist"
            raise HloError(problem, where=where, field=computation.name)
        root = roots[computation.id] = node_of[computation.root_id]
        for node, inst in enumerate(computation.instructions, start=offset):
            opcodes[node] = _CODES.get(inst.opcode, 0)
            table.add(node, _fields(inst), node == root)
            try:
                read = [node_of[operand] for operand in inst.operand_ids]
            except KeyError as error:
                problem, field = (
                    f"operand id {error.args[0]} does not exist",
                    f"{computation.name}/{inst.name}",
                )
                raise HloError(problem, where=where, field=field) from None
            if inst.called_computation_ids:
                read.extend(roots[callee] for callee in inst.called_computation_ids)
            consumers.extend([node] * len(read))
            producers.extend(read)
    # Sorted by consumer, then producer; an operand that is read twice is one edge.
    edges = np.unique(np.array([consumers, producers], np.int64).T.reshape(-1, 2), axis=0)
    splits = splits_after([computation.name for computation in computations], offsets[1:].tolist())
    return ProgramGraph(
        offsets=offsets[:-1],
        node_features=table.finish(),
        opcodes=opcodes,
        edges=edges.astype(np.int32),
        node_splits=splits,
    )


def _fields(p: hlo_pb2.HloInstructionProto) -> _Fields:
    return _Fields(
        parameter_number=p.parameter_number,
        feature_group_count=p.feature_group_count,
        batch_group_count=p.batch_group_count,
        is_stable=p.is_stable,
        shape=_shape(p.shape),
        dimensions=tuple(p.dimensions),
        dynamic_slice_sizes=tuple(p.dynamic_slice_sizes),
        window=_window(p.window) if p.HasField("window") else (),
        convolution=convolution_from_proto(p.convolution_dimension_numbers)
        if p.HasField("convolution_dimension_numbers")
        else None,
        slices=tuple(SliceDimension(d.start, d.limit, d.stride) for d in p.slice_dimensions),
        padding=tuple(
            PaddingDimension(d.edge_padding_low, d.edge_padding_high, d.interior_padding)
            for d in p.padding_config.dimensions
        )
        if p.HasField("padding_config")
        else (),
    )


def _shape(p: hlo_pb2.ShapeProto) -> Shape:
    kind = _TYPES.get(p.element_type)
    members = (_MEMBER,) * len(p.tuple_shapes) if p.tuple_shapes else ()
    layout = tuple(p.layout.minor_to_major) if p.HasField("layout") else ()
    # An element type that is not known has no column, like one that TpuGraphs does not list.
    return Shape(_UNLISTED if kind is None else kind, tuple(p.dimensions), layout, members)


# Members count, what they are does not.
_MEMBER = Shape(ElementType.TOKEN)
_UNLISTED = ElementType.F8E5M2


def _window(p: hlo_pb2.Window) -> tuple[WindowDimension, ...]:
    return tuple(
        WindowDimension(
            size=d.size,
            stride=d.stride,
            padding_low=d.padding_low,
            padding_high=d.padding_high,
            window_dilation=d.window_dilation,
            base_dilation=d.base_dilation,
            reversal=d.window_reversal,
        )
        for d in p.dimensions
    )
