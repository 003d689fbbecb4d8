"""Whether an instruction fits the shapes of its operands: what later stages index without asking again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

_O = Opcode


def operand_problem(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    """What is wrong between an instruction's attributes and the shapes of its operands; None if nothing."""
    least = _MIN_OPERANDS.get(inst.opcode, 0)
    if len(operands) < least:
        return f"{inst.opcode.xla_name} has {len(operands)} operands, expected {least} or more"
    if inst.opcode in _ARRAYS_ONLY and any(shape.is_tuple for shape in (inst.shape, *operands)):
        return f"{inst.opcode.xla_name} of a tuple, expected an array"
    check = _CHECKS.get(inst.opcode)
    return check(inst, operands) if check is not None else None


def _axes(name: str, axes: Iterable[int], rank: int) -> str | None:
    axes = tuple(axes)
    if len(set(axes)) == len(axes) and all(0 <= axis < rank for axis in axes):
        return None
    return f"{name} {axes}, expected different axes below {rank}"


def _count(name: str, found: int, wanted: int) -> str | None:
    return None if found == wanted else f"{name}: {found}, expected {wanted}"


def _broadcast(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    return _count("dimensions", len(inst.dimensions), operands[0].rank) or _axes(
        "dimensions", inst.dimensions, inst.shape.rank
    )


def _reshape(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    return _count("elements", inst.shape.num_elements, operands[0].num_elements)


def _transpose(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    rank = operands[0].rank
    return (
        _count("rank", inst.shape.rank, rank)
        or _count("dimensions", len(inst.dimensions), rank)
        or _axes("dimensions", inst.dimensions, rank)
    )


def _reduced(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    if len(operands) % 2:
        return f"{len(operands)} operands, expected a start value for each array"
    return _axes("dimensions", inst.dimensions, operands[0].rank)


def _windowed(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    first = inst.shape.tuple_shapes[0] if inst.shape.tuple_shapes else inst.shape
    return _count("window dimensions", len(inst.window), operands[0].rank) or _count(
        "rank", first.rank, operands[0].rank
    )


def _convolution(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    numbers = inst.convolution
    if numbers is None:
        return "convolution without dimension numbers"
    spatial = len(inst.window)
    sides = (
        ("input", (numbers.input_batch, numbers.input_feature, *numbers.input_spatial), operands[0]),
        (
            "kernel",
            (numbers.kernel_input_feature, numbers.kernel_output_feature, *numbers.kernel_spatial),
            operands[1],
        ),
        ("output", (numbers.output_batch, numbers.output_feature, *numbers.output_spatial), inst.shape),
    )
    for name, axes, shape in sides:
        problem = (
            _count(f"{name} axes", len(axes), spatial + 2)
            or _count(f"{name} rank", shape.rank, spatial + 2)
            or _axes(f"{name} axes", axes, spatial + 2)
        )
        if problem:
            return problem
    return None


def _dot(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    numbers = inst.dot
    if numbers is None:
        return "dot without dimension numbers"
    left = (*numbers.lhs_contracting, *numbers.lhs_batch)
    right = (*numbers.rhs_contracting, *numbers.rhs_batch)
    return (
        _axes("lhs axes", left, operands[0].rank)
        or _axes("rhs axes", right, operands[1].rank)
        or _count("contracted axes", len(numbers.lhs_contracting), len(numbers.rhs_contracting))
        or _count("batch axes", len(numbers.lhs_batch), len(numbers.rhs_batch))
        or _count(
            "rank",
            inst.shape.rank,
            sum(s.rank for s in operands) - len(left) - len(right) + len(numbers.lhs_batch),
        )
    )


def _member(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    members = len(operands[0].tuple_shapes)
    if not operands[0].is_tuple or not 0 <= inst.tuple_index < members:
        return f"member {inst.tuple_index} of {operands[0]}"
    return None


def _tuple(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    return _count("members", len(inst.shape.tuple_shapes), len(operands))


def _slice(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    if any(s.stride < 1 for s in inst.slices):
        return "a slice with a stride below 1"
    return _count("slices", len(inst.slices), operands[0].rank)


def _pad(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    return _count("padded axes", len(inst.padding), operands[0].rank)


def _along_one_axis(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    return _count("dimensions", len(inst.dimensions), 1) or _axes(
        "dimension", inst.dimensions, operands[0].rank
    )


def _reverse(inst: Instruction, operands: Sequence[Shape]) -> str | None:
    return _axes("dimensions", inst.dimensions, operands[0].rank)


def _scatter(_inst: Instruction, operands: Sequence[Shape]) -> str | None:
    return None if len(operands) % 2 else f"{len(operands)} operands, expected an update for each array"


_CHECKS: dict[Opcode, Callable[[Instruction, Sequence[Shape]], str | None]] = {
    _O.BROADCAST: _broadcast,
    _O.RESHAPE: _reshape,
    _O.TRANSPOSE: _transpose,
    _O.REDUCE: _reduced,
    _O.REDUCE_WINDOW: _windowed,
    _O.SELECT_AND_SCATTER: _windowed,
    _O.CONVOLUTION: _convolution,
    _O.DOT: _dot,
    _O.GET_TUPLE_ELEMENT: _member,
    _O.TUPLE: _tuple,
    _O.SLICE: _slice,
    _O.PAD: _pad,
    _O.CONCATENATE: _along_one_axis,
    _O.SORT: _along_one_axis,
    _O.REVERSE: _reverse,
    _O.SCATTER: _scatter,
}
_MIN_OPERANDS = {
    _O.REDUCE: 2,
    _O.REDUCE_WINDOW: 2,
    _O.CONCATENATE: 1,
    _O.SORT: 1,
    _O.SCATTER: 3,
    _O.DYNAMIC_SLICE: 1,
    _O.DYNAMIC_UPDATE_SLICE: 2,
    _O.TRIANGULAR_SOLVE: 2,
    _O.CHOLESKY: 1,
    _O.FFT: 1,
}
_ARRAYS_ONLY = frozenset(
    {_O.BROADCAST, _O.RESHAPE, _O.TRANSPOSE, _O.CONVOLUTION, _O.DOT, _O.SLICE, _O.PAD, _O.CONCATENATE}
    | {_O.REVERSE, _O.GATHER, _O.DYNAMIC_SLICE, _O.DYNAMIC_UPDATE_SLICE, _O.ADD, _O.MULTIPLY, _O.CONVERT}
)
