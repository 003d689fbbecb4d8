"""Labels: the properties of one instruction that enter a fingerprint, as bytes.

Left out, because they do not change what a kernel costs: names, literals (beyond their element type and
shape), control dependencies, and the numbers of parameters, except in whole computations, where the number
says which argument is meant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from operator import attrgetter

from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape

_NOT_IN_LABEL = frozenset(
    {"name", "opcode", "shape", "operands", "called", "parameter_number", "control_predecessors", "literal"}
)
# Derived from the type, so that a new attribute enters every fingerprint without a change here.
_ATTRIBUTES = tuple(f.name for f in dataclasses.fields(Instruction) if f.name not in _NOT_IN_LABEL)
_attributes_of = attrgetter(*_ATTRIBUTES)
_UNSET = _attributes_of(Instruction(name="", opcode=Opcode.UNKNOWN, shape=Shape(ElementType.INVALID)))


def instruction_label(inst: Instruction, callees: Iterable[bytes], *, numbered: bool) -> bytes:
    """Returns the label of an instruction that a kernel holds.

    Args:
        inst: the instruction.
        callees: fingerprints of the computations that it calls.
        numbered: whether the number of a parameter counts.
    """
    parts = [f"{len(inst.operands)} {int(inst.opcode)} {_shape_text(inst.shape)}"]
    attributes = _attributes_of(inst)
    if attributes != _UNSET:
        parts.append(repr(attributes))
    if numbered and inst.opcode is Opcode.PARAMETER:
        parts.append(str(inst.parameter_number))
    parts.extend(callee.hex() for callee in callees)
    return "\n".join(parts).encode()


def input_label(shape: Shape) -> bytes:
    """Returns the label of a value that a kernel reads but does not compute: its shape and layout alone."""
    return b"input " + _shape_text(shape).encode()


def _shape_text(shape: Shape) -> str:
    # `layout` rather than `minor_to_major`: an unset order means row-major, which is then the same shape.
    if shape.is_tuple:
        return f"({','.join(map(_shape_text, shape.tuple_shapes))})"
    return f"{int(shape.element_type)}{shape.dimensions}{shape.layout}"
