"""Converts between `HloModule` and XLA's protocol buffer, `HloModuleProto`, in both directions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from costbench.errors import HloError
from costbench.hlo import instruction as ins
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import ElementType, Shape
from costbench.limits import MAX_INSTRUCTIONS

_CONVOLUTION = {
    "input_batch": "input_batch_dimension",
    "input_feature": "input_feature_dimension",
    "input_spatial": "input_spatial_dimensions",
    "kernel_input_feature": "kernel_input_feature_dimension",
    "kernel_output_feature": "kernel_output_feature_dimension",
    "kernel_spatial": "kernel_spatial_dimensions",
    "output_batch": "output_batch_dimension",
    "output_feature": "output_feature_dimension",
    "output_spatial": "output_spatial_dimensions",
}
"""Fields of dimension numbers here, and of their messages; likewise below."""
_DOT = {
    "lhs_contracting": "lhs_contracting_dimensions",
    "rhs_contracting": "rhs_contracting_dimensions",
    "lhs_batch": "lhs_batch_dimensions",
    "rhs_batch": "rhs_batch_dimensions",
}
_GATHER = {field.name: field.name for field in fields(ins.GatherDimensions) if field.name != "slice_sizes"}
_SCATTER = {field.name: field.name for field in fields(ins.ScatterDimensions)}
INTEGER_FIELDS = {
    ElementType.S32: "s32s",
    ElementType.S64: "s64s",
    ElementType.U32: "u32s",
    ElementType.U64: "u64s",
}
"""Fields of a literal that hold its elements, of the types that are looked into."""
Positions = Mapping[int, int]
"""Positions of instructions or computations by id."""
ConvertInstruction = Callable[[hlo_pb2.HloInstructionProto, Positions, Positions], Instruction]
"""Converts an instruction, given the positions of those of its computation, and of the computations."""


def module_from_proto(proto: hlo_pb2.HloModuleProto, *, where: str) -> HloModule:
    """Converts a message into the immutable types and verifies them.

    Computations are put callees-first where they are not so already.

    Raises:
        HloError: on unknown ids, opcodes, element types or broken invariants.
    """
    computations = computations_from_proto(proto, _InstructionConverter(), where)
    if proto.entry_computation_id not in computations:
        raise HloError(f"entry computation id {proto.entry_computation_id} does not exist", where=where)
    entry = list(computations).index(proto.entry_computation_id)
    module = HloModule(proto.name or Path(where).name, tuple(computations.values()), entry)
    return module.verify(where=where)


def computations_from_proto(
    proto: hlo_pb2.HloModuleProto, convert: ConvertInstruction, where: str
) -> dict[int, HloComputation]:
    """Returns the computations of a message by id, callees first.

    Args:
        proto: the message.
        convert: function that converts an instruction.
        where: names the source in errors.

    Raises:
        HloError: on unknown or repeated ids, a computation that calls itself, more instructions than
            `costbench.limits` say, or whatever `convert` raises.
    """
    instructions = sum(len(computation.instructions) for computation in proto.computations)
    if instructions > MAX_INSTRUCTIONS:
        raise HloError(f"{instructions} instructions", where=where, expected=f"at most {MAX_INSTRUCTIONS}")
    ordered = [proto.computations[index] for index in _callees_first(proto, where)]
    positions = {computation.id: position for position, computation in enumerate(ordered)}
    return {computation.id: _computation(computation, positions, convert, where) for computation in ordered}


def _callees_first(proto: hlo_pb2.HloModuleProto, where: str) -> list[int]:
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


def _computation(
    proto: hlo_pb2.HloComputationProto, computations: Positions, convert: ConvertInstruction, where: str
) -> HloComputation:
    index_of = {inst.id: index for index, inst in enumerate(proto.instructions)}
    if len(index_of) != len(proto.instructions):
        raise HloError("two instructions share an id", where=where, field=proto.name)
    if proto.root_id not in index_of:
        raise HloError(f"root id {proto.root_id} does not exist", where=where, field=proto.name)
    instructions = []
    for inst in proto.instructions:
        try:
            instructions.append(convert(inst, index_of, computations))
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


class _InstructionConverter:
    """Converts instructions of one module; equal shapes become one object, which is compared at once."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, Shape] = {}

    def __call__(
        self, p: hlo_pb2.HloInstructionProto, index_of: Positions, computations: Positions
    ) -> Instruction:
        data = p.shape.SerializeToString()
        shape = self._shapes.get(data)
        if shape is None:
            shape = self._shapes[data] = shape_from_proto(p.shape)
        return _instruction(p, shape, index_of, computations)


def _instruction(
    p: hlo_pb2.HloInstructionProto, shape: Shape, index_of: Positions, computations: Positions
) -> Instruction:
    opcode = Opcode.from_name(p.opcode)
    dot, dimensions = p.dot_dimension_numbers, p.dimensions
    if opcode is Opcode.RAGGED_DOT:
        dot = p.ragged_dot_dimension_numbers.dot_dimension_numbers
        dimensions = p.ragged_dot_dimension_numbers.rhs_group_dimensions
    return Instruction(
        name=p.name,
        opcode=opcode,
        shape=shape,
        operands=tuple(index_of[i] for i in p.operand_ids),
        called=tuple(computations[i] for i in p.called_computation_ids),
        parameter_number=p.parameter_number,
        tuple_index=p.tuple_index,
        dimensions=tuple(dimensions),
        window=window_from_proto(p.window.dimensions),
        slices=slices_from_proto(p),
        padding=padding_from_proto(p),
        convolution=convolution_from_proto(p.convolution_dimension_numbers)
        if opcode is Opcode.CONVOLUTION
        else None,
        dot=ins.DotDimensions(**_values(dot, _DOT)) if opcode in (Opcode.DOT, Opcode.RAGGED_DOT) else None,
        gather=ins.GatherDimensions(
            **_values(p.gather_dimension_numbers, _GATHER), slice_sizes=tuple(p.gather_slice_sizes)
        )
        if opcode is Opcode.GATHER
        else None,
        scatter=ins.ScatterDimensions(**_values(p.scatter_dimension_numbers, _SCATTER))
        if opcode is Opcode.SCATTER
        else None,
        feature_group_count=p.feature_group_count,
        batch_group_count=p.batch_group_count,
        dynamic_slice_sizes=tuple(p.dynamic_slice_sizes),
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


def window_from_proto(
    dimensions: Iterable[hlo_pb2.WindowDimension], unset: int = 1
) -> tuple[ins.WindowDimension, ...]:
    """Returns the dimensions of a window.

    Args:
        dimensions: the messages.
        unset: value of strides and dilations that are 0, which is to say left unset: 1 for XLA.
    """
    return tuple(
        ins.WindowDimension(
            size=d.size,
            stride=d.stride or unset,
            padding_low=d.padding_low,
            padding_high=d.padding_high,
            window_dilation=d.window_dilation or unset,
            base_dilation=d.base_dilation or unset,
            reversal=d.window_reversal,
        )
        for d in dimensions
    )


def slices_from_proto(p: hlo_pb2.HloInstructionProto) -> tuple[ins.SliceDimension, ...]:
    """Returns the ranges of a static slice."""
    return tuple(ins.SliceDimension(d.start, d.limit, d.stride) for d in p.slice_dimensions)


def padding_from_proto(p: hlo_pb2.HloInstructionProto) -> tuple[ins.PaddingDimension, ...]:
    """Returns the edge and interior padding of a pad."""
    return tuple(
        ins.PaddingDimension(d.edge_padding_low, d.edge_padding_high, d.interior_padding)
        for d in p.padding_config.dimensions
    )


def convolution_from_proto(p: hlo_pb2.ConvolutionDimensionNumbers) -> ins.ConvolutionDimensions:
    """Returns the dimension numbers of a convolution."""
    return ins.ConvolutionDimensions(**_values(p, _CONVOLUTION))


def _trip_count(backend_config: bytes) -> int | None:
    """Returns `known_trip_count` of a while loop; None where it is not stated, or no int64 of 0 or more."""
    try:
        config = json.loads(backend_config or b"{}")
        count = config.get("known_trip_count", {}).get("n") if isinstance(config, dict) else None
        trips = -1 if count is None else int(count)
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        return None
    return trips if 0 <= trips < 1 << 63 else None


def module_to_proto(module: HloModule) -> hlo_pb2.HloModuleProto:
    """Returns the message of a module; reading it again gives an equal module.

    Ids are dense: computation k has id k + 1, instructions are numbered from 1 over the whole module.
    """
    proto = hlo_pb2.HloModuleProto(name=module.name, entry_computation_id=module.entry + 1)
    proto.entry_computation_name = module.entry_computation.name
    for index, computation in enumerate(module.computations):
        _write_computation(proto.computations.add(), computation, index + 1, module.offsets[index] + 1)
    entry = module.entry_computation
    program = proto.host_program_shape
    for position in entry.parameters:
        program.parameters.append(shape_to_proto(entry.instructions[position].shape))
        program.parameter_names.append(entry.instructions[position].name)
    program.result.CopyFrom(shape_to_proto(entry.root_instruction.shape))
    return proto


def module_to_bytes(module: HloModule) -> bytes:
    """Returns the deterministic serialisation of `module_to_proto`."""
    return module_to_proto(module).SerializeToString(deterministic=True)


def shape_to_proto(shape: Shape) -> hlo_pb2.ShapeProto:
    """Returns the message of a shape."""
    proto = hlo_pb2.ShapeProto(element_type=int(shape.element_type), dimensions=shape.dimensions)
    proto.tuple_shapes.extend(shape_to_proto(member) for member in shape.tuple_shapes)
    if not shape.is_tuple:
        proto.is_dynamic_dimension.extend([False] * shape.rank)
        proto.layout.minor_to_major.extend(shape.minor_to_major)
    return proto


def _write_computation(
    proto: hlo_pb2.HloComputationProto, computation: HloComputation, identifier: int, first_id: int
) -> None:
    proto.name = computation.name
    proto.id = identifier
    proto.root_id = first_id + computation.root
    for position, instruction in enumerate(computation.instructions):
        _write_instruction(proto.instructions.add(), instruction, first_id, position)
    for position in computation.parameters:
        parameter = computation.instructions[position]
        proto.program_shape.parameters.append(shape_to_proto(parameter.shape))
        proto.program_shape.parameter_names.append(parameter.name)
    proto.program_shape.result.CopyFrom(shape_to_proto(computation.root_instruction.shape))


def _write_instruction(
    proto: hlo_pb2.HloInstructionProto, inst: Instruction, first_id: int, position: int
) -> None:
    proto.name = inst.name
    proto.opcode = inst.opcode.xla_name
    proto.shape.CopyFrom(shape_to_proto(inst.shape))
    proto.id = first_id + position
    proto.operand_ids.extend(first_id + operand for operand in inst.operands)
    proto.control_predecessor_ids.extend(first_id + other for other in inst.control_predecessors)
    proto.called_computation_ids.extend(callee + 1 for callee in inst.called)
    proto.parameter_number = inst.parameter_number
    proto.tuple_index = inst.tuple_index
    proto.feature_group_count = inst.feature_group_count
    proto.batch_group_count = inst.batch_group_count
    proto.dynamic_slice_sizes.extend(inst.dynamic_slice_sizes)
    proto.is_stable = inst.is_stable
    proto.comparison_direction = inst.comparison_direction
    proto.fft_length.extend(inst.fft_length)
    proto.fft_type = inst.fft_type
    proto.fusion_kind = inst.fusion_kind
    proto.custom_call_target = inst.custom_call_target
    if inst.opcode is not Opcode.RAGGED_DOT:
        proto.dimensions.extend(inst.dimensions)
    if inst.literal:
        proto.literal.ParseFromString(inst.literal)
    if inst.opcode is Opcode.WHILE and inst.trip_count is not None:
        proto.backend_config = b'{"known_trip_count":{"n":"%d"}}' % inst.trip_count
    for d in inst.window:
        proto.window.dimensions.add(
            size=d.size,
            stride=d.stride,
            padding_low=d.padding_low,
            padding_high=d.padding_high,
            window_dilation=d.window_dilation,
            base_dilation=d.base_dilation,
            window_reversal=d.reversal,
        )
    for s in inst.slices:
        proto.slice_dimensions.add(start=s.start, limit=s.limit, stride=s.stride)
    for p in inst.padding:
        proto.padding_config.dimensions.add(
            edge_padding_low=p.low, edge_padding_high=p.high, interior_padding=p.interior
        )
    if inst.convolution is not None:
        _set_values(proto.convolution_dimension_numbers, inst.convolution, _CONVOLUTION)
    if inst.dot is not None:
        dot = proto.dot_dimension_numbers
        if inst.opcode is Opcode.RAGGED_DOT:
            dot = proto.ragged_dot_dimension_numbers.dot_dimension_numbers
            proto.ragged_dot_dimension_numbers.rhs_group_dimensions.extend(inst.dimensions)
        _set_values(dot, inst.dot, _DOT)
    if inst.gather is not None:
        _set_values(proto.gather_dimension_numbers, inst.gather, _GATHER)
        proto.gather_slice_sizes.extend(inst.gather.slice_sizes)
    if inst.scatter is not None:
        _set_values(proto.scatter_dimension_numbers, inst.scatter, _SCATTER)


def _values(message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    """Returns fields of dimension numbers by the names that they have here; lists as tuples."""
    values = ((name, getattr(message, field)) for name, field in names.items())
    return {name: value if isinstance(value, int) else tuple(value) for name, value in values}


def _set_values(message: Message, source: object, names: Mapping[str, str]) -> None:
    """Fills in the fields of the message of dimension numbers."""
    for name, field in names.items():
        value = getattr(source, name)
        if isinstance(value, tuple):
            getattr(message, field).extend(value)
        else:
            setattr(message, field, value)
