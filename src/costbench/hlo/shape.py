"""Shapes: element type, sizes and memory order of a value, or the shapes of a tuple's members."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import IntEnum

from costbench.errors import HloError


class ElementType(IntEnum):
    """XLA's primitive types, with the codes of `xla_data.proto`."""

    INVALID = 0
    PRED = 1
    S8 = 2
    S16 = 3
    S32 = 4
    S64 = 5
    U8 = 6
    U16 = 7
    U32 = 8
    U64 = 9
    F16 = 10
    F32 = 11
    F64 = 12
    TUPLE = 13
    OPAQUE = 14
    C64 = 15
    BF16 = 16
    TOKEN = 17
    C128 = 18
    F8E5M2 = 19
    F8E4M3FN = 20
    S4 = 21
    U4 = 22
    F8E4M3B11FNUZ = 23
    F8E5M2FNUZ = 24
    F8E4M3FNUZ = 25
    S2 = 26
    U2 = 27
    F8E4M3 = 28
    F8E3M4 = 29
    S1 = 30
    U1 = 31
    F4E2M1FN = 32
    F8E8M0FNU = 33

    @property
    def bits(self) -> int:
        """Bits of one element in main memory; predicates take a byte, tuples and tokens nothing."""
        return _BITS[self]

    @property
    def is_floating(self) -> bool:
        """Returns whether arithmetic on it counts as floating-point operations."""
        return self in _FLOATING


_BITS = {
    **{t: 8 for t in ElementType if t.name.startswith("F8")},
    ElementType.INVALID: 0,
    ElementType.TUPLE: 0,
    ElementType.OPAQUE: 0,
    ElementType.TOKEN: 0,
    ElementType.PRED: 8,
    ElementType.S1: 1,
    ElementType.U1: 1,
    ElementType.S2: 2,
    ElementType.U2: 2,
    ElementType.S4: 4,
    ElementType.U4: 4,
    ElementType.F4E2M1FN: 4,
    ElementType.S8: 8,
    ElementType.U8: 8,
    ElementType.S16: 16,
    ElementType.U16: 16,
    ElementType.F16: 16,
    ElementType.BF16: 16,
    ElementType.S32: 32,
    ElementType.U32: 32,
    ElementType.F32: 32,
    ElementType.S64: 64,
    ElementType.U64: 64,
    ElementType.F64: 64,
    ElementType.C64: 64,
    ElementType.C128: 128,
}
_FLOATING = frozenset(
    t for t in ElementType if t.name[0] == "F" or t in (ElementType.BF16, ElementType.C64, ElementType.C128)
)


_ARRAY = re.compile(r"^(?P<type>[a-z0-9]+)\[(?P<sizes>[\d,\s]*)\](?:\{(?P<order>[\d,\s]*)\})?$")


@dataclass(frozen=True, slots=True)
class Shape:
    """An array `f32[32,64]{1,0}`, or a tuple of shapes.

    Attributes:
        element_type: `ElementType.TUPLE` for tuples.
        dimensions: sizes, logical order; upper bounds where dynamic.
        minor_to_major: memory order, fastest-varying axis first; empty for scalars, tuples and where unset.
        tuple_shapes: shapes of the members of a tuple.
    """

    element_type: ElementType
    dimensions: tuple[int, ...] = ()
    minor_to_major: tuple[int, ...] = ()
    tuple_shapes: tuple[Shape, ...] = ()

    @property
    def is_tuple(self) -> bool:
        """Returns whether the value is a tuple."""
        return self.element_type is ElementType.TUPLE

    @property
    def rank(self) -> int:
        """Returns the number of dimensions."""
        return len(self.dimensions)

    @property
    def num_elements(self) -> int:
        """Elements of an array; 0 for a tuple."""
        return 0 if self.is_tuple else math.prod(self.dimensions)

    @property
    def num_bytes(self) -> int:
        """Bytes of the data without padding, summed over the members of a tuple."""
        if self.is_tuple:
            return sum(member.num_bytes for member in self.tuple_shapes)
        return (self.num_elements * self.element_type.bits + 7) // 8

    @property
    def layout(self) -> tuple[int, ...]:
        """Returns the minor-to-major order; row-major (last axis fastest) where none is set."""
        return self.minor_to_major or tuple(range(self.rank - 1, -1, -1))

    @property
    def physical_dimensions(self) -> tuple[int, ...]:
        """Sizes in memory order, major to minor."""
        return tuple(self.dimensions[axis] for axis in reversed(self.layout))

    def with_layout(self, minor_to_major: tuple[int, ...]) -> Shape:
        """Returns the same array in another memory order."""
        return Shape(self.element_type, self.dimensions, minor_to_major, self.tuple_shapes)

    def leaves(self) -> tuple[Shape, ...]:
        """Returns the array members of a (nested) tuple, or the array itself."""
        if not self.is_tuple:
            return (self,)
        return tuple(leaf for member in self.tuple_shapes for leaf in member.leaves())

    def __str__(self) -> str:
        if self.is_tuple:
            return "(" + ", ".join(map(str, self.tuple_shapes)) + ")"
        order = "{" + ",".join(map(str, self.minor_to_major)) + "}" if self.minor_to_major else ""
        return f"{self.element_type.name.lower()}[{','.join(map(str, self.dimensions))}]{order}"


def parse_shape(text: str | Shape) -> Shape:
    """Parses a shape in XLA's notation: `f32[]`, `bf16[32,12]{0,1}`, `(f32[2], s32[])`; default row-major.

    Raises:
        HloError: if it is not written like that.
    """
    if isinstance(text, Shape):
        return text
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        return Shape(ElementType.TUPLE, tuple_shapes=tuple(map(parse_shape, split_list(text[1:-1]))))
    match = _ARRAY.match(text)
    if match is None or match["type"].upper() not in ElementType.__members__:
        raise HloError(f"no shape: {text!r}", expected="e.g. f32[32,128]{1,0}")
    sizes = tuple(int(size) for size in match["sizes"].split(",") if size.strip())
    shape = Shape(ElementType[match["type"].upper()], sizes)
    order = tuple(int(axis) for axis in (match["order"] or "").split(",") if axis.strip())
    return shape.with_layout(order or shape.layout)


def split_list(text: str) -> list[str]:
    """Returns the parts between commas outside of brackets; none for an empty text.

    >>> split_list("f32[2,3]{1,0} %a, %b")
    ['f32[2,3]{1,0} %a', '%b']
    """
    depth, start, parts = 0, 0, []
    for position, letter in enumerate(text):
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    parts.append(text[start:].strip())
    return [] if parts == [""] else parts
