"""Infers result shapes that a text leaves out, for the opcodes for which XLA's parser does so.

Rules are those of XLA's shape inference (`xla/service/shape_inference.cc`); whether operands fit together is
checked afterwards, when the whole module is verified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from costbench.errors import HloError
from costbench.hlo.conversion import window_from_proto
from costbench.hlo.opcode import Opcode, opcodes
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import ElementType, Shape
from costbench.hlo.verify.elements import BINARY, UNARY

Proto = hlo_pb2.HloInstructionProto
_O = Opcode
_PARTS = {ElementType.C64: ElementType.F32, ElementType.C128: ElementType.F64}
_WHOLES = {part: whole for whole, part in _PARTS.items()}
_LIKE_FIRST_OPERAND = opcodes(
    "copy reverse while opt-barrier add-dependency domain select-and-scatter set-dimension-size cholesky"
)


class _Unshaped(NamedTuple):
    """An instruction without its shape, and shapes of operands and of what called computations return."""

    proto: Proto
    operands: Sequence[Shape]
    results: Sequence[Shape]


def infer_shape(proto: Proto, operands: Sequence[Shape], results: Sequence[Shape]) -> Shape:
    """Returns the shape of an instruction's result, row-major.

    Args:
        proto: instruction with its opcode and attributes.
        operands: shapes of its operands.
        results: shapes that the computations that it calls return, where they are known.

    Raises:
        HloError: if it does not follow from the operands, or they are too few.
    """
    rule = _RULES.get(Opcode.from_name(proto.opcode))
    if rule is not None:
        try:
            return rule(_Unshaped(proto, operands, results))
        except (LookupError, ValueError):
            pass
    raise HloError(f"no shape of a {proto.opcode}", expected=f"a shape, e.g. f32[32,128] {proto.opcode}(...)")


def _array(like: Shape, dimensions: Sequence[int]) -> Shape:
    rank = len(dimensions)
    return Shape(like.element_type, tuple(dimensions), tuple(range(rank - 1, -1, -1)))


def _with_type(shape: Shape, element: ElementType) -> Shape:
    return Shape(element, shape.dimensions, shape.minor_to_major)


def _scalar(element: ElementType) -> Callable[[_Unshaped], Shape]:
    return lambda _inst: Shape(element)


def _part(inst: _Unshaped) -> Shape:
    shape = inst.operands[0]
    return _with_type(shape, _PARTS.get(shape.element_type, shape.element_type))


def _tuple(inst: _Unshaped) -> Shape:
    return Shape(ElementType.TUPLE, tuple_shapes=tuple(inst.operands))


def _transpose(inst: _Unshaped) -> Shape:
    # As XLA does it: the elements stay where they are, so the memory order is permuted too.
    shape, axes = inst.operands[0], list(inst.proto.dimensions)
    order = tuple(axes.index(axis) for axis in shape.layout)
    return Shape(shape.element_type, tuple(shape.dimensions[axis] for axis in axes), order)


def _broadcast(inst: _Unshaped) -> Shape:
    # XLA takes `dimensions` of a broadcast without a shape for the extents of new major axes.
    return _array(inst.operands[0], (*inst.proto.dimensions, *inst.operands[0].dimensions))


def _dot(inst: _Unshaped) -> Shape:
    (left, right), numbers = inst.operands, inst.proto.dot_dimension_numbers
    left_axes = {*numbers.lhs_batch_dimensions, *numbers.lhs_contracting_dimensions}
    right_axes = {*numbers.rhs_batch_dimensions, *numbers.rhs_contracting_dimensions}
    batch = [left.dimensions[axis] for axis in numbers.lhs_batch_dimensions]
    rows = [extent for axis, extent in enumerate(left.dimensions) if axis not in left_axes]
    columns = [extent for axis, extent in enumerate(right.dimensions) if axis not in right_axes]
    return _array(left, (*batch, *rows, *columns))


def _convolution(inst: _Unshaped) -> Shape:
    (base, kernel), numbers = inst.operands, inst.proto.convolution_dimension_numbers
    extents = [0] * base.rank
    extents[numbers.output_batch_dimension] = (
        base.dimensions[numbers.input_batch_dimension] // inst.proto.batch_group_count
    )
    extents[numbers.output_feature_dimension] = kernel.dimensions[numbers.kernel_output_feature_dimension]
    windows = window_from_proto(inst.proto.window.dimensions)
    for number, axis in enumerate(numbers.output_spatial_dimensions):
        source = base.dimensions[numbers.input_spatial_dimensions[number]]
        extents[axis] = windows[number].output_extent(source)
    return _array(base, extents)


def _of_arrays(inst: _Unshaped, dimensions: Sequence[int], count: int) -> Shape:
    """Returns an array of these extents for one operand, else a tuple of one for each."""
    arrays = tuple(_array(operand, dimensions) for operand in inst.operands[:count])
    return arrays[0] if count == 1 else Shape(ElementType.TUPLE, tuple_shapes=arrays)


def _reduce(inst: _Unshaped) -> Shape:
    dropped = set(inst.proto.dimensions)
    extents = [n for axis, n in enumerate(inst.operands[0].dimensions) if axis not in dropped]
    return _of_arrays(inst, extents, len(inst.operands) // 2)


def _reduce_window(inst: _Unshaped) -> Shape:
    windows = window_from_proto(inst.proto.window.dimensions)
    pairs = zip(windows, inst.operands[0].dimensions, strict=True)
    return _of_arrays(inst, [w.output_extent(n) for w, n in pairs], len(inst.operands) // 2)


def _sort(inst: _Unshaped) -> Shape:
    return inst.operands[0] if len(inst.operands) == 1 else _tuple(inst)


def _pad(inst: _Unshaped) -> Shape:
    parts = inst.proto.padding_config.dimensions
    extents = [
        n + p.edge_padding_low + p.edge_padding_high + max(0, n - 1) * p.interior_padding
        for p, n in zip(parts, inst.operands[0].dimensions, strict=True)
    ]
    return _array(inst.operands[0], extents)


def _concatenate(inst: _Unshaped) -> Shape:
    axis, extents = inst.proto.dimensions[0], list(inst.operands[0].dimensions)
    extents[axis] = sum(operand.dimensions[axis] for operand in inst.operands)
    return _array(inst.operands[0], extents)


def _gather(inst: _Unshaped) -> Shape:
    (operand, indices), numbers = inst.operands, inst.proto.gather_dimension_numbers
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = iter([n for axis, n in enumerate(inst.proto.gather_slice_sizes) if axis not in dropped])
    batch = [n for axis, n in enumerate(indices.dimensions) if axis != numbers.index_vector_dim]
    rest, offsets = iter(batch), set(numbers.offset_dims)
    rank = len(batch) + len(offsets)
    return _array(operand, [next(window if axis in offsets else rest, 0) for axis in range(rank)])


def _scatter(inst: _Unshaped) -> Shape:
    count = len(inst.operands) // 2
    arrays = tuple(inst.operands[:count])
    return arrays[0] if count == 1 else Shape(ElementType.TUPLE, tuple_shapes=arrays)


def _map(inst: _Unshaped) -> Shape:
    return _array(inst.results[0], inst.operands[0].dimensions)


_RULES: dict[Opcode, Callable[[_Unshaped], Shape]] = {
    **dict.fromkeys(UNARY | BINARY | _LIKE_FIRST_OPERAND, lambda inst: inst.operands[0]),
    **dict.fromkeys((_O.SELECT, _O.CLAMP, _O.TRIANGULAR_SOLVE), lambda inst: inst.operands[1]),
    **dict.fromkeys((_O.CALL, _O.CONDITIONAL), lambda inst: inst.results[0]),
    **dict.fromkeys((_O.COMPARE, _O.IS_FINITE), lambda inst: _with_type(inst.operands[0], ElementType.PRED)),
    **dict.fromkeys((_O.PARTITION_ID, _O.REPLICA_ID), _scalar(ElementType.U32)),
    **dict.fromkeys((_O.REAL, _O.IMAG, _O.ABS), _part),
    _O.COMPLEX: lambda inst: _with_type(inst.operands[0], _WHOLES[inst.operands[0].element_type]),
    _O.AFTER_ALL: _scalar(ElementType.TOKEN),
    _O.GET_DIMENSION_SIZE: _scalar(ElementType.S32),
    _O.TUPLE: _tuple,
    _O.GET_TUPLE_ELEMENT: lambda inst: inst.operands[0].tuple_shapes[inst.proto.tuple_index],
    _O.TRANSPOSE: _transpose,
    _O.BROADCAST: _broadcast,
    _O.DOT: _dot,
    _O.CONVOLUTION: _convolution,
    _O.REDUCE: _reduce,
    _O.REDUCE_WINDOW: _reduce_window,
    _O.SORT: _sort,
    _O.PAD: _pad,
    _O.CONCATENATE: _concatenate,
    _O.GATHER: _gather,
    _O.SCATTER: _scatter,
    _O.MAP: _map,
}
del _RULES[_O.REDUCE_PRECISION]  # XLA's parser wants its shape, as that of a conversion
