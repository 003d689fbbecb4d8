"""The value that a kernel's loops walk over, and these loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.access import Access, access_loops, identity, loop_of_axis
from costbench.compiler.lowering.contraction import contraction_axes
from costbench.compiler.lowering.value_tables import FIXES_AXES, Value, ValueTables
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

LANES = 128
SUBLANES = 8


class Loop(NamedTuple):
    """One loop of the nest.

    Attributes:
        extent: elements it walks over.
        unit: elements of one native tile along it.
        contraction: whether it sums (contraction and window loops) rather than walks over the result.
        fixed: whether it cannot be cut (the sorted axis of a sort).
    """

    extent: int
    unit: int
    contraction: bool = False
    fixed: bool = False

    @property
    def units(self) -> int:
        """Native tiles along the loop: ceil(extent / unit), at least 1."""
        return max(1, -(-self.extent // self.unit))


class KernelAxis(NamedTuple):
    """One axis of the right-hand side: which loop cuts it, its native tiles and elements per native tile."""

    loop: int
    units: int
    unit: int


def native_units(shape: Shape) -> tuple[int, ...]:
    """Elements of one native tile along each physical axis, major to minor: ..., 1, 1, 8, 128; or 1,024."""
    if shape.rank == 1:
        return (LANES * SUBLANES,)
    return (1,) * (shape.rank - 2) + (SUBLANES, LANES) if shape.rank else ()


def anchor_of(kernel: Kernel, tables: ValueTables) -> Value:
    """What to iterate over without a contraction: a reduction's operand, an update, or the largest output."""
    candidates = [
        _walked(kernel, tables, position) for position in kernel.outputs or kernel.instructions[-1:]
    ]
    return max(candidates, key=_num_elements) if len(candidates) > 1 else candidates[0]


def _num_elements(value: Value) -> int:
    return value.shape.num_elements


def _walked(kernel: Kernel, tables: ValueTables, position: int) -> Value:
    """The value that the loops of one output walk over."""
    inst = tables[position].inst
    if inst.opcode is Opcode.GET_TUPLE_ELEMENT and inst.operands[0] in kernel.members:
        position = inst.operands[0]
        inst = tables[position].inst
    if inst.opcode is Opcode.REDUCE:
        position = inst.operands[0]
    elif inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
        position = inst.operands[1]
    elif inst.opcode is Opcode.SCATTER:
        position = inst.operands[-1]
    return tables[position]


class Walk(NamedTuple):
    """The loops over an anchor, the same for all kernels that have it.

    Attributes:
        access: of the anchor, by its number in the tables of its computation.
        loops: over the anchor, then those over a contraction; none for a kernel without tiles.
        num_output_loops: how many of them walk over the anchor.
        kernel_axes: of a contraction's right-hand side, in physical order.
        operand_accesses: of a contraction's left-hand and right-hand side.
        order: of a contraction's loops, outermost first.
    """

    access: int
    loops: tuple[Loop, ...] = ()
    num_output_loops: int = 0
    kernel_axes: tuple[KernelAxis, ...] = ()
    operand_accesses: tuple[Access, Access] = ((), ())
    order: tuple[int, ...] = ()

    def with_fixed_axes(self, shape: Shape, values: Sequence[Value]) -> Walk:
        """The same, those loops over the anchor's `shape` marked that a sort among `values` needs whole."""
        fixed: set[int] = set()
        for value in values:
            if value.traits & FIXES_AXES and value.shape.rank == shape.rank:
                fixed.update(value.inst.dimensions or (shape.rank - 1,))
        axes = shape.layout[::-1]
        walking = self.loops[: self.num_output_loops]
        marked = [loop._replace(fixed=axes[i] in fixed) for i, loop in enumerate(walking)]
        return self._replace(loops=(*marked, *self.loops[self.num_output_loops :]))


def walk_over(tables: ValueTables, anchor: tuple[int, bool]) -> Walk:
    """The loops over a value: one per physical axis, major to minor, and those of a contraction.

    Args:
        tables: of the computation.
        anchor: the value's position, and whether it is a contraction that the kernel does itself.
    """
    position, contracts = anchor
    value = tables[position]
    shape = value.shape
    loops = tuple(map(Loop, shape.physical_dimensions, native_units(shape)))
    access = tables.number(identity(shape))
    if not contracts:
        return Walk(access, loops, len(loops))
    axes = contraction_axes(tables.body, position, loop_of_axis(shape), len(loops))
    return Walk(
        access=access,
        loops=loops + tuple(Loop(extent, unit, contraction=True) for extent, unit in axes.loops),
        num_output_loops=len(loops),
        kernel_axes=tuple(KernelAxis(*axis) for axis in axes.kernel_axes),
        operand_accesses=axes.operands,
        order=_contraction_order(axes.operands, len(loops), len(loops) + len(axes.loops)),
    )


def _contraction_order(
    operands: tuple[Access, Access], num_output_loops: int, num_loops: int
) -> tuple[int, ...]:
    """Columns of the right-hand side first, so that weights stay while rows pass; sums innermost."""
    left, right = operands
    columns = set(access_loops(right)).difference(access_loops(left))
    results = range(num_output_loops)
    return (
        *(loop for loop in results if loop in columns),
        *(loop for loop in results if loop not in columns),
        *range(num_output_loops, num_loops),
    )
