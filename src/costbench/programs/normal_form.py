"""Normalises serialised programs: removes provenance, renumbers instructions and derives names from numbers.

Instruction and computation numbers depend on what a process compiled before, names and metadata on
the folder it ran in. Here computations are numbered in the order in which a depth-first walk from the
entry's root finishes them (callees first, as readers of the format expect), instructions 0, 1, 2, ...
through the whole module in the same walk, and names follow from the numbers. Two modules that differ
in numbering only become equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from costbench.errors import HloError
from costbench.hlo.proto import hlo_pb2

# metadata, sharding, frontend_attributes, statistics_viz, original_value, is_composite: provenance, which
# nothing computes with. backend_config goes too, except on `while`, where it holds the trip count.
_PROVENANCE_FIELDS = frozenset({7, 40, 68, 82, 88, 89})
_BACKEND_CONFIG = 43
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def normalize(proto: bytes, name: str) -> bytes:
    """The normal form of a serialised HloModuleProto, under module name `name`.

    Raises:
        HloError: the bytes are no HloModuleProto, or an instruction refers to one that is not there.
    """
    try:
        module = hlo_pb2.HloModuleProto.FromString(proto)
    except DecodeError as error:
        raise HloError(f"not an HloModuleProto: {error}") from error
    order = _computations_callees_first(module)
    out = hlo_pb2.HloModuleProto(name=name, host_program_shape=module.host_program_shape)
    _name_parameters(out.host_program_shape)
    computation_ids = {computation.id: number for number, computation in enumerate(order, start=1)}
    next_id = 0
    for computation in order:
        target = out.computations.add()
        next_id = _renumber(computation, target, computation_ids, next_id)
    entry = out.computations[-1]
    out.entry_computation_name, out.entry_computation_id = entry.name, entry.id
    return out.SerializeToString(deterministic=True)


def count_instructions(proto: bytes) -> int:
    """Instructions in all computations of a serialised HloModuleProto."""
    module = hlo_pb2.HloModuleProto.FromString(proto)
    return sum(len(computation.instructions) for computation in module.computations)


def _computations_callees_first(module: hlo_pb2.HloModuleProto) -> list[hlo_pb2.HloComputationProto]:
    """Computations reachable from the entry, each after everything that it calls, the entry last."""
    by_id = {computation.id: computation for computation in module.computations}
    done: dict[int, hlo_pb2.HloComputationProto] = {}

    def calls(computation: hlo_pb2.HloComputationProto) -> Iterator[int]:
        return (
            called
            for instruction in _operands_first(computation)
            for called in instruction.called_computation_ids
        )

    if module.entry_computation_id not in by_id:
        raise HloError("the entry computation is missing", field="entry_computation_id")
    stack = [(module.entry_computation_id, calls(by_id[module.entry_computation_id]))]
    while stack:
        number, pending = stack[-1]
        called = next(pending, None)
        if called is None:
            done[number] = by_id[number]
            stack.pop()
        elif called not in by_id:
            raise HloError(f"computation {called} is missing", field="called_computation_ids")
        elif called not in done:
            stack.append((called, calls(by_id[called])))
    return list(done.values())


def _operands_first(
    computation: hlo_pb2.HloComputationProto,
) -> list[hlo_pb2.HloInstructionProto]:
    """Returns parameters by number, then the rest in depth-first finishing order, from the root first."""
    by_id = {instruction.id: instruction for instruction in computation.instructions}
    parameters = [one for one in computation.instructions if one.opcode == "parameter"]
    done = {one.id: one for one in sorted(parameters, key=lambda one: one.parameter_number)}
    # Instructions that the root does not depend on (side effects) keep the order that XLA's passes gave them.
    for start in [computation.root_id, *by_id]:
        stack = [] if start in done else [(start, _needed(by_id, start, computation.name))]
        while stack:
            number, pending = stack[-1]
            before = next((one for one in pending if one not in done), None)
            if before is None:
                done[number] = by_id[number]
                stack.pop()
            else:
                stack.append((before, _needed(by_id, before, computation.name)))
    return list(done.values())


def _needed(by_id: dict[int, hlo_pb2.HloInstructionProto], number: int, where: str) -> Iterator[int]:
    if number not in by_id:
        raise HloError(f"instruction {number} is missing", where=where, field="operand_ids")
    return iter((*by_id[number].operand_ids, *by_id[number].control_predecessor_ids))


def _renumber(
    computation: hlo_pb2.HloComputationProto,
    target: hlo_pb2.HloComputationProto,
    computation_ids: dict[int, int],
    next_id: int,
) -> int:
    """Copy `computation` into `target` with new numbers from `next_id` on; the first unused number."""
    instructions = _operands_first(computation)
    new_ids = {one.id: number for number, one in enumerate(instructions, start=next_id)}
    target.id = computation_ids[computation.id]
    target.name = f"c{target.id}"
    target.program_shape.CopyFrom(computation.program_shape)
    _name_parameters(target.program_shape)
    target.root_id = new_ids[computation.root_id]
    for one in instructions:
        copy = target.instructions.add()
        copy.MergeFromString(_without_provenance(one.SerializeToString(), one.opcode == "while"))
        copy.id = new_ids[one.id]
        copy.name = f"{one.opcode}.{copy.id}"
        copy.operand_ids[:] = [new_ids[operand] for operand in one.operand_ids]
        copy.control_predecessor_ids[:] = [new_ids[before] for before in one.control_predecessor_ids]
        copy.called_computation_ids[:] = [computation_ids[called] for called in one.called_computation_ids]
    return next_id + len(instructions)


def _name_parameters(shape: hlo_pb2.ProgramShapeProto) -> None:
    # XLA's parser wants exactly one name for each parameter.
    shape.parameter_names[:] = [f"p{number}" for number in range(len(shape.parameters))]


def _without_provenance(message: bytes, keep_backend_config: bool) -> bytes:
    """`message` without the fields of its outermost level that only say where it came from.

    Works on the wire format, because most of these fields are not in costbench's subset of the proto.
    """
    dropped = _PROVENANCE_FIELDS if keep_backend_config else _PROVENANCE_FIELDS | {_BACKEND_CONFIG}
    kept = bytearray()
    position = 0
    while position < len(message):
        start = position
        tag, position = _read_varint(message, position)
        wire = tag & 7
        if wire == _VARINT:
            _, position = _read_varint(message, position)
        elif wire == _LENGTH:
            length, position = _read_varint(message, position)
            position += length
        elif wire in (_FIXED64, _FIXED32):
            position += 8 if wire == _FIXED64 else 4
        else:
            raise HloError(f"wire type {wire} in an instruction", expected="a proto3 message")
        if tag >> 3 not in dropped:
            kept += message[start:position]
    return bytes(kept)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Value of the base-128 number at `position`, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
