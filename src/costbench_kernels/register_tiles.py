"""Numba intrinsics in LLVM IR: the micro-kernel of narrow matrix products, and vectors of sixteen float32.

`tile_product` multiplies one tile. A product reaches the processor's peak only if the sums of a tile stay in
vector registers over the whole loop, and LLVM does not do that for Numba's loops over arrays. So this one
loop is written in LLVM IR, for vectors as wide as the processor's. Products of narrow matrices then need no
library, and a ReLU or a mask is applied in registers, without another pass over memory.

Short loops over rows are slow for the same reason, and because LLVM checks for each whether arrays overlap,
and may not reorder a sum. The second half of this module therefore has a vector type for them (`load` to
`join_whole`).

An intrinsic is a function of types: Numba calls it while it infers types, and it returns the signature and
`generate`, which appends instructions through an llvmlite builder when machine code is made. Names such as
`offset` are then values of the program that is generated, not numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model


def _vectors() -> tuple[int, int]:
    """Returns the float32 lanes of a vector register, and the vectors in a row of a tile.

    With `ROWS` rows a tile holds 16 sums of the 32 registers of AVX-512, or 8 of the 16 of AVX2; the others
    are for the operands.
    """
    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 16, 4
    return (8, 2) if features.get("avx2") and features.get("fma") else (4, 4)


LANES, VECTORS = _vectors()
ROWS = 4
"""Rows of a tile."""
COLUMNS = LANES * VECTORS
"""Columns of a full tile."""
NARROW = 16
"""Columns of a narrow tile; widths have to be multiples of it."""

_INDEX, _INT = ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_ALIGNED = 4
_ZEROS = ir.Constant(_VECTOR, [0.0] * LANES)
_UNDEFINED = ir.Constant(_VECTOR, ir.Undefined)
_FIRST_LANE = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)


ADDS, RELU, MASK, GATHER_DEPTH, GATHER_ROWS = 1, 2, 4, 8, 16
"""Flags of a product, which are added: c += a b, not c = a b; write max(c, 0); write 0 where the mask is not
above 0; sum over a_(i p_k) b_(p_k j), not a_ik b_kj; row p_i of a and c, not row i."""


class TileOffsets(NamedTuple):
    """Where a tile lies in its arrays: offsets of its first element and strides, in elements.

    Attributes:
        left: offset in a.
        left_row: stride of the rows of a.
        left_column: stride of its columns; the other way round, a is read transposed.
        right: offset in b.
        right_row: stride of the rows of b.
        out: offset in c.
        out_row: stride of the rows of c and of the mask.
        mask: offset in the mask.
        depth: number of terms of each sum.
        first_gathered: index of the tile's first row among the gathered ones.
    """

    left: int
    left_row: int
    left_column: int
    right: int
    right_row: int
    out: int
    out_row: int
    mask: int
    depth: int
    first_gathered: int


class _Code:
    """Appends LLVM instructions for vectors of `LANES` float32 to a function. Offsets are in elements."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def address(self, array: Any, start: Any, offsets: tuple[Any, ...]) -> Any:
        """Returns the address of the element at start + sum of the offsets."""
        for offset in offsets:
            start = self.builder.add(start, offset)
        return self.builder.gep(array, [start])

    def vector(self, array: Any, start: Any, *offsets: Any) -> Any:
        """Loads `LANES` consecutive elements."""
        address = self.builder.bitcast(self.address(array, start, offsets), _VECTOR.as_pointer())
        return self.builder.load(address, align=_ALIGNED)

    def store(self, value: Any, array: Any, start: Any, *offsets: Any) -> None:
        """Stores a vector to consecutive elements."""
        address = self.builder.bitcast(self.address(array, start, offsets), _VECTOR.as_pointer())
        self.builder.store(value, address, align=_ALIGNED)

    def spread(self, array: Any, start: Any, *offsets: Any) -> Any:
        """Loads one element into all lanes (a broadcast)."""
        number = self.builder.load(self.address(array, start, offsets), align=_ALIGNED)
        single = self.builder.insert_element(_UNDEFINED, number, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(single, _UNDEFINED, _FIRST_LANE)

    def multiply_add(self, left: Any, right: Any, addend: Any) -> Any:
        """Returns left * right + addend, rounded once if the processor has a fused multiply-add."""
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        name = f"llvm.fmuladd.v{LANES}f32"
        function: Any = cgutils.get_or_insert_function(self.builder.module, kind, name)  # type: ignore[no-untyped-call]
        return self.builder.call(function, [left, right, addend])

    def loop(self, depth: Any, start: list[Any], step: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
        """Appends a loop for k < depth and returns its final values (`start` if depth is 0).

        `step` maps k and the values before an iteration to those after it. Values are phi nodes, so they stay
        in registers.
        """
        builder, before = self.builder, self.builder.block
        body, after = builder.append_basic_block("body"), builder.append_basic_block("after")
        zero, one = ir.Constant(_INDEX, 0), ir.Constant(_INDEX, 1)
        builder.cbranch(builder.icmp_signed(">", depth, zero), body, after)
        builder.position_at_end(body)
        number, values = builder.phi(_INDEX), [builder.phi(value.type) for value in start]
        stepped = step(number, values)
        following = builder.add(number, one)
        builder.cbranch(builder.icmp_signed("<", following, depth), body, after)
        builder.position_at_end(after)
        ended = [builder.phi(value.type) for value in start]
        for phi, first, more in zip([number, *values], [zero, *start], [following, *stepped], strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(more, body)
        for phi, first, more in zip(ended, start, stepped, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(more, body)
        return ended

    def activate(self, value: Any, flags: int, mask: Callable[[], Any]) -> Any:
        """Applies the ReLU or the mask that the flags ask for to a sum. A NaN stays NaN, as in torch."""
        if flags & RELU:
            return self.builder.select(self.builder.fcmp_ordered("<", value, _ZEROS), _ZEROS, value)
        if flags & MASK:
            return self.builder.select(self.builder.fcmp_ordered("<=", mask(), _ZEROS), _ZEROS, value)
        return value


def tile_product(rows: int, columns: int) -> Any:
    """Returns an intrinsic that multiplies one tile: c_ij = sum over k < depth of a_ik b_kj.

    The loop over k is innermost and the only one: rows and columns of the tile are unrolled, so all sums are
    registers. Arguments of the intrinsic:

    - float32 arrays a, b and c;
    - a pair of arrays: the mask, float32, and the gathered indices p, int64;
    - the `TileOffsets`;
    - the flags, a constant sum of `ADDS` to `GATHER_ROWS`, so that each product has code of its own.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = [*signature.args[:3], *signature.args[3].types]
        arrays = [*arguments[:3], *(builder.extract_value(arguments[3], i) for i in range(2))]
        left, right, result, mask, gathered = (
            context.make_array(kind)(context, builder, array).data
            for kind, array in zip(kinds, arrays, strict=True)
        )
        fields = range(len(TileOffsets._fields))
        at = TileOffsets(*(builder.extract_value(arguments[4], field) for field in fields))
        flags, code = signature.args[5].literal_value, _Code(builder)

        def gather(index: Any) -> Any:
            return builder.load(builder.gep(gathered, [builder.add(at.first_gathered, index)]))

        lanes = [ir.Constant(_INDEX, lane) for lane in range(0, columns, LANES)]
        row_numbers = [ir.Constant(_INDEX, i) for i in range(rows)]
        if flags & GATHER_ROWS:
            row_numbers = [gather(i) for i in row_numbers]
        out_offsets = [(builder.mul(at.out_row, i), lane) for i in row_numbers for lane in lanes]
        left_offsets = [builder.mul(at.left_row, i) for i in row_numbers]
        start = [code.vector(result, at.out, *offset) if flags & ADDS else _ZEROS for offset in out_offsets]

        def step(k: Any, sums: list[Any]) -> list[Any]:
            number = gather(k) if flags & GATHER_DEPTH else k
            along, below = builder.mul(number, at.left_column), builder.mul(number, at.right_row)
            right_vectors = [code.vector(right, at.right, below, lane) for lane in lanes]
            left_vectors = [code.spread(left, at.left, offset, along) for offset in left_offsets]
            factors = [(a, b) for a in left_vectors for b in right_vectors]
            return [code.multiply_add(*pair, total) for pair, total in zip(factors, sums, strict=True)]

        for offset, total in zip(out_offsets, code.loop(at.depth, start, step), strict=True):
            code.store(
                code.activate(total, flags, partial(code.vector, mask, at.mask, *offset)),
                result,
                at.out,
                *offset,
            )
        return context.get_dummy_value()

    @intrinsic(prefer_literal=True)
    def multiply(
        _context: Any, a: Any, b: Any, c: Any, mask_and_indices: Any, offsets: Any, flags: Any
    ) -> Any:
        return types.void(a, b, c, mask_and_indices, offsets, flags), generate

    return multiply


def nonzero_columns(columns: int) -> Any:
    """Returns an intrinsic that finds the columns of a float32 array that are not 0 in at least one row.

    Its arguments are the array, the offset of the first row, the row stride, both in elements, and the number
    of rows. It returns an int64 whose bit j is set if column j has a nonzero element. `columns` is at most
    `COLUMNS`.
    """
    lanes = [ir.Constant(_INDEX, lane) for lane in range(0, columns, LANES)]
    bits, none = ir.VectorType(_INT, LANES), ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        code = _Code(builder)

        def step(number: Any, joined: list[Any]) -> list[Any]:
            at = builder.add(arguments[1], builder.mul(number, arguments[2]))
            row = [builder.bitcast(code.vector(values, at, lane), bits) for lane in lanes]
            return [builder.or_(before, more) for before, more in zip(joined, row, strict=True)]

        mask = ir.Constant(_INDEX, 0)
        for lane, joined in zip(lanes, code.loop(arguments[3], [none] * len(lanes), step), strict=True):
            part = builder.bitcast(builder.icmp_signed("!=", joined, none), ir.IntType(LANES))
            mask = builder.or_(mask, builder.shl(builder.zext(part, _INDEX), lane))
        return mask

    @intrinsic
    def find_nonzero(_context: Any, array: Any, at: Any, row: Any, rows: Any) -> Any:
        return types.intp(array, types.intp, types.intp, types.intp), generate

    return find_nonzero


# A vector type for other loops: always sixteen float32, which LLVM splits over narrower registers. Positions
# `at` are in elements from the start of a contiguous array.

WIDTH = 16
"""Lanes of the vector type."""

_SIXTEEN = ir.VectorType(ir.FloatType(), WIDTH)
_SIXTEEN_UNDEFINED = ir.Constant(_SIXTEEN, ir.Undefined)
_SIXTEEN_ZEROS = ir.Constant(_SIXTEEN, [0.0] * WIDTH)


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="sixteen float32")


_LANES: Any = _Lanes()


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _SIXTEEN)  # type: ignore[no-untyped-call]


def _vector_intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an intrinsic of a typing function; compiled code leaves out its first argument, the context."""
    return cast(Callable[..., Any], intrinsic(function))


def _shuffle(lanes: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_INT, WIDTH), lanes)


def _address(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


def _spread(builder: Any, number: Any) -> Any:
    single = builder.insert_element(_SIXTEEN_UNDEFINED, number, ir.Constant(_INT, 0))
    return builder.shuffle_vector(single, _SIXTEEN_UNDEFINED, _shuffle([0] * WIDTH))


@_vector_intrinsic
def load(_context: Any, array: Any, at: Any) -> Any:
    """Loads sixteen elements of `array` from `at` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(address, _SIXTEEN.as_pointer()), align=_ALIGNED)

    return _LANES(array, types.intp), generate


@_vector_intrinsic
def spread(_context: Any, array: Any, at: Any) -> Any:
    """Loads the element of `array` at `at` into all lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments)
        return _spread(builder, builder.load(address, align=_ALIGNED))

    return _LANES(array, types.intp), generate


@_vector_intrinsic
def store(_context: Any, value: Any, array: Any, at: Any) -> Any:
    """Stores a vector to `array` from `at` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[1], *arguments[1:])
        builder.store(arguments[0], builder.bitcast(address, _SIXTEEN.as_pointer()), align=_ALIGNED)
        return context.get_dummy_value()

    return types.void(_LANES, array, types.intp), generate


@_vector_intrinsic
def zeros(_context: Any) -> Any:
    """Returns a vector of zeros."""

    def generate(_context: Any, _builder: Any, _signature: Any, _arguments: Any) -> Any:
        return _SIXTEEN_ZEROS

    return _LANES(), generate


@_vector_intrinsic
def multiply_add(_context: Any, left: Any, right: Any, addend: Any) -> Any:
    """Returns left * right + addend, rounded once if the processor has a fused multiply-add."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_SIXTEEN, [_SIXTEEN] * 3)
        name = f"llvm.fmuladd.v{WIDTH}f32"
        function: Any = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
        return builder.call(function, arguments)

    return _LANES(_LANES, _LANES, _LANES), generate


@_vector_intrinsic
def relu(_context: Any, value: Any) -> Any:
    """Returns max(value, 0); a NaN stays NaN."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.select(
            builder.fcmp_ordered("<", arguments[0], _SIXTEEN_ZEROS), _SIXTEEN_ZEROS, arguments[0]
        )

    return _LANES(_LANES), generate


@_vector_intrinsic
def total(_context: Any, value: Any) -> Any:
    """Returns the sum of the sixteen lanes, in the order of a tree: lanes 8 apart first, then 4, 2 and 1."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        summed = arguments[0]
        for half in (8, 4, 2, 1):
            other = builder.shuffle_vector(
                summed, _SIXTEEN_UNDEFINED, _shuffle([(i + half) % WIDTH for i in range(WIDTH)])
            )
            summed = builder.fadd(summed, other)
        return builder.extract_element(summed, ir.Constant(_INT, 0))

    return types.float32(_LANES), generate


@_vector_intrinsic
def fused(_context: Any, left: Any, right: Any, addend: Any) -> Any:
    """Returns left * right + addend of scalars, rounded once if the processor has a fused multiply-add."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()] * 3)
        function: Any = cgutils.get_or_insert_function(builder.module, kind, "llvm.fmuladd.f32")  # type: ignore[no-untyped-call]
        return builder.call(function, arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


def _add_shuffled(low: list[int], high: list[int]) -> Callable[..., Any]:
    """Returns the code of an intrinsic that adds two shuffles of the 32 lanes of two vectors."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        parts = [builder.shuffle_vector(*arguments, _shuffle(lanes)) for lanes in (low, high)]
        return builder.fadd(*parts)

    return generate


def _by_quarters(lanes: list[int]) -> list[int]:
    """Returns shuffle indices of one selection in each quarter; 4 to 7 are lanes of the second vector."""
    return [16 * (lane // 4) + lane % 4 + 4 * quarter for quarter in range(4) for lane in lanes]


def _of_quarters(quarters: list[int]) -> list[int]:
    """Returns shuffle indices of whole quarters: 0 to 3 of the first vector, 4 to 7 of the second."""
    return [4 * quarter + i for quarter in quarters for i in range(4)]


@_vector_intrinsic
def join_pairs(_context: Any, first: Any, second: Any) -> Any:
    """Returns in each quarter [a0 + a2, b0 + b2, a1 + a3, b1 + b3]: the first step of horizontal sums."""
    return _LANES(_LANES, _LANES), _add_shuffled(_by_quarters([0, 4, 1, 5]), _by_quarters([2, 6, 3, 7]))


@_vector_intrinsic
def join_quads(_context: Any, first: Any, second: Any) -> Any:
    """Returns in each quarter [a0 + a2, a1 + a3, b0 + b2, b1 + b3]."""
    return _LANES(_LANES, _LANES), _add_shuffled(_by_quarters([0, 1, 4, 5]), _by_quarters([2, 3, 6, 7]))


@_vector_intrinsic
def join_halves(_context: Any, first: Any, second: Any) -> Any:
    """Returns the quarters [a0 + a2, a1 + a3, b0 + b2, b1 + b3]."""
    return _LANES(_LANES, _LANES), _add_shuffled(_of_quarters([0, 1, 4, 5]), _of_quarters([2, 3, 6, 7]))


@_vector_intrinsic
def join_whole(_context: Any, first: Any, second: Any) -> Any:
    """Returns the quarters [a0 + a1, a2 + a3, b0 + b1, b2 + b3]."""
    return _LANES(_LANES, _LANES), _add_shuffled(_of_quarters([0, 2, 4, 6]), _of_quarters([1, 3, 5, 7]))
