"""Counts bytes that an instruction, or the boundary of a fused group, moves to and from main memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

_POINTER_BYTES = 8
_O = Opcode
_FREE = frozenset(
    {_O.PARAMETER, _O.CONSTANT, _O.GET_TUPLE_ELEMENT, _O.BITCAST, _O.AFTER_ALL, _O.ADD_DEPENDENCY, _O.DOMAIN}
)


def bytes_of(inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    """Returns bytes read and bytes written by an instruction that runs on its own."""
    if inst.opcode in _FREE:
        return 0.0, 0.0
    rule = _BYTES.get(inst.opcode)
    if rule is not None:
        return rule(inst, operands)
    read = 0
    for shape in operands:
        read += _POINTER_BYTES * len(shape.tuple_shapes) if shape.is_tuple else shape.num_bytes
    return float(read), float(inst.shape.num_bytes)


def is_large_constant(inst: Instruction) -> bool:
    """Returns whether it is a constant of more than one element, which has to be read from memory."""
    return inst.opcode is Opcode.CONSTANT and inst.shape.num_elements > 1


def written_bytes(body: HloComputation, position: int) -> int:
    """Returns the bytes that a fused group writes for one output; an update in place writes the update."""
    inst = body.instructions[position]
    if inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
        return body.instructions[inst.operands[1]].shape.num_bytes
    return inst.shape.num_bytes


def fused_read_bytes(module: HloModule, body: HloComputation, position: int, members: frozenset[int]) -> int:
    """Returns the bytes that a fused group reads of one value from outside.

    Slices read what they return, an update in place does not read what it overwrites; each broadcast or
    reshape reads the value separately; all other users share one read of it.

    Args:
        module: the program.
        body: computation that holds the group.
        position: the value: a parameter of the fusion or an input of the kernel.
        members: positions of the group's instructions.
    """
    whole = body.instructions[position].shape.num_bytes
    total = 0
    shared = False
    for user in body.users[position]:
        if user not in members:
            continue
        inst = body.instructions[user]
        if inst.opcode is Opcode.FUSION:
            total += _nested_read_bytes(module, body, user, position)
        elif inst.opcode is Opcode.GET_TUPLE_ELEMENT:
            total += fused_read_bytes(module, body, user, members)
        elif inst.opcode in _SLICES and inst.operands[0] == position:
            total += inst.shape.num_bytes
        elif inst.opcode in (Opcode.BROADCAST, Opcode.RESHAPE):
            total += whole
        elif inst.opcode is not Opcode.DYNAMIC_UPDATE_SLICE or inst.operands[0] != position:
            shared = True
    return total + whole * shared


def _nested_read_bytes(module: HloModule, body: HloComputation, fusion: int, position: int) -> int:
    """Returns the bytes that a fusion within a fusion reads of a value, once for each operand that it is.

    Where the body returns its parameter or one instruction whose first operand the parameter is (a copy,
    say), slices of the fusion's result read what they return, as slices of the value itself would. A fusion
    whose result nothing reads counts nothing.
    """
    inst = body.instructions[fusion]
    callee = module.computations[inst.called[0]]
    inside = frozenset(range(len(callee.instructions)))
    total = 0
    for number in (number for number, operand in enumerate(inst.operands) if operand == position):
        parameter, shared = callee.parameters[number], False
        returned = callee.root_instruction.operands
        simple = not returned or returned[0] == parameter
        for user in body.users[fusion]:
            reader = body.instructions[user]
            first = reader.operands[0] == fusion
            if simple and (reader.opcode is _O.SLICE or (reader.opcode is _O.DYNAMIC_SLICE and first)):
                total += reader.shape.num_bytes
            elif not shared and not (simple and reader.opcode is _O.DYNAMIC_UPDATE_SLICE and first):
                shared = True
                total += (
                    inst.shape.num_bytes
                    if simple and reader.opcode in (_O.DYNAMIC_SLICE, _O.DYNAMIC_UPDATE_SLICE)
                    else fused_read_bytes(module, callee, parameter, inside)
                )
    return total


def fused_parameter_bytes(module: HloModule, body: HloComputation, parameter: int) -> int:
    """Returns the bytes that a fusion reads of a parameter; of a tuple, of the members that it takes out.

    For each member that is not taken out XLA counts the table of pointers of the tuple that it lies in.
    """
    inside = frozenset(range(len(body.instructions)))
    shape = body.instructions[parameter].shape
    if not shape.is_tuple:
        return fused_read_bytes(module, body, parameter, inside)
    total = 0
    for number, member in enumerate(shape.tuple_shapes):
        taken = next((user for user in body.users[parameter] if _takes(body, user, number)), None)
        if taken is not None:
            total += fused_parameter_bytes(module, body, taken)
        elif body.users[parameter]:
            total += _POINTER_BYTES * len(shape.tuple_shapes) * len(member.leaves())
    return total


def _takes(body: HloComputation, user: int, member: int) -> bool:
    inst = body.instructions[user]
    return inst.opcode is Opcode.GET_TUPLE_ELEMENT and inst.tuple_index == member


_SLICES = frozenset({_O.SLICE, _O.DYNAMIC_SLICE})


def _infeed_bytes(inst: Instruction, _operands: Sequence[Shape]) -> tuple[float, float]:
    return 0.0, float(inst.shape.num_bytes)


def _outfeed_bytes(_inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    return float(sum(shape.num_bytes for shape in operands)), 0.0


def _slice_bytes(inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    # XLA counts one index operand (a gather has no more), also where there is a scalar for each axis.
    size = inst.shape.num_bytes
    return float(size + sum(index.num_bytes for index in operands[1:2])), float(size)


def _update_bytes(_inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    return float(sum(shape.num_bytes for shape in operands[1:3])), float(operands[1].num_bytes)


def _scatter_bytes(_inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    count = len(operands) // 2
    updates = sum(shape.num_bytes for shape in operands[count + 1 :])
    return float(2 * updates + operands[count].num_bytes), float(updates)


def _transpose_bytes(inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    # Axis i of the result is axis dimensions[i] of the operand: no byte moves if memory order stays the same.
    same_order = tuple(inst.dimensions[axis] for axis in inst.shape.layout) == operands[0].layout
    size = 0.0 if same_order else float(inst.shape.num_bytes)
    return size, size


def _triangular_solve_bytes(inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    return operands[0].num_bytes / 2 + operands[1].num_bytes, float(inst.shape.num_bytes)


def _cholesky_bytes(_inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    return operands[0].num_bytes / 2, operands[0].num_bytes / 2


_BYTES: dict[Opcode, Callable[[Instruction, Sequence[Shape]], tuple[float, float]]] = {
    _O.TUPLE: lambda inst, _operands: (0.0, float(_POINTER_BYTES * len(inst.shape.tuple_shapes))),
    _O.INFEED: _infeed_bytes,
    _O.OUTFEED: _outfeed_bytes,
    _O.SLICE: _slice_bytes,
    _O.DYNAMIC_SLICE: _slice_bytes,
    _O.GATHER: _slice_bytes,
    _O.DYNAMIC_UPDATE_SLICE: _update_bytes,
    _O.SCATTER: _scatter_bytes,
    _O.TRANSPOSE: _transpose_bytes,
    _O.TRIANGULAR_SOLVE: _triangular_solve_bytes,
    _O.CHOLESKY: _cholesky_bytes,
}
