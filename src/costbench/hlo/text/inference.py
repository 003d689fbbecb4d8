"""Infers result shapes that a text leaves out, for the opcodes for which XLA's parser does so.

Rules are those of XLA's shape inference (`xla/service/shape_inference.cc`); whether operands fit together is
checked afterwards, when the whole module is verified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from costbench.errors import HloError
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import window_from_proto
from costbench.hlo.shape import ElementType, Shape
from costbench.hlo.verify.elementwise import BINARY, UNARY

Proto = hlo_pb2.HloInstructionProto
_O = Opcode
_PARTS = {ElementType.C64: ElementType.F32, ElementType.C128: ElementType.F64}
_WHOLES = {part: whole for whole, part in _PARTS.items()}


class _Given(NamedTuple):
    """An instruction without its shape, and shapes of operands and of what called computations return."""

    proto: Proto
    operands: Sequence[Shape]
    results: Sequence[Shape]


def inferred_shape(proto: Proto, operands: Sequence[Shape], results: Sequence[Shape]) -> Shape:
    """Returns the shape of an instruction's result, row-major.

    Args:
        proto: opcode and attributes.
        operands: shapes of its operands.
        results: shapes that the computations that it calls return, where they are known.

    Raises:
        HloError: if it does not follow from the operands, or they are too few.
    """
    rule = _RULES.get(Opcode.from_name(proto.opcode))
    if rule is not None:
        try:
            return rule(_Given(proto, operands, results))
        except (IndexError, ValueError):
            pass
    raise HloError(f"no shape of a {proto.opcode}", expected=f"a shape, e.g. f32[32,128] {proto.opcode}(...)")


def _array(like: Shape, dimensions: Sequence[int]) -> Shape:
    rank = len(dimensions)
    return Shape(like.element_type, tuple(dimensions), tuple(range(rank - 1, -1, -1)))


def _first(given: _Given) -> Shape:
    return given.operands[0]


def _typed(element: ElementType) -> Callable[[_Given], Shape]:
    def rule(given: _Given) -> Shape:
        shape = given.operands[0]
        return Shape(element, shape.dimensions, shape.minor_to_major)

    return rule


def _scalar(element: ElementType) -> Callable[[_Given], Shape]:
    return lambda _given: Shape(element)


def _part(given: _Given) -> Shape:
    shape = given.operands[0]
    element = _PARTS.get(shape.element_type, shape.element_type)
    return Shape(element, shape.dimensions, shape.minor_to_major)


def _complex(given: _Given) -> Shape:
    shape = given.operands[0]
    return Shape(_WHOLES[shape.element_type], shape.dimensions, shape.minor_to_major)


def _tuple(given: _Given) -> Shape:
    return Shape(ElementType.TUPLE, tuple_shapes=tuple(given.operands))


def _member(given: _Given) -> Shape:
    return given.operands[0].tuple_shapes[given.proto.tuple_index]


def _transpose(given: _Given) -> Shape:
    # As XLA does it: the elements stay where they are, so the memory order is permuted too.
    shape, axes = given.operands[0], list(given.proto.dimensions)
    order = tuple(axes.index(axis) for axis in shape.layout)
    return Shape(shape.element_type, tuple(shape.dimensions[axis] for axis in axes), order)


def _broadcast(given: _Given) -> Shape:
    # XLA takes `dimensions` of a broadcast without a shape for the extents of new major axes.
    return _array(given.operands[0], (*given.proto.dimensions, *given.operands[0].dimensions))


def _dot(given: _Given) -> Shape:
    (left, right), numbers = given.operands, given.proto.dot_dimension_numbers
    taken = {*numbers.lhs_batch_dimensions, *numbers.lhs_contracting_dimensions}
    others = {*numbers.rhs_batch_dimensions, *numbers.rhs_contracting_dimensions}
    batch = [left.dimensions[axis] for axis in numbers.lhs_batch_dimensions]
    rows = [extent for axis, extent in enumerate(left.dimensions) if axis not in taken]
    columns = [extent for axis, extent in enumerate(right.dimensions) if axis not in others]
    return _array(left, (*batch, *rows, *columns))


def _convolution(given: _Given) -> Shape:
    (base, kernel), numbers = given.operands, given.proto.convolution_dimension_numbers
    extents = [0] * base.rank
    extents[numbers.output_batch_dimension] = (
        base.dimensions[numbers.input_batch_dimension] // given.proto.batch_group_count
    )
    extents[numbers.output_feature_dimension] = kernel.dimensions[numbers.kernel_output_feature_dimension]
    windows = window_from_proto(given.proto.window.dimensions)
    for number, axis in enumerate(numbers.output_spatial_dimensions):
        source = base.dimensions[numbers.input_spatial_dimensions[number]]
        extents[axis] = windows[number].output_extent(source)
    return _array(base, extents)


def _of_arrays(given: _Given, dimensions: Sequence[int], count: int) -> Shape:
    """Returns an array of these extents for one operand, else a tuple of one for each."""
    arrays = tuple(_array(operand, dimensions) for operand in given.operands[:count])
    return arrays[0] if count == 1 else Shape(ElementType.TUPLE, tuple_shapes=arrays)


def _reduce(given: _Given) -> Shape:
    dropped = set(given.proto.dimensions)
    kept = [n for axis, n in enumerate(given.operands[0].dimensions) if axis not in dropped]
    return _of_arrays(given, kept, len(given.operands) // 2)


def _reduce_window(given: _Given) -> Shape:
    windows = window_from_proto(given.proto.window.dimensions)
    pairs = zip(windows, given.operands[0].dimensions, strict=True)
    return _of_arrays(given, [w.output_extent(n) for w, n in pairs], len(given.operands) // 2)


def _sort(given: _Given) -> Shape:
    return given.operands[0] if len(given.operands) == 1 else _tuple(given)


def _pad(given: _Given) -> Shape:
    parts = given.proto.padding_config.dimensions
    extents = [
        n + p.edge_padding_low + p.edge_padding_high + max(0, n - 1) * p.interior_padding
        for p, n in zip(parts, given.operands[0].dimensions, strict=True)
    ]
    return _array(given.operands[0], extents)


def _concatenate(given: _Given) -> Shape:
    axis, extents = given.proto.dimensions[0], list(given.operands[0].dimensions)
    extents[axis] = sum(operand.dimensions[axis] for operand in given.operands)
    return _array(given.operands[0], extents)


def _gather(given: _Given) -> Shape:
    (operand, indices), numbers = given.operands, given.proto.gather_dimension_numbers
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = iter([n for axis, n in enumerate(given.proto.gather_slice_sizes) if axis not in dropped])
    batch = [n for axis, n in enumerate(indices.dimensions) if axis != numbers.index_vector_dim]
    rest, offsets = iter(batch), set(numbers.offset_dims)
    rank = len(batch) + len(offsets)
    return _array(operand, [next(window if axis in offsets else rest, 0) for axis in range(rank)])


def _scatter(given: _Given) -> Shape:
    count = len(given.operands) // 2
    arrays = tuple(given.operands[:count])
    return arrays[0] if count == 1 else Shape(ElementType.TUPLE, tuple_shapes=arrays)


def _returned(given: _Given) -> Shape:
    return given.results[0]


def _map(given: _Given) -> Shape:
    return _array(given.results[0], given.operands[0].dimensions)


_RULES: dict[Opcode, Callable[[_Given], Shape]] = {
    **dict.fromkeys(UNARY | BINARY, _first),
    **dict.fromkeys((_O.COPY, _O.REVERSE, _O.WHILE, _O.OPT_BARRIER, _O.ADD_DEPENDENCY, _O.DOMAIN), _first),
    **dict.fromkeys((_O.SELECT_AND_SCATTER, _O.SET_DIMENSION_SIZE, _O.CHOLESKY), _first),
    **dict.fromkeys((_O.SELECT, _O.CLAMP, _O.TRIANGULAR_SOLVE), lambda given: given.operands[1]),
    **dict.fromkeys((_O.CALL, _O.CONDITIONAL), _returned),
    **dict.fromkeys((_O.COMPARE, _O.IS_FINITE), _typed(ElementType.PRED)),
    **dict.fromkeys((_O.PARTITION_ID, _O.REPLICA_ID), _scalar(ElementType.U32)),
    **dict.fromkeys((_O.REAL, _O.IMAG, _O.ABS), _part),
    _O.COMPLEX: _complex,
    _O.AFTER_ALL: _scalar(ElementType.TOKEN),
    _O.GET_DIMENSION_SIZE: _scalar(ElementType.S32),
    _O.TUPLE: _tuple,
    _O.GET_TUPLE_ELEMENT: _member,
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
