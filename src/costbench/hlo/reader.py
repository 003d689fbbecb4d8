"""Reads a binary `HloModuleProto`, plain or zstd-compressed, into a verified `HloModule`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import zstandard
from google.protobuf.message import DecodeError

from costbench.errors import HloError
from costbench.hlo import instruction as ins
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import ElementType, Shape

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_BYTES = 1 << 31  # no protocol buffer is larger
_PIECE_BYTES = 1 << 20


def read_module(path: Path | str) -> HloModule:
    """Reads and verifies one program.

    Args:
        path: a binary `HloModuleProto` (or a message whose field 1 is one: an `HloProto` dump,
            TpuGraphs' layout tuning data), plain or `.zst`.

    Raises:
        HloError: if the file is missing, truncated, or no HLO module.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise HloError(f"cannot read: {error.strerror}", where=path, expected="an HLO module file") from error
    return module_from_bytes(data, where=str(path))


def decompress(data: bytes, *, where: str) -> bytes:
    """Returns `data` itself, or its decompressed contents if it is a zstd frame.

    Raises:
        HloError: on a truncated or corrupt frame.
    """
    if not data.startswith(_ZSTD_MAGIC):
        return data
    frame = zstandard.ZstdDecompressor().decompressobj()
    pieces: list[bytes] = []
    total = 0
    try:
        for start in range(0, len(data), _PIECE_BYTES):
            if frame.eof:
                break
            pieces.append(frame.decompress(data[start : start + _PIECE_BYTES]))
            total += len(pieces[-1])
            if total > _MAX_BYTES:
                raise HloError("zstd frame too large", where=where, expected=f"at most {_MAX_BYTES} bytes")
    except zstandard.ZstdError as error:
        raise HloError(f"corrupt zstd frame: {error}", where=where) from error
    if not frame.eof:
        raise HloError(f"truncated zstd frame of {len(data)} bytes", where=where, expected="a whole frame")
    return b"".join(pieces)


def module_from_bytes(data: bytes, *, where: str) -> HloModule:
    """Parses, converts and verifies; `where` names the source in errors."""
    return module_from_proto(parse_proto(data, where=where), where=where)


def parse_proto(data: bytes, *, where: str) -> hlo_pb2.HloModuleProto:
    """Returns the module message inside `data`.

    Raises:
        HloError: if the bytes are truncated or are no HLO module.
    """
    content = decompress(data, where=where)
    # An `HloProto` dump (xla_dump_hlo_as_proto) wraps the module in its field 1. Read as a bare module, that
    # field is a name of arbitrary bytes, which may or may not pass for text.
    proto = _parse(content) or _parse(_first_field(content))
    if proto is None:
        raise HloError("truncated or no HLO module", where=where, expected="a binary HloModuleProto")
    return proto


def _parse(content: bytes) -> hlo_pb2.HloModuleProto | None:
    proto = hlo_pb2.HloModuleProto()
    try:
        proto.ParseFromString(content)
    except DecodeError:
        return None
    return proto if proto.computations else None


def _first_field(content: bytes) -> bytes:
    """Returns the payload of field 1 if the message starts with it, length-delimited; else empty bytes."""
    if content[:1] != b"\x0a":
        return b""
    length = shift = 0
    for place, byte in enumerate(content[1:11], start=1):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return content[place + 1 : place + 1 + length]
    return b""


def module_from_proto(proto: hlo_pb2.HloModuleProto, *, where: str) -> HloModule:
    """Converts a message into the immutable types and verifies them.

    Computations are put callees-first where they are not so already.

    Raises:
        HloError: on unknown ids, opcodes, element types or broken invariants.
    """
    order = callees_first(proto, where)
    place = {proto.computations[index].id: new for new, index in enumerate(order)}
    computations = tuple(_computation(proto.computations[index], place, where) for index in order)
    entry = place.get(proto.entry_computation_id)
    if entry is None:
        raise HloError(f"entry computation id {proto.entry_computation_id} does not exist", where=where)
    module = HloModule(name=proto.name or Path(where).name, computations=computations, entry=entry)
    return module.verify(where=where)


def callees_first(proto: hlo_pb2.HloModuleProto, where: str) -> list[int]:
    """Returns the positions of the computations, each after those that it calls; stored order if it is one.

    Raises:
        HloError: if two computations share an id, one that is called does not exist, or one calls itself.
    """
    index_of = {computation.id: index for index, computation in enumerate(proto.computations)}
    if len(index_of) != len(proto.computations):
        raise HloError("two computations share an id", where=where)
    callees = [
        [c for inst in computation.instructions for c in inst.called_computation_ids]
        for computation in proto.computations
    ]
    order: list[int] = []
    state = [0] * len(callees)  # 0 new, 1 open, 2 done
    for start in range(len(callees)):
        stack = [start]
        while stack:
            index = stack[-1]
            if state[index] == 2:
                stack.pop()
                continue
            if state[index] == 1:
                state[index] = 2
                order.append(stack.pop())
                continue
            state[index] = 1
            for callee in reversed(callees[index]):
                target = index_of.get(callee)
                if target is None:
                    raise HloError(f"called computation id {callee} does not exist", where=where)
                if state[target] == 1:
                    raise HloError(f"computation id {callee} calls itself", where=where)
                if state[target] == 0:
                    stack.append(target)
    return order


def _computation(proto: hlo_pb2.HloComputationProto, place: dict[int, int], where: str) -> HloComputation:
    index_of = {inst.id: index for index, inst in enumerate(proto.instructions)}
    if len(index_of) != len(proto.instructions):
        raise HloError("two instructions share an id", where=where, field=proto.name)
    if proto.root_id not in index_of:
        raise HloError(f"root id {proto.root_id} does not exist", where=where, field=proto.name)
    instructions = []
    for inst in proto.instructions:
        try:
            instructions.append(_instruction(inst, index_of, place))
        except KeyError as error:
            raise HloError(
                f"operand id {error.args[0]} does not exist", where=where, field=f"{proto.name}/{inst.name}"
            ) from None
        except (HloError, ValueError) as error:
            problem = error.problem if isinstance(error, HloError) else str(error)
            raise HloError(problem, where=where, field=f"{proto.name}/{inst.name}") from None
    return HloComputation(name=proto.name, instructions=tuple(instructions), root=index_of[proto.root_id])


def shape_from_proto(proto: hlo_pb2.ShapeProto) -> Shape:
    """Returns an array or tuple shape; raises ValueError on an unknown element type."""
    return Shape(
        element_type=ElementType(proto.element_type),
        dimensions=tuple(proto.dimensions),
        minor_to_major=tuple(proto.layout.minor_to_major),
        tuple_shapes=tuple(shape_from_proto(member) for member in proto.tuple_shapes),
    )


def _instruction(
    p: hlo_pb2.HloInstructionProto, index_of: dict[int, int], place: dict[int, int]
) -> ins.Instruction:
    opcode = Opcode.from_name(p.opcode)
    return ins.Instruction(
        name=p.name,
        opcode=opcode,
        shape=shape_from_proto(p.shape),
        operands=tuple(index_of[i] for i in p.operand_ids),
        called=tuple(place[i] for i in p.called_computation_ids),
        parameter_number=p.parameter_number,
        tuple_index=p.tuple_index,
        dimensions=_dimensions(p, opcode),
        window=window_from_proto(p.window.dimensions),
        convolution=convolution_from_proto(p.convolution_dimension_numbers)
        if opcode is Opcode.CONVOLUTION
        else None,
        dot=_dot_numbers(p, opcode),
        feature_group_count=p.feature_group_count,
        batch_group_count=p.batch_group_count,
        slices=tuple(ins.SliceDimension(d.start, d.limit, d.stride) for d in p.slice_dimensions),
        dynamic_slice_sizes=tuple(p.dynamic_slice_sizes),
        padding=tuple(
            ins.PaddingDimension(d.edge_padding_low, d.edge_padding_high, d.interior_padding)
            for d in p.padding_config.dimensions
        ),
        gather=_gather(p.gather_dimension_numbers, p.gather_slice_sizes) if opcode is Opcode.GATHER else None,
        scatter=_scatter(p.scatter_dimension_numbers) if opcode is Opcode.SCATTER else None,
        is_stable=p.is_stable,
        comparison_direction=p.comparison_direction,
        fft_length=tuple(p.fft_length),
        fft_type=p.fft_type,
        fusion_kind=p.fusion_kind,
        custom_call_target=p.custom_call_target,
        trip_count=_trip_count(p.backend_config) if opcode is Opcode.WHILE else None,
        control_predecessors=tuple(index_of[i] for i in p.control_predecessor_ids if i in index_of),
        literal=p.literal.SerializeToString(deterministic=True) if p.HasField("literal") else b"",
    )


def window_from_proto(dimensions: Iterable[hlo_pb2.WindowDimension]) -> tuple[ins.WindowDimension, ...]:
    """Returns the dimensions of a window; a stride or dilation of 0 is one of 1 left unset, as XLA does."""
    return tuple(
        ins.WindowDimension(
            size=d.size,
            stride=d.stride or 1,
            padding_low=d.padding_low,
            padding_high=d.padding_high,
            window_dilation=d.window_dilation or 1,
            base_dilation=d.base_dilation or 1,
            reversal=d.window_reversal,
        )
        for d in dimensions
    )


def convolution_from_proto(p: hlo_pb2.ConvolutionDimensionNumbers) -> ins.ConvolutionDimensions:
    """Returns the dimension numbers of a convolution."""
    return ins.ConvolutionDimensions(
        input_batch=p.input_batch_dimension,
        input_feature=p.input_feature_dimension,
        input_spatial=tuple(p.input_spatial_dimensions),
        kernel_input_feature=p.kernel_input_feature_dimension,
        kernel_output_feature=p.kernel_output_feature_dimension,
        kernel_spatial=tuple(p.kernel_spatial_dimensions),
        output_batch=p.output_batch_dimension,
        output_feature=p.output_feature_dimension,
        output_spatial=tuple(p.output_spatial_dimensions),
    )


def _dot(p: hlo_pb2.DotDimensionNumbers) -> ins.DotDimensions:
    return ins.DotDimensions(
        lhs_contracting=tuple(p.lhs_contracting_dimensions),
        rhs_contracting=tuple(p.rhs_contracting_dimensions),
        lhs_batch=tuple(p.lhs_batch_dimensions),
        rhs_batch=tuple(p.rhs_batch_dimensions),
    )


def _dot_numbers(p: hlo_pb2.HloInstructionProto, opcode: Opcode) -> ins.DotDimensions | None:
    if opcode is Opcode.RAGGED_DOT:
        return _dot(p.ragged_dot_dimension_numbers.dot_dimension_numbers)
    return _dot(p.dot_dimension_numbers) if opcode is Opcode.DOT else None


def _dimensions(p: hlo_pb2.HloInstructionProto, opcode: Opcode) -> tuple[int, ...]:
    ragged = opcode is Opcode.RAGGED_DOT
    return tuple(p.ragged_dot_dimension_numbers.rhs_group_dimensions if ragged else p.dimensions)


def _gather(p: hlo_pb2.GatherDimensionNumbers, slice_sizes: Sequence[int]) -> ins.GatherDimensions:
    return ins.GatherDimensions(
        offset_dims=tuple(p.offset_dims),
        collapsed_slice_dims=tuple(p.collapsed_slice_dims),
        start_index_map=tuple(p.start_index_map),
        index_vector_dim=p.index_vector_dim,
        slice_sizes=tuple(slice_sizes),
        operand_batching_dims=tuple(p.operand_batching_dims),
        start_indices_batching_dims=tuple(p.start_indices_batching_dims),
    )


def _scatter(p: hlo_pb2.ScatterDimensionNumbers) -> ins.ScatterDimensions:
    return ins.ScatterDimensions(
        update_window_dims=tuple(p.update_window_dims),
        inserted_window_dims=tuple(p.inserted_window_dims),
        scatter_dims_to_operand_dims=tuple(p.scatter_dims_to_operand_dims),
        index_vector_dim=p.index_vector_dim,
        input_batching_dims=tuple(p.input_batching_dims),
        scatter_indices_batching_dims=tuple(p.scatter_indices_batching_dims),
    )


def _trip_count(backend_config: bytes) -> int | None:
    """Returns `known_trip_count` of a while loop; None where XLA could not prove one."""
    try:
        config = json.loads(backend_config or b"{}")
        count = config.get("known_trip_count", {}).get("n") if isinstance(config, dict) else None
        return None if count is None else int(count)
    except (ValueError, AttributeError, TypeError):
        return None
