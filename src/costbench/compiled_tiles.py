"""Products of tiles of matrices, held in vector registers: the inner loop of narrow matrix products.

A compiler that is given loops over arrays does not keep a tile of the result in registers, which is what
makes a product as fast as the processor can multiply. So this one loop is written out in LLVM's own terms,
for vectors of the width that the processor has. Products of narrow matrices then need no library, and what
goes before and after them (rectifiers, sums) costs no further pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _vectors() -> tuple[int, int]:
    """Numbers in a vector register, and vectors in a row of a tile that leave room for its other rows."""
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

_INDEX = ir.IntType(64)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_ALIGNED = 4
_ZEROS = ir.Constant(_VECTOR, [0.0] * LANES)
_NONE = ir.Constant(_VECTOR, ir.Undefined)
_EVERYWHERE = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)


ADDS, RELU, MASK = 1, 2, 4
"""Ways of a product: c += a b instead of c = a b; then max(c, 0); then 0 where the mask is not above 0."""


class _Code:
    """LLVM instructions on tiles of a product, as they are appended to a function."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def address(self, array: Any, start: Any, offsets: tuple[Any, ...]) -> Any:
        """Of the element at start + offsets of an array."""
        for offset in offsets:
            start = self.builder.add(start, offset)
        return self.builder.gep(array, [start])

    def vector(self, array: Any, start: Any, *offsets: Any) -> Any:
        """The numbers from an element on, one register full."""
        place = self.builder.bitcast(self.address(array, start, offsets), _VECTOR.as_pointer())
        return self.builder.load(place, align=_ALIGNED)

    def store(self, value: Any, array: Any, start: Any, *offsets: Any) -> None:
        """Write a register from an element on."""
        place = self.builder.bitcast(self.address(array, start, offsets), _VECTOR.as_pointer())
        self.builder.store(value, place, align=_ALIGNED)

    def spread(self, array: Any, start: Any, *offsets: Any) -> Any:
        """A register full of one element."""
        number = self.builder.load(self.address(array, start, offsets), align=_ALIGNED)
        single = self.builder.insert_element(_NONE, number, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(single, _NONE, _EVERYWHERE)

    def multiply_add(self, left: Any, right: Any, addend: Any) -> Any:
        """left * right + addend, rounded once where the processor can."""
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        name = f"llvm.fmuladd.v{LANES}f32"
        function: Any = cgutils.get_or_insert_function(self.builder.module, kind, name)  # type: ignore[no-untyped-call]
        return self.builder.call(function, [left, right, addend])

    def loop(self, depth: Any, start: list[Any], step: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
        """Values after `depth` steps from `start`, each of which maps its number and values to new ones."""
        builder, before = self.builder, self.builder.block
        body, after = builder.append_basic_block("body"), builder.append_basic_block("after")
        zero, one = ir.Constant(_INDEX, 0), ir.Constant(_INDEX, 1)
        builder.cbranch(builder.icmp_signed(">", depth, zero), body, after)
        builder.position_at_end(body)
        number, values = builder.phi(_INDEX), [builder.phi(_VECTOR) for _ in start]
        stepped = step(number, values)
        following = builder.add(number, one)
        builder.cbranch(builder.icmp_signed("<", following, depth), body, after)
        builder.position_at_end(after)
        ended = [builder.phi(_VECTOR) for _ in start]
        for phi, first, more in zip([number, *values], [zero, *start], [following, *stepped], strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(more, body)
        for phi, first, more in zip(ended, start, stepped, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(more, body)
        return ended

    def end(self, value: Any, way: int, seen: Callable[[], Any]) -> Any:
        """What is written of a sum. A NaN stays one."""
        if way & RELU:
            return self.builder.select(self.builder.fcmp_ordered("<", value, _ZEROS), _ZEROS, value)
        if way & MASK:
            return self.builder.select(self.builder.fcmp_ordered("<=", seen(), _ZEROS), _ZEROS, value)
        return value


def tile_product(rows: int, columns: int) -> Any:
    """A function for compiled functions that multiplies a tile: c_ij = sum over k < depth of a_ik b_kj.

    It takes a, b, c, and the mask, all float32 arrays; nine integers: in elements where the tile begins in a,
    how far its rows and its columns are apart; where it begins in b and how far its rows are apart; the same
    of c; where it begins in the mask, whose rows are as far apart as those of c; and the depth; and the way,
    a constant sum of `ADDS`, `RELU`, `MASK`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, right, result, mask = (
            context.make_array(kind)(context, builder, argument).data
            for kind, argument in zip(signature.args[:4], arguments[:4], strict=True)
        )
        left_at, left_row, left_step, right_at, right_row, at, row, mask_at, depth = (
            builder.extract_value(arguments[4], place) for place in range(9)
        )
        way, code = signature.args[5].literal_value, _Code(builder)
        lanes = [ir.Constant(_INDEX, lane) for lane in range(0, columns, LANES)]
        numbers = [ir.Constant(_INDEX, i) for i in range(rows)]
        places = [(builder.mul(row, i), lane) for i in numbers for lane in lanes]
        start = [code.vector(result, at, *place) if way & ADDS else _ZEROS for place in places]

        def step(k: Any, sums: list[Any]) -> list[Any]:
            along, below = builder.mul(k, left_step), builder.mul(k, right_row)
            of_right = [code.vector(right, right_at, below, lane) for lane in lanes]
            of_left = [code.spread(left, left_at, builder.mul(left_row, i), along) for i in numbers]
            pairs = [(one, many) for one in of_left for many in of_right]
            return [code.multiply_add(*pair, total) for pair, total in zip(pairs, sums, strict=True)]

        for place, total in zip(places, code.loop(depth, start, step), strict=True):
            seen = partial(code.vector, mask, mask_at, *place)
            code.store(code.end(total, way, seen), result, at, *place)
        return context.get_dummy_value()

    @intrinsic(prefer_literal=True)
    def multiply(_context: Any, a: Any, b: Any, c: Any, mask: Any, places: Any, way: Any) -> Any:
        return types.void(a, b, c, mask, places, way), generate

    return multiply
