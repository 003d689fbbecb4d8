"""What a kernel copies between main memory and the scratchpad, and how each copy follows the loops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costbench.compiler.access import Access, access_loops, array_shape, whole
from costbench.compiler.kernel import Kernel
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape


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


def transfers_of(kernel: Kernel, accesses: dict[int, Access]) -> tuple[Transfer, ...]:
    """All copies of a kernel: what its inputs need, then what its outputs write."""
    reads = [t for position in kernel.inputs for t in _reads(kernel, accesses, position)]
    writes = [t for position in kernel.outputs for t in _writes(kernel, accesses, position)]
    return tuple(reads + writes)


def _reads(kernel: Kernel, accesses: dict[int, Access], position: int) -> list[Transfer]:
    users = [u for u in kernel.body.users[position] if u in kernel.members]
    if users and all(_aliases(kernel, u, position) for u in users):
        return []
    if users and all(_addressed(kernel, u, position) for u in users):
        return [_addressed_read(kernel, accesses, position, users[0])]
    if users and all(_cuts(kernel, u, position) for u in users):
        # Of a sliced value only the slices are copied.
        return [Transfer(position, kernel.instruction(u).shape, accesses[u], is_output=False) for u in users]
    shape = array_shape(kernel.instruction(position).shape)
    return [Transfer(position, shape, accesses[position], is_output=False)]


def _addressed_read(kernel: Kernel, accesses: dict[int, Access], position: int, user: int) -> Transfer:
    inst = kernel.instruction(user)
    if inst.opcode is Opcode.GATHER:
        assert inst.gather is not None
        rows = int(np.prod(inst.gather.slice_sizes))
        return Transfer(position, inst.shape, accesses[user], is_output=False, row_elements=max(1, rows))
    updates = inst.operands[-1]
    return Transfer(
        position,
        array_shape(kernel.instruction(updates).shape),
        accesses[updates],
        is_output=False,
        row_elements=scatter_row_elements(kernel, inst),
    )


def _cuts(kernel: Kernel, user: int, position: int) -> bool:
    inst = kernel.instruction(user)
    # What a strided slice steps over lies in the same native tiles and is copied with the rest.
    gapless = all(s.stride == 1 for s in inst.slices)
    return inst.opcode in (Opcode.SLICE, Opcode.DYNAMIC_SLICE) and inst.operands[0] == position and gapless


def _addressed(kernel: Kernel, user: int, position: int) -> bool:
    inst = kernel.instruction(user)
    return inst.opcode in (Opcode.GATHER, Opcode.SCATTER) and inst.operands[0] == position


def _aliases(kernel: Kernel, user: int, position: int) -> bool:
    inst = kernel.instruction(user)
    return inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE and inst.operands[0] == position


def scatter_row_elements(kernel: Kernel, inst: Instruction) -> int:
    """Contiguous elements that one index of a scatter updates."""
    assert inst.scatter is not None
    updates = array_shape(kernel.instruction(inst.operands[-1]).shape)
    return max(1, int(np.prod([updates.dimensions[a] for a in inst.scatter.update_window_dims])))


def _writes(kernel: Kernel, accesses: dict[int, Access], position: int) -> list[Transfer]:
    inst = kernel.instruction(position)
    if inst.opcode in (Opcode.DYNAMIC_UPDATE_SLICE, Opcode.SCATTER):
        update = inst.operands[1 if inst.opcode is Opcode.DYNAMIC_UPDATE_SLICE else -1]
        shape = array_shape(kernel.instruction(update).shape)
        rows = scatter_row_elements(kernel, inst) if inst.opcode is Opcode.SCATTER else 0
        return [Transfer(position, shape, accesses[update], is_output=True, row_elements=rows)]
    access = accesses[position]
    leaves = inst.shape.leaves()
    return [
        Transfer(position, leaf, access if leaf.rank == len(access) else whole(leaf), is_output=True)
        for leaf in leaves
    ]
