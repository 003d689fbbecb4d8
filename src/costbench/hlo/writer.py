"""Writes an `HloModule` back to the protocol buffer, for exports, dumps and round-trip tests."""

from __future__ import annotations

from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import Shape


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
    if inst.opcode is not Opcode.RAGGED_DOT:
        proto.dimensions.extend(inst.dimensions)
    proto.feature_group_count = inst.feature_group_count
    proto.batch_group_count = inst.batch_group_count
    proto.dynamic_slice_sizes.extend(inst.dynamic_slice_sizes)
    proto.is_stable = inst.is_stable
    proto.comparison_direction = inst.comparison_direction
    proto.fft_length.extend(inst.fft_length)
    proto.fft_type = inst.fft_type
    proto.fusion_kind = inst.fusion_kind
    proto.custom_call_target = inst.custom_call_target
    if inst.literal:
        proto.literal.ParseFromString(inst.literal)
    if inst.opcode is Opcode.WHILE and inst.trip_count is not None:
        proto.backend_config = b'{"known_trip_count":{"n":"%d"}}' % inst.trip_count
    _write_dimension_lists(proto, inst)
    _write_dimension_numbers(proto, inst)


def _write_dimension_lists(proto: hlo_pb2.HloInstructionProto, inst: Instruction) -> None:
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


def _write_dimension_numbers(proto: hlo_pb2.HloInstructionProto, inst: Instruction) -> None:
    if inst.convolution is not None:
        c, target = inst.convolution, proto.convolution_dimension_numbers
        target.input_batch_dimension = c.input_batch
        target.input_feature_dimension = c.input_feature
        target.input_spatial_dimensions.extend(c.input_spatial)
        target.kernel_input_feature_dimension = c.kernel_input_feature
        target.kernel_output_feature_dimension = c.kernel_output_feature
        target.kernel_spatial_dimensions.extend(c.kernel_spatial)
        target.output_batch_dimension = c.output_batch
        target.output_feature_dimension = c.output_feature
        target.output_spatial_dimensions.extend(c.output_spatial)
    if inst.dot is not None:
        numbers = proto.dot_dimension_numbers
        if inst.opcode is Opcode.RAGGED_DOT:
            numbers = proto.ragged_dot_dimension_numbers.dot_dimension_numbers
            proto.ragged_dot_dimension_numbers.rhs_group_dimensions.extend(inst.dimensions)
        numbers.lhs_contracting_dimensions.extend(inst.dot.lhs_contracting)
        numbers.rhs_contracting_dimensions.extend(inst.dot.rhs_contracting)
        numbers.lhs_batch_dimensions.extend(inst.dot.lhs_batch)
        numbers.rhs_batch_dimensions.extend(inst.dot.rhs_batch)
    if inst.gather is not None:
        g, gather = inst.gather, proto.gather_dimension_numbers
        gather.offset_dims.extend(g.offset_dims)
        gather.collapsed_slice_dims.extend(g.collapsed_slice_dims)
        gather.start_index_map.extend(g.start_index_map)
        gather.index_vector_dim = g.index_vector_dim
        gather.operand_batching_dims.extend(g.operand_batching_dims)
        gather.start_indices_batching_dims.extend(g.start_indices_batching_dims)
        proto.gather_slice_sizes.extend(g.slice_sizes)
    if inst.scatter is not None:
        s, scatter = inst.scatter, proto.scatter_dimension_numbers
        scatter.update_window_dims.extend(s.update_window_dims)
        scatter.inserted_window_dims.extend(s.inserted_window_dims)
        scatter.scatter_dims_to_operand_dims.extend(s.scatter_dims_to_operand_dims)
        scatter.index_vector_dim = s.index_vector_dim
        scatter.input_batching_dims.extend(s.input_batching_dims)
        scatter.scatter_indices_batching_dims.extend(s.scatter_indices_batching_dims)
