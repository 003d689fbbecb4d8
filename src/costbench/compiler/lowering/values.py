"""Facts about one instruction that lowering needs in every kernel that holds it: what it reads and writes.

A slice, a gather or a scatter need not copy all of its first operand from main memory; an update in place
writes the update only; a value that is a tuple is written member by member.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from costbench.compiler.lowering.access import Access, array_shape, is_elementwise, whole
from costbench.compiler.lowering.arrays import (
    BROADCASTS,
    CONTRACTS,
    FIXED_SHIFT,
    FIXES_AXES,
    NONE,
    PLAIN,
    READY,
    REDUCES,
    SCATTERS,
    SECOND_BITS,
    UNTILED,
    WORKS,
)
from costbench.compiler.lowering.iteration_space import CONTRACTIONS
from costbench.compiler.tiled_memory import native_bytes, native_units
from costbench.errors import UnsupportedKernelError
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

MAX_ELEMENTS = 1 << 62
"""Elements of a value, which are counted in 64-bit integers."""
_MAX_FIXED_AXIS = SECOND_BITS - FIXED_SHIFT - 1
_TRAITS: Mapping[Opcode, int] = {
    **dict.fromkeys(CONTRACTIONS, CONTRACTS | WORKS),
    **dict.fromkeys(
        (
            Opcode.FFT,
            Opcode.CHOLESKY,
            Opcode.TRIANGULAR_SOLVE,
            Opcode.CUSTOM_CALL,
            Opcode.RNG_GET_AND_UPDATE_STATE,
        ),
        UNTILED | WORKS,
    ),
    **dict.fromkeys((Opcode.RESHAPE, Opcode.BITCAST), 0),
    **dict.fromkeys((Opcode.SORT, Opcode.TOPK), FIXES_AXES | WORKS),
}
_FLOWS = {Opcode.BROADCAST: BROADCASTS, Opcode.REDUCE: REDUCES, Opcode.SCATTER: SCATTERS}
_ANCHOR_OPERAND = {Opcode.REDUCE: 0, Opcode.DYNAMIC_UPDATE_SLICE: 1, Opcode.SCATTER: -1}

NOT_PARTIAL, CUTS, ADDRESSES, UPDATES = range(4)
"""How an instruction reads its first operand: as it is, a rectangle of it, rows by address, not at all."""


class PartialRead(NamedTuple):
    """How an instruction reads its first operand from main memory.

    Attributes:
        kind: one of the four constants above.
        source: position of the value whose tiles are copied in place of the operand's; -1 for NOT_PARTIAL.
        row_elements: contiguous elements that an index selects, 0 unless rows are read by address.
    """

    kind: int = NOT_PARTIAL
    source: int = -1
    row_elements: int = 0


class Facts(NamedTuple):
    """Facts about an instruction and its value; a tuple is represented by its largest member.

    Attributes:
        traits: bits, see `lowering.arrays`.
        flow: how accesses propagate through it, see `lowering.arrays`.
        shape: shape of the value.
        whole: the access that takes the value whole.
        source: position of the value whose tiles are written if this one is an output.
        anchor: position of the value that loops run over if this one is the kernel's largest output.
        carrier: position of the tuple that it is a member of, or NONE.
        fixed_axes: bit set of the axes that may not be cut.
        partial: how it reads its first operand.
        same: for each operand, whether value and operand always have the same access.
        native_units: elements of a native tile along each physical axis, major to minor.
        native_bytes: bytes of a native tile, or of the value itself for a scalar.
        element_bytes: bytes of an element.
    """

    traits: int
    flow: int
    shape: Shape
    whole: Access
    source: int
    anchor: int
    carrier: int
    fixed_axes: int
    partial: PartialRead
    same: tuple[bool, ...]
    native_units: tuple[int, ...]
    native_bytes: float
    element_bytes: float


def facts_of(body: HloComputation, position: int) -> Facts:
    """Returns the facts about an instruction.

    Raises:
        UnsupportedKernelError: for more elements than can be counted, or an operation that fixes an axis
            beyond the twenty-second.
    """
    inst = body.instructions[position]
    shape = array_shape(inst.shape)
    if shape.num_elements > MAX_ELEMENTS:
        raise UnsupportedKernelError(
            f"a value of {shape.num_elements} elements",
            field=f"instruction {inst.name!r}",
            expected=f"at most {MAX_ELEMENTS} elements",
        )
    traits = READY | _TRAITS.get(inst.opcode, WORKS)
    through = _ANCHOR_OPERAND.get(inst.opcode)
    is_member = inst.opcode is Opcode.GET_TUPLE_ELEMENT
    return Facts(
        traits=traits,
        flow=_FLOWS.get(inst.opcode, PLAIN),
        shape=shape,
        whole=whole(shape),
        source=_written_value(inst, position),
        anchor=position if through is None else inst.operands[through],
        carrier=inst.operands[0] if is_member else NONE,
        fixed_axes=_fixed_axes(inst, shape) if traits & FIXES_AXES else 0,
        partial=_partial_read(body, position),
        same=tuple(is_elementwise(inst, body.instructions[operand].shape) for operand in inst.operands),
        native_units=native_units(shape),
        native_bytes=native_bytes(shape),
        element_bytes=shape.element_type.bits / 8,
    )


def _fixed_axes(inst: Instruction, shape: Shape) -> int:
    axes = inst.dimensions or (shape.rank - 1,)
    if max(axes) > _MAX_FIXED_AXIS:
        raise UnsupportedKernelError(
            f"a {inst.opcode.xla_name} along axis {max(axes)}",
            field=f"instruction {inst.name!r}",
            expected=f"an axis up to {_MAX_FIXED_AXIS}",
        )
    return sum(1 << axis for axis in set(axes) if axis >= 0)


def _partial_read(body: HloComputation, position: int) -> PartialRead:
    inst = body.instructions[position]
    if inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
        return PartialRead(UPDATES)
    if inst.opcode in (Opcode.SLICE, Opcode.DYNAMIC_SLICE):
        # What a strided slice steps over lies in the same native tiles and is copied with the rest.
        strided = any(s.stride != 1 for s in inst.slices)
        return PartialRead() if strided else PartialRead(CUTS, position)
    if inst.opcode is Opcode.GATHER:
        assert inst.gather is not None
        return PartialRead(ADDRESSES, position, max(1, math.prod(inst.gather.slice_sizes)))
    if inst.opcode is Opcode.SCATTER:
        updates = inst.operands[-1]
        return PartialRead(ADDRESSES, updates, _scatter_row_elements(body, inst))
    return PartialRead()


def _scatter_row_elements(body: HloComputation, inst: Instruction) -> int:
    """Returns the contiguous elements that one index of a scatter updates."""
    assert inst.scatter is not None
    shape = array_shape(body.instructions[inst.operands[-1]].shape)
    return max(1, math.prod(shape.dimensions[axis] for axis in inst.scatter.update_window_dims))


def _written_value(inst: Instruction, position: int) -> int:
    """Returns the value whose tiles are written for output `position`: an in-place update, or itself."""
    if inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
        return inst.operands[1]
    return inst.operands[-1] if inst.opcode is Opcode.SCATTER else position


class Written(NamedTuple):
    """A copy to main memory: the shape written, its access, and elements of an addressed row or 0."""

    shape: Shape
    access: Access
    row_elements: int


def written(body: HloComputation, position: int, access: Access) -> tuple[Written, ...]:
    """Returns the copies of an output, given the access of its `Facts.source`."""
    inst = body.instructions[position]
    source = _written_value(inst, position)
    if source != position:
        shape = array_shape(body.instructions[source].shape)
        rows = _scatter_row_elements(body, inst) if inst.opcode is Opcode.SCATTER else 0
        return (Written(shape, access, rows),)
    return tuple(
        Written(leaf, access if leaf.rank == len(access) else whole(leaf), 0) for leaf in inst.shape.leaves()
    )
