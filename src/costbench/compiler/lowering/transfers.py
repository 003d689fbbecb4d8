"""What a kernel copies between main memory and the scratchpad, and how each copy follows the loops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.access import Access, access_loops, array_shape, whole
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

_CUTS = frozenset({Opcode.SLICE, Opcode.DYNAMIC_SLICE})
_ADDRESSES = frozenset({Opcode.GATHER, Opcode.SCATTER})
READS_IN_PART = _CUTS | _ADDRESSES | {Opcode.DYNAMIC_UPDATE_SLICE}
"""Instructions that need not have their first operand copied as a whole."""


@dataclass(frozen=True)
class Transfer:
    """A value copied between main memory and the scratchpad.

    Attributes:
        position: the value, in the kernel's computation.
        shape: what is moved (for an update in place, the update).
        access: how its tile follows the loops.
        is_output: written to main memory rather than read.
        row_elements: for values addressed by indices, the contiguous elements an index selects; else 0.
    """

    position: int
    shape: Shape
    access: Access
    is_output: bool
    row_elements: int = 0

    @cached_property
    def loops(self) -> tuple[int, ...]:
        """The loops whose progress changes the tile."""
        return access_loops(self.access)

    @cached_property
    def figures(self) -> tuple[float, ...]:
        """What a copy is beside its box: bytes of an element, `row_elements`, elements."""
        return (self.shape.element_type.bits / 8, self.row_elements, self.shape.num_elements)

    @cached_property
    def box_key(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Equal for copies that are cut alike; while accesses live, which copies share."""
        return (id(self.access), self.shape.dimensions, self.shape.minor_to_major)


def read(body: HloComputation, position: int, access: Access) -> Transfer:
    """The copy of a value that is read as it is."""
    return Transfer(position, array_shape(body.instructions[position].shape), access, is_output=False)


def reads_of_first_operand(
    kernel: Kernel, accesses: Mapping[int, Access], position: int
) -> tuple[Transfer, ...]:
    """The copies of an input that is the first operand of one of `READS_IN_PART`.

    Args:
        kernel: that reads it.
        accesses: of all values of the kernel.
        position: of the input.
    """
    body = kernel.body
    users = [u for u in body.users[position] if u in kernel.members]
    using = [body.instructions[u] for u in users]
    if all(inst.operands[0] == position for inst in using):
        opcodes = {inst.opcode for inst in using}
        if opcodes == {Opcode.DYNAMIC_UPDATE_SLICE}:
            return ()
        if opcodes <= _ADDRESSES:
            return (_addressed_read(body, accesses, position, users[0]),)
        # What a strided slice steps over lies in the same native tiles and is copied with the rest.
        if opcodes <= _CUTS and all(s.stride == 1 for inst in using for s in inst.slices):
            return tuple(
                Transfer(position, inst.shape, accesses[u], is_output=False)
                for u, inst in zip(users, using, strict=True)
            )
    return (read(body, position, accesses[position]),)


def _addressed_read(
    body: HloComputation, accesses: Mapping[int, Access], position: int, user: int
) -> Transfer:
    inst = body.instructions[user]
    if inst.opcode is Opcode.GATHER:
        assert inst.gather is not None
        rows = max(1, math.prod(inst.gather.slice_sizes))
        return Transfer(position, inst.shape, accesses[user], is_output=False, row_elements=rows)
    updates = inst.operands[-1]
    shape = array_shape(body.instructions[updates].shape)
    rows = _scatter_row_elements(inst, shape)
    return Transfer(position, shape, accesses[updates], is_output=False, row_elements=rows)


def _scatter_row_elements(inst: Instruction, updates: Shape) -> int:
    """Contiguous elements that one index of a scatter updates."""
    assert inst.scatter is not None
    return max(1, math.prod(updates.dimensions[axis] for axis in inst.scatter.update_window_dims))


def written_value(inst: Instruction, position: int) -> int:
    """The value whose tiles are written where `position` is an output: an update in place, or itself."""
    if inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE:
        return inst.operands[1]
    return inst.operands[-1] if inst.opcode is Opcode.SCATTER else position


def writes(body: HloComputation, position: int, access: Access) -> tuple[Transfer, ...]:
    """The copies of an output, given the access of its `written_value`."""
    inst = body.instructions[position]
    source = written_value(inst, position)
    if source != position:
        shape = array_shape(body.instructions[source].shape)
        rows = _scatter_row_elements(inst, shape) if inst.opcode is Opcode.SCATTER else 0
        return (Transfer(position, shape, access, is_output=True, row_elements=rows),)
    return tuple(
        Transfer(position, leaf, access if leaf.rank == len(access) else whole(leaf), is_output=True)
        for leaf in inst.shape.leaves()
    )
