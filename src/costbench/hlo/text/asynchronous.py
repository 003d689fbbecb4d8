"""Asynchronous instructions of HLO text, whose short form is written out as XLA's messages have it.

    %start = ((f32[64]), f32[8], s32[]) slice-start(%p), slice={[0:8]}
    %done = f32[8] slice-done(%start)

stands for an `async-start` that calls a computation with one slice of its parameter, and its `async-done`. An
asynchronous start returns a tuple: a tuple of its operands, the result, and what else the machine needs. The
`all-reduce-start`, `all-gather-start`, `collective-permute-start` and `copy-start` that are opcodes of their
own return something else, which distinguishes the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costbench.hlo.conversion import shape_to_proto
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import ElementType, Shape
from costbench.hlo.verify.problems import compatible

ASYNC_START, ASYNC_UPDATE = Opcode.ASYNC_START.xla_name, Opcode.ASYNC_UPDATE.xla_name
_SUFFIXES = {"-start": ASYNC_START, "-update": ASYNC_UPDATE, "-done": Opcode.ASYNC_DONE.xla_name}
_OPCODES = frozenset(opcode.xla_name for opcode in Opcode)
_AMBIGUOUS = frozenset({"all-reduce-start", "all-gather-start", "collective-permute-start", "copy-start"})
_AMBIGUOUS_DONE = frozenset({"all-reduce-done", "all-gather-done", "collective-permute-done", "copy-done"})


def async_opcode(
    name: str, shape: Shape | None, operands: Sequence[Shape], *, reads_async: bool
) -> tuple[str, str]:
    """Returns the opcode that a printed one stands for, and the opcode that it wraps, "" for none.

    Args:
        name: opcode as it is printed.
        shape: shape of the result; None if it is left out.
        operands: shapes of the operands.
        reads_async: whether an operand is an asynchronous start or update.
    """
    is_wrapped = name in _AMBIGUOUS and shape is not None and _returns_operands(name, shape, operands)
    if name in _OPCODES and not is_wrapped and not (name in _AMBIGUOUS_DONE and reads_async):
        return name, ""
    for suffix, opcode in _SUFFIXES.items():
        inner = name.removesuffix(suffix)
        if inner != name and inner in _OPCODES:
            return opcode, inner
    return name, ""


def _returns_operands(opcode: str, shape: Shape, operands: Sequence[Shape]) -> bool:
    """Returns whether a shape begins with a tuple of the operands, as that of an asynchronous start.

    A start of several all-gathers or permutations looks the same in both forms and is left as it is: the
    parts of its cost do not depend on the form.
    """
    if len(shape.tuple_shapes) < 2 or (len(operands) != 1 and opcode != "all-reduce-start"):
        return False
    return compatible(shape.tuple_shapes[0], Shape(ElementType.TUPLE, tuple_shapes=tuple(operands)))


def async_result(shape: Shape) -> Shape | None:
    """Returns the result's part of the shape of an asynchronous start; None if it has none."""
    return shape.tuple_shapes[1] if len(shape.tuple_shapes) > 1 else None


def add_wrapped(
    proto: hlo_pb2.HloComputationProto,
    opcode: str,
    operands: Sequence[Shape],
    result: Shape,
    ids: Iterator[int],
) -> hlo_pb2.HloInstructionProto:
    """Fills the computation that an asynchronous start calls, and returns its root.

    Args:
        proto: empty computation; it gets a parameter for each operand and one instruction that reads them.
        opcode: opcode of that instruction.
        operands: shapes of the parameters.
        result: shape that the instruction returns.
        ids: ids of instructions not used so far.
    """
    for number, shape in enumerate(operands):
        parameter = proto.instructions.add(
            name=f"async_param.{number}" if number else "async_param",
            opcode=Opcode.PARAMETER.xla_name,
            id=next(ids),
            parameter_number=number,
        )
        parameter.shape.CopyFrom(shape_to_proto(shape))
    read = [parameter.id for parameter in proto.instructions]
    root = proto.instructions.add(name=opcode, opcode=opcode, id=next(ids), operand_ids=read)
    root.shape.CopyFrom(shape_to_proto(result))
    proto.root_id = root.id
    return root
