"""The graph of a program as TpuGraphs' extractor takes it from an HLO message, whatever the message holds.

Unlike `node`, which needs a verified `HloModule`, this reads any dump: opcodes and element types that are not
known stay 0, and so do fields that are not set (readers of modules take unset strides and dilations for 1).
Both give the same features where all fields are set. Source: tpugraphs2023, section 4.1, and the extractor
that the data set documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costbench.arrays import F32, I64
from costbench.datasets.tpugraphs.tuning import splits_after
from costbench.errors import HloError
from costbench.features.node import NodeTable
from costbench.hlo.conversion import callees_first, convolution_from_proto
from costbench.hlo.instruction import (
    ConvolutionDimensions,
    PaddingDimension,
    SliceDimension,
    WindowDimension,
)
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import ElementType, Shape

_CODES = {opcode.xla_name: opcode.tpugraphs_code for opcode in Opcode}
_TYPES = {int(kind): kind for kind in ElementType}


@dataclass(frozen=True, eq=False)
class ProtoGraph:
    """A program of n instructions in TpuGraphs' numbering.

    Attributes:
        node_features: float32 [n, 140].
        opcodes: int64 [n], 0 for an opcode that TpuGraphs does not have.
        edges: int64 [m, 2], rows (consumer, producer), sorted, each once.
        node_splits: int64 [s], where the major computations start, and n.
    """

    node_features: F32
    opcodes: I64
    edges: I64
    node_splits: I64


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


def proto_graph(proto: hlo_pb2.HloModuleProto, *, where: str) -> ProtoGraph:
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
    opcodes = np.zeros(offsets[-1], np.int64)
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
    return ProtoGraph(table.finish(), opcodes, edges, splits)


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
