"""The result type of the checks of an instruction (`Problem`), and comparisons that several checks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from costbench.hlo.instruction import Instruction
from costbench.hlo.shape import ElementType, Shape


class Problem(NamedTuple):
    """Why an instruction is refused.

    Attributes:
        actual: field of the instruction with the offending value.
        expected: requirement of XLA.
    """

    actual: str
    expected: str


class Signature(NamedTuple):
    """Shapes of a computation's parameters, by number, and of what it returns."""

    parameters: tuple[Shape, ...]
    result: Shape


class Context(NamedTuple):
    """Context that an instruction is checked against.

    Attributes:
        operands: shapes of its operands.
        called: signatures of the computations that it calls.
    """

    operands: Sequence[Shape]
    called: Sequence[Signature]


Check = Callable[[Instruction, Context], Problem | None]

INTEGERS = frozenset(t for t in ElementType if t.name[0] in "SU" and t.name[1:].isdigit())


def same_type(first: Shape, second: Shape) -> bool:
    """Returns whether element types agree; floating types may differ in precision, as XLA allows on TPUs."""
    a, b = first.element_type, second.element_type
    return a is b or (a.is_floating and b.is_floating)


def compatible(first: Shape, second: Shape) -> bool:
    """Returns whether shapes agree except in layout and floating-point precision, tuples by member."""
    if first is second:
        return True
    if first.is_tuple or second.is_tuple:
        return (
            first.is_tuple
            and second.is_tuple
            and len(first.tuple_shapes) == len(second.tuple_shapes)
            and all(map(compatible, first.tuple_shapes, second.tuple_shapes))
        )
    return first.dimensions == second.dimensions and same_type(first, second)


def is_scalar(shape: Shape) -> bool:
    """Returns whether the shape is an array of rank 0."""
    return not shape.dimensions and not shape.is_tuple


def is_predicate(shape: Shape) -> bool:
    """Returns whether the shape is `pred[]`."""
    return not shape.dimensions and shape.element_type is ElementType.PRED


def check_axes(field: str, axes: Iterable[int], rank: int) -> Problem | None:
    """Checks that axes are distinct and below the rank."""
    axes = tuple(axes)
    if len(set(axes)) == len(axes) and all(0 <= axis < rank for axis in axes):
        return None
    return Problem(f"{field} {axes}", f"distinct axes below {rank}")


def check_ascending(field: str, axes: Sequence[int], rank: int) -> Problem | None:
    """Checks that axes are distinct, below the rank and in order."""
    if all(a < b for a, b in pairwise(axes)) and all(0 <= axis < rank for axis in axes):
        return None
    return Problem(f"{field} {tuple(axes)}", f"ascending axes below {rank}")


def check_count(field: str, actual: int, expected: int) -> Problem | None:
    """Checks a number of axes, operands, elements and so on."""
    return None if actual == expected else Problem(f"{field}: {actual}", str(expected))


def check_result(shape: Shape, dimensions: Sequence[int]) -> Problem | None:
    """Checks that the result is an array of these extents."""
    if shape.dimensions == tuple(dimensions) and not shape.is_tuple:
        return None
    return Problem(f"shape {shape}", f"extents [{','.join(map(str, dimensions))}]")


def check_compatible(field: str, shape: Shape, expected: Shape) -> Problem | None:
    """Checks that two shapes agree in all but layout and floating-point precision."""
    return None if compatible(shape, expected) else Problem(f"{field} {shape}", str(expected))


def check_type(inst: Instruction, operand: Shape) -> Problem | None:
    """Checks that the result has the element type of an operand, up to floating-point precision."""
    if same_type(inst.shape, operand):
        return None
    return Problem(f"shape {inst.shape}", f"elements of type {operand.element_type.name.lower()}")


def check_members(field: str, shape: Shape, expected: Sequence[Sequence[int]]) -> Problem | None:
    """Checks that the result has these extents: an array for one of them, else a tuple of arrays."""
    if len(expected) == 1 and not shape.is_tuple:
        return check_result(shape, expected[0])
    members = shape.tuple_shapes
    if shape.is_tuple and [m.dimensions for m in members] == [tuple(w) for w in expected]:
        return None
    return Problem(
        f"{field} {shape}", "a tuple of " + ", ".join(f"[{','.join(map(str, w))}]" for w in expected)
    )


def check_unchanged(inst: Instruction, context: Context) -> Problem | None:
    """Checks that the result is like the first operand."""
    return check_compatible("shape", inst.shape, context.operands[0])
