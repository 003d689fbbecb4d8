"""Puts back transposes that XLA drops where nothing is fused.

Once layouts are assigned, a transpose is a bitcast and a copy. Where the result has an axis of extent 1 and
is reshaped, the simplification that follows takes bitcast, copy and reshape for one bitcast, and the array
is read as it lies (jaxlib 0.10.2). XLA's own fusions come before that pass and hide the copy from it, so
that only programs with given fusions had other results. What was lost is known from the program, whose names
the instructions carry: a bitcast that is named after a transpose, or after a reshape of one, and reads what
the transpose reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2

_Instruction = hlo_pb2.HloInstructionProto
_RESHAPES = (Opcode.RESHAPE, Opcode.BITCAST)


@dataclass(frozen=True)
class Transpose:
    """A transpose of the program that moves data.

    Attributes:
        sources: names of its operand, and of what that is a reshape of.
        extents: extents of its operand.
        permutation: axis of the operand that each axis of the result is.
    """

    sources: frozenset[str]
    extents: tuple[int, ...]
    permutation: tuple[int, ...]


def transposes_of(module: HloModule) -> dict[str, Transpose]:
    """Returns the transpose behind each value that is one, or a reshape of one, by the names of XLA's input.

    Names are those of `program.named_bytes`.
    """
    transposes: dict[str, Transpose] = {}
    for body, offset in zip(module.computations, module.offsets, strict=False):
        for position, inst in enumerate(body.instructions):
            if inst.opcode is Opcode.TRANSPOSE and _moves_data(body, inst):
                operand = inst.operands[0]
                chain = [operand]
                while body.instructions[chain[-1]].opcode in _RESHAPES:
                    chain.append(body.instructions[chain[-1]].operands[0])
                transposes[f"i{offset + position}"] = Transpose(
                    frozenset(f"i{offset + source}" for source in chain),
                    body.instructions[operand].shape.dimensions,
                    inst.dimensions,
                )
            elif inst.opcode in _RESHAPES and f"i{offset + inst.operands[0]}" in transposes:
                transposes[f"i{offset + position}"] = transposes[f"i{offset + inst.operands[0]}"]
    return transposes


def _moves_data(body: HloComputation, inst: Instruction) -> bool:
    extents = body.instructions[inst.operands[0]].shape.dimensions
    moved = [axis for axis in inst.dimensions if extents[axis] != 1]
    return moved != sorted(moved)


def restore_transposes(computation: hlo_pb2.HloComputationProto, transposes: Mapping[str, Transpose]) -> int:
    """Puts lost transposes back into a computation of a module with layouts; returns how many.

    A bitcast to the shape that the transpose reads, where that is another, and the transpose come before it.
    """
    insts = {inst.id: inst for inst in computation.instructions}
    next_id, restored = max(insts) + 1, 0
    for inst in list(computation.instructions):
        transpose = transposes.get(inst.metadata.op_name)
        if inst.opcode != "bitcast" or transpose is None:
            continue
        source = insts[inst.operand_ids[0]]
        while source.opcode == "bitcast" and _is_row_major(source):
            source = insts[source.operand_ids[0]]
        is_lost = source.metadata.op_name in transpose.sources
        if not (is_lost and _is_row_major(inst) and _is_row_major(source)):
            continue
        result = tuple(transpose.extents[axis] for axis in transpose.permutation)
        operand = source
        for made in (_Instruction(opcode="bitcast"), _Instruction(opcode="transpose")):
            is_transpose = made.opcode == "transpose"
            extents = result if is_transpose else transpose.extents
            if not is_transpose and tuple(source.shape.dimensions) == extents:
                continue
            made.id, made.name = next_id, f"restored.{next_id}"
            made.metadata.op_name = (inst if is_transpose else source).metadata.op_name
            made.shape.CopyFrom(inst.shape)
            made.shape.dimensions[:] = extents
            made.shape.is_dynamic_dimension[:] = [False] * len(extents)
            made.shape.layout.minor_to_major[:] = reversed(range(len(extents)))
            made.dimensions.extend(transpose.permutation if is_transpose else ())
            made.operand_ids.append(operand.id)
            computation.instructions.append(made)
            operand, next_id = made, next_id + 1
        inst.operand_ids[:] = [operand.id]
        restored += 1
    return restored


def _is_row_major(inst: hlo_pb2.HloInstructionProto) -> bool:
    axes = list(inst.shape.layout.minor_to_major)
    extents = inst.shape.dimensions
    moved = [axis for axis in axes if extents[axis] != 1]
    return not inst.shape.tuple_shapes and moved == sorted(moved, reverse=True)
